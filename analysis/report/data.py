"""Read from a built database what the report and the terminal summary show: marts, and only marts.

Rows come as dicts in a stable order. Nothing is computed here but counts and the quantiles that a
curve is drawn from. What only one section shows comes as it is, by the names of `reads.READS`.
"""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import duckdb
import numpy as np

from analysis.catalog import load_catalog
from analysis.checks import CheckResult, read_results
from analysis.errors import ReportError
from analysis.report.reads import MAX_ROWS, READS
from analysis.report.text import printable

Row = Mapping[str, Any]

ALL: Final = "all"
UNKNOWN: Final = "unknown"
COLLECTIVE: Final[Mapping[str, str]] = MappingProxyType({ALL: "All pools", UNKNOWN: "Unknown"})
FEERATE_KINDS: Final = ("package", "plain", "cluster")
MAX_CURVE_POINTS: Final = 400
MAX_DOUBTFUL_BLOCKS: Final = 30
EPOCH_BLOCKS: Final = 2016
MAX_DAYS: Final = 120  # of a longer window, courses are shown by difficulty epoch


def _with_interval(*names: str) -> tuple[str, ...]:
    """Name the columns of a ratio and of its 95 % interval."""
    return tuple(f"{name}_{end}" for name in names for end in ("ratio", "low_ratio", "high_ratio"))


