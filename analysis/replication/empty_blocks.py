"""Checks whether empty blocks follow their parents sooner, with published arrivals and the authors' sizes."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import duckdb
import numpy as np

from analysis.replication.arrivals import ArrivalFacts, arrival_facts
from analysis.replication.statement import CheckedStatement, interval, one_row, percent
from analysis.stats.intervals import median_interval
from analysis.stats.rank_tests import RankTest, holm, rank_biserial_interval, rank_test
from analysis.stats.sql_functions import Numbers

# Among 75,490 blocks a test finds differences that mean nothing: the level is lower than elsewhere.
EMPTY_SIGNIFICANCE: Final = 0.001
LEAST_TIMED: Final = 20
STATEMENT: Final = "Intervals before empty blocks are significantly shorter"
PUBLISHED: Final = "significantly lower"
WHERE_TO_FIND: Final = (
    "The authors' files have no block times, neither of arrival nor of the header. Name published arrivals of"
    " the window with --arrivals, for example KIT_monitor1.csv of"
    " github.com/bitcoin-data/block-arrival-times. The mart empty_intervals measures the same on your own"
    " dataset."
)
# Each sized block once, with the interval of the first file that has one.
MAKE_TIMED: Final = """
    CREATE TABLE timed_blocks AS
    SELECT label, n_tx = 1 AS is_empty, arg_min(interval_s, preference) AS interval_s, min(source) AS source
    FROM paper_sizes INNER JOIN arrival_intervals USING (height)
    GROUP BY label, height, n_tx
"""


class Timed(NamedTuple):
    """Holds the block intervals of one pool, or of all, in seconds: before empty and before other blocks."""

    name: str
    empty_s: Numbers
    others_s: Numbers


def empty_intervals(connection: duckdb.DuckDBPyConnection) -> Iterator[CheckedStatement]:
    """Yield the checked statement that empty blocks follow their parents sooner than other blocks do.

    It needs the tables of `load_arrivals`. Without arrivals, or with too few at the authors' heights, the
    statement cannot be replicated.
    """
    n_blocks, n_empty, first, last = one_row(
        connection,
        "SELECT count(*), count(*) FILTER (WHERE n_tx = 1), min(height), max(height) FROM paper_sizes",
    )
    counted = (
        f"{n_empty:,} of {n_blocks:,} blocks of four pools are empty ({percent(n_empty / n_blocks)},"
        f" {interval(n_empty, n_blocks)}): {_by_pool(connection)}"
    )
    connection.execute(MAKE_TIMED)
    whole, *pools = _timed(connection)
    enough = min(len(whole.empty_s), len(whole.others_s)) >= LEAST_TIMED
    test = rank_test(whole.empty_s, whole.others_s) if enough else None
    if test is None:
        yield CheckedStatement(
            statement=STATEMENT,
            paper=PUBLISHED,
            ours=f"none; {counted}",
            verdict="cannot be replicated",
            reason=_what_is_missing(connection, whole, first, last),
        )
        return
    bounds = rank_biserial_interval(whole.empty_s, whole.others_s)
    is_shorter = test.p_value <= EMPTY_SIGNIFICANCE and bounds is not None and bounds.high < 0
    yield CheckedStatement(
        statement=STATEMENT,
        paper=PUBLISHED,
        ours=f"{_medians(whole)}; rank-biserial {test.rank_biserial:+.3f}"
        + (f" (95 % interval {bounds.low:+.3f} to {bounds.high:+.3f})" if bounds else "")
        + f", Mann-Whitney p = {test.p_value:.2g}",
        verdict="replicated" if is_shorter else "differs",
        reason=f"Replicated means p up to {EMPTY_SIGNIFICANCE} and an effect below 0; at -1 every empty block"
        f" came sooner than every other. {counted}. {_coverage(connection, whole, n_blocks, n_empty)}"
        f" {_left_out(arrival_facts(connection, first, last))} {_effects_of_pools(pools)}",
    )


def _what_is_missing(connection: duckdb.DuckDBPyConnection, timed: Timed, first: int, last: int) -> str:
    """Return a text on why empty blocks are not compared: no file of arrivals, or too few intervals."""
    (n_files,) = one_row(connection, "SELECT count(DISTINCT preference) FROM arrival_rows")
    if not n_files:
        return WHERE_TO_FIND
    return (
        f"The files of arrivals ({n_files}) give intervals of {len(timed.empty_s):,} empty and"
        f" {len(timed.others_s):,} other blocks, of heights {first} to {last};"
        f" {LEAST_TIMED} of each are needed."
    )


def _by_pool(connection: duckdb.DuckDBPyConnection) -> str:
    """Return a text with the number of empty blocks and of all blocks per pool, most empty ones first."""
    rows = connection.execute(
        """
        SELECT label, count(*) FILTER (WHERE n_tx = 1) AS n_empty, count(*)
        FROM paper_sizes GROUP BY label ORDER BY n_empty DESC, label
        """
    ).fetchall()
    return ", ".join(f"{label} {empty:,} of {blocks:,}" for label, empty, blocks in rows)


def _timed(connection: duckdb.DuckDBPyConnection) -> list[Timed]:
    """Return the block intervals of all pools together, and then of each pool by name, each as a Timed."""
    rows = connection.execute("SELECT label, is_empty, interval_s FROM timed_blocks").fetchnumpy()
    labels = np.asarray(rows["label"], dtype=object)
    is_empty, intervals_s = (
        np.asarray(rows["is_empty"], dtype=bool),
        np.asarray(rows["interval_s"], dtype=float),
    )
    groups = [Timed("all", intervals_s[is_empty], intervals_s[~is_empty])]
    for label in sorted(set(labels)):
        of_pool = labels == label
        groups.append(Timed(label, intervals_s[of_pool & is_empty], intervals_s[of_pool & ~is_empty]))
    return groups


def _medians(timed: Timed) -> str:
    """Return a text with the median interval in seconds before empty and before other blocks.

    Each median has its 95 % interval, if there are enough values for one.
    """
    parts = []
    for kind, values in (("empty", timed.empty_s), ("other", timed.others_s)):
        bounds = median_interval(values)
        around = f" (95 % interval {bounds.low:,.0f} to {bounds.high:,.0f} s)" if bounds else ""
        parts.append(f"{np.median(values):,.0f} s{around} before {len(values):,} {kind} blocks")
    return f"median {', '.join(parts)}"


def _coverage(connection: duckdb.DuckDBPyConnection, timed: Timed, n_blocks: int, n_empty: int) -> str:
    """Return a text on how many of the authors' blocks have a known interval, and from which sources."""
    sources = connection.execute(
        "SELECT source, count(*) FROM timed_blocks GROUP BY source ORDER BY source"
    ).fetchall()
    n_timed = len(timed.empty_s) + len(timed.others_s)
    clocks = ", ".join(f"{source} {n:,}" for source, n in sources)
    return (
        f"Coverage: an interval for {n_timed:,} of {n_blocks:,} blocks ({percent(n_timed / n_blocks)}) and"
        f" for {len(timed.empty_s):,} of {n_empty:,} empty ones; both stamps of each by one clock ({clocks})."
    )


