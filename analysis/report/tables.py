"""Makes tables from the rows of a mart: which columns to show, and how to write each value.

The page may round and shorten what it shows; the CSV beside a table has the rows unchanged.
"""

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Kind, Table, TableColumn, TableRow
from analysis.report.pools import pool_colour
from analysis.report.text import (
    INTERVAL,
    count,
    decimal_range,
    percent,
    percent_range,
    plural,
    printable,
    text_of,
)

MAX_TABLE_ROWS: Final = 60
FEW_MORE: Final = 0.1  # of the rows that a table shows: so few more are shown as well
FOLDED_FROM: Final = 24
GROUPINGS: Final[Mapping[str, str]] = MappingProxyType({"owner": "Owner", "proxy": "Templates"})


class MartColumn(NamedTuple):
    """Describes one column of a table: its head, and functions that give each cell's text and sort value.

    Each function takes one row of the mart.
    """

    label: str
    text: Callable[[Row], str]
    unit: str = ""
    group: str = ""
    kind: Kind = "number"
    value: Callable[[Row], Any] | None = None  # what the rows are sorted by; None: the text


class RowHead(NamedTuple):
    """Describes the first column of a table, which names each row.

    Its functions take a row of the mart: `text` writes the name, `colour` returns the CSS colour of a mark,
    and `is_total` tells whether the row is a total.
    """

    label: str
    text: Callable[[Row], str]
    colour: Callable[[Row], str] = lambda _row: ""
    is_total: Callable[[Row], bool] = lambda _row: False


def column(
    name: str,
    label: str,
    write: Callable[[Any], str] = count,
    *,
    unit: str = "",
    group: str = "",
    kind: Kind = "number",
) -> MartColumn:
    """Return a table column that shows the mart's column `name`, each value formatted by `write`."""
    return MartColumn(label, lambda row: write(row[name]), unit, group, kind, lambda row: row[name])


def text_column(name: str, label: str, *, group: str = "", kind: Kind = "text") -> MartColumn:
    """Return a table column that shows the mart's text column `name`, with unsafe characters made visible."""
    return column(name, label, text_of, group=group, kind=kind)


def ratio_columns(name: str, label: str, *, group: str = "") -> tuple[MartColumn, MartColumn]:
    """Return two table columns: the ratio `<name>_ratio` as percent, and its 95 % interval."""
    return (
        column(f"{name}_ratio", label, percent, group=group),
        MartColumn(
            INTERVAL,
            lambda row: percent_range(row[f"{name}_low_ratio"], row[f"{name}_high_ratio"]),
            group=group,
            value=lambda row: row[f"{name}_low_ratio"],
        ),
    )


def interval_columns(
    name: str,
    label: str,
    write: Callable[[Any], str],
    low: str,
    high: str,
    *,
    unit: str = "",
    group: str = "",
    between: Callable[[Any, Any], str] = decimal_range,
) -> tuple[MartColumn, MartColumn]:
    """Return two table columns: the mart's number `name`, and the interval from column `low` to `high`.

    `write` formats the number, and `between` the interval.
    """
    return (
        column(name, label, write, unit=unit, group=group),
        MartColumn(
            INTERVAL, lambda row: between(row[low], row[high]), unit, group, value=lambda row: row[low]
        ),
    )


def pool_head(marts: Marts, column: str = "pool") -> RowHead:
    """Return the first column of a table of pools: each row has the pool's name and colour.

    `column` names the mart's column with the pool. The row of all pools is marked as a total.
    """
    return RowHead(
        "Pool",
        lambda row: marts.name(row[column]),
        lambda row: pool_colour(marts, row[column]),
        lambda row: bool(row[column] == ALL),
    )


def text_head(label: str, name: str) -> RowHead:
    """Return the first column of a table, made from the mart's text column `name`, under the head `label`."""
    return RowHead(label, lambda row: text_of(row[name]))


def shown_rows(rows: Sequence[Row], most: int = MAX_TABLE_ROWS) -> Sequence[Row]:
    """Return the rows that a table shows: all, or the first `most` if many more would follow."""
    return rows if len(rows) <= most * (1 + FEW_MORE) else rows[:most]


def mart_table(
    table_id: str,
    caption: str,
    head: RowHead,
    columns: Sequence[MartColumn],
    rows: Sequence[Row],
    *,
    mart: str,
    records: Sequence[Row] | None = None,
    n_records: int | None = None,
    note: str = "",
    is_folded: bool | None = None,
) -> Table:
    """Return a table from rows of a mart: of many rows the first 60, with a note on how to see the others.

    `records` are the rows for the CSV, if they are not `rows`, and `n_records` is how many the mart has. A
    table of more than 24 rows is folded, unless `is_folded` decides it.
    """
    shown = shown_rows(rows)
    cut = len(rows) - len(shown)
    said = f"{plural(cut, 'more row')}: `pool-analysis show {mart}`." if cut > 0 else ""
    return Table(
        table_id=table_id,
        caption=caption,
        head=head.label,
        columns=[TableColumn(label=s.label, unit=s.unit, group=s.group, kind=s.kind) for s in columns],
        rows=[
            TableRow(
                head=head.text(row),
                cells=[each.text(row) for each in columns],
                values=[_sorted_by(each, row) for each in columns],
                colour=head.colour(row),
                is_total=head.is_total(row),
            )
            for row in shown
        ],
        mart=mart,
        records=rows if records is None else records,
        n_records=n_records,
        note=" ".join(filter(None, (note, said))),
        is_folded=len(rows) > FOLDED_FROM if is_folded is None else is_folded,
    )


def _sorted_by(show: MartColumn, row: Row) -> float | str | None:
    """Return what a cell is sorted by: a number, or a date as ISO text; None means by the cell's text."""
    value = show.value(row) if show.value else None
    if isinstance(value, dt.datetime | dt.date):
        return value.isoformat()
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    return None


def group_tables(
    marts: Marts, name: str, table_id: str, title: str, columns: Sequence[MartColumn]
) -> list[Table]:
    """Return, in a list, a table of the owners and groups with blocks of several pools; empty without any.

    `name` is the name under which the section asked for the rows.
    """
    rows = marts.of_several_pools(name)
    if not rows:
        return []
    grouping = MartColumn("By", lambda row: GROUPINGS[row["grouped_by"]], kind="text")
    return [
        mart_table(
            table_id,
            f"{title} with pools grouped by owner, and by shared templates",
            RowHead("Owner or group", lambda row: printable(marts.groups[row["grouped_by"], row["owner"]])),
            [grouping, *columns],
            rows,
            mart=marts.reads[name].mart,
            records=marts.rows(name),
            n_records=marts.totals[name],
            note=(
                "Owners and groups with blocks of only one pool are left out. The CSV has them, and the "
                "pools."
            ),
            is_folded=True,
        )
    ]


def period_name(row: Row) -> str:
    """Return the name of a row's period: its UTC day, its difficulty epoch, or "whole window"."""
    if row["period_kind"] == "all":
        return "whole window"
    return f"epoch {row['period']}" if row["period_kind"] == "epoch" else str(row["period"])
