"""Reads the rows that the report and the terminal summary show, from the marts of a built database.

It reads only marts and the results of the checks. Rows are dictionaries in a stable order. Of the numbers
only counts, and the quantiles that a curve is drawn from, are computed here.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import duckdb
import numpy as np

from analysis.catalog import load_catalog
from analysis.checks import CheckResult, read_results
from analysis.database import open_database
from analysis.errors import DatabaseError, ReportError
from analysis.report.text import printable

MAX_ROWS: Final = 20_000


class Read(NamedTuple):
    """Says which rows of a mart a section reads: a condition `where` and an `order`, both in SQL.

    All columns are read, because the CSV beside a table has all of them.
    """

    mart: str
    order: str
    where: str = "true"


Row = Mapping[str, Any]

ALL: Final = "all"
# What a template promised is in the block, missing without an excuse, or excused. Where less than this part
# is one of the first two, as when blocks come within seconds, a score says nothing.
LEAST_JUDGED_RATIO: Final = 0.8
UNKNOWN: Final = "unknown"
COLLECTIVE: Final[Mapping[str, str]] = MappingProxyType({ALL: "All pools", UNKNOWN: "Unknown"})
FEERATE_KINDS: Final = ("package", "plain", "cluster")
MAX_CURVE_POINTS: Final = 400
MAX_DOUBTFUL_BLOCKS: Final = 30
EPOCH_BLOCKS: Final = 2016
MIN_EPOCH_BLOCKS: Final = 144  # an epoch with fewer blocks says too little to be drawn
PRICED_CHAIN: Final = "main"
OWN_SOURCES: Final = ("observed", "backfilled")  # the values of `told_by` that are no third party
MAX_DAYS: Final = 120  # values over a longer window are drawn per difficulty epoch
LEAST_OF_DAYS: Final = 0.9  # and so are they where fewer of the blocks have a time, and so a day


def _with_interval(*names: str) -> tuple[str, ...]:
    """Return three column names per ratio: `<name>_ratio` and the two ends of its 95 % interval."""
    return tuple(f"{name}_{end}" for name in names for end in ("ratio", "low_ratio", "high_ratio"))


QUARTILES: Final = tuple(
    f"{group}_{point}_s" for group in ("empty", "nonempty") for point in ("q1", "median", "q3")
)
MEDIAN_BOUNDS: Final = tuple(
    f"{group}_median_{end}_s" for group in ("empty", "nonempty") for end in ("low", "high")
)
# The columns that are read of each mart. A missing mart or column is an error that names it.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "pool_share": (
            *("pool", "pool_name", "is_unknown", "rank", "block_count", "total_block_count"),
            *_with_interval("share"),
            "share_if_theirs_ratio",
        ),
        "pool_share_day": (
            *("day", "pool", "block_count", "total_block_count"),
            *_with_interval("share"),
        ),
        "block_owner": ("grouped_by", "block_hash", "owner", "owner_name"),
        "block_pool": ("block_hash", "height", "pool", "method", "conflicts"),
        "block_intervals": (
            *("height", "is_empty", "is_active", "header_time", "arrived_at", "interval_s"),
            *("clock", "told_by", "told_arrived_at"),
        ),
        "block_propagation": ("block_hash", "spread_s"),
        "empty_intervals": (
            *("pool", "n_blocks", "n_empty", *_with_interval("empty")),
            *("n_empty_timed", "n_nonempty_timed", *QUARTILES, *MEDIAN_BOUNDS),
            *("p_value", "adjusted_p_value", "rank_biserial", "enough_data"),
        ),
        "feerate_strategy": (
            *("pool", "feerate_kind", "n_blocks", "n_empty", "n_unmeasured"),
            *("n_top", "n_top_taken", *_with_interval("top_x")),
            *("n_outside", "n_outside_taken", *_with_interval("outside_2x")),
        ),
        "feerate_strategy_block": (
            *("block_hash", "feerate_kind", "pool", "is_active"),
            *("is_counted", "top_x_ratio", "outside_2x_ratio"),
        ),
        "coverage_summary": (
            *("node", "topic", "from_at", "to_at", "observed_s", "window_s", "observed_ratio"),
            *("n_gaps", "n_messages"),
        ),
        "run_manifest": ("key", "value"),
    }
)
# Columns that are shown where the database has them.
OPTIONAL_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "block_pool": ("coinbase_text",),
        "coverage_hole": ("node", "topic", "from_at", "to_at", "hole_s", "end_reason", "detail"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marts:
    """Holds the rows of the marts that the report shows, each list in the order in which it is shown."""

    shares: list[Row]  # one row per pool, by rank; unknown last
    day_shares: list[Row]  # one row per day and pool
    doubtful: list[Row]  # the first blocks without a pool, or that rules of more than one pool match
    n_doubtful: int  # the number of all such blocks
    sources: list[Row]  # one row per source of active blocks: observed, backfilled, then others by count
    window: Row  # n_blocks, n_stale, first_height, last_height, first_at, last_at
    empties: list[Row]  # one row for all pools, then one per pool
    interval_curves: Mapping[bool, list[tuple[float, float]]]  # is_empty: (interval_s, ratio not longer)
    feerates: list[Row]  # one row per kind for all pools, then one per pool and kind
    block_ratios: list[Row]  # one row per measured block: its pool and ratios, by package feerate
    coverage: list[Row]  # one row per node and topic
    holes: list[Row] | None  # None if the database has no mart of holes
    manifest: Mapping[str, str]
    names: Mapping[str, str]  # the name of each pool for people, by slug
    groups: Mapping[tuple[str, str], str]  # names of owners of several pools, by (grouped_by, owner)
    spread_curve: list[tuple[float, float]]  # (seconds from first to last node, ratio of blocks not slower)
    epochs: Mapping[int, dt.date]  # first day of each difficulty epoch
    checks: Sequence[CheckResult]  # the results of the checks of the build
    reads: Mapping[str, Read]  # which rows the sections asked for, by name
    tables: Mapping[str, list[Row]]  # the rows of each of `reads`, at most MAX_ROWS of them
    totals: Mapping[str, int]  # how many rows the mart has for each of `reads`

    @property
    def has_price(self) -> bool:
        """Return whether the coins of this chain have a price; the coins of test chains have none."""
        return _has_price(self.manifest)

    @property
    def has_retargets(self) -> bool:
        """Return whether the difficulty of this chain follows its hashrate; on regtest it never changes."""
        return self.manifest.get("chain") != "regtest"

    @property
    def pools(self) -> list[str]:
        """Return the slugs of all pools, the one with most blocks first, without the unknown blocks."""
        return [row["pool"] for row in self.shares if not row["is_unknown"]]

    @property
    def is_of_one_day(self) -> bool:
        """Return whether all blocks are of one UTC day, so that nothing can be drawn over time."""
        return len({row["day"] for row in self.day_shares}) == 1

    def rows(self, name: str) -> list[Row]:
        """Return the rows of a mart that a section asked for; `name` is a key of its topic's `reads`."""
        return self.tables[name]

    def ranked(self, name: str, column: str = "pool") -> list[Row]:
        """Return the rows that a section asked for under `name`, sorted by the rank of their pool.

        The row of all pools together is the first. `column` names the column that holds the pool.
        """
        return _by_rank(self.tables[name], [ALL, *(row["pool"] for row in self.shares)], column)

    def whole_window(self, name: str) -> Row | None:
        """Return the row over all blocks from those that a section asked for as `name`; None without one."""
        return next((row for row in self.tables[name] if row["period_kind"] == "all"), None)

    def of_several_pools(self, name: str) -> list[Row]:
        """Return those rows that a section asked for as `name` whose owner or group has several pools."""
        return [row for row in self.tables[name] if (row["grouped_by"], row["owner"]) in self.groups]

    def over_time(self, name: str, known: str = "") -> list[tuple[dt.date, Row]]:
        """Return the rows that a section asked for under `name`, one for each UTC day, as (day, row).

        Rows whose column `known` has no value, or 0, are left out.

        If there are more than 120 days, or if the days hold fewer than 90 % of the blocks because no source
        gives the times of the others, the rows are those of difficulty epochs, each with the epoch's first
        day. An epoch of which the dataset has fewer than 144 blocks is left out: chance alone would make it a
        spike.
        """
        rows = [row for row in self.tables[name] if not known or row[known]]
        days = [row for row in rows if row["period_kind"] == "day"]
        epochs = [row for row in rows if row["period_kind"] == "epoch"]
        if is_per_day(len(days), sum(map(_n_blocks, days)), sum(map(_n_blocks, epochs))):
            return [(dt.date.fromisoformat(row["period"]), row) for row in days]
        # An epoch without a known time has no place on the axis.
        return [
            (self.epochs[int(row["period"])], row)
            for row in epochs
            if int(row["period"]) in self.epochs and _n_blocks(row) >= MIN_EPOCH_BLOCKS
        ]

    def name(self, pool: str) -> str:
        """Return the name of a pool (by its slug) for people. A terminal may show it; HTML must escape it."""
        return COLLECTIVE.get(pool) or printable(self.names.get(pool, pool))


