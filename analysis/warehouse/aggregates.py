"""Rewrite aggregate and window functions of DuckDB's SQL for Spark."""

from sqlglot import exp

from analysis.warehouse.tree import call, in_parens

RANKING = exp.RowNumber | exp.Rank | exp.DenseRank | exp.PercentRank | exp.CumeDist | exp.Ntile


def best(node: exp.Expr) -> exp.Expr:
    """Return arg_min() or arg_max() in Spark's SQL, with values that are null skipped as DuckDB does.

    Spark's own functions do not skip them. Any other node of the syntax tree is returned as it is.
    """
    if not isinstance(node, exp.ArgMin | exp.ArgMax):
        return node
    is_given = exp.Not(this=exp.Is(this=in_parens(node.this.copy()), expression=exp.null()))
    measure = exp.Case(ifs=[exp.If(this=is_given, true=node.expression)])
    return call("MAX_BY" if isinstance(node, exp.ArgMax) else "MIN_BY", node.this, measure)


def quantile(node: exp.Expr) -> exp.Expr:
    """Return quantile_cont() as Spark's percentile(), which interpolates alike; any other node as it is."""
    if isinstance(node, exp.PercentileCont) and node.expression is not None:
        return call("PERCENTILE", node.this, node.expression)
    return node


def ranking(node: exp.Expr) -> exp.Expr:
    """Return a ranking function with its named window written out, but without that window's frame.

    A frame says nothing to a ranking function; Spark refuses it. Any other node is returned as it is.
    """
    if not isinstance(node, exp.Window) or not isinstance(node.this, RANKING):
        return node
    node.set("spec", None)
    name, select = node.args.get("alias"), node.find_ancestor(exp.Select)
    named = {window.name: window for window in (select.args.get("windows") or [])} if select else {}
    window = named.get(name.name) if name else None
    if window is None or not window.args.get("spec"):
        return node
    keys = {key: window.args[key].copy() for key in ("order",) if window.args.get(key)}
    return exp.Window(
        this=node.this, partition_by=[part.copy() for part in window.args.get("partition_by") or []], **keys
    )
