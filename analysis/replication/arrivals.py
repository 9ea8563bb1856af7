"""Loads published arrival times of blocks, and makes from them the interval before each block.

The files have the form of github.com/bitcoin-data/block-arrival-times: lines of height, block hash and
milliseconds since 1970, without a line of names; the name of a file is the name of its source. Two tables of
a DuckDB connection are made:

    arrival_stamps     source, preference, height, arrived_ms   one stamp per height
    arrival_intervals  source, preference, height, interval_s   time since the block one height below

Both stamps of an interval are from one source, because clocks of two machines differ.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from analysis.errors import PublishedDataError
from analysis.replication.statement import one_row

# A run of so many blocks within so many seconds was fetched after a pause: chance makes one in 10 million.
CATCH_UP_BLOCKS: Final = 6
CATCH_UP_S: Final = 60
MS_PER_S: Final = 1000

READ: Final = """
    INSERT INTO arrival_rows
    SELECT $1, $2, height, block_hash, arrived_ms
    FROM read_csv(
        $3, header = false, delim = ',', auto_detect = false,
        columns = {'height': 'INTEGER', 'block_hash': 'VARCHAR', 'arrived_ms': 'BIGINT'}
    )
"""
MAKE: Final = f"""
    CREATE TABLE arrival_stamps AS
    WITH single AS (
        SELECT source, any_value(preference) AS preference, height, min(arrived_ms) AS arrived_ms
        FROM arrival_rows
        GROUP BY source, height
        HAVING count(DISTINCT block_hash) = 1
    ),
    -- The run of blocks that begins at each block, if it has no gap.
    runs AS (
        SELECT
            *,
            lead(height, {CATCH_UP_BLOCKS - 1}) OVER of_source = height + {CATCH_UP_BLOCKS - 1}
            AND lead(arrived_ms, {CATCH_UP_BLOCKS - 1}) OVER of_source - arrived_ms < {CATCH_UP_S * MS_PER_S}
            AS begins_catch_up
        FROM single
        WINDOW of_source AS (PARTITION BY source ORDER BY height)
    )
    SELECT
        source, preference, height, arrived_ms,
        coalesce(bool_or(begins_catch_up) OVER (
            PARTITION BY source ORDER BY height ROWS BETWEEN {CATCH_UP_BLOCKS - 1} PRECEDING AND CURRENT ROW
        ), false) AS is_catch_up
    FROM runs;

    CREATE TABLE arrival_intervals AS
    SELECT
        block.source, block.preference, block.height,
        (block.arrived_ms - parent.arrived_ms) / {MS_PER_S} AS interval_s
    FROM arrival_stamps AS block
    INNER JOIN arrival_stamps AS parent ON block.source = parent.source AND block.height = parent.height + 1
    WHERE NOT block.is_catch_up AND NOT parent.is_catch_up AND block.arrived_ms >= parent.arrived_ms;
"""  # noqa: S608 - the numbers above


class ArrivalFacts(NamedTuple):
    """Counts the arrival times between two heights, and those that give no block interval.

    `n_forks` are heights with two blocks, `n_catch_up` blocks that a node fetched after a pause,
    `n_backwards` blocks that came before their parent. `whole_seconds` names the sources without fractions of
    a second.
    """

    n_stamps: int
    n_forks: int
    n_catch_up: int
    n_backwards: int
    whole_seconds: tuple[str, ...]


def load_arrivals(connection: duckdb.DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Make tables of arrival times and of block intervals from published files of arrivals.

    Where several files have an interval for a block, the first file counts. A height at which a source has
    two blocks is left out, because the file does not say which of them stayed. Blocks that a node fetched
    after a pause are left out too: their times do not say when they were found. Raises PublishedDataError,
    which names the file, if a file is missing or has another form.
    """
    connection.execute(
        "CREATE TABLE arrival_rows (source VARCHAR, preference INTEGER, height INTEGER,"
        " block_hash VARCHAR, arrived_ms BIGINT)"
    )
    for preference, path in enumerate(files):
        if not path.is_file():
            raise PublishedDataError(f"{path} is no file; name a file of arrival times with --arrivals")
        try:
            connection.execute(READ, [path.stem, preference, str(path)])
            (n_wrong,) = one_row(
                connection,
                "SELECT count(*) FROM arrival_rows WHERE preference = $1"
                " AND NOT regexp_full_match(block_hash, '[0-9a-fA-F]{64}')",
                preference,
            )
            reason = f"{n_wrong} rows have no block hash" if n_wrong else ""
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
        if reason:
            raise PublishedDataError(
                f"{path} is no list of height, block hash and milliseconds ({reason}); see"
                " github.com/bitcoin-data/block-arrival-times for the form"
            )
    connection.execute(MAKE)


def arrival_facts(connection: duckdb.DuckDBPyConnection, first: int, last: int) -> ArrivalFacts:
    """Count the loaded arrival times from height `first` to `last`, both included, as ArrivalFacts."""
    n_stamps, n_catch_up, n_backwards = one_row(
        connection,
        """
        SELECT
            count(*),
            count(*) FILTER (WHERE block.is_catch_up),
            count(*) FILTER (WHERE block.arrived_ms < parent.arrived_ms)
        FROM arrival_stamps AS block
        LEFT JOIN arrival_stamps AS parent
            ON block.source = parent.source AND block.height = parent.height + 1
        WHERE block.height BETWEEN $1 AND $2
        """,
        first,
        last,
    )
    (n_heights,) = one_row(
        connection,
        "SELECT count(DISTINCT (source, height)) FROM arrival_rows WHERE height BETWEEN $1 AND $2",
        first,
        last,
    )
    rows = connection.execute(
        """
        SELECT source FROM arrival_stamps
        GROUP BY source HAVING bool_and(arrived_ms % $1 = 0) ORDER BY source
        """,
        [MS_PER_S],
    ).fetchall()
    return ArrivalFacts(
        n_stamps=n_stamps,
        n_forks=n_heights - n_stamps,
        n_catch_up=n_catch_up,
        n_backwards=n_backwards,
        whole_seconds=tuple(source for (source,) in rows),
    )