def is_template_judged(row: Row) -> bool:
    """Return whether a score of `template_audit` says anything: little of what was promised is excused."""
    n_unexplained = round((row["unexplained_ratio"] or 0) * row["n_promised"])
    return bool(row["n_matched"] + n_unexplained >= LEAST_JUDGED_RATIO * row["n_promised"])


def is_per_day(n_days: int, n_of_days: int, n_blocks: int) -> bool:
    """Return whether a chart over time shows UTC days: there are few of them, with most of the blocks.

    `n_of_days` counts the blocks of these days, `n_blocks` all blocks, also those whose time is not known.
    """
    return n_days <= MAX_DAYS and n_of_days >= LEAST_OF_DAYS * n_blocks


def _n_blocks(row: Row) -> int:
    """Return the number of blocks that a row rests on: its `block_count`, else its `n_blocks`."""
    n_blocks: int = row["block_count"] if "block_count" in row else row["n_blocks"]
    return n_blocks


def read(database: Path, reads: Mapping[str, Read]) -> Marts:
    """Read the marts of a built database; return their rows, and those that sections ask for in `reads`.

    Raises ReportError, which says what is missing and what to run, if the database cannot be used.
    """
    if not database.is_file():
        raise ReportError(f"{database}: no such database; run pool-analysis build first")
    try:
        with open_database(database) as connection:
            return read_open(connection, database, reads)
    except DatabaseError as error:
        raise ReportError(str(error)) from error


