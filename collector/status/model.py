"""Hold the data that `pool-collector status` shows. Times are ISO 8601 in UTC, as text, to the second."""

from dataclasses import dataclass, field
from typing import Final

DAY: Final = "day_at"  # the column of tables whose rows are each about a day
HEIGHT: Final = "height"  # the column by which tables of blocks have their span


@dataclass
class TableStatus:
    """Holds the size of one table: files, rows and bytes, counted from the footers of its files.

    `first` and `last` are the least and greatest value of the column `span_column`: a time, or a height.
    """

    name: str
    span_column: str  # what the rows are about: `height`, `day_at`, `entered_at` and so on
    n_files: int = 0
    n_rows: int = 0
    n_bytes: int = 0
    first: int | str | None = None
    last: int | str | None = None


@dataclass
class Gap:
    """Describes a span in which a topic was not observed, at least in part in the last 24 hours."""

    topic: str
    from_at: str
    to_at: str | None  # None: the gap is not over
    duration_s: float
    reason: str


@dataclass
class NodeStatus:
    """Holds what the dataset and the journal say about the recording of one node.

    `metrics` has the values that the running collector serves for the node at /metrics; None if it does not
    answer.
    """

    name: str
    session: str
    n_sessions: int
    started_at: str
    software: str  # user agent, which the node chooses itself
    is_running: bool  # a collector holds the lock of its journal
    observed_until: str | None = None
    behind_s: float | None = None  # now minus `observed_until`
    tip_height: int | None = None  # the highest block that the node connected
    stored_height: int | None = None  # the highest block in the dataset
    rows_per_s: float | None = None  # over the last recorded hour
    txs_per_s: float | None = None
    gaps: list[Gap] = field(default_factory=list)
    n_intervals_ahead: int = 0  # intervals of coverage that begin in the future; they are left out
    n_segments: int = 0  # segments of the journal, not sealed yet
    journal_bytes: int = 0
    metrics: dict[str, float] | None = None


@dataclass
class StoreStatus:
    """Holds the status of the object store to which the running collector copies sealed files."""

    address: str
    is_blocked: bool  # the store takes no files now
    n_waiting: int  # sealed files that the store does not have yet
    waiting_bytes: int
    complete_at: str | None  # when it last had every sealed file


@dataclass
class Status:
    """Holds the status of a dataset at one moment: its tables, its nodes, and files that cannot be read."""

    dataset: str
    chain: str
    is_running: bool
    tables: list[TableStatus]
    nodes: list[NodeStatus]
    store: StoreStatus | None  # of the collector that runs; None without one, or if it does not answer
    unreadable: list[str]  # files that could not be read
