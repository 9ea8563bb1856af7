"""Rewrite DuckDB's ASOF join, of a row with the nearest row of another relation, for Spark, which has none.

The *place* of a row is the value by which rows are near each other: usually its time.
"""

from typing import Any, Final

from sqlglot import exp

from analysis.errors import CatalogError
from analysis.warehouse.tree import call

LEFT_ROW, RIGHT_ROW, PLACE, IS_LATER = "_left", "_right", "_place", "_is_later"
# How the places of a left and a right row are compared, and the same comparison read backwards.
TURNED: Final[dict[Any, Any]] = {exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE}


def asof(node: exp.Expr) -> exp.Expr:
    """Rewrite a SELECT with an ASOF join, which finds the nearest row of the other side, as one sort of both.

    The join becomes a relation with a struct under the name of each side, so what reads them stays as it is.
    With ASOF LEFT JOIN a left row without a nearest one stays. Any other node of the syntax tree is returned
    unchanged. Raises CatalogError for a RIGHT or FULL ASOF join, or one after another join.
    """
    joins = node.args.get("joins") or [] if isinstance(node, exp.Select) else []
    if not joins or joins[0].method.upper() != "ASOF":
        if any(join.method.upper() == "ASOF" for join in joins):
            raise CatalogError("an ASOF join comes after another join; write it first")
        return node
    join, left = joins[0], node.args["from_"].this
    if join.side not in {"", "LEFT"}:
        raise CatalogError("this outer ASOF join has no counterpart; write asof inner join or asof left join")
    on = join.args["on"]
    conditions = list(on.flatten()) if isinstance(on, exp.And) else [on]
    nearest = _nearest(left, join.this, conditions, keeps_all=join.side == "LEFT")
    node.args["from_"].set("this", nearest.subquery("_asof"))
    node.set("joins", joins[1:])
    return node


def _nearest(left: exp.Table, right: exp.Table, conditions: list[exp.Expr], *, keeps_all: bool) -> exp.Select:
    """Return the query that puts the nearest right row beside each left row, by an ASOF join's conditions.

    With `keeps_all`, a left row that has no nearest right row stays, with a null beside it.
    """
    (comparison,) = (condition for condition in conditions if type(condition) in TURNED)
    equal = [condition for condition in conditions if condition is not comparison]
    is_turned = comparison.this.table != left.alias_or_name
    kind = TURNED[type(comparison)] if is_turned else type(comparison)

    def keys(side: exp.Table) -> list[exp.Expr]:
        """Return the columns of one side in the join's conditions: its place, then those to be equal."""
        return [_column_of(condition, side) for condition in (comparison, *equal)]

    # A right row at the same place counts for >= and <=, so it is sorted before the left row; else after it.
    counts_equal = kind in {exp.GTE, exp.LTE}
    both = exp.union(
        _rows(left, LEFT_ROW, keys(left), is_later=counts_equal, with_nulls=keeps_all),
        _rows(right, RIGHT_ROW, keys(right), is_later=not counts_equal, with_nulls=False),
        distinct=False,
    )
    order = [
        exp.Ordered(this=exp.column(PLACE), desc=kind in {exp.LT, exp.LTE}, nulls_first=True),
        exp.Ordered(this=exp.column(IS_LATER)),
    ]
    newest = exp.Window(
        this=call("LAST_VALUE", exp.column(RIGHT_ROW), exp.true()),
        partition_by=[exp.column(f"_key{number}") for number in range(len(equal))],
        order=exp.Order(expressions=order),
        spec=exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW"),
    )
    placed = exp.select(LEFT_ROW, exp.alias_(newest, RIGHT_ROW)).from_(both.subquery("_both"))
    kept = [LEFT_ROW] if keeps_all else [LEFT_ROW, RIGHT_ROW]
    return (
        exp.select(
            exp.alias_(exp.column(LEFT_ROW), left.alias_or_name),
            exp.alias_(exp.column(RIGHT_ROW), right.alias_or_name),
        )
        .from_(placed.subquery("_placed"))
        .where(*(exp.column(row).is_(exp.null()).not_() for row in kept))
    )


def _column_of(condition: exp.Expr, side: exp.Table) -> exp.Column:
    """Return the column of one side (table) of a join in a condition that compares both sides."""
    is_left = condition.this.table == side.alias_or_name
    return exp.column((condition.this if is_left else condition.expression).name)


def _rows(
    side: exp.Table, field: str, keys: list[exp.Expr], *, is_later: bool, with_nulls: bool
) -> exp.Select:
    """Return the query of one side's rows: each row as a struct, its place, and its columns to be equal.

    A row whose place is null is near no other, and left out unless `with_nulls`.
    """
    structs = {LEFT_ROW: exp.null(), RIGHT_ROW: exp.null(), field: call("STRUCT", exp.Star())}
    place, *equal = keys
    rows = (
        exp.select(*(exp.alias_(value, name) for name, value in structs.items()))
        .select(exp.alias_(place, PLACE), exp.alias_(exp.convert(int(is_later)), IS_LATER))
        .select(*(exp.alias_(key, f"_key{number}") for number, key in enumerate(equal)))
        .from_(exp.to_table(side.name))
    )
    return rows if with_nulls else rows.where(place.copy().is_(exp.null()).not_())