def _left_out(facts: ArrivalFacts) -> str:
    """Return a text on how many arrival times give no interval, and which sources have whole seconds only."""
    exact = (
        f" Stamps of {', '.join(facts.whole_seconds)} are whole seconds; equal intervals count half."
        if facts.whole_seconds
        else ""
    )
    return (
        f"Left out: {facts.n_forks:,} heights with two blocks, {facts.n_catch_up:,} blocks fetched after a"
        f" pause, {facts.n_backwards:,} that came before their parent.{exact}"
    )


def _effects_of_pools(groups: list[Timed]) -> str:
    """Return a text on how much sooner empty blocks come, within each pool with enough known intervals.

    The effect is a rank-biserial correlation; its p-value is corrected by Holm.
    """
    tests = {
        group.name: test
        for group in groups
        if len(group.empty_s) >= LEAST_TIMED
        and (test := rank_test(group.empty_s, group.others_s)) is not None
    }
    if not tests:
        return "No pool has enough timed blocks for a test of its own."
    corrected = holm([test.p_value for test in tests.values()])
    return f"Within pools: {', '.join(map(_effect_of_pool, tests.items(), corrected))} (Holm)."


def _effect_of_pool(test_of: tuple[str, RankTest], p_value: float) -> str:
    """Return a text on how much sooner one pool's empty blocks come: rank-biserial effect and p-value.

    The p-value is corrected by Holm.
    """
    name, test = test_of
    return f"{name} {test.rank_biserial:+.2f}, p = {p_value:.2g}"
