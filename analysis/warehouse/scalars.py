"""Rewrite expressions of one row for Spark: literals, types, times, texts and structs."""

from typing import Final

from sqlglot import exp

from analysis.warehouse.tree import call, in_parens

MICROSECONDS: Final = 1_000_000


def literal(node: exp.Expr) -> exp.Expr:
    """Return a number with a decimal point as a double, as DuckDB computes with it; other nodes as they are.

    Without this, Spark would take the number for a decimal.
    """
    if isinstance(node, exp.Literal) and not node.is_string and "." in node.this:
        return exp.Literal.number(f"{node.this}D")
    return node


def wide_integer(node: exp.Expr) -> exp.Expr:
    """Return a type of 128 bits as decimal(38, 0), the widest whole number of Spark.

    Any other node of the syntax tree is returned as it is.
    """
    if isinstance(node, exp.DataType) and node.this in {exp.DataType.Type.INT128, exp.DataType.Type.UINT128}:
        return exp.DataType.build("decimal(38, 0)")
    return node


def time(node: exp.Expr) -> exp.Expr:
    """Rewrite a conversion of times, days or numbers for Spark's SQL; return any other node as it is."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "epoch_us":
        return call("UNIX_MICROS", *node.expressions)
    if isinstance(node, exp.Anonymous) and node.name.lower() == "to_microseconds":
        seconds = exp.Div(
            this=in_parens(node.expressions[0]),
            expression=exp.cast(exp.convert(MICROSECONDS), "decimal(10, 0)"),
        )
        return call("MAKE_DT_INTERVAL", 0, 0, 0, seconds)
    if isinstance(node, exp.Sub) and (_is_day(node.this) or _is_day(node.expression)):
        return call("DATEDIFF", node.this, node.expression)
    if isinstance(node, exp.Add) and _is_day(node.this) and not isinstance(node.expression, exp.Interval):
        return call("DATE_ADD", node.this, node.expression)
    return node


def _is_day(node: exp.Expr) -> bool:
    """Return whether an expression is a cast to DATE."""
    inner = node.unnest()
    return isinstance(inner, exp.Cast) and inner.to.this == exp.DataType.Type.DATE


def text(node: exp.Expr) -> exp.Expr:
    """Return format() in Spark's SQL, where %s stands for DuckDB's {}; any other node as it is."""
    if isinstance(node, exp.Format):
        return call("FORMAT_STRING", node.this.name.replace("%", "%%").replace("{}", "%s"), *node.expressions)
    return node


def row_value(node: exp.Expr) -> exp.Expr:
    """Return (a, b), a value of several columns, as a struct, which Spark needs; other nodes as they are."""
    if isinstance(node, exp.Tuple) and not isinstance(node.parent, exp.In | exp.Group | exp.GroupingSets):
        return call("STRUCT", *node.expressions)
    return node