QUARTILES: Final = tuple(
    f"{group}_{point}_s" for group in ("empty", "nonempty") for point in ("q1", "median", "q3")
)
MEDIAN_BOUNDS: Final = tuple(
    f"{group}_median_{end}_s" for group in ("empty", "nonempty") for end in ("low", "high")
)
# What is read of each mart. A missing one, or a missing column, is an error that names it.
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
        "block_intervals": (*("height", "is_empty", "is_active", "header_time", "arrived_at", "interval_s"),),
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
# Shown where the database has them.
OPTIONAL_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "block_pool": ("coinbase_text",),
        "coverage_hole": ("node", "topic", "from_at", "to_at", "hole_s", "end_reason", "detail"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Marts:
    """What the report shows. Lists are in the order in which they are shown."""

    shares: list[Row]  # one per pool, ranked; unknown last
    day_shares: list[Row]  # one per day and pool
    methods: list[Row]  # method, block_count: how blocks were attributed
    doubtful: list[Row]  # blocks without a pool, or that more than one pool could claim
    n_doubtful: int  # how many there are: `doubtful` holds the first of them
    window: Row  # n_blocks, n_stale, first_height, last_height, first_at, last_at
    empties: list[Row]  # one for all, then one per pool
    curves: Mapping[bool, list[tuple[float, float]]]  # is_empty: (interval_s, ratio not longer)
    feerates: list[Row]  # one per kind for all, then one per pool and kind
    choices: list[Row]  # one per measured block: pool, top_x_ratio, outside_2x_ratio by package feerate
    coverage: list[Row]  # one per node and topic
    holes: list[Row] | None  # None where the database does not list them
    manifest: Mapping[str, str]
    names: Mapping[str, str]  # slug: the name that people read
    groups: Mapping[tuple[str, str], str]  # (grouped_by, owner) of who has blocks of several pools: its name
    spreads: list[tuple[float, float]]  # (s from the first node to the last, ratio of blocks not longer)
    epochs: Mapping[int, dt.date]  # first day of each difficulty epoch
    checks: Sequence[CheckResult]  # what the build checked
    tables: Mapping[str, list[Row]]  # by the names of READS
    totals: Mapping[str, int]  # how many rows there are of each: `tables` holds the first of them

    @property
    def pools(self) -> list[str]:
        """Slugs by rank, without unknown."""
        return [row["pool"] for row in self.shares if not row["is_unknown"]]

    def rows(self, name: str) -> list[Row]:
        """Give what was read under a name of READS."""
        return self.tables[name]

    def ranked(self, name: str, column: str = "pool") -> list[Row]:
        """Give rows that are headed by a pool in the order of the share table."""
        return _by_rank(self.tables[name], [ALL, *(row["pool"] for row in self.shares)], column)

    def merged(self, name: str) -> list[Row]:
        """Give rows of the owners and groups that have blocks of several pools."""
        return [row for row in self.tables[name] if (row["grouped_by"], row["owner"]) in self.groups]

    def course(self, name: str) -> list[tuple[dt.date, Row]]:
        """Give rows per period with the first day of each: days, or epochs where the days are many."""
        days = [row for row in self.tables[name] if row["period_kind"] == "day"]
        if len(days) <= MAX_DAYS:
            return [(dt.date.fromisoformat(row["period"]), row) for row in days]
        epochs = [row for row in self.tables[name] if row["period_kind"] == "epoch"]
        return [(self.epochs[int(row["period"])], row) for row in epochs]

    def name(self, pool: str) -> str:
        """Name a pool for people: safe to show on a terminal, still to be escaped for HTML."""
        return COLLECTIVE.get(pool) or printable(self.names.get(pool, pool))


def read(database: Path) -> Marts:
    """Read the marts of a built database; ReportError says what is missing and what to run."""
    if not database.is_file():
        raise ReportError(f"{database}: no such database; run pool-analysis build first")
    try:
        with duckdb.connect(str(database), read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            return _marts(_Reader(connection, database))
    except duckdb.Error as error:
        reason = str(error).strip().splitlines()[0]
        raise ReportError(f"{database} cannot be read ({reason}); run pool-analysis build") from error


class _Reader:
    """Queries over the marts of one open database, which has them all."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, database: Path) -> None:
        self._connection = connection
        self._found: dict[str, set[str]] = {}
        listed = "SELECT table_name, column_name FROM information_schema.columns"
        for mart, column in connection.execute(listed).fetchall():
            self._found.setdefault(mart, set()).add(column)
        missing = [mart for mart in _needed() if mart not in self._found]
        if missing:
            raise ReportError(f"{database} has no mart {', '.join(missing)}; run pool-analysis build")
        for mart, columns in _needed().items():
            absent = [column for column in columns if column not in self._found[mart]]
            if absent:
                raise ReportError(
                    f"{database}: mart {mart} has no column {', '.join(absent)}; "
                    "another version built it: run pool-analysis build again"
                )

    def read(self, name: str) -> tuple[list[Row], int]:
        """Read what READS names so, whole or its first rows, and how many rows there are."""
        mart, order, where = READS[name]
        found = self._connection.table(mart).filter(where)
        rows = _rows(found.order(order).limit(MAX_ROWS))
        return rows, len(rows) if len(rows) < MAX_ROWS else len(found)

    def checks(self) -> Sequence[CheckResult]:
        """Read what the checks of the build found."""
        return read_results(self._connection)

    def has(self, mart: str) -> bool:
        """Tell whether an optional mart is there with all that is read of it."""
        return set(OPTIONAL_COLUMNS[mart]) <= self._found.get(mart, set())

    def table(self, mart: str) -> duckdb.DuckDBPyRelation:
        """Give the columns of a mart that are read."""
        optional = [name for name in OPTIONAL_COLUMNS.get(mart, ()) if name in self._found[mart]]
        return self._connection.table(mart).project(", ".join((*COLUMNS.get(mart, ()), *optional)))

    def rows(self, mart: str, order: str) -> list[Row]:
        """Read a whole mart in an order."""
        return _rows(self.table(mart).order(order))


def _needed() -> dict[str, tuple[str, ...]]:
    """Give the marts that are read, and the columns of each: those by name, or all that its head names."""
    models = load_catalog().by_name
    whole = {read.mart: tuple(column.name for column in models[read.mart].columns) for read in READS.values()}
    return {**COLUMNS, **whole}


def _rows(relation: duckdb.DuckDBPyRelation) -> list[Row]:
    """Read a relation once; times come with their zone, UTC."""
    rows: list[Row] = relation.to_arrow_table().to_pylist()
    return rows


def _marts(reader: _Reader) -> Marts:
    read = {name: reader.read(name) for name in READS}
    shares = reader.rows("pool_share", "is_unknown, rank, pool")
    order = [ALL, *(row["pool"] for row in shares)]
    attributed = reader.table("block_pool")
    doubtful = attributed.filter(f"len(conflicts) > 0 OR pool = '{UNKNOWN}'").order("height, block_hash")
    return Marts(
        shares=shares,
        day_shares=reader.rows("pool_share_day", "day, pool"),
        methods=_rows(
            attributed.aggregate("method, count(*) AS block_count", "method").order(
                "block_count DESC, method"
            )
        ),
        doubtful=_rows(doubtful.limit(MAX_DOUBTFUL_BLOCKS)),
        n_doubtful=len(doubtful),
        window=_window(reader.table("block_intervals")),
        empties=_by_rank(reader.rows("empty_intervals", "pool"), order),
        curves={
            is_empty: _curve(reader.table("block_intervals"), is_empty=is_empty) for is_empty in (True, False)
        },
        feerates=_by_rank(reader.rows("feerate_strategy", "pool, feerate_kind"), order),
        choices=_choices(reader.table("feerate_strategy_block")),
        coverage=reader.rows("coverage_summary", "node, topic"),
        holes=reader.rows("coverage_hole", "from_at, node, topic") if reader.has("coverage_hole") else None,
        manifest={row["key"]: row["value"] for row in reader.rows("run_manifest", "key")},
        names={row["pool"]: row["pool_name"] or row["pool"] for row in shares},
        groups=_groups(reader.table("block_owner")),
        spreads=_spreads(reader.table("block_propagation")),
        epochs=_epochs(reader.table("block_intervals")),
        checks=reader.checks(),
        tables={name: rows for name, (rows, _) in read.items()},
        totals={name: total for name, (_, total) in read.items()},
    )


def _by_rank(rows: Iterable[Row], order: Sequence[str], column: str = "pool") -> list[Row]:
    """Order rows as the share table does: all pools first, then by rank, unknown last."""
    place = {pool: index for index, pool in enumerate(order)}
    return sorted(rows, key=lambda row: place.get(row[column], len(place)))


def _groups(owners: duckdb.DuckDBPyRelation) -> dict[tuple[str, str], str]:
    """Find the owners and groups that have blocks of several pools, and their names."""
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
    """Count blocks and find the first and the last height and arrival."""
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


def _choices(blocks: duckdb.DuckDBPyRelation) -> list[Row]:
    """Give what each block of the active chain took by package feerate, as one node saw it."""
    counted = blocks.filter("is_active AND is_counted AND feerate_kind = 'package'")
    return _rows(counted.project("pool, top_x_ratio, outside_2x_ratio, block_hash").order("block_hash"))


def _curve(blocks: duckdb.DuckDBPyRelation, *, is_empty: bool) -> list[tuple[float, float]]:
    """Give the empirical distribution of the timed intervals, at evenly spaced ranks where there are many."""
    timed = blocks.filter(f"is_active AND interval_s IS NOT NULL AND is_empty = {is_empty}")
    return _distribution(timed.project("interval_s"))


def _spreads(blocks: duckdb.DuckDBPyRelation) -> list[tuple[float, float]]:
    """Give the empirical distribution of how long blocks took from our first node to our last."""
    known = blocks.filter("spread_s IS NOT NULL")
    return _distribution(known.aggregate("any_value(spread_s) AS spread_s", "block_hash").project("spread_s"))


def _distribution(values: duckdb.DuckDBPyRelation) -> list[tuple[float, float]]:
    """Give (value, ratio not longer) of one column, at evenly spaced ranks where the values are many."""
    ordered = np.sort(values.to_arrow_table().column(0).to_numpy())
    count = len(ordered)
    if count == 0:
        return []
    ranks = np.unique(np.linspace(1, count, min(count, MAX_CURVE_POINTS)).astype(int))
    return [(float(ordered[rank - 1]), float(rank / count)) for rank in ranks]


def _epochs(blocks: duckdb.DuckDBPyRelation) -> dict[int, dt.date]:
    """Give the first UTC day that the dataset has of each difficulty epoch, by header times."""
    days = blocks.filter("is_active").aggregate(
        f"height // {EPOCH_BLOCKS} AS epoch, min(header_time) AS first_time", f"height // {EPOCH_BLOCKS}"
    )
    return {row["epoch"]: row["first_time"].date() for row in _rows(days)}
