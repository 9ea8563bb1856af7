"""Query a built database for pools, blocks and coverage; the API and the pages answer with the same rows.

A time window is named as people name it: 24h, 7d, 30d, 1y, all. Hashes are bytes in internal byte order,
scripts are hex, because a script of 32 bytes must not read as a hash.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from analysis.catalog import reading_order
from analysis.errors import DatabaseError
from analysis.report.data import LEAST_JUDGED_RATIO, UNKNOWN
from analysis.serve.results import Reader, Row
from collector.dataset.schema import hash_bytes

WINDOWS: Final[Mapping[str, str]] = MappingProxyType(
    {"24h": "day", "7d": "week", "30d": "month", "1y": "year", "all": "all"}
)  # the windows of pool_share_window
MOST_LISTED: Final = 500  # holes or intervals of observation
HEIGHT_DIGITS: Final = 9  # so many always fit into the 32 bits of a height
IS_JUDGED: Final = f"n_matched + n_missing_unexplained >= {LEAST_JUDGED_RATIO} * n_promised"
# Of the templates that a block is compared with, the one of the first age, and of the first node.
IS_FIRST_TEMPLATE: Final = "row_number() OVER (PARTITION BY block_hash ORDER BY from_age_s, node) = 1"
BLOCKS: Final = f"""
    WITH audit AS (
        SELECT
            block_hash,
            CASE WHEN {IS_JUDGED} THEN score_ratio END AS template_score_ratio,
            n_matched AS n_template_matched, n_missing, n_missing_unexplained, n_extra
        FROM template_audit_block
        WHERE block_hash IN (SELECT block_hash FROM chosen)
        QUALIFY {IS_FIRST_TEMPLATE}
    ),
    waiting AS (
        SELECT block_hash, max(n_mempool) AS n_mempool
        FROM block_mempool
        WHERE block_hash IN (SELECT block_hash FROM chosen)
        GROUP BY block_hash
    )
    SELECT
        chosen.block_hash, chosen.height, chosen.prev_hash, chosen.is_active, chosen.header_time,
        chosen.arrived_at,
        block_pool.pool, block_pool.pool_name, block_pool.method, block_pool.rule_id, block_pool.conflicts,
        chosen.is_empty, chosen.n_tx, chosen.size_bytes, chosen.weight_wu, chosen.fees_sat,
        chosen.subsidy_sat,
        block_intervals.interval_s, block_intervals.clock, waiting.n_mempool, audit.template_score_ratio,
        audit.n_template_matched, audit.n_missing, audit.n_missing_unexplained, audit.n_extra, chosen.told_by
    FROM chosen
    LEFT JOIN block_pool USING (block_hash)
    LEFT JOIN block_intervals USING (block_hash)
    LEFT JOIN waiting USING (block_hash)
    LEFT JOIN audit USING (block_hash)
    ORDER BY chosen.height DESC, chosen.is_active DESC, chosen.block_hash
"""  # noqa: S608 - a condition of ours


class NotFoundError(DatabaseError):
    """Means that the dataset has no pool, block, transaction or mart of the given name."""


class MartRows(NamedTuple):
    """Describes a query for a mart's rows of one pool or block: columns, condition, order, and limit."""

    mart: str
    order: str = "ALL"
    columns: str = "*"
    where: str = "true"
    most: int = 200


