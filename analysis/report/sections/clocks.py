"""Makes the tables on lists of block arrivals that others published: their intervals, how they differ."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.data import ALL, Marts, Read, Row
from analysis.report.model import Table
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    interval_columns,
    mart_table,
    ratio_columns,
    text_head,
)
from analysis.report.text import count, duration, duration_range, plural, printable, signed

OWN: Final = "own"
OWN_NAME: Final = "our own clock"
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "arrival_summary": Read("arrival_summary", "clock"),
        "arrival_spread": Read("arrival_spread", "clock, other_clock"),
        "header_clock": Read("header_clock", "clock", f"pool = '{ALL}'"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return sentences on published arrivals: how far two lists differ, and the intervals of the longest one.

    The two lists are those that share most blocks.
    """
    lists = [row for row in marts.rows("arrival_summary") if row["clock"] != OWN and row["interval_count"]]
    if not lists:
        return []
    said = []
    pairs = marts.rows("arrival_spread")
    if pairs:
        pair = max(pairs, key=lambda row: row["shared_count"])
        said.append(
            f"{_name(pair['clock'])} and {_name(pair['other_clock'])} saw the same "
            f"{plural(pair['shared_count'], 'block')}; 90\u00a0% of their stamps differ by at most "
            f"{duration(pair['spread_p90_s'])}, and 99\u00a0% by at most {duration(pair['spread_p99_s'])}."
        )
    largest = max(lists, key=lambda row: row["interval_count"])
    intervals = (
        f"{plural(largest['interval_count'], 'interval')} between arrivals at {_name(largest['clock'])}"
    )
    return [*said, f"Half of {intervals} are shorter than {duration(largest['interval_median_s'])}."]


def tables(marts: Marts) -> list[Table]:
    """Return the tables on lists of arrivals that others published; none without such a list.

    They show each list, each pair of lists, and header times.
    """
    if all(row["clock"] == OWN for row in marts.rows("arrival_summary")):
        return []
    made = [_summary_table(marts)]
    if marts.rows("arrival_spread"):
        made.append(_spread_table(marts))
    if marts.rows("header_clock"):
        made.append(_header_table(marts))
    return made


def _name(clock: str) -> str:
    return OWN_NAME if clock == OWN else printable(clock)


def _other_name(row: Row) -> str:
    return _name(row["other_clock"])


def _heights(row: Row) -> str:
    return f"{count(row['first_height'])} to {count(row['last_height'])}"


def _clock_head() -> RowHead:
    return RowHead("Clock", lambda row: _name(row["clock"]))


def _summary_table(marts: Marts) -> Table:
    return mart_table(
        "arrival-table",
        "Arrivals by each clock, and the intervals between them",
        _clock_head(),
        [
            column("block_count", "Blocks"),
            MartColumn("Heights", _heights),
            column("interval_count", "Intervals"),
            *interval_columns(
                "interval_median_s",
                "Median",
                duration,
                "interval_median_low_s",
                "interval_median_high_s",
                between=duration_range,
            ),
        ],
        marts.rows("arrival_summary"),
        mart="arrival_summary",
        note="The mart also counts heights without a block, and those with more than one.",
    )


def _spread_table(marts: Marts) -> Table:
    return mart_table(
        "clock-spread-table",
        "Two clocks that saw the same blocks",
        _clock_head(),
        [
            MartColumn("Other clock", _other_name, kind="text"),
            column("shared_count", "Shared"),
            column("first_count", "First here"),
            column("equal_count", "Equal"),
            column("other_first_count", "First there"),
            column("spread_median_s", "Median", duration, group="Difference"),
            column("spread_p90_s", "90\u00a0%", duration, group="Difference"),
            column("spread_p99_s", "99\u00a0%", duration, group="Difference"),
            MartColumn("Stamps", lambda row: "whole seconds" if row["is_whole_seconds"] else "", kind="text"),
        ],
        marts.rows("arrival_spread"),
        mart="arrival_spread",
        is_folded=True,
    )


def _header_table(marts: Marts) -> Table:
    return mart_table(
        "header-clock-table",
        "Header times against arrivals",
        text_head("Clock", "clock"),
        [
            column("block_count", "Blocks", count),
            *interval_columns(
                "header_lag_median_s",
                "Header minus arrival",
                signed,
                "header_lag_median_low_s",
                "header_lag_median_high_s",
            ),
            *ratio_columns("ahead", "Header after arrival"),
        ],
        marts.rows("header_clock"),
        mart="header_clock",
        note="The difference is in seconds, the median over all blocks. The mart also has every pool.",
        is_folded=True,
    )
