"""Decides how every section shows a pool: its name, its colour, and its row in a chart."""

from collections.abc import Iterable
from typing import Final

from analysis.report.charts.ratios import Mark, RatioRow
from analysis.report.data import ALL, UNKNOWN, Marts, Row
from analysis.report.text import percent, plural

N_COLOURS: Final = 8
MAX_CHART_POOLS: Final = 15


def pool_colour(marts: Marts, pool: str) -> str:
    """Return the CSS colour of a pool, the same in every chart.

    The eight largest pools have a colour each, the other pools share one, and unknown is grey.
    """
    if pool == ALL:
        return "var(--ink)"
    if pool == UNKNOWN:
        return "var(--unknown)"
    place = marts.pools.index(pool) if pool in marts.pools else N_COLOURS
    return f"var(--pool-{place + 1})" if place < N_COLOURS else "var(--pool-other)"


def ratio_row(marts: Marts, row: Row, name: str, *, mark: Mark = "dot") -> RatioRow:
    """Make the chart row of a pool from `<name>_ratio`, which must not be null, and its 95 % interval."""
    return RatioRow(
        row=row["pool"],
        label=marts.name(row["pool"]),
        value=percent(row[f"{name}_ratio"]),
        ratio=row[f"{name}_ratio"],
        low=row[f"{name}_low_ratio"],
        high=row[f"{name}_high_ratio"],
        colour=pool_colour(marts, row["pool"]),
        mark=mark,
    )


def rows_to_draw(rows: Iterable[Row], name: str) -> list[Row]:
    """Choose the rows that a chart of `<name>_ratio` draws; rows in which the ratio is null are dropped.

    The chart draws the row of all pools, the first 15 pools in the order of the rows, and unknown.
    """
    known = [row for row in rows if row[f"{name}_ratio"] is not None]
    kept = {ALL, UNKNOWN, *_pools(known)[:MAX_CHART_POOLS]}
    return [row for row in known if row["pool"] in kept]


def left_out_note(rows: Iterable[Row], n_drawn: int = MAX_CHART_POOLS) -> str:
    """Say in a sentence how many pools a chart of `n_drawn` pools leaves out; an empty text for none."""
    n_pools = len(_pools(rows)) - n_drawn
    return f" {plural(n_pools, 'pool')} with fewer blocks: in the table only." if n_pools > 0 else ""


def _pools(rows: Iterable[Row]) -> list[str]:
    """Return the pool of each row, each pool once, in the order of the rows, without "all" and "unknown"."""
    return list(dict.fromkeys(row["pool"] for row in rows if row["pool"] not in (ALL, UNKNOWN)))
