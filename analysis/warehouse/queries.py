"""Rewrite whole queries for Spark: common table expressions, unions, QUALIFY, and unnest in a SELECT."""

from sqlglot import exp

from analysis.errors import CatalogError
from analysis.warehouse.tree import call

KEPT, LIST = "_kept", "_list"


def unhinted(node: exp.Expr) -> exp.Expr:
    """Remove `as materialized`, a hint that Spark does not know, from a common table expression.

    The node is returned, as is any other node.
    """
    if isinstance(node, exp.CTE):
        node.set("materialized", None)
    return node


def unordered(tree: exp.Expr) -> exp.Expr:
    """Return the query of a model without its ORDER BY, because a table of Spark has no order."""
    tree.set("order", None)
    return tree


def recursion(node: exp.Expr) -> exp.Expr:
    """Return a recursive UNION, which drops repeated rows at each step, as UNION ALL and then DISTINCT.

    The rows are the same where the relation that is followed has no circle, as that of parents and children.
    Any other node of the syntax tree is returned as it is.
    """
    union = node.this
    if not isinstance(node, exp.CTE) or not isinstance(union, exp.Union) or not union.args.get("distinct"):
        return node
    if not any(table.name == node.alias for table in union.expression.find_all(exp.Table)):
        return node
    union.args["distinct"] = False
    query = node.find_ancestor(exp.Query)
    for table in list(query.find_all(exp.Table)) if query else []:
        if table.name == node.alias and table.find_ancestor(exp.CTE) is not node:
            rows = exp.select("*").from_(node.alias).distinct()
            table.replace(rows.subquery(table.alias_or_name))
    return node


def by_name(node: exp.Expr) -> exp.Expr:
    """Rewrite a UNION BY NAME as a UNION with its columns written out, in the order of its first query.

    Any other node of the syntax tree is returned as it is.
    """
    if isinstance(node, exp.Union) and node.args.get("by_name"):
        names = _names(node.this)
        for side in (node.this, node.expression):
            side.set("expressions", [exp.column(name) for name in names])
        node.set("by_name", None)
    return node


def _names(query: exp.Query) -> list[str]:
    """Return the column names of a query's result.

    A star stands for all columns of the common table expressions that the query reads.
    """
    first = query.this if isinstance(query, exp.Union) else query
    sources = [first.args["from_"].this, *(join.this for join in first.args.get("joins") or [])]
    names: list[str] = []
    for item in first.selects:
        if not item.is_star:
            names.append(item.alias_or_name)
            continue
        wanted = item.table if isinstance(item, exp.Column) else ""
        for source in sources:
            if wanted in {"", source.alias_or_name}:
                names += _names(_common_table(source))
    return names


def _common_table(source: exp.Expr) -> exp.Query:
    """Return the query of the common table expression that a FROM or JOIN names.

    Raises CatalogError if there is none of that name.
    """
    scope = source.find_ancestor(exp.Query)
    while scope is not None:
        for cte in scope.ctes:
            if cte.alias == source.name:
                found: exp.Query = cte.this
                return found
        scope = scope.find_ancestor(exp.Query)
    raise CatalogError(f"union by name reads {source.name} with a star; name the columns")


def qualify(node: exp.Expr) -> exp.Expr:
    """Return a SELECT with QUALIFY as a condition on a column of a subquery.

    Spark knows QUALIFY, but reads a name in it as the column of the result, also inside of an aggregate. Any
    other node of the syntax tree is returned as it is.
    """
    if not isinstance(node, exp.Select) or not node.args.get("qualify"):
        return node
    inner = node.copy()
    condition = inner.args["qualify"].this
    inner.set("qualify", None)
    return _around(inner, exp.alias_(condition, KEPT)).where(exp.column(KEPT))


def _around(inner: exp.Select, extra: exp.Expr) -> exp.Select:
    """Return a SELECT around `inner` with the columns that `inner` had; `inner` gets the column `extra` too.

    The outer query can use that column, for a condition or for unnest().
    """
    if inner.is_star:
        columns: list[exp.Expr] = [exp.Star(except_=[exp.to_identifier(extra.alias)])]
    else:
        columns = [exp.column(name) for name in inner.named_selects]
    with_ = inner.args.get("with_")
    inner.set("with_", None)
    outer = exp.select(*columns).from_(inner.select(extra).subquery("_inner"))
    outer.set("with_", with_)
    return outer


def unnest(node: exp.Expr) -> exp.Expr:
    """Return a SELECT with one generator for all lists that it unnests, as Spark allows one per SELECT.

    A list with windows is computed in a subquery. Any other node is returned as it is. Raises CatalogError
    where other columns stand between the lists.
    """
    if not isinstance(node, exp.Select):
        return node
    places = [n for n, item in enumerate(node.selects) if isinstance(item.unalias(), exp.Explode)]
    nested = [n for n, item in enumerate(node.selects) if n not in places and item.find(exp.Explode)]
    if nested:
        return _unnest_inside(node, nested[0])
    if not places:
        return node
    lists = [node.selects[place].unalias() for place in places]
    generator: exp.Expr
    if len(lists) > 1:
        if places != list(range(places[0], places[-1] + 1)):
            raise CatalogError("other columns stand between the unnest() of a SELECT; write them in a row")
        zipped = call("ARRAYS_ZIP", *(unnested.this for unnested in lists))
        names = [exp.to_identifier(node.selects[place].alias) for place in places]
        generator = exp.Aliases(this=call("INLINE", zipped), expressions=names)
    elif lists[0].expressions:  # unnest(…, recursive := true) makes a column of each field
        generator = call("INLINE", lists[0].this)
    elif lists[0].find(exp.Window):
        return _unnest_outside(node, places[0])
    else:
        return node
    node.set("expressions", [*node.selects[: places[0]], generator, *node.selects[places[-1] + 1 :]])
    return node


def _unnest_inside(node: exp.Select, place: int) -> exp.Select:
    """Return a SELECT that unnests a list in a subquery and computes the expression around it outside.

    Raises CatalogError where that expression reads columns, or the query unnests another list.
    """
    inner = node.copy()
    item = inner.selects[place]
    generator = item.find(exp.Explode)
    if generator is None or item.find(exp.Column) or len(list(node.find_all(exp.Explode))) > 1:
        raise CatalogError(
            "unnest() stands in an expression with other columns; unnest in a query of its own"
        )
    generator.replace(exp.column(LIST))
    inner.set("expressions", [*inner.selects[:place], *inner.selects[place + 1 :]])
    outer = _around(inner, exp.alias_(generator, LIST))
    outer.set("expressions", [*outer.selects[:place], item, *outer.selects[place:]])
    return outer


def _unnest_outside(node: exp.Select, place: int) -> exp.Select:
    """Return a SELECT that computes a list with its windows in a subquery, and unnests it outside."""
    inner = node.copy()
    item = inner.selects[place]
    inner.set("expressions", [*inner.selects[:place], *inner.selects[place + 1 :]])
    generator = exp.alias_(exp.Explode(this=exp.column(LIST)), item.alias)
    outer = _around(inner, exp.alias_(item.unalias().this, LIST))
    outer.set("expressions", [*outer.selects[:place], generator, *outer.selects[place:]])
    return outer
