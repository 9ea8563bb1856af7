"""Writes databases with the marts that the report reads, made of believable blocks.

Tables get the columns and types that the heads of the SQL files promise, so a report that passes here reads
what `pool-analysis build` writes.
"""

import datetime as dt
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from analysis.catalog import load_catalog
from analysis.report.data import ALL, COLUMNS, MEDIAN_BOUNDS, OPTIONAL_COLUMNS, QUARTILES, UNKNOWN
from analysis.report.sections import READS
from analysis.stats import intervals, rank_tests
from tests.analysis.report import section_rows

START = dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
MIN_TIMED = 5
HOSTILE_TAG = "<script>alert(1)</script>"
HOSTILE_IMAGE = "\"><img src=x onerror='alert(2)'>"
HOSTILE_TERMINAL = "\x1b[31mred\x1b]0;title\x07\x00\x9b2J"
HOSTILE_DIRECTION = "\u202egnorw\u2066 \u200b"
Rows = list[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Describes one block of the made-up chain; its counts compare its transactions with the mempool."""

    height: int
    pool: str
    at: dt.datetime
    is_empty: bool
    interval_s: float | None
    n_top: int = 0
    n_top_taken: int = 0
    n_outside: int = 0
    n_outside_taken: int = 0


@dataclass(frozen=True, kw_only=True)
class World:
    """Describes the data from which the marts of a test database are made."""

    blocks: tuple[Block, ...] = ()
    names: Mapping[str, str]
    coverage: tuple[dict[str, Any], ...] = ()
    holes: tuple[dict[str, Any], ...] = ()
    manifest: Mapping[str, str]
    coinbase_text: str = "/solo/"
    groups: Mapping[str, Rows] = field(default_factory=dict)  # of the marts that only the sections read
    checks: tuple[tuple[str, str, str, int], ...] = ()


# Texts of the planted groups that strangers write: a node's name, a label, its source, a rule with its tag.
_HOSTILE_TEXTS = {
    "main": HOSTILE_TAG + HOSTILE_TERMINAL,
    "others": HOSTILE_IMAGE,
    "=HYPERLINK(1)": HOSTILE_TAG + HOSTILE_DIRECTION,
    "a:payout:x": HOSTILE_IMAGE + HOSTILE_TERMINAL,
}
NAMES = {
    "foundry": "Foundry USA",
    "antpool": "AntPool",
    "viabtc": "ViaBTC",
    "f2pool": "F2Pool",
    "spider": "SpiderPool",
    "hasty": "Hasty Pool",
    "ocean": "OCEAN",
    UNKNOWN: "Unknown",
}


def mainnet_like(n_blocks: int = 900) -> World:
    """Return a world of six days: seven pools, some unknown blocks, and a hole in the mempool's coverage."""
    blocks = tuple(_blocks(n_blocks))
    to_at = blocks[-1].at
    hole = {
        "node": "main",
        "topic": "mempool",
        "from_at": START + dt.timedelta(hours=1),
        "to_at": START + dt.timedelta(hours=2.5),
        "hole_s": 5400.0,
        "end_reason": "overflow",
        "detail": "queue of 200000 messages was full",
    }
    window_s = (to_at - START).total_seconds()
    coverage = [
        {
            "node": "main",
            "topic": topic,
            "from_at": START,
            "to_at": to_at,
            "observed_s": window_s - gap_s,
            "window_s": window_s,
            "observed_ratio": 1 - gap_s / window_s,
            "n_gaps": int(gap_s > 0),
            "n_messages": n_messages,
        }
        for topic, gap_s, n_messages in (
            ("mempool", 5400.0, 6_210_334),
            ("rawblock", 0.0, 901),
            ("sequence", 0.0, 6_211_235),
        )
    ]
    manifest = {"chain": "main", "built_at": "2026-03-09T08:00:00+00:00", "rules_hash": "9c1185a5c5e9fc54"}
    return World(
        blocks=blocks,
        names=NAMES,
        coverage=tuple(coverage),
        holes=(hole,),
        manifest=manifest,
        checks=(
            ("heights_missing", "warn", "Heights without a block.", 3),
            ("one_grain", "fail", "Twice.", 0),
        ),
    )


def filled() -> World:
    """Return the world of `mainnet_like`, with rows in every mart that a section of the report shows."""
    pools = [pool for pool in NAMES if pool != UNKNOWN]
    return replace(mainnet_like(), groups=section_rows.groups(pools))


def _blocks(n_blocks: int) -> Iterator[Block]:
    """Make random blocks, always the same ones.

    The pool `hasty` often mines empty blocks soon after the parent, and `ocean` does not follow feerates.
    """
    chance = random.Random(7)  # noqa: S311 - the same blocks each time
    at = START
    for height in range(941_000, 941_000 + n_blocks):
        pool = chance.choices(list(NAMES), (29, 19, 13, 11, 9, 7, 3, 1.5))[0]
        is_empty = chance.random() < (0.2 if pool == "hasty" else 0.006)
        interval_s = chance.expovariate(1 / (40 if is_empty else 600))
        at += dt.timedelta(seconds=interval_s)
        n_top = 0 if is_empty else chance.randint(2000, 4000)
        taken_ratio = chance.uniform(0.38, 0.48) if pool == "ocean" else chance.uniform(0.86, 0.98)
        yield Block(
            height=height,
            pool=pool,
            at=at,
            is_empty=is_empty,
            interval_s=None if height == 941_000 else interval_s,
            n_top=n_top,
            n_top_taken=round(taken_ratio * n_top),
            n_outside=10 * n_top,
            n_outside_taken=chance.randint(0, 900 if pool == "ocean" else 20) if n_top else 0,
        )


def scarce() -> World:
    """Return a world of three blocks, one of them empty, without any known interval or mempool."""
    whole = mainnet_like(3)
    blocks = [replace(block, interval_s=None, n_top=0, n_outside=0, is_empty=False) for block in whole.blocks]
    blocks[0] = replace(blocks[0], is_empty=True)
    return replace(whole, blocks=tuple(blocks), coverage=(), holes=(), groups={}, checks=())


def hostile() -> World:
    """Return a world in which names of pools and nodes, and coinbases, hold markup and control characters."""
    whole = filled()
    names = dict(
        zip(
            whole.names,
            (HOSTILE_TAG, HOSTILE_IMAGE, HOSTILE_TERMINAL, HOSTILE_DIRECTION, "[red]{{7*7}}"),
            strict=False,
        )
    )
    coverage = tuple({**row, "node": HOSTILE_TAG + HOSTILE_TERMINAL} for row in whole.coverage)
    holes = tuple(
        {**row, "node": HOSTILE_TAG + HOSTILE_TERMINAL, "detail": HOSTILE_IMAGE} for row in whole.holes
    )
    return replace(
        whole,
        names={**whole.names, **names},
        coverage=coverage,
        holes=holes,
        manifest={HOSTILE_IMAGE: HOSTILE_TAG, "chain": HOSTILE_TERMINAL},
        blocks=whole.blocks[-600:],
        groups={
            mart: [
                {name: _HOSTILE_TEXTS.get(str(value), value) for name, value in row.items()} for row in rows
            ]
            for mart, rows in whole.groups.items()
        },
        coinbase_text=f"</table></style>{HOSTILE_TAG}{HOSTILE_DIRECTION}" + "W" * 500,
    )


def nothing() -> World:
    """Return a world without a single block."""
    return replace(mainnet_like(3), blocks=(), coverage=(), holes=(), groups={}, checks=())


def write(database: Path, world: World) -> Path:
    """Write the marts of a world to a new DuckDB file, and return its path."""
    models = load_catalog().by_name
    with duckdb.connect(str(database)) as connection:
        connection.execute("BEGIN")  # or each of a hundred statements would wait for the disk
        connection.execute(
            "CREATE TABLE check_results"
            " (name VARCHAR, severity VARCHAR, summary VARCHAR, n_offending BIGINT, missing VARCHAR)"
        )
        for check in world.checks:
            connection.execute("INSERT INTO check_results VALUES (?, ?, ?, ?, NULL)", check)
        shown = {read.mart for read in READS.values()}
        for mart in sorted(COLUMNS.keys() | OPTIONAL_COLUMNS.keys() | shown):
            columns = models[mart].columns
            listed = ", ".join(f'"{column.name}" {column.type}' for column in columns)
            connection.execute(f"CREATE TABLE {mart} ({listed})")
            rows = _ROWS[mart](world) if mart in _ROWS else world.groups.get(mart, [])
            if rows:
                connection.register("new_rows", pa.Table.from_pylist(rows))
                connection.execute(f"INSERT INTO {mart} BY NAME SELECT * FROM new_rows")  # noqa: S608 - a constant
                connection.unregister("new_rows")
        connection.execute("COMMIT")
    return database


def _wilson(name: str, count: int, total: int) -> dict[str, float | None]:
    low, high = intervals.wilson_intervals(np.array([float(count)]), np.array([float(total)]))
    return {
        f"{name}_ratio": count / total,
        f"{name}_low_ratio": float(low[0]),
        f"{name}_high_ratio": float(high[0]),
    }


def _counts(blocks: Iterable[Block]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for block in blocks:
        counts[block.pool] = counts.get(block.pool, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _shares(world: World, blocks: list[Block]) -> Rows:
    rows, rank = [], 0
    for pool, count in _counts(blocks).items():
        rank += pool != UNKNOWN
        rows.append(
            {
                "pool": pool,
                "pool_name": world.names[pool],
                "is_unknown": pool == UNKNOWN,
                "rank": None if pool == UNKNOWN else rank,
                "block_count": count,
                "total_block_count": len(blocks),
                **_wilson("share", count, len(blocks)),
            }
        )
    return rows


def _day_shares(world: World) -> Rows:
    days = sorted({block.at.date() for block in world.blocks})
    return [
        {"day": day, **row}
        for day in days
        for row in _shares(world, [block for block in world.blocks if block.at.date() == day])
    ]


def _share_windows(world: World) -> Rows:
    """Return the shares of the last day and of all blocks. In the last day the smallest pool has risen."""
    if not world.blocks:
        return []
    newest = max(block.at for block in world.blocks)
    whole = {"time_window": "all", "from_time": world.blocks[0].at, "to_time": newest, "covered_ratio": 1.0}
    told: dict[str, Any] = {"told_by": ["observed"]}
    rows = [whole | told | row for row in _shares(world, list(world.blocks))]
    last = [block for block in world.blocks if newest - block.at < dt.timedelta(days=1)]
    if len(last) < len(world.blocks):
        day = whole | told | {"time_window": "day", "window_days": 1, "from_time": last[0].at}
        change = {"gained_share": 0.1, "gained_low_share": 0.02, "gained_high_share": 0.18}
        change |= {"previous_block_count": 1, "previous_total_block_count": 140}
        riser = min(_counts(world.blocks), key=lambda pool: _counts(world.blocks)[pool])
        rows[:0] = [  # the first row decides which columns there are
            day
            | row
            | change
            | {"p_value": 1e-5 if row["pool"] == riser else 0.5}
            | {"adjusted_p_value": 1e-4 if row["pool"] == riser else 1.0}
            for row in _shares(world, last)
        ]
    return rows


def _share_periods(world: World) -> Rows:
    """Return the shares of each day; the first and the last day are there only in part."""
    rows = _day_shares(world)
    ends = [row["day"] for row in rows[:1] + rows[-1:]]
    return [
        {"period_kind": "day", "from_day": row["day"], "is_complete": row["day"] not in ends}
        | {name: row[name] for name in _PERIOD_COLUMNS}
        for row in rows
    ]


def _block_pools(world: World) -> Rows:
    return [
        {
            "block_hash": block.height.to_bytes(32, "little"),
            "height": block.height,
            "pool": block.pool,
            "method": None if block.pool == UNKNOWN else "tag" if block.height % 3 else "payout",
            "conflicts": ["antpool"] if block.height % 100 == 1 and block.pool != "antpool" else [],
            "coinbase_text": world.coinbase_text,
        }
        for block in world.blocks
    ]


def _intervals(world: World) -> Rows:
    return [
        {
            "block_hash": block.height.to_bytes(32, "little"),
            "height": block.height,
            "is_active": True,
            "is_empty": block.is_empty,
            "header_time": block.at,
            "arrived_at": block.at,
            "told_arrived_at": None,
            "interval_s": block.interval_s,
            "clock": None if block.interval_s is None else "arrival",
            "told_by": "observed",
        }
        for block in world.blocks
    ]


def _groups(world: World) -> list[tuple[str, list[Block]]]:
    pools = [(pool, [b for b in world.blocks if b.pool == pool]) for pool in _counts(world.blocks)]
    return [(ALL, list(world.blocks)), *pools] if world.blocks else []


def _empties(world: World) -> Rows:
    rows = []
    for pool, blocks in _groups(world):
        timed = [
            np.array(
                [b.interval_s for b in blocks if b.is_empty is empty and b.interval_s is not None], float
            )
            for empty in (True, False)
        ]
        enough = min(len(intervals) for intervals in timed) >= MIN_TIMED
        test = rank_tests.rank_test(*timed) if enough else None
        quartiles = [q for v in timed for q in (np.quantile(v, [0.25, 0.5, 0.75]) if len(v) else [None] * 3)]
        bounds = [end for v in timed for end in intervals.median_interval(v) or (None, None)]
        n_empty = sum(block.is_empty for block in blocks)
        rows.append(
            {
                "pool": pool,
                "n_blocks": len(blocks),
                "n_empty": n_empty,
                **_wilson("empty", n_empty, len(blocks)),
                "n_empty_timed": len(timed[0]),
                "n_nonempty_timed": len(timed[1]),
                **{
                    name: None if q is None else float(q)
                    for name, q in zip(QUARTILES, quartiles, strict=True)
                },
                **dict(zip(MEDIAN_BOUNDS, bounds, strict=True)),
                "p_value": test.p_value if test else None,
                "adjusted_p_value": test.p_value if test else None,
                "rank_biserial": test.rank_biserial if test else None,
                "enough_data": enough,
            }
        )
    return rows


def _feerates(world: World) -> Rows:
    rows = []
    for pool, blocks in _groups(world):
        measured = [block for block in blocks if block.n_top]
        for kind, loss in (("package", 0), ("plain", 40)):
            row: dict[str, Any] = {"pool": pool, "feerate_kind": kind, "n_blocks": len(measured)}
            row |= {"n_empty": sum(b.is_empty for b in blocks), "enough_data": len(measured) >= MIN_TIMED}
            row["n_unmeasured"] = len(blocks) - len(measured) - row["n_empty"]
            for name, of, taken in (
                ("top_x", "n_top", "n_top_taken"),
                ("outside_2x", "n_outside", "n_outside_taken"),
            ):
                offered = np.array([getattr(b, of) for b in measured], float)
                took = np.array(
                    [max(0, getattr(b, taken) - (loss if name == "top_x" else 0)) for b in measured], float
                )
                ends = intervals.part_interval(took, offered)
                row |= {of: int(offered.sum()), taken: int(took.sum())}
                row[f"{name}_ratio"] = float(took.sum() / offered.sum()) if measured else None
                row[f"{name}_low_ratio"], row[f"{name}_high_ratio"] = ends or (None, None)
            rows.append(row)
    return rows


def _choices(world: World) -> Rows:
    return [
        {
            "block_hash": block.height.to_bytes(32, "little"),
            "feerate_kind": "package",
            "pool": block.pool,
            "is_active": True,
            "is_counted": block.n_top > 0,
            "top_x_ratio": block.n_top_taken / block.n_top if block.n_top else None,
            "outside_2x_ratio": block.n_outside_taken / block.n_outside if block.n_outside else None,
        }
        for block in world.blocks
    ]


_PERIOD_COLUMNS = (
    *("pool", "is_unknown", "block_count", "total_block_count"),
    *("share_ratio", "share_low_ratio", "share_high_ratio"),
)
_ROWS = {
    "pool_share_window": _share_windows,
    "pool_share_period": _share_periods,
    "feerate_strategy_block": _choices,
    "pool_share": lambda world: _shares(world, list(world.blocks)),
    "pool_share_day": _day_shares,
    "block_pool": _block_pools,
    "block_intervals": _intervals,
    "empty_intervals": _empties,
    "feerate_strategy": _feerates,
    "coverage_summary": lambda world: list(world.coverage),
    "coverage_hole": lambda world: list(world.holes),
    "run_manifest": lambda world: [{"key": key, "value": value} for key, value in world.manifest.items()],
}