# What is known of one pool, by the name of the part of the answer.
POOL_PARTS: Final[Mapping[str, MartRows]] = MappingProxyType(
    {
        "shares": MartRows("pool_share_window", "window_days NULLS LAST"),
        "periods": MartRows(
            "pool_share_period",
            "period_kind = 'day', from_day DESC",  # months first: they are few, days may pass the limit
            where="period_kind IN ('day', 'month')",
            most=800,
        ),
        "life": MartRows("pool_life"),
        "empty": MartRows("empty_intervals"),
        "ordering": MartRows("pool_ordering"),
        "algorithms": MartRows("pool_algorithm", "segment"),
        "feerates": MartRows("feerate_strategy", "feerate_kind"),
        "templates": MartRows("template_audit", "from_age_s"),
        "fees_taken": MartRows("fee_capture"),
        "out_of_band": MartRows("out_of_band"),
        "policy": MartRows("pool_policy", "feature"),
        "signalling": MartRows("signalling", "signal", where="n_signalling > 0"),
        "header_times": MartRows("pool_clock"),
        "makers": MartRows("sub_pool", "block_count DESC, maker"),
        "clock": MartRows("header_clock", "clock"),
        "stale": MartRows("stale_rate"),
        "rules": MartRows("attribution_rule", "decided_count DESC, rule_id"),
        "conflicts": MartRows("attribution_conflict", "block_count DESC, other"),
    }
)
# What is known of one block.
BLOCK_PARTS: Final[Mapping[str, MartRows]] = MappingProxyType(
    {
        "candidates": MartRows("pool_candidates", "rank"),
        "arrivals": MartRows("block_propagation", "seen_at, node"),
        "mempools": MartRows("block_mempool", "node"),
        "templates": MartRows("template_audit_block", "node, from_age_s"),
        "fees_taken": MartRows("fee_capture_block", "node"),
        "feerates": MartRows("feerate_strategy_block", "feerate_kind, node"),
        "order": MartRows("block_order"),
        "algorithm": MartRows("block_algorithm"),
        "revenue": MartRows("block_revenue"),
        "empty": MartRows("empty_evidence"),
        "owners": MartRows("block_owner", "grouped_by"),
    }
)


def pools(reader: Reader, window: str) -> list[Row]:
    """Return a row per pool with its share in a time window, its empty blocks and its last block.

    The blocks that no rule names have a row, too; a life as a pool (`pool_life`) they do not have.

    A window that the dataset does not hold is all blocks; `time_window` of each row says which it is.
    Raises NotFoundError for a window that does not exist.
    """
    if window not in WINDOWS:
        raise NotFoundError(f"there is no such window; the windows are {', '.join(WINDOWS)}")
    names = {row["time_window"] for row in reader.rows("SELECT DISTINCT time_window FROM pool_share_window")}
    chosen = WINDOWS[window] if WINDOWS[window] in names else "all"
    return reader.rows(
        """
        WITH last_unnamed AS (
            SELECT owner AS pool, max(height) AS last_height, max_by(day, height) AS last_day
            FROM block_owner
            WHERE grouped_by = 'pool' AND is_unknown
            GROUP BY owner
        )
        SELECT
            pool_share_window.*, empty_intervals.empty_ratio,
            coalesce(pool_life.last_height, last_unnamed.last_height) AS last_height,
            coalesce(pool_life.last_day, last_unnamed.last_day) AS last_day
        FROM pool_share_window
        LEFT JOIN empty_intervals USING (pool)
        LEFT JOIN pool_life USING (pool)
        LEFT JOIN last_unnamed USING (pool)
        WHERE time_window = ?
        ORDER BY is_unknown, rank, pool
        """,
        chosen,
    )


def spanned_windows(reader: Reader) -> list[str]:
    """Return the names of the time windows that the dataset holds: at least nine tenths of their time."""
    found = {row["time_window"] for row in reader.rows("SELECT DISTINCT time_window FROM pool_share_window")}
    return [name for name, window in WINDOWS.items() if window in found]


def pool(reader: Reader, slug: str) -> Mapping[str, Any]:
    """Return all that is known of one pool, as a dict of rows from several marts.

    Raises NotFoundError if neither a block nor a rule names the pool.
    """
    named = _named_pool(reader, slug)
    owners = reader.rows("FROM entities WHERE slug = ? ORDER BY ALL", slug)
    return {
        **named,
        **_parts(reader, POOL_PARTS, "pool", slug),
        "owners": owners,
        "blocks": blocks(reader, pool=slug, limit=24),
    }


def _named_pool(reader: Reader, slug: str) -> Row:
    """Return slug, name and link of a pool. Raises NotFoundError if neither a block nor a rule names it."""
    named = reader.rows("SELECT slug AS pool, name AS pool_name, link FROM pools WHERE slug = ?", slug)
    named = named or reader.rows(
        "SELECT DISTINCT pool, pool_name, NULL AS link FROM pool_share WHERE pool = ?", slug
    )
    if not named:
        raise NotFoundError("no rule and no block names such a pool")
    return named[0]


