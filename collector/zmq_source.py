"""Receive what one node publishes: stamp the time, check the counter, enqueue. Nothing is decoded here.

Every topic has a counter of its own in the last frame, 4 bytes little-endian. A jump is a loss between the
node and us (its queue was full, or the connection broke), a return to a smaller number a restart of the
node. Our own queue is bounded: what finds no room is dropped and reported, so memory stays bounded too.

What the node published before our subscription reached it is not seen here; the mempool sequence shows it.
"""

import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from collector.errors import NodeUnavailable
from collector.records import Message

N_FRAMES: Final = 3  # topic, body, counter
COUNTER_BYTES: Final = 4
COUNTER_RANGE: Final = 1 << 32
POLL_MS: Final = 200  # how soon a stop is noticed; messages do not wait for it
BURST: Final = 1000  # messages taken between two looks at the monitor
KEEPALIVE_IDLE_S: Final = 60
RECONNECT_MS: Final = (100, 5000)  # first and longest wait between attempts
# A subscription travels behind the handshake; Bitcoin Core's own tests wait as long for it.
SUBSCRIBE_SETTLE_S: Final = 0.2


class Notice(NamedTuple):
    """Something about the stream itself; it stands in the queue where it happened."""

    reason: str  # gap, overflow, node_restart, reconnect (lost), connected (back), malformed or failed
    topic: str | None  # None: it concerns no single topic
    received_ns: int
    detail: str
    body: bytes = b""  # malformed: the frames as received


class ZmqSource:
    """A thread that puts one node's messages, and notices about the stream, into `inbox`.

    `endpoints` maps topic to address, e.g. {"sequence": "tcp://127.0.0.1:28332"}. `inbox` may be shared with
    others; it counts as full with `queue_limit` items.
    """

    def __init__(
        self,
        node: str,
        session: str,
        endpoints: Mapping[str, str],
        *,
        inbox: "queue.SimpleQueue[Any]",
        queue_limit: int = 200_000,
    ) -> None:
        self.since_us = 0  # when the subscription stood
        self._node = node
        self._session = session
        self._endpoints = dict(endpoints)
        self._inbox = inbox
        self._queue_limit = queue_limit
        self._expected: dict[str, int] = {}
        self._dropped: dict[str, int] = {}  # by topic, since the last message that found room
        self._stopping = threading.Event()
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )
        self._thread = threading.Thread(target=self._run, name=f"receive-{node}", daemon=True)

    def connect(self, timeout_s: float = 5.0) -> None:
        """Subscribe, wait until every endpoint has shaken hands, and begin to receive.

        Raises NodeUnavailable naming the endpoints that stay silent.
        """
        self._socket.set(
            zmq.RCVHWM, 0
        )  # unlimited: our own queue is the bound, and says so when it overflows
        self._socket.set(zmq.TCP_KEEPALIVE, 1)
        self._socket.set(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S)
        self._socket.set(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        self._socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        for topic in self._endpoints:
            self._socket.subscribe(topic.encode())
        waiting = set(self._endpoints.values())
        for endpoint in waiting:
            self._socket.connect(endpoint)
        deadline = time.monotonic() + timeout_s
        while waiting:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not self._monitor.poll(left_ms):
                raise NodeUnavailable(self._silent(waiting, timeout_s))
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                waiting.discard(event["endpoint"].decode())
        self._thread.start()  # at once: a message that waits in a socket would be stamped too late
        time.sleep(SUBSCRIBE_SETTLE_S)
        self.since_us = time.time_ns() // 1000

    def stop(self) -> None:
        """End the thread and close the connection; what was received stays in the inbox. May be repeated."""
        self._stopping.set()
        if self._socket.closed:
            return
        if self._thread.ident is not None:
            self._thread.join()
        for topic in list(self._dropped):
            self._note_dropped(topic, time.time_ns())
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=0)
        self._context.term()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def _silent(self, endpoints: set[str], timeout_s: float) -> str:
        topics = ", ".join(
            f"{topic} at {at}" for topic, at in sorted(self._endpoints.items()) if at in endpoints
        )
        return (
            f"no ZMQ publisher answered within {timeout_s:g} s: {topics}; is the port open, and is it the "
            "address of the node's zmqpub settings?"
        )

    def _run(self) -> None:
        try:
            self._receive()
        except Exception as error:  # noqa: BLE001 - whatever ends this thread must end the service
            self._inbox.put(Notice("failed", None, time.time_ns(), f"{type(error).__name__}: {error}"))

    def _receive(self) -> None:
        poller = zmq.Poller()
        poller.register(self._socket, zmq.POLLIN)
        poller.register(self._monitor, zmq.POLLIN)
        while not self._stopping.is_set():
            ready = dict(poller.poll(POLL_MS))
            if self._socket in ready:
                with suppress(zmq.Again):
                    for _ in range(BURST):
                        frames = self._socket.recv_multipart(zmq.NOBLOCK)
                        self._take(frames, time.time_ns())
            if self._monitor in ready:
                event = recv_monitor_message(self._monitor)
                lost = event["event"] == zmq.EVENT_DISCONNECTED
                self._note_connection("reconnect" if lost else "connected", event["endpoint"].decode())

    def _note_connection(self, reason: str, endpoint: str) -> None:
        for topic, address in self._endpoints.items():
            if address == endpoint:
                self._inbox.put(Notice(reason, topic, time.time_ns(), endpoint))

    def _note_dropped(self, topic: str, now_ns: int) -> None:
        """Say how many messages of a topic found no room, if any: here it goes on, or ends."""
        n_dropped = self._dropped.pop(topic, 0)
        if n_dropped:
            detail = f"{n_dropped} messages found our queue of {self._queue_limit} full"
            self._inbox.put(Notice("overflow", topic, now_ns, detail))

    def _take(self, frames: list[bytes], received_ns: int) -> None:
        """Check the counter of one message and enqueue it, behind a notice when something is wrong."""
        topic = frames[0].decode("ascii", "replace")
        if len(frames) != N_FRAMES or len(frames[-1]) != COUNTER_BYTES or topic not in self._endpoints:
            detail = f"{len(frames)} frames of {[len(frame) for frame in frames]} bytes, topic {topic[:20]!r}"
            self._inbox.put(Notice("malformed", None, received_ns, detail, b"".join(frames)))
            return
        sequence = int.from_bytes(frames[2], "little")
        expected = self._expected.get(topic, sequence)
        self._expected[topic] = (sequence + 1) % COUNTER_RANGE
        if sequence != expected:
            # Counters are 32 bits wide: half the range ahead is a jump, the rest is a step back.
            missing = (sequence - expected) % COUNTER_RANGE
            reason = "gap" if missing < COUNTER_RANGE // 2 else "node_restart"
            detail = f"counter is {sequence}, expected {expected}"
            self._inbox.put(Notice(reason, topic, received_ns, detail))
        if self._inbox.qsize() >= self._queue_limit:
            if topic not in self._dropped:  # at once: it may be long until the next message of the topic
                detail = f"our queue of {self._queue_limit} messages is full"
                self._inbox.put(Notice("overflow", topic, received_ns, detail))
            self._dropped[topic] = self._dropped.get(topic, 0) + 1
            return
        self._note_dropped(topic, received_ns)
        self._inbox.put(Message(self._node, self._session, topic, sequence, received_ns, frames[1]))
