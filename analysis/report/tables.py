"""Tables made of the rows of a mart: which columns to show, and how to write each.

What the page shows may be rounded and cut; the CSV beside it has the rows as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Column, Kind, Table, TableRow
from analysis.report.parts import colour
from analysis.report.reads import READS
from analysis.report.text import INTERVAL, count, decimal_range, percent, percent_range, printable, text_of

MAX_TABLE_ROWS: Final = 60
FOLDED_FROM: Final = 24
GROUPINGS: Final[Mapping[str, str]] = MappingProxyType({"owner": "Owner", "proxy": "Templates"})


class Show(NamedTuple):
    """One column of a table: its head, and what it says of a row."""

    label: str
    text: Callable[[Row], str]
    unit: str = ""
    group: str = ""
    kind: Kind = "number"


class Head(NamedTuple):
    """The first column of a table."""

    label: str
    text: Callable[[Row], str]
    colour: Callable[[Row], str] = lambda _row: ""
    is_total: Callable[[Row], bool] = lambda _row: False


def field(
    name: str,
    label: str,
    write: Callable[[Any], str] = count,
    *,
    unit: str = "",
    group: str = "",
    kind: Kind = "number",
) -> Show:
    """Show one column of the mart."""
    return Show(label, lambda row: write(row[name]), unit, group, kind)


def words(name: str, label: str, *, group: str = "", kind: Kind = "text") -> Show:
    """Show one column of text."""
    return field(name, label, text_of, group=group, kind=kind)


def ratio(name: str, label: str, *, group: str = "") -> tuple[Show, Show]:
    """Show the ratio `<name>_ratio` and its interval."""
    return (
        field(f"{name}_ratio", label, percent, group=group),
        Show(
            INTERVAL,
            lambda row: percent_range(row[f"{name}_low_ratio"], row[f"{name}_high_ratio"]),
            group=group,
        ),
    )


def measured(
    name: str,
    label: str,
    write: Callable[[Any], str],
    low: str,
    high: str,
    *,
    unit: str = "",
    group: str = "",
    between: Callable[[Any, Any], str] = decimal_range,
) -> tuple[Show, Show]:
    """Show a number and its interval, which stands in the columns `low` and `high`."""
    return (
        field(name, label, write, unit=unit, group=group),
        Show(INTERVAL, lambda row: between(row[low], row[high]), unit, group),
    )


def by_pool(marts: Marts, column: str = "pool") -> Head:
    """Head rows by the pool in a column; the row of all pools is set off."""
    return Head(
        "Pool",
        lambda row: marts.name(row[column]),
        lambda row: colour(marts, row[column]),
        lambda row: bool(row[column] == ALL),
    )


def by_text(label: str, name: str) -> Head:
    """Head rows by a column of text."""
    return Head(label, lambda row: text_of(row[name]))


def mart_table(
    table_id: str,
    caption: str,
    head: Head,
    shows: Sequence[Show],
    rows: Sequence[Row],
    *,
    mart: str,
    records: Sequence[Row] | None = None,
    n_records: int | None = None,
    note: str = "",
    is_folded: bool | None = None,
) -> Table:
    """Make a table of rows; of many, the first, and a note how to see the rest."""
    cut = len(rows) - MAX_TABLE_ROWS
    said = f"{count(cut)} more rows: `pool-analysis show {mart}`." if cut > 0 else ""
    return Table(
        table_id=table_id,
        caption=caption,
        head=head.label,
        columns=[Column(label=s.label, unit=s.unit, group=s.group, kind=s.kind) for s in shows],
        rows=[
            TableRow(
                head=head.text(row),
                cells=[show.text(row) for show in shows],
                colour=head.colour(row),
                is_total=head.is_total(row),
            )
            for row in rows[:MAX_TABLE_ROWS]
        ],
        mart=mart,
        records=rows if records is None else records,
        n_records=n_records,
        note=" ".join(filter(None, (note, said))),
        is_folded=len(rows) > FOLDED_FROM if is_folded is None else is_folded,
    )


def group_tables(marts: Marts, name: str, table_id: str, title: str, shows: Sequence[Show]) -> list[Table]:
    """Make a table of the owners and groups that have blocks of several pools; none where nobody has."""
    rows = marts.merged(name)
    if not rows:
        return []
    grouping = Show("By", lambda row: GROUPINGS[row["grouped_by"]], kind="text")
    return [
        mart_table(
            table_id,
            f"{title} with pools grouped by owner, and by shared templates",
            Head("Owner or group", lambda row: printable(marts.groups[row["grouped_by"], row["owner"]])),
            [grouping, *shows],
            rows,
            mart=READS[name].mart,
            records=marts.rows(name),
            n_records=marts.totals[name],
            note="Those with blocks of one pool are left out; the CSV has them, and the pools.",
            is_folded=True,
        )
    ]
