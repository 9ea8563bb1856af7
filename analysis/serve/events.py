"""Find events worth an alert in the results of a build; feed, metrics, webhooks and API tell the same ones.

An event, such as a new pool or a run of empty blocks, keeps its id from build to build, so none is told
twice. What each kind claims, and on which mart it rests, stands at its query.
"""

import datetime as dt
from collections.abc import Mapping
from typing import Final, NamedTuple

from analysis.report.text import printable
from analysis.row_output import HASH_BYTES, HEIGHT_KEY_END
from analysis.serve.lookups import IS_FIRST_TEMPLATE, IS_JUDGED
from analysis.serve.results import Reader, Row

SHARE_BOUND: Final = 1 / 3  # the whole interval of a share lies above it
MIN_EMPTY_RUN: Final = 3
MIN_TAG_BLOCKS: Final = 3
TAG_LENGTH: Final = (3, 30)  # characters, least and most
LOW_SCORE: Final = 0.5  # of one block
USUAL_SCORE: Final = 0.9  # of its pool: the lower end of the interval
MAX_EVENTS: Final = 500  # of each kind, the newest

QUERIES: Final[Mapping[str, str]] = {
    # Its first block came after a silence that is no chance.
    "new_pool": """
        SELECT pool AS key, pool, pool_name, first_height AS height, chain_blocks.header_time AS happened_at
        FROM pool_life
        INNER JOIN chain_blocks ON first_height = chain_blocks.height AND is_active
        WHERE is_birth
    """,
    # So many blocks that no rule names have the same text between two slashes, and no named block has it, as
    # those do that signal something. It happens with the last of so many; bytes that are no text are no tag.
    "new_tag": """
        WITH texts AS (
            SELECT
                block_hash, height, block_pool.is_unknown,
                coalesce(chain_blocks.arrived_at, chain_blocks.header_time) AS came_at,
                unnest(list_distinct(string_split(coinbase_text, '/')[2:-2])) AS tag
            FROM block_pool INNER JOIN chain_blocks USING (block_hash, height)
            WHERE is_active
        ),
        tags AS (
            SELECT *, row_number() OVER (PARTITION BY tag ORDER BY height) AS number
            FROM texts
            WHERE
                length(tag) BETWEEN $least_length AND $most_length
                AND regexp_full_match(tag, '[^\\\\]*[A-Za-z][^\\\\]*')
        )
        SELECT
            lower(hex(encode(tag))) AS key, tag, hash_hex(min_by(block_hash, height)) AS first_hash,
            min(height) AS height, count(*) AS n_blocks,
            max(came_at) FILTER (number = $min_tag_blocks) AS happened_at
        FROM tags
        GROUP BY tag
        HAVING bool_and(is_unknown) AND count(*) >= $min_tag_blocks
    """,
    # So many empty blocks of the active chain in a row, whoever mined them. The id is the first one's.
    "empty_run": """
        WITH empties AS (
            SELECT *, height - row_number() OVER (ORDER BY height) AS run_no
            FROM chain_blocks WHERE is_active AND is_empty
        )
        SELECT
            hash_hex(min_by(block_hash, height)) AS key, min(height) AS height, count(*) AS n_blocks,
            max(coalesce(arrived_at, header_time)) AS happened_at
        FROM empties
        GROUP BY run_no
        HAVING count(*) >= $min_empty_run
    """,
    # A node of ours had followed a branch and left it.
    "reorganisation": """
        SELECT
            hash_hex(first_hash) AS key, from_height AS height, followed_depth AS n_blocks,
            list_transform(pools, lambda slug: coalesce(pool_names_by_slug[slug], slug)) AS pool_names,
            coalesce(first_arrived_at, chain_blocks.header_time) AS happened_at
        FROM stale_branches
        CROSS JOIN (SELECT map_from_entries(list((slug, name))) AS pool_names_by_slug FROM pools)
        LEFT JOIN chain_blocks ON first_hash = chain_blocks.block_hash
        WHERE followed_depth > 0 AND NOT is_open
    """,
    # In the newest window of a length, the 95 % interval of a pool's share lies above the bound. No mart
    # tells since when, so the time and the sentence are those of the newest build.
    "large_share": """
        SELECT
            pool || ':' || time_window AS key, pool, pool_name, time_window, share_ratio, share_low_ratio,
            to_time AS happened_at
        FROM pool_share_window
        WHERE NOT is_unknown AND share_low_ratio > $share_bound
    """,
    # A block lacks half of what a fresh template promised, without excuse; its pool usually follows.
    # Little of the promise is excused.
    "template_anomaly": f"""
        WITH nearest AS (
            SELECT block_hash, score_ratio FROM template_audit_block
            WHERE is_active
            QUALIFY {IS_FIRST_TEMPLATE} AND {IS_JUDGED}
        ),
        usual AS (
            SELECT pool, min_by(score_low_ratio, from_age_s) AS score_low_ratio
            FROM template_audit GROUP BY pool
        )
        SELECT
            hash_hex(block_hash) AS key, chain_blocks.height, pool, pool_name, nearest.score_ratio,
            coalesce(arrived_at, header_time) AS happened_at
        FROM nearest
        INNER JOIN chain_blocks USING (block_hash)
        INNER JOIN block_pool USING (block_hash)
        INNER JOIN usual USING (pool)
        WHERE nearest.score_ratio < $low_score AND usual.score_low_ratio > $usual_score
    """,  # noqa: S608 - a condition of ours
}
TITLES: Final[Mapping[str, str]] = {
    "new_pool": "A new pool",
    "new_tag": "A tag that no rule names",
    "empty_run": "Empty blocks in a row",
    "reorganisation": "A reorganisation",
    "large_share": "A large share",
    "template_anomaly": "A block without what its template promised",
}