def read_open(connection: duckdb.DuckDBPyConnection, database: Path, reads: Mapping[str, Read]) -> Marts:
    """Read the rows that the report shows from an open database; `reads` are those that sections ask for.

    Raises ReportError if they cannot be read.
    """
    try:
        return _marts(_Reader(connection, database, reads))
    except duckdb.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise ReportError(f"{database} cannot be read ({reason}); run pool-analysis build") from error


class _Reader:
    """Queries the marts of one open database; a missing mart or column raises ReportError at the start."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, database: Path, reads: Mapping[str, Read]
    ) -> None:
        self._connection = connection
        self.reads = reads
        self._found: dict[str, set[str]] = {}
        listed = "SELECT table_name, column_name FROM information_schema.columns"
        for mart, column in connection.execute(listed).fetchall():
            self._found.setdefault(mart, set()).add(column)
        needed = _needed(reads)
        missing = [mart for mart in needed if mart not in self._found]
        if missing:
            raise ReportError(f"{database} has no mart {', '.join(missing)}; run pool-analysis build")
        for mart, columns in needed.items():
            absent = [column for column in columns if column not in self._found[mart]]
            if absent:
                raise ReportError(
                    f"{database}: mart {mart} has no column {', '.join(absent)}; "
                    "another version built it: run pool-analysis build again"
                )

    def first_rows(self, read: Read) -> tuple[list[Row], int]:
        """Return the first 20,000 rows that `read` describes, and how many such rows the mart has in all."""
        mart, order, where = read
        found = self._connection.table(mart).filter(where)
        rows = _rows(found.order(order).limit(MAX_ROWS))
        return rows, len(rows) if len(rows) < MAX_ROWS else len(found)

    def checks(self) -> Sequence[CheckResult]:
        """Return the results of the checks of data that the build of this database ran."""
        return read_results(self._connection)

    def has(self, mart: str) -> bool:
        """Return whether the database has an optional mart, with all of its columns that the report shows."""
        return set(OPTIONAL_COLUMNS[mart]) <= self._found.get(mart, set())

    def table(self, mart: str) -> duckdb.DuckDBPyRelation:
        """Return a mart as a relation that has only the columns that the report reads."""
        optional = [name for name in OPTIONAL_COLUMNS.get(mart, ()) if name in self._found[mart]]
        return self._connection.table(mart).project(", ".join((*COLUMNS.get(mart, ()), *optional)))

    def rows(self, mart: str, order: str) -> list[Row]:
        """Return all rows of a mart, sorted by the SQL `order`."""
        return _rows(self.table(mart).order(order))


def _needed(reads: Mapping[str, Read]) -> dict[str, tuple[str, ...]]:
    """Return the columns that the report needs of each mart that it reads, by the mart's name.

    They are all columns of a mart in `reads`, and those in COLUMNS for the other marts.
    """
    models = load_catalog().by_name
    whole = {read.mart: tuple(column.name for column in models[read.mart].columns) for read in reads.values()}
    return {**COLUMNS, **whole}


def _rows(relation: duckdb.DuckDBPyRelation) -> list[Row]:
    """Return all rows of a relation as dictionaries by column name; times carry the time zone UTC."""
    rows: list[Row] = relation.to_arrow_table().to_pylist()
    return rows


def _has_price(manifest: Mapping[str, str]) -> bool:
    return manifest.get("chain", PRICED_CHAIN) == PRICED_CHAIN


def _without_usd(rows: list[Row], total: int) -> tuple[list[Row], int]:
    """Return rows without their amounts in USD, and `total` less the number of rows that were removed.

    Rows whose unit or metric is in USD are removed; in the other rows, columns in USD become None.
    """
    kept = [row for row in rows if "usd" not in f"{row.get('unit', '')} {row.get('metric', '')}"]
    blank: list[Row] = [
        {name: None if "_usd" in name else value for name, value in row.items()} for row in kept
    ]
    return blank, total - (len(rows) - len(kept))


def _marts(reader: _Reader) -> Marts:
    manifest = {row["key"]: row["value"] for row in reader.rows("run_manifest", "key")}
    read = {name: reader.first_rows(wanted) for name, wanted in reader.reads.items()}
    if not _has_price(manifest):
        read = {name: _without_usd(*found) for name, found in read.items()}
    shares = reader.rows("pool_share", "is_unknown, rank, pool")
    order = [ALL, *(row["pool"] for row in shares)]
    attributed = reader.table("block_pool")
    doubtful = attributed.filter(f"len(conflicts) > 0 OR pool = '{UNKNOWN}'").order("height, block_hash")
    return Marts(
        shares=shares,
        day_shares=reader.rows("pool_share_day", "day, pool"),
        doubtful=_rows(doubtful.limit(MAX_DOUBTFUL_BLOCKS)),
        n_doubtful=len(doubtful),
        sources=_sources(reader.table("block_intervals")),
        window=_window(reader.table("block_intervals")),
        empties=_by_rank(reader.rows("empty_intervals", "pool"), order),
        interval_curves={
            is_empty: _interval_curve(reader.table("block_intervals"), is_empty=is_empty)
            for is_empty in (True, False)
        },
        feerates=_by_rank(reader.rows("feerate_strategy", "pool, feerate_kind"), order),
        block_ratios=_block_ratios(reader.table("feerate_strategy_block")),
        coverage=reader.rows("coverage_summary", "node, topic"),
        holes=reader.rows("coverage_hole", "from_at, node, topic") if reader.has("coverage_hole") else None,
        manifest=manifest,
        names={row["pool"]: row["pool_name"] or row["pool"] for row in shares},
        groups=_groups(reader.table("block_owner")),
        spread_curve=_spread_curve(reader.table("block_propagation")),
        epochs=_epochs(reader.table("block_intervals")),
        checks=reader.checks(),
        reads=reader.reads,
        tables={name: rows for name, (rows, _) in read.items()},
        totals={name: total for name, (_, total) in read.items()},
    )


def _by_rank(rows: Iterable[Row], order: Sequence[str], column: str = "pool") -> list[Row]:
    """Return rows sorted by the place of their pool in `order`; rows of other pools come last."""
    place = {pool: index for index, pool in enumerate(order)}
    return sorted(rows, key=lambda row: place.get(row[column], len(place)))


def _groups(owners: duckdb.DuckDBPyRelation) -> dict[tuple[str, str], str]:
    """Return the name of each owner or group with blocks of several pools, by (grouped_by, owner)."""
    pools = owners.filter("grouped_by = 'pool'").project("block_hash, owner AS pool").set_alias("pools")
    counted = (
        owners.filter("grouped_by != 'pool'")
        .join(pools, "block_hash")
        .aggregate(
            "grouped_by, owner, any_value(owner_name) AS owner_name, count(DISTINCT pool) AS n_pools",
            "grouped_by, owner",
        )
    )
    return {
        (row["grouped_by"], row["owner"]): row["owner_name"] for row in _rows(counted.filter("n_pools > 1"))
    }


def _window(blocks: duckdb.DuckDBPyRelation) -> Row:
    """Return one row on all blocks: numbers of active and stale ones, heights, header times and arrivals.

    Heights and times are the first and the last.
    """
    return _rows(
        blocks.aggregate(
            "count(*) FILTER (is_active) AS n_blocks, count(*) FILTER (NOT is_active) AS n_stale, "
            "min(height) FILTER (is_active) AS first_height, "
            "max(height) FILTER (is_active) AS last_height, "
            "min(header_time) FILTER (is_active) AS first_time, "
            "max(header_time) FILTER (is_active) AS last_time, "
            "count(interval_s) FILTER (is_active) AS n_timed, "
            "min(arrived_at) AS first_at, max(arrived_at) AS last_at"
        )
    )[0]


def _sources(blocks: duckdb.DuckDBPyRelation) -> list[Row]:
    """Return a row per source of blocks: number of active blocks, first and last height and times.

    Our own sources come first.
    """
    found = blocks.filter("is_active").aggregate(
        "told_by, count(*) AS n_blocks, min(height) AS first_height, max(height) AS last_height, "
        "min(header_time) AS first_time, max(header_time) AS last_time, "
        "min(told_arrived_at) AS first_arrival, max(told_arrived_at) AS last_arrival",
        "told_by",
    )
    order = f"coalesce(list_position({list(OWN_SOURCES)}, told_by), 9), n_blocks DESC, told_by"
    return _rows(found.order(order))


def _block_ratios(blocks: duckdb.DuckDBPyRelation) -> list[Row]:
    """Return for each block of the active chain two ratios on which waiting transactions it took.

    X is the number of transactions in the block, and waiting transactions are ranked by package feerate.
    `top_x_ratio` is the part of the best X that the block took; `outside_2x_ratio` is the part that it took
    of those ranked below the best 2X. Blocks that could not be measured are left out.
    """
    counted = blocks.filter("is_active AND is_counted AND feerate_kind = 'package'")
    return _rows(counted.project("pool, top_x_ratio, outside_2x_ratio, block_hash").order("block_hash"))


def _interval_curve(blocks: duckdb.DuckDBPyRelation, *, is_empty: bool) -> list[tuple[float, float]]:
    """Return the cumulative distribution of the known intervals before empty blocks, or before all others.

    Each point is (seconds, ratio of intervals that are not longer).
    """
    timed = blocks.filter(f"is_active AND interval_s IS NOT NULL AND is_empty = {is_empty}")
    return _distribution(timed.project("interval_s"))


def _spread_curve(blocks: duckdb.DuckDBPyRelation) -> list[tuple[float, float]]:
    """Return the cumulative distribution of how many seconds after our first node the last one got a block.

    Each point is (seconds, ratio of blocks with no longer delay).
    """
    known = blocks.filter("spread_s IS NOT NULL")
    return _distribution(known.aggregate("any_value(spread_s) AS spread_s", "block_hash").project("spread_s"))


def _distribution(values: duckdb.DuckDBPyRelation) -> list[tuple[float, float]]:
    """Return the cumulative distribution of a column's values as points (value, ratio of values not larger).

    If there are more than 400 values, the points at evenly spaced ranks are returned.
    """
    ordered = np.sort(values.to_arrow_table().column(0).to_numpy())
    count = len(ordered)
    if count == 0:
        return []
    ranks = np.unique(np.linspace(1, count, min(count, MAX_CURVE_POINTS)).astype(int))
    return [(float(ordered[rank - 1]), float(rank / count)) for rank in ranks]


def _epochs(blocks: duckdb.DuckDBPyRelation) -> dict[int, dt.date]:
    """Return the first UTC day, by header time, of each difficulty epoch in the dataset, by its number."""
    days = blocks.filter("is_active AND header_time IS NOT NULL").aggregate(
        f"height // {EPOCH_BLOCKS} AS epoch, min(header_time) AS first_time", f"height // {EPOCH_BLOCKS}"
    )
    return {row["epoch"]: row["first_time"].date() for row in _rows(days)}
