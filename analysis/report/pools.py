"""Decides how every section shows a pool: its name, its colour, and its row in a chart."""

import itertools
from collections.abc import Iterable
from typing import Final

from analysis.report.charts.ratios import Mark, RatioRow
from analysis.report.data import ALL, UNKNOWN, Marts, Row
from analysis.report.text import percent, plural

N_COLOURS: Final = 8
MAX_CHART_POOLS: Final = 15


def recent_window(marts: Marts) -> str | None:
    """Return the longest time window (month, week or day) that the data spans; None if they span no day."""
    found = {row["time_window"] for row in marts.rows("pool_share_window")}
    return next((window for window in ("month", "week", "day") if window in found), None)


def recent_pools(marts: Marts) -> list[str]:
    """Return the pools with blocks in the last month (or the longest window known), the largest first."""
    window = recent_window(marts)
    rows = [row for row in marts.rows("pool_share_window") if row["time_window"] == window]
    return [row["pool"] for row in rows if row["rank"] is not None and row["block_count"]]


def whole_concentration(marts: Marts) -> Row | None:
    """Return the mart's row with the concentration of all blocks by pool; None where no pool is named."""
    for row in marts.rows("concentration_index"):
        if row["period_kind"] == "all" and row["grouped_by"] == "pool" and row["nakamoto"] is not None:
            return row
    return None


def unmapped_labels(marts: Marts) -> dict[str, list[Row]]:
    """Return the rows of labels that no pool in data/pools has, by source, those of most blocks first.

    Where a source has labels of two kinds, the kind with more blocks is taken: both may be of one block.
    """
    found: dict[str, dict[str, list[Row]]] = {}
    for row in marts.rows("unmapped_label"):
        found.setdefault(row["source"], {}).setdefault(row["kind"], []).append(row)
    return {
        source: max(kinds.values(), key=lambda rows: sum(row["block_count"] for row in rows))
        for source, kinds in found.items()
    }


def prominent_pools(marts: Marts, n_pools: int = N_COLOURS) -> list[str]:
    """Return the `n_pools` pools that charts show by name.

    They are taken in turn from the largest over all blocks and the largest of the last month. A pool that has
    risen is thus among them, although its share over all is still small.
    """
    turns = itertools.zip_longest(marts.pools, recent_pools(marts))
    return list(dict.fromkeys(pool for turn in turns for pool in turn if pool is not None))[:n_pools]


def pool_colour(marts: Marts, pool: str) -> str:
    """Return the CSS colour of a pool, the same in every chart.

    The eight pools of `prominent_pools` have a colour each, the others share one, and unknown is grey.
    """
    if pool == ALL:
        return "var(--ink)"
    if pool == UNKNOWN:
        return "var(--unknown)"
    named = prominent_pools(marts)
    place = named.index(pool) if pool in named else N_COLOURS
    return f"var(--pool-{place + 1})" if place < N_COLOURS else "var(--pool-other)"


def ratio_row(marts: Marts, row: Row, name: str, *, mark: Mark = "dot") -> RatioRow:
    """Return the row of a chart for one pool, from its `<name>_ratio` (never null) and 95 % interval."""
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
    """Return the rows that a chart of `<name>_ratio` draws; rows in which the ratio is null are dropped.

    The chart draws the row of all pools, the first 15 pools in the order of the rows, and unknown.
    """
    known = [row for row in rows if row[f"{name}_ratio"] is not None]
    kept = {ALL, UNKNOWN, *_pools(known)[:MAX_CHART_POOLS]}
    return [row for row in known if row["pool"] in kept]


def left_out_note(rows: Iterable[Row], n_drawn: int = MAX_CHART_POOLS) -> str:
    """Return a sentence on how many pools a chart of `n_drawn` pools leaves out; an empty text for none."""
    n_pools = len(_pools(rows)) - n_drawn
    return f" {plural(n_pools, 'pool')} with fewer blocks: in the table only." if n_pools > 0 else ""


def _pools(rows: Iterable[Row]) -> list[str]:
    """Return the pools of some rows, each once, in the order of the rows, without "all" and "unknown"."""
    return list(dict.fromkeys(row["pool"] for row in rows if row["pool"] not in (ALL, UNKNOWN)))


def named_pools(rows: Iterable[Row]) -> list[Row]:
    """Return the rows that are not of the blocks that no rule names: these are of several miners, no pool."""
    return [row for row in rows if row["pool"] != UNKNOWN]
