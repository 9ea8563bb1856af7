"""Rewrite how DuckDB's SQL gathers, cuts, searches and makes lists for Spark."""

from sqlglot import exp

from analysis.errors import CatalogError
from analysis.warehouse.tree import call, in_parens, lambda_over

VALUE, ITEM, SUM = "_value", "_item", "_sum"


def gathered(node: exp.Expr) -> exp.Expr:
    """Return the aggregate list() in Spark's SQL: with its order and nulls, and null where there is no row.

    Spark's collect_list has no order, leaves out nulls and gives an empty array. So each value is gathered in
    a struct after its sort keys, and the structs are sorted. Other nodes of the syntax tree stay as they are.
    """
    held = isinstance(node.parent, exp.Window | exp.Filter) and node.arg_key == "this"
    aggregate = node
    while isinstance(aggregate, exp.Window | exp.Filter):
        aggregate = aggregate.this
    if held or not isinstance(aggregate, exp.ArrayAgg):
        return node
    value, keys, is_distinct = _parts(aggregate)
    fields = [exp.alias_(key, f"_key{number}") for number, key in enumerate(_sort_keys(keys))]
    structs = call(
        "COLLECT_SET" if is_distinct else "COLLECT_LIST", call("STRUCT", *fields, exp.alias_(value, VALUE))
    )
    found: exp.Expr = structs
    if aggregate is not node:
        aggregate.replace(structs)
        found = node.copy()
    found = call("NULLIF", found, call("ARRAY"))
    if keys:
        found = call("ARRAY_SORT", found)
        if keys[0].args.get("desc"):
            found = call("REVERSE", found)
    field = exp.Dot(this=exp.to_identifier(ITEM), expression=exp.to_identifier(VALUE))
    return call("TRANSFORM", found, lambda_over(ITEM, field))


def _parts(aggregate: exp.Expr) -> tuple[exp.Expr, list[exp.Expr], bool]:
    """Return the value that DuckDB's list() gathers, the keys of its order, and whether it has DISTINCT."""
    value, keys = aggregate.this, []
    if isinstance(value, exp.Order):
        value, keys = value.this, value.expressions
    if isinstance(value, exp.Distinct):
        return value.expressions[0], keys, True
    return value, keys, False


def _sort_keys(keys: list[exp.Expr]) -> list[exp.Expr]:
    """Return two struct fields per sort key, the first of which puts nulls last, as DuckDB always does.

    Raises CatalogError for keys in both directions or with nulls first.
    """
    directions = {bool(key.args.get("desc")) for key in keys}
    if len(directions) > 1 or any(key.args.get("nulls_first") for key in keys):
        raise CatalogError(
            "list() in both directions or with nulls first has no counterpart; sort in one direction"
        )
    is_falling = True in directions
    fields = []
    for key in keys:
        is_null = exp.Is(this=in_parens(key.this.copy()), expression=exp.null())
        fields += [exp.Not(this=is_null) if is_falling else is_null, key.this.copy()]
    return fields


def element(node: exp.Expr) -> exp.Expr:
    """Return list[number] or list[from:to] in Spark's SQL; any other node as it is.

    An index counts from 1; outside of the list the element is null.
    """
    if not isinstance(node, exp.Bracket) or len(node.expressions) != 1:
        return node
    (index,) = node.expressions
    if isinstance(index, exp.Slice):
        return _slice(node.this, index)
    if index.is_string:
        return node
    is_plain = isinstance(index, exp.Literal)
    return call("TRY_ELEMENT_AT", node.this, index if is_plain else exp.cast(index, "int"))


def _slice(array: exp.Expr, slice_: exp.Expr) -> exp.Expr:
    """Return the call of Spark's slice() for list[from:to] of DuckDB; both ends are included, from 1."""
    first = slice_.this or exp.Literal.number(1)
    last = slice_.expression or call("SIZE", array.copy())
    length = exp.Add(
        this=exp.Sub(this=in_parens(last), expression=in_parens(first.copy())), expression=exp.convert(1)
    )
    return call("SLICE", array, first, call("GREATEST", length, 0))


def function(node: exp.Expr) -> exp.Expr:
    """Return a list function in Spark's SQL, which has it under another name or treats nulls otherwise.

    Any other node of the syntax tree is returned as it is.
    """
    match node:
        case exp.Length():
            return call("SIZE", node.this)
        case exp.ArrayDistinct():
            return call("ARRAY_COMPACT", call("ARRAY_DISTINCT", node.this))
        case exp.ArrayAppend():
            return call("ARRAY_APPEND", node.this, node.expression)
        case exp.Anonymous():
            return _by_name(node)
    return node


def _by_name(node: exp.Anonymous) -> exp.Expr:
    """Return in Spark's SQL those list functions that the parser sqlglot does not know.

    Any other function is returned as it is.
    """
    match node.name.lower():
        case "list_position":
            return call("NULLIF", call("ARRAY_POSITION", *node.expressions), 0)
        case "list_reverse":
            return call("REVERSE", *node.expressions)
        case "list_sum":
            return _sum(node.expressions[0])
    return node


def _sum(array: exp.Expr) -> exp.Expr:
    """Return the expression for the sum of a list of numbers in order, as a double: null for no numbers."""
    total, item = exp.column(SUM), exp.column(ITEM)
    added = call("COALESCE", exp.Add(this=total, expression=item), total.copy(), item.copy())
    names = [exp.to_identifier(SUM), exp.to_identifier(ITEM)]
    doubles = call("TRANSFORM", array, lambda_over(ITEM, exp.cast(exp.column(ITEM), "double")))
    return call(
        "AGGREGATE", doubles, exp.cast(exp.null(), "double"), exp.Lambda(this=added, expressions=names)
    )


def numbers(node: exp.Expr) -> exp.Expr:
    """Return range() or generate_series() in Spark's SQL; any other node as it is.

    These functions are empty where Spark's sequence would count backwards. Raises CatalogError for a step
    that is not a positive whole number, as it might count backwards here too.
    """
    if not isinstance(node, exp.GenerateSeries):
        return node
    first = exp.cast(in_parens(node.args["start"]), "bigint")
    last: exp.Expr = exp.cast(in_parens(node.args["end"]), "bigint")
    if node.args.get("is_end_exclusive"):
        last = exp.Sub(this=last, expression=exp.convert(1))
    step = node.args.get("step") or exp.convert(1)
    if not isinstance(step, exp.Literal) or not step.is_int or int(step.name) < 1:
        raise CatalogError(f"the step {step.sql()} of {node.sql('duckdb')} is not a positive whole number")
    up = exp.GTE(this=last, expression=first)
    counted = call("SEQUENCE", first.copy(), last.copy(), exp.cast(step, "bigint"))
    nothing = exp.cast(call("ARRAY"), "array<bigint>")
    return exp.Case(ifs=[exp.If(this=up, true=counted)], default=nothing)
