"""Numbers about the collector, for Prometheus and for a health check; served on loopback only."""

import json
import threading
from collections import Counter as TopicCounts
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from collector.errors import SettingsError
from collector.records import Message
from collector.rpc import is_loopback

SEAL_BUCKETS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class NodeState(NamedTuple):
    """How one node's session stands after a turn."""

    in_step: bool
    away: bool  # its RPC does not answer
    n_mempool: int
    n_queued: int
    n_waiting: int  # messages in the journal whose rows are not complete
    waiting_s: float = 0.0  # for how long the oldest of them has waited


class Metrics:
    """Counters and gauges of one process. Safe to use from several threads."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._states: dict[str, NodeState] = {}
        self._messages = Counter(
            "pool_collector_messages", "ZMQ messages received.", ("node", "topic"), registry=self.registry
        )
        self._losses = Counter(
            "pool_collector_losses", "Holes in a stream.", ("node", "topic", "reason"), registry=self.registry
        )
        self._rows = Counter("pool_collector_rows", "Rows made.", ("table",), registry=self.registry)
        self._files = Counter("pool_collector_files", "Parquet files sealed.", registry=self.registry)
        self._seal = Histogram(
            "pool_collector_seal_seconds",
            "Duration of a seal.",
            registry=self.registry,
            buckets=SEAL_BUCKETS_S,
        )
        self._in_step = self._per_node("in_step", "1 when our copy of the mempool is the node's.")
        self._away = self._per_node("rpc_away", "1 while the node's RPC does not answer.")
        self._mempool = self._per_node("mempool_transactions", "Transactions in our copy of the mempool.")
        self._queued = self._per_node("queued_messages", "Messages received and not yet journalled.")
        self._waiting = self._per_node("waiting_messages", "Messages journalled whose rows are incomplete.")
        self._oldest = self._per_node("oldest_waiting_seconds", "Age of the oldest incomplete row.")
        self._last = self._per_node("last_message_timestamp_seconds", "When the last message came.")

    def received(self, node: str, messages: Sequence[Message]) -> None:
        """Count messages of a node, given in the order they came."""
        if messages:
            self._last.labels(node).set(messages[-1].received_ns / 1e9)
        for topic, count in TopicCounts(message.topic for message in messages).items():
            self._messages.labels(node, topic).inc(count)

    def lost(self, node: str, topic: str, reason: str) -> None:
        """Count a hole in a stream."""
        self._losses.labels(node, topic, reason).inc()

    def wrote(self, rows: Mapping[str, int]) -> None:
        """Count rows by table."""
        for table, count in rows.items():
            self._rows.labels(table).inc(count)

    def sealed(self, duration_s: float, n_files: int) -> None:
        """Count a seal."""
        self._seal.observe(duration_s)
        self._files.inc(n_files)

    def state(self, node: str, state: NodeState) -> None:
        """Note how a node's session stands."""
        self._states[node] = state
        self._in_step.labels(node).set(state.in_step)
        self._away.labels(node).set(state.away)
        self._mempool.labels(node).set(state.n_mempool)
        self._queued.labels(node).set(state.n_queued)
        self._waiting.labels(node).set(state.n_waiting)
        self._oldest.labels(node).set(state.waiting_s)

    def _per_node(self, name: str, text: str) -> Gauge:
        return Gauge(f"pool_collector_{name}", text, ("node",), registry=self.registry)

    def health(self) -> tuple[bool, bytes]:
        """Return whether every node is followed, and the same per node as JSON."""
        nodes = {name: {"in_step": state.in_step, "away": state.away} for name, state in self._states.items()}
        is_well = bool(nodes) and all(node["in_step"] and not node["away"] for node in nodes.values())
        return is_well, json.dumps({"ok": is_well, "nodes": nodes}).encode()


class MetricsServer:
    """Serves /metrics and /healthz at a loopback address until closed."""

    def __init__(self, address: str, metrics: Metrics) -> None:
        host, _, port = address.rpartition(":")
        if not is_loopback(host.strip("[]")):
            raise SettingsError(f"metrics: {address} is not a loopback address; write 127.0.0.1:{port}")

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/metrics":
                    self._answer(200, CONTENT_TYPE_LATEST, generate_latest(metrics.registry))
                elif self.path == "/healthz":
                    is_well, body = metrics.health()
                    self._answer(200 if is_well else 503, "application/json", body)
                else:
                    self._answer(404, "text/plain", b"/metrics and /healthz are here\n")

            def _answer(self, status: int, content_type: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", content_type)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Stay silent: a scrape is no event."""

        try:
            self._server = ThreadingHTTPServer((host.strip("[]"), int(port)), Handler)
        except OSError as error:
            raise SettingsError(f"metrics: cannot listen on {address}: {error.strerror}") from None
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
