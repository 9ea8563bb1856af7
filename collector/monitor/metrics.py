"""Count what the collector does, as metrics for Prometheus.

Names follow Prometheus: counters end in `_total`, and units are `_seconds` and `_bytes`. Labels have few and
fixed values (`node`, `topic`, `reason`, `table`): no txid, no address, nothing that a stranger chooses.
"""

import shutil
import threading
import time
from collections import Counter as TopicCounts
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from collector.dataset.schema import LOSS_REASONS, TABLES, ZMQ_TOPICS
from collector.receive.records import Message

PREFIX: Final = "pool_collector_"
LAG_BUCKETS_S: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
SEAL_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class NodeState(NamedTuple):
    """Describes how one node's recording stands at the end of a turn of its thread.

    `in_step` says that our mempool equals the node's, `away` that the node does not answer; n_ are counts, _s
    seconds.
    """

    in_step: bool
    away: bool  # its RPC does not answer
    n_mempool: int
    n_queued: int
    n_waiting: int  # messages in the journal whose rows are not complete
    waiting_s: float = 0.0  # for how long the oldest of them has waited
    lag_s: float = 0.0  # age of the oldest message of the last turn when it reached the journal
    turn_s: float = 0.0  # when that turn ended, on the monotonic clock
    reason: str = ""  # why it is away, if we know more than that its RPC does not answer
    silent: tuple[str, ...] = ()  # topics that say nothing although the node has something to say


class Storage(Protocol):
    """Is the owner of one node's journal, which knows whether the journal can be written."""

    @property
    def blocked(self) -> str:
        """Return why the journal cannot be written now; empty when it can be written."""


class StoreCopy(Protocol):
    """Copies sealed files into an object store, and knows how far that is."""

    last_at_s: float | None  # when the store was last seen to have every sealed file; Unix time

    @property
    def blocked(self) -> str:
        """Return why the store does not take files now; empty when it takes them."""

    def waiting(self) -> tuple[int, int]:
        """Return how many sealed files, and bytes in them, the store does not have yet."""


AWAY: Final = NodeState(in_step=False, away=True, n_mempool=0, n_queued=0, n_waiting=0)