def blocks(
    reader: Reader,
    *,
    limit: int,
    offset: int = 0,
    pool: str | None = None,
    from_height: int | None = None,
    to_height: int | None = None,
) -> list[Row]:
    """Return a row per block, the highest first; stale blocks follow the active one of their height.

    Raises NotFoundError for a pool that neither a block nor a rule names.
    """
    named = "block_hash IN (SELECT block_hash FROM block_pool WHERE pool = ?)"
    asked = [(named, pool), ("height >= ?", from_height), ("height <= ?", to_height)]
    given = [(condition, value) for condition, value in asked if value is not None]
    where = " AND ".join(condition for condition, _ in given) or "true"
    chosen = f"""
        WITH chosen AS MATERIALIZED (
            FROM chain_blocks WHERE {where}
            ORDER BY height DESC, is_active DESC, block_hash LIMIT ? OFFSET ?
        ),
    """
    found = reader.rows(_after_with(chosen), *(value for _, value in given), limit, offset)
    if not found and pool not in (None, UNKNOWN):  # a pool that is there may have no blocks, too
        _named_pool(reader, pool)
    return found


def block(reader: Reader, named: str) -> Mapping[str, Any]:
    """Return all that is known of one block, given by its hash in display order or its height, as a dict.

    A height means the block of the active chain. Raises NotFoundError if the dataset has no such block.
    """
    condition, value = _block_condition(named)
    chosen = f"WITH chosen AS MATERIALIZED (FROM chain_blocks WHERE {condition} LIMIT 1),"
    found = reader.rows(_after_with(chosen), value)
    if not found:
        raise NotFoundError("the dataset has no valid block of this hash or height")
    block_hash = found[0]["block_hash"]
    coinbase = reader.rows(
        """
        SELECT
            lower(hex(coinbase_script)) AS coinbase_script,
            CAST(coinbase_script AS VARCHAR) AS coinbase_text,
            list_transform(
                coinbase_outputs,
                lambda output: struct_pack(value_sat := output.value_sat, script := lower(hex(output.script)))
            ) AS coinbase_outputs,
            coinbase_value_sat,
            bits,
            label,
            pool_told_by
        FROM block_facts WHERE block_hash = ?
        """,
        block_hash,
    )
    around = reader.rows(
        "SELECT block_hash, height, is_active FROM chain_blocks WHERE height BETWEEN ? AND ? ORDER BY ALL",
        found[0]["height"] - 1,
        found[0]["height"] + 1,
    )
    return {
        **found[0],
        **(coinbase[0] if coinbase else {}),
        "around": [row for row in around if row["block_hash"] != block_hash],
        **_parts(reader, BLOCK_PARTS, "block_hash", block_hash),
    }


def coverage(reader: Reader) -> Mapping[str, list[Row]]:
    """Return for each node and topic how much was observed, and the MOST_LISTED newest holes and intervals.

    The checks that found something or could not run are added.
    """
    newest = "FROM {} ORDER BY from_at DESC, node, topic LIMIT ?"
    return {
        "summary": covered(reader),
        "holes": reader.rows(newest.format("coverage_hole"), MOST_LISTED),
        "intervals": reader.rows(newest.format("coverage_intervals"), MOST_LISTED),
        "checks": reader.rows(
            "FROM check_results WHERE n_offending > 0 OR missing IS NOT NULL ORDER BY name"
        ),
    }


def drawn_coverage(reader: Reader, width: int) -> list[Row]:
    """Return all observed intervals of each node and topic, to be drawn on a bar of so many pixels.

    Those that are less than a pixel apart are one row; `n_intervals` of it tells how many they are.
    """
    return reader.rows(
        """
        WITH placed AS (
            SELECT
                observed.*, (epoch_us(whole.to_at) - epoch_us(whole.from_at)) / ? AS pixel_us,
                max(epoch_us(observed.to_at)) OVER (
                    PARTITION BY node, topic ORDER BY observed.from_at
                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
                ) AS reached_us
            FROM coverage_intervals AS observed INNER JOIN coverage_summary AS whole USING (node, topic)
        ),
        numbered AS (
            SELECT
                *, count_if(coalesce(epoch_us(from_at) - reached_us >= pixel_us, true)) OVER in_order AS place
            FROM placed
            WINDOW in_order AS (PARTITION BY node, topic ORDER BY from_at ROWS UNBOUNDED PRECEDING)
        )
        SELECT node, topic, min(from_at) AS from_at, max(to_at) AS to_at, count(*) AS n_intervals
        FROM numbered
        GROUP BY node, topic, place
        ORDER BY node, topic, place
        """,
        width,
    )


