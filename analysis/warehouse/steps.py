"""Split a query at the common table expressions that it reads more than once, for Spark.

DuckDB works out such an expression once. Spark works it out once per use, and a use inside of another
multiplies: so each becomes a statement of its own, whose result can be kept.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp


@dataclass(frozen=True, slots=True)
class SqlStatement:
    """Describes one of the statements that make a model: the relation that it makes, and its query."""

    name: str
    query: exp.Query


def steps(name: str, tree: exp.Query) -> Iterator[SqlStatement]:
    """Yield the statements that make a relation, in order; the last one makes the relation itself.

    A common table expression that is read twice, or inside of a recursion, becomes a relation of its own,
    `<relation>__<expression>`.
    """
    with_ = tree.args.get("with_")
    while with_ is not None:
        cte = next((cte for cte in with_.expressions if _is_read_again(tree, cte.alias)), None)
        if cte is None:
            break
        needed = _needed(with_.expressions, cte)
        query = exp.select("*").from_(cte.alias)
        query.set(
            "with_",
            exp.With(expressions=[one.copy() for one in needed], recursive=with_.args.get("recursive")),
        )
        step = SqlStatement(f"{name}__{cte.alias}", query)
        yield step
        cte.pop()
        _rename(tree, cte.alias, step.name)
        if not with_.expressions:
            tree.set("with_", None)
            break
    yield SqlStatement(name, tree)


def _reads(tree: exp.Expr, name: str) -> list[exp.Table]:
    """Return the nodes of a syntax tree that read a relation, except those inside its own recursion."""
    return [table for table in tree.find_all(exp.Table) if table.name == name and not _is_inside(table, name)]


def _is_inside(node: exp.Expr, name: str) -> bool:
    """Return whether a node is inside the common table expression of the given name."""
    cte = node.find_ancestor(exp.CTE)
    while cte is not None:
        if cte.alias == name:
            return True
        cte = cte.find_ancestor(exp.CTE)
    return False


def _is_read_again(tree: exp.Expr, name: str) -> bool:
    """Return whether a common table expression is read at two places, or by each round of a recursion."""
    reads = _reads(tree, name)
    return len(reads) > 1 or any(_is_in_recursion(read) for read in reads)


def _is_in_recursion(read: exp.Table) -> bool:
    """Return whether a node of the syntax tree is inside a common table expression that reads itself."""
    cte = read.find_ancestor(exp.CTE)
    return cte is not None and any(table.name == cte.alias for table in cte.this.find_all(exp.Table))


def _needed(ctes: list[exp.CTE], last: exp.CTE) -> list[exp.CTE]:
    """Return the common table expressions that `last` reads, directly or not, followed by `last` itself."""
    needed = [last]
    for cte in reversed(ctes[: ctes.index(last)]):
        if any(_reads(one, cte.alias) for one in needed):
            needed.insert(0, cte)
    return needed


def _rename(tree: exp.Expr, old: str, new: str) -> None:
    """Make a syntax tree read the relation `new` instead of `old`, under the alias that it had before."""
    for table in _reads(tree, old):
        alias = table.alias_or_name
        table.set("this", exp.to_identifier(new))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias)))