class Metrics:
    """Holds the Prometheus counters and gauges of this process; several threads may use it at once.

    `nodes` are the names of the nodes. Their counters, and that of each table's rows, exist from the start
    with the value 0, because Prometheus sees no increase in a counter that first appears with the value 1.
    """

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)  # memory, processor time, open files
        PlatformCollector(registry=self.registry)
        self._lock = threading.Lock()
        self._states: dict[str, NodeState] = {}
        self._lag_s: dict[str, float] = {}
        self._storages: dict[str, Storage] = {}
        self._store: StoreCopy | None = None
        self._messages = self._counter("messages", "ZMQ messages received.", "node", "topic")
        self._losses = self._counter("losses", "Gaps in a stream.", "node", "topic", "reason")
        self._resyncs = self._counter(
            "resyncs", "Times our copy of the mempool was dropped and asked for again.", "node", "reason"
        )
        self._sessions = self._counter("sessions", "Runs of the node that were followed.", "node")
        self._rows = self._counter("rows", "Rows made.", "table")
        self._files = self._counter("files", "Parquet files sealed.")
        self._lag = self._histogram("lag_seconds", "From receipt to the journal, per turn.", LAG_BUCKETS_S)
        self._seal = self._histogram("seal_seconds", "Duration of a seal.", SEAL_BUCKETS_S)
        self._sealed = self._gauge(
            "last_seal_timestamp_seconds",
            "When the last seal ended; at first, when the collector started.",
            "node",
        )
        self._last = self._gauge(
            "last_message_timestamp_seconds",
            "When the topic's last message came; at first, when the collector started.",
            "node",
            "topic",
        )
        self._turn = self._gauge(
            "last_turn_timestamp_seconds", "When the node's thread last took a turn.", "node"
        )
        self._offset = self._gauge(
            "clock_offset_seconds", "Our clock minus the node host's at the session's start.", "node"
        )
        self._in_step = self._gauge("in_step", "1 while our copy of the mempool equals the node's.", "node")
        self._away = self._gauge("rpc_away", "1 while the node's RPC does not answer.", "node")
        self._mempool = self._gauge(
            "mempool_transactions", "Transactions in our copy of the mempool.", "node"
        )
        self._queued = self._gauge("queued_messages", "Messages received and not yet journalled.", "node")
        self._waiting = self._gauge(
            "waiting_messages", "Messages journalled whose rows are incomplete.", "node"
        )
        self._oldest = self._gauge("oldest_waiting_seconds", "Age of the oldest incomplete row.", "node")
        self._storage = self._gauge("storage_blocked", "1 while the journal cannot be written.", "node")
        self._build = self._gauge("build_info", "1, labelled with our version.", "version")
        self._build.labels(metadata.version("pool-measurement")).set(1)
        self._expect(nodes)

    def began(self, node: str, facts: Mapping[str, Any]) -> None:
        """Count the start of a session with a node; `facts` is the session's row of the table `nodes`."""
        self._sessions.labels(node).inc()
        if facts.get("clock_offset_us") is not None:
            self._offset.labels(node).set(facts["clock_offset_us"] / 1e6)

    def received(self, node: str, messages: Sequence[Message]) -> None:
        """Count messages from a node and record how late they reached the journal.

        `messages` are the messages of one turn in the order of arrival; call this when they are in the
        journal.
        """
        lag_s = max(0.0, time.time() - messages[0].received_ns / 1e9) if messages else 0.0
        self._lag_s[node] = lag_s
        if not messages:
            return
        self._lag.labels(node).observe(lag_s)
        newest = {message.topic: message.received_ns for message in messages}
        for topic, count in TopicCounts(message.topic for message in messages).items():
            self._messages.labels(node, topic).inc(count)
            self._last.labels(node, topic).set(newest[topic] / 1e9)

    def lost(self, node: str, topic: str, reason: str) -> None:
        """Count one loss in the stream of a node's topic; `reason` is an `end_reason` of table `coverage`."""
        self._losses.labels(node, topic, reason).inc()

    def resynced(self, node: str, reason: str) -> None:
        """Count that we stopped trusting our copy of a node's mempool and asked for a new snapshot."""
        self._resyncs.labels(node, reason).inc()

    def wrote(self, rows: Mapping[str, int]) -> None:
        """Count rows that were made; `rows` maps the name of each table to its number of new rows."""
        for table, count in rows.items():
            self._rows.labels(table).inc(count)

    def sealed(self, node: str, duration_s: float, n_files: int) -> None:
        """Count the Parquet files that a node's thread has just sealed, and record how long the seal took."""
        self._seal.labels(node).observe(duration_s)
        self._sealed.labels(node).set_to_current_time()
        self._files.inc(n_files)

    def state(self, node: str, state: NodeState) -> None:
        """Set a node's Prometheus gauges to `state`, to which the lag and the present time are added."""
        state = state._replace(lag_s=self._lag_s.get(node, 0.0), turn_s=time.monotonic())
        with self._lock:
            self._states[node] = state
        self._turn.labels(node).set_to_current_time()
        self._in_step.labels(node).set(state.in_step)
        self._away.labels(node).set(state.away)
        self._mempool.labels(node).set(state.n_mempool)
        self._queued.labels(node).set(state.n_queued)
        self._waiting.labels(node).set(state.n_waiting)
        self._oldest.labels(node).set(state.waiting_s)

    def turned(self, node: str) -> None:
        """Record that a node's thread is still at work, so that a long turn does not count as a hang."""
        with self._lock:
            if node in self._states:
                self._states[node] = self._states[node]._replace(turn_s=time.monotonic())

    def away(self, node: str, reason: str = "") -> None:
        """Record that a node does not answer or cannot be followed yet; `reason` says why, if it is known."""
        self.state(node, AWAY._replace(reason=reason))

    def states(self) -> dict[str, NodeState]:
        """Return the last reported state of each node, by the node's name."""
        with self._lock:
            return dict(self._states)

    def report_storage(self, node: str, storage: "Storage") -> None:
        """Report at each scrape whether a node's journal can be written, by asking `storage`.

        The node's own thread cannot report this, because it waits until the journal can be written.
        """
        self._storages[node] = storage
        self._storage.labels(node).set_function(lambda: float(bool(storage.blocked)))

    def blocked(self) -> dict[str, str]:
        """Map each node whose journal cannot be written to the reason."""
        reasons = {node: storage.blocked for node, storage in list(self._storages.items())}
        return {node: reason for node, reason in reasons.items() if reason}

    def report_store(self, store: StoreCopy) -> None:
        """Report at each scrape which files the object store still lacks, and whether it takes files."""
        self._store = store
        self.registry.register(_Store(store))

    def store_blocked(self) -> str:
        """Return why the object store takes no files now, and how many wait; empty if it takes files."""
        if self._store is None or not self._store.blocked:
            return ""
        n_files, n_bytes = self._store.waiting()
        return f"{n_files} sealed files ({n_bytes / 1e6:.1f} MB) wait for the store: {self._store.blocked}"

    def report_disk(self, dataset: Path, journals: Mapping[str, Path]) -> None:
        """Report at each scrape the free space of the dataset's disk and the size of each node's journal.

        `journals` maps the name of each node to the folder of its journal.
        """
        self.registry.register(_Disk(dataset, journals))

    def _expect(self, nodes: Iterable[str]) -> None:
        """Create the counters of nodes and rows with the value 0, and start the times since message and seal.

        An alert on such a time would see nothing if the first message or seal never came.
        """
        for table in TABLES:
            self._rows.labels(table)
        for node in nodes:
            self._sessions.labels(node)
            self._in_step.labels(node)
            self._away.labels(node)
            self._sealed.labels(node).set_to_current_time()
            for reason in LOSS_REASONS:
                self._resyncs.labels(node, reason)
            for topic in ZMQ_TOPICS:
                self._messages.labels(node, topic)
                self._last.labels(node, topic).set_to_current_time()
                for reason in LOSS_REASONS:
                    self._losses.labels(node, topic, reason)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(PREFIX + name, text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(PREFIX + name, text, ("node",), buckets=buckets, registry=self.registry)


class _Disk(Collector):
    """Measures free disk space and journal sizes at each scrape, from the file system."""

    def __init__(self, dataset: Path, journals: Mapping[str, Path]) -> None:
        self._dataset = dataset
        self._journals = journals

    def collect(self) -> Iterator[GaugeMetricFamily]:
        free = GaugeMetricFamily(PREFIX + "disk_free_bytes", "Free space where the dataset is.")
        with suppress(OSError):  # a folder that is gone must not cost the scrape all other numbers
            free.add_metric([], shutil.disk_usage(self._dataset).free)
        yield free
        journal = GaugeMetricFamily(
            PREFIX + "journal_bytes", "Size of what is received and not yet sealed.", labels=["node"]
        )
        for node, folder in self._journals.items():
            journal.add_metric([node], _size_bytes(folder))
        yield journal


class _Store(Collector):
    """Reports at each scrape how far the copy of the dataset in an object store is up to date."""

    def __init__(self, store: StoreCopy) -> None:
        self._store = store

    def collect(self) -> Iterator[GaugeMetricFamily]:
        n_files, n_bytes = self._store.waiting()
        values = {
            "store_blocked": ("1 while the object store takes no files.", float(bool(self._store.blocked))),
            "store_waiting_files": ("Sealed files that the object store does not have yet.", n_files),
            "store_waiting_bytes": ("Size of these files.", n_bytes),
            "store_complete_timestamp_seconds": (
                "When the object store last had every sealed file.",
                self._store.last_at_s or 0.0,
            ),
        }
        for name, (text, value) in values.items():
            yield GaugeMetricFamily(PREFIX + name, text, value)


def _size_bytes(folder: Path) -> int:
    """Return the total size of the journal segments in a folder; one that cannot be examined counts as 0."""
    total = 0
    for segment in folder.glob("*.journal"):
        with suppress(OSError):  # it may have vanished
            total += segment.stat().st_size
    return total
