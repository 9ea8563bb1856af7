"""Keep the newest committed rows about blocks and losses, for readers of the live stream.

Beside each new block stands its match with the node's newest template, made of committed rows too.

Rows come here only after they are in the journal, so the stream never tells what a kill could take back. The
number of rows kept has a limit: a reader that was away for longer is told that it missed some. Those are in
the dataset.
"""

import datetime as dt
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from collector.dataset.schema import LOSS_REASONS, hash_hex
from collector.monitor.template_match import MATCHED_TABLES, TemplateMatches

MAX_ROWS: Final = 1000
MAX_OUTPUTS: Final = 50  # of a coinbase; more make the row too large to keep
MATCHES: Final = "template_matches"  # not a table: blocks compared with templates
# The columns of each table that the stream tells.
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "blocks": (
        *("block_hash", "prev_hash", "height", "header_time", "n_tx", "size_bytes", "weight_wu", "fees_sat"),
        *("subsidy_sat", "coinbase_script", "coinbase_outputs", "verdict"),
    ),
    "block_arrivals": ("node", "block_hash", "height", "event", "event_at", "kind"),
    "coverage": ("node", "topic", "from_at", "to_at", "end_reason", "detail"),
    MATCHES: ("node", "block_hash", "height", "taken_at", "n_promised", "n_matched", "n_extra"),
}
TABLES_TAKEN: Final = MATCHED_TABLES | (COLUMNS.keys() - {MATCHES})


class LiveRow(NamedTuple):
    """Holds one row of a table as a server-sent event: id, name of the table, columns as JSON.

    Each id is the one before plus 1, and higher after a restart, unless the clock was set back.
    """

    row_id: int
    message: bytes


class LiveRows:
    """Holds the newest committed rows of some tables, for live readers.

    Several threads may use it at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: deque[LiveRow] = deque(maxlen=MAX_ROWS)
        self._matches = TemplateMatches()
        self._last_id = time.time_ns() // 1000  # above every id of an earlier process, if the clock is right
        self._wake: Callable[[], object] | None = None
        self._is_awake = False

    @property
    def tables(self) -> frozenset[str]:
        """Return the names of the tables whose rows a live reader sees, or that template matches need."""
        return TABLES_TAKEN

    def take(self, table: str, rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> None:
        """Keep committed rows for live readers, and the template matches that follow from them.

        Rows of other tables, and coverage rows that end without a loss, are not kept.
        """
        if table in COLUMNS:
            self._keep(table, rows.to_pylist() if isinstance(rows, pa.RecordBatch) else rows)
        if table in MATCHED_TABLES:
            with self._lock:
                found = self._matches.take(table, rows)
            self._keep(MATCHES, found)

    def _keep(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        for row in rows:
            if table == "coverage" and row["end_reason"] not in LOSS_REASONS:
                continue
            content = json.dumps({name: _json(name, row.get(name)) for name in COLUMNS[table]})
            with self._lock:
                self._last_id += 1
                message = f"id: {self._last_id}\nevent: {table}\ndata: {content}\n\n".encode()
                self._rows.append(LiveRow(self._last_id, message))
                if self._wake is not None and not self._is_awake:
                    self._is_awake = True
                    self._wake()

    def wake_by(self, wake: Callable[[], object] | None) -> None:
        """Call `wake` when there is a new row, but then not again until `rearm`; None: call nothing.

        It is called by the thread that commits the row, which holds our lock meanwhile.
        """
        with self._lock:
            self._wake, self._is_awake = wake, False

    def rearm(self) -> None:
        """Wake again for the next row; call it before `since`, so that no row is overlooked."""
        with self._lock:
            self._is_awake = False

    def since(self, last_id: int | None) -> tuple[list[LiveRow], bool]:
        """Return the kept rows with ids above `last_id` (None: all), and whether rows in between are gone.

        An id above all of ours is of a process whose clock was ahead: all rows came after it, or some are
        gone.
        """
        with self._lock:
            n_kept = len(self._rows)
            is_ahead = last_id is not None and last_id > self._last_id
            n_after = n_kept if last_id is None or is_ahead else self._last_id - last_id
            kept = [self._rows[place] for place in range(-min(n_after, n_kept), 0)]
        return kept, is_ahead or n_after > n_kept


def _json(name: str, value: Any) -> Any:
    """Return a value of a row as JSON has it: hashes in display order, scripts in hex, times as text."""
    if isinstance(value, bytes):
        return hash_hex(value) if name.endswith("_hash") else value.hex()
    if isinstance(value, int) and name.endswith("_at"):
        value = dt.datetime.fromtimestamp(value / 1e6, dt.UTC)
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, list):
        outputs = [{key: _json(key, part) for key, part in item.items()} for item in value]
        return outputs if len(outputs) <= MAX_OUTPUTS else None
    return value