def covered(reader: Reader) -> list[Row]:
    """Return a row per node and topic: its window of time, and how much of it was observed."""
    return reader.cached("coverage", lambda each: each.rows("FROM coverage_summary ORDER BY node, topic"))


def sources(reader: Reader) -> list[str]:
    """Return from whom the blocks of the dataset are: observed, backfilled, or names of third parties."""
    query = "SELECT DISTINCT told_by FROM chain_blocks WHERE told_by IS NOT NULL ORDER BY ALL"
    return reader.cached("sources", lambda each: [row["told_by"] for row in each.rows(query)])


def told_by(rows: Iterable[Row]) -> list[str]:
    """Return who told some rows, from their column `told_by`, sorted; empty if they have none."""
    found: set[str] = set()
    for row in rows:
        said = row.get("told_by")
        found |= {said} if isinstance(said, str) else set(said or ())
    return sorted(found)


def find(reader: Reader, text: str) -> str:
    """Return the path of the page for a search text: a height, a block hash, a txid, or the name of a pool.

    Raises NotFoundError if nothing fits.
    """
    wanted = text.strip()
    value = _hash(wanted)
    if value is not None:
        known = reader.rows("SELECT 1 AS one FROM chain_blocks WHERE block_hash = ?", value)
        return f"/blocks/{wanted.lower()}" if known else f"/tx/{wanted.lower()}"
    if wanted.isdigit():
        return f"/blocks/{block(reader, wanted)['height']}"
    named = reader.rows(
        """
        SELECT pool FROM pool_share
        WHERE lower(pool) = lower(?) OR lower(pool_name) = lower(?) OR contains(lower(pool_name), lower(?))
        ORDER BY lower(pool) = lower(?) DESC, block_count DESC LIMIT 1
        """,
        *[wanted] * 4,
    )
    if not named or not wanted:
        raise NotFoundError("nothing fits; search for a height, a block hash, a txid or the name of a pool")
    return f"/pools/{named[0]['pool']}"


def txid_bytes(text: str) -> bytes:
    """Convert a txid of 64 hex digits in display order to bytes. Raises NotFoundError for another text."""
    value = _hash(text)
    if value is None:
        raise NotFoundError("this is no txid; a txid has 64 hex digits")
    return value


def _hash(text: str) -> bytes | None:
    try:
        return hash_bytes(text)
    except ValueError:
        return None


def _block_condition(named: str) -> tuple[str, bytes | int]:
    """Return the SQL condition for a block given by hash or height, and the value of its parameter."""
    value = _hash(named)
    if value is not None:
        return "block_hash = ?", value
    if not (named.isascii() and named.isdigit() and len(named) <= HEIGHT_DIGITS):
        raise NotFoundError("this names no block; write its height or its hash of 64 hex digits")
    return "is_active AND height = ?", int(named)


def _after_with(chosen: str) -> str:
    """Return the SQL for the rows of the blocks that the common table expression `chosen` selects."""
    return chosen + BLOCKS.strip().removeprefix("WITH")


def _parts(
    reader: Reader, parts: Mapping[str, MartRows], column: str, value: Any
) -> dict[str, Sequence[Row]]:
    """Return, for each query in `parts`, its rows that have `value` in `column`, by the part's name."""
    return {
        name: reader.rows(
            f"SELECT {part.columns} FROM {part.mart} WHERE {column} = ? AND {part.where}"  # noqa: S608 - our names
            f" ORDER BY {part.order} LIMIT {part.most}",
            value,
        )
        for name, part in parts.items()
    }


def mart_rows(reader: Reader, name: str, *, limit: int, offset: int) -> list[Row]:
    """Return rows of a mart in the order in which it is stored; those of a view in the order of its grain."""
    order = reading_order(name)
    return reader.rows(f"SELECT * FROM {name}{order} LIMIT ? OFFSET ?", limit, offset)  # noqa: S608 - names of the catalog