class Event(NamedTuple):
    """Describes one event worth an alert: stable id, kind, time, a sentence, and the path of its page."""

    event_id: str
    kind: str
    happened_at: dt.datetime | None
    sentence: str
    path: str


def events(reader: Reader) -> list[Event]:
    """Return the events of a build that are worth an alert, the newest first, at most MAX_EVENTS per kind."""
    return reader.cached("events", _events)


def _events(reader: Reader) -> list[Event]:
    values = {
        "min_empty_run": MIN_EMPTY_RUN,
        "min_tag_blocks": MIN_TAG_BLOCKS,
        "least_length": TAG_LENGTH[0],
        "most_length": TAG_LENGTH[1],
        "share_bound": SHARE_BOUND,
        "low_score": LOW_SCORE,
        "usual_score": USUAL_SCORE,
    }
    found = []
    for kind, query in QUERIES.items():
        named = {name: value for name, value in values.items() if f"${name}" in query}
        ordered = f"FROM ({query}) ORDER BY happened_at DESC NULLS LAST, key LIMIT {MAX_EVENTS}"
        found += [_event(kind, row) for row in reader.rows(ordered, **named)]
    first = dt.datetime.min.replace(tzinfo=dt.UTC)
    return sorted(found, key=lambda each: (each.happened_at or first, each.event_id), reverse=True)


def _event(kind: str, row: Row) -> Event:
    row = {**row, **{name: _block_name(row, name) for name in ("key", "first_hash") if name in row}}
    path = f"/blocks/{row.get('first_hash', row['key'])}"
    if kind in ("new_pool", "large_share"):
        path = f"/pools/{row['pool']}"
    return Event(f"{kind}:{row['key']}", kind, row["happened_at"], _sentence(kind, row), path)


def _block_name(row: Row, column: str) -> str:
    """Return the text in a column; where it is the key of a block whose hash nobody tells, its height."""
    text = str(row[column])
    is_height = len(text) == 2 * HASH_BYTES and text.startswith(HEIGHT_KEY_END.hex())  # in display order
    return str(row["height"]) if is_height else text


def _sentence(kind: str, row: Row) -> str:
    name = printable(row.get("pool_name", ""))
    if kind == "new_pool":
        return f"{name} mined its first block at height {row['height']}, after a silence that is no chance."
    if kind == "new_tag":
        return (
            f"{row['n_blocks']} blocks that no rule names have /{printable(row['tag'])}/ in the coinbase, the"
            f" first at height {row['height']}."
        )
    if kind == "empty_run":
        return f"{row['n_blocks']} empty blocks in a row begin at height {row['height']}."
    if kind == "reorganisation":
        blocks = "1 block" if row["n_blocks"] == 1 else f"{row['n_blocks']} blocks"
        pools = ", ".join(dict.fromkeys(map(printable, row["pool_names"])))
        return f"A node left a branch of {blocks} at height {row['height']}, by {pools}."
    if kind == "large_share":
        window = "all blocks" if row["time_window"] == "all" else f"the last {row['time_window']}"
        return (
            f"{name} mined {row['share_ratio']:.1%} of {window}; its 95 % interval begins at"
            f" {row['share_low_ratio']:.1%}, above the bound of {SHARE_BOUND:.1%}."
        )
    return (
        f"The block at height {row['height']} by {name} has {row['score_ratio']:.0%} of what a fresh template"
        " promised without excuse; the pool usually follows."
    )
