"""Name the kinds of ranges in which marts are made, and the SQL variables with the bounds of one range."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import duckdb

FROM, TO = "range_from", "range_to"
FROM_AT, TO_AT = "range_from_at", "range_to_at"  # the same as times, where a range is a day
TO_POSITION: Final = "range_to_position"  # where the next day begins in a node's stream


class Kind(NamedTuple):
    """Describes a kind of range: the query of the first keys of all ranges, and the number of keys of one.

    A key is a number of a cut or a height. `times` are columns of staging models; each UTC day that their
    files reach has a range as well, and of a file that reaches far each day on which it has a time.
    """

    query: str
    width: int
    times: tuple[tuple[str, str], ...] = ()


DAY_KEYS: Final = 1_000_000_000  # keys begin anew with each day; see the macro window_key
DAY_US: Final = 86_400_000_000
PLACES_PER_US: Final = 1 << 32  # places in a node's stream; see the macro stream_position
CUT_DAYS: Final = "SELECT DISTINCT cut_no // 1000000000 * 1000000000 FROM mempool_cuts ORDER BY ALL"
NO_KEYS: Final = "SELECT 0 WHERE false"
MEMPOOL_TIMES: Final = (("stg_mempool_txs", "entered_at"), ("stg_mempool_events", "received_at"))
KINDS: Final[Mapping[str, Kind]] = {
    "days": Kind(CUT_DAYS, DAY_KEYS),
    # Days on which a mempool was observed, with or without a block; message_days do not depend on blocks.
    "mempool_days": Kind(CUT_DAYS, DAY_KEYS, MEMPOOL_TIMES),
    "message_days": Kind(NO_KEYS, DAY_KEYS, MEMPOOL_TIMES),
    # Only the blocks of this dataset have transactions; heights that others told make no range.
    "heights": Kind(
        "SELECT DISTINCT height // 200 * 200 FROM chain_blocks SEMI JOIN stg_blocks USING (block_hash)"
        " ORDER BY ALL",
        200,
    ),
}


def variables_of(first: int, width: int) -> dict[str, int]:
    """Return the SQL variables with the bounds of a mart's range that starts at the key `first`.

    A range of one day also gets its bounds as times, and its end as a place in a node's stream of messages.
    """
    found = {FROM: first, TO: first + width}
    if width == DAY_KEYS:
        end_us = (first // DAY_KEYS + 1) * DAY_US
        found |= {FROM_AT: end_us - DAY_US, TO_AT: end_us, TO_POSITION: end_us * PLACES_PER_US}
    return found


def set_variables(connection: duckdb.DuckDBPyConnection, variables: Mapping[str, int]) -> None:
    """Set the variables of a range in the DuckDB session."""
    for name, value in variables.items():
        shown = {
            FROM_AT: f"make_timestamptz({value})",
            TO_AT: f"make_timestamptz({value})",
            TO_POSITION: f"CAST({value} AS DECIMAL(38, 0))",
        }.get(name, str(value))
        connection.execute(f"SET VARIABLE {name} = {shown}")
