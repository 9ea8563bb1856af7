"""What a status says. Times are UTC, as text."""

from dataclasses import dataclass, field


@dataclass
class TableStatus:
    """One table, by the footers of its files; `first` and `last` are times or heights."""

    name: str
    n_files: int = 0
    n_rows: int = 0
    n_bytes: int = 0
    first: str | None = None
    last: str | None = None


@dataclass
class Gap:
    """A time in which a topic was not observed, in the last day."""

    topic: str
    from_at: str
    to_at: str | None  # None: it goes on
    duration_s: float
    reason: str


@dataclass
class NodeStatus:
    """One node, as the dataset and its journal have it; `live` is what /metrics says now, if it answers."""

    name: str
    session: str
    n_sessions: int
    started_at: str
    software: str  # user agent: chosen by the node
    is_running: bool  # a collector holds its journal
    observed_until: str | None = None
    behind_s: float | None = None  # now minus that
    tip_height: int | None = None  # the highest that the node was seen to connect
    stored_height: int | None = None  # the highest block of the dataset
    rows_per_s: float | None = None  # over the last hour that has any
    txs_per_s: float | None = None
    gaps: list[Gap] = field(default_factory=list)
    n_segments: int = 0  # of the journal: received and not sealed
    journal_bytes: int = 0
    live: dict[str, float] | None = None


@dataclass
class Status:
    """A dataset at one moment."""

    dataset: str
    chain: str
    is_running: bool
    tables: list[TableStatus]
    nodes: list[NodeStatus]
    unreadable: list[str]  # files that were left out
