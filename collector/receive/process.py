"""The process that receives what one node publishes: stamp the time, check the counter, put into the ring.

It is a process of its own so that nothing the collector does, decoding blocks above all, can delay a stamp,
and it decodes nothing itself. A message is received when it is in the ring (`collector.receive.ring`): from
there no kill takes it, be it of this process, of the collector or of both. Between a stamp and the ring lies
the check of the counter, some microseconds.

Every topic has a counter of its own in the last frame, 4 bytes little-endian. A jump is a loss between the
node and us (its queue was full, or the connection broke), a return to a smaller number a restart of the
node. The ring is bounded: what finds no room is dropped and noted.

`collector.receive.source` starts it as `python -m collector.receive.process SETUP`, with SETUP in JSON. It
answers with one line, `connected`, or `silent` and the addresses that gave no sign of life. Then it takes
commands on its input, a line of JSON each: the path of the ring, before which it keeps in memory what comes;
topics whose connections are to be made anew. It writes an empty line when the collector waits for something
new. It ends when its input ends, which is when the collector stops or is killed; what has reached this
machine by then still goes into the ring.
"""

import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from collector.receive.records import COUNTER_RANGE, Notice
from collector.receive.ring import Ring

N_FRAMES: Final = 3  # topic, body, counter
COUNTER_BYTES: Final = 4
POLL_S: Final = 0.05  # between two looks at the monitor and the input
KEEPALIVE_IDLE_S: Final = 60
HEARTBEAT_MS: Final = (
    10_000,
    30_000,
)  # how often the other side is asked for a sign of life, how long waited
RECONNECT_MS: Final = (100, 5000)  # first and longest wait between attempts
DRAIN_S: Final = 2.0  # the longest it goes on receiving after the end of its input
_INPUT: Final = 0
_OUTPUT: Final = 1


class Setup(NamedTuple):
    """What the collector tells its receiver on the command line."""

    endpoints: dict[str, str]  # topic -> address
    queue_limit: int  # records that may wait in the ring
    timeout_s: float  # for every endpoint to shake hands


class Receiver:
    """A socket that is subscribed to one node, and the ring its messages go to."""

    def __init__(self, setup: Setup) -> None:
        self._endpoints = setup.endpoints
        self._queue_limit = setup.queue_limit
        self._timeout_s = setup.timeout_s
        self._topics = {topic.encode(): topic for topic in setup.endpoints}
        self._expected: dict[str, int] = {}
        self._reconnected: set[str] = set()  # topics of new connections that have brought nothing yet
        self._dropped: dict[str, int] = {}  # by topic, since the last message that found room
        self._is_full = False  # from the first message without room until half of the room is free
        self._notices: deque[Notice] = deque()  # that found no room
        self._before_ring: list[tuple[list[bytes], int] | Notice] = []  # what came before there was a ring
        self._ring: Ring | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
        )

    def connect(self) -> set[str]:
        """Subscribe and wait until every endpoint has shaken hands; returns those that stay silent."""
        # Unlimited: the ring is the bound, and says so when it overflows.
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.TCP_KEEPALIVE, 1)
        self._socket.set(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S)
        self._socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS[0])
        self._socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_MS[1])
        self._socket.set(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        self._socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        for topic in self._topics:
            self._socket.subscribe(topic)
        waiting = set(self._endpoints.values())
        for endpoint in waiting:
            self._connect(endpoint)
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not self._monitor.poll(left_ms):
                break
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                waiting.discard(event["endpoint"].decode())
        return waiting

    def _connect(self, endpoint: str) -> None:
        # Not always: with it a host without IPv6 would not reach its IPv4 addresses either.
        self._socket.set(zmq.IPV6, "[" in endpoint)
        self._socket.connect(endpoint)

    def run(self) -> None:
        """Receive until the end of the input."""
        poller = zmq.Poller()
        for source in (self._monitor, _INPUT):
            poller.register(source, zmq.POLLIN)
        self._socket.set(zmq.RCVTIMEO, round(POLL_S * 1000))
        while True:
            self._receive()
            ready = dict(poller.poll(0))
            if self._monitor in ready:
                event = recv_monitor_message(self._monitor)
                lost = event["event"] == zmq.EVENT_DISCONNECTED
                self._note_connection("reconnect" if lost else "connected", event["endpoint"].decode())
                self._wake()
            if _INPUT in ready:
                commands = os.read(_INPUT, 1 << 16).decode()
                if not commands:
                    break
                for line in commands.splitlines():
                    self._execute(**json.loads(line))
        self._drain()

    def fail(self, error: BaseException) -> None:
        """Say in the ring what ends this process."""
        self._note(Notice("failed", None, time.time_ns(), f"{type(error).__name__}: {error}"))

    def _receive(self) -> int:
        """Take messages as they come, for a while; returns how many."""
        receive, now_ns, take, wake = self._socket.recv, time.time_ns, self._take, self._wake
        now_s = time.monotonic
        taken = 0
        until_s = now_s() + POLL_S
        with suppress(zmq.Again):
            while now_s() < until_s:
                frame = receive(copy=False)
                received_ns = now_ns()
                frames = [frame.bytes]
                while frame.more:  # what recv_multipart does, in half the time
                    frame = receive(copy=False)
                    frames.append(frame.bytes)
                take(frames, received_ns)
                wake()
                taken += 1
        return taken

    def _wake(self) -> None:
        """Tell the collector that there is something new, if it waits for that."""
        if self._ring is not None and self._ring.clear_wait_flag():
            with suppress(OSError):
                os.write(_OUTPUT, b"\n")

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_S
        self._socket.set(zmq.RCVTIMEO, 0)
        while self._receive() and time.monotonic() < deadline:
            pass
        for topic in list(self._dropped):
            self._note_dropped(topic, time.time_ns())

    def _execute(self, *, ring: str | None = None, reconnect: Sequence[str] = ()) -> None:
        """Take the path of the ring; or make the connections of some topics anew."""
        if ring is not None:
            self._begin_ring(Path(ring))
        for endpoint in {self._endpoints[topic] for topic in reconnect}:
            self._socket.disconnect(endpoint)
            self._note_connection("reconnect", endpoint)  # no event tells of an end that we made
            self._reconnected.update(topic for topic, at in self._endpoints.items() if at == endpoint)
            self._connect(endpoint)
        self._wake()

    def _begin_ring(self, path: Path) -> None:
        self._ring = Ring.open(path)
        waiting, self._before_ring = self._before_ring, []
        for item in waiting:
            if isinstance(item, Notice):
                self._note(item)
            else:
                self._take(*item)

    def _take(self, frames: list[bytes], received_ns: int) -> None:
        """Check the counter of one message and put it, behind a notice when something is wrong."""
        if self._ring is None:
            self._keep(frames, received_ns)
            return
        topic = self._topics.get(frames[0])
        if len(frames) != N_FRAMES or len(frames[2]) != COUNTER_BYTES or topic is None:
            name = frames[0].decode("ascii", "replace")
            detail = (
                f"{len(frames)} frames of {[len(frame) for frame in frames[:9]]} bytes, topic {name[:20]!r}"
            )
            self._note(Notice("malformed", None, received_ns, detail, b"".join(frames)))
            return
        sequence = int.from_bytes(frames[2], "little")
        expected = self._expected.get(topic, sequence)
        self._expected[topic] = (sequence + 1) % COUNTER_RANGE
        # Counters are 32 bits wide: half the range ahead is a jump, the rest is a step back.
        is_jump = (sequence - expected) % COUNTER_RANGE < COUNTER_RANGE // 2
        is_named = is_jump and topic in self._reconnected  # the new connection has ended the interval
        self._reconnected.discard(topic)
        if sequence != expected and not is_named:
            reason = "gap" if is_jump else "node_restart"
            detail = f"counter is {sequence}, expected {expected}"
            self._note(Notice(reason, topic, received_ns, detail))
        body = frames[1]
        is_flowing = not self._dropped and not self._notices and self._ring.n_waiting < self._queue_limit
        if is_flowing and self._ring.put(topic, sequence, received_ns, body):
            return
        if self._has_room(len(body)):
            if topic in self._dropped:
                self._note_dropped(topic, received_ns)
            if not self._notices and self._ring.put(topic, sequence, received_ns, body):
                return
        if topic not in self._dropped:  # at once: it may be long until the next message of the topic
            detail = f"our queue is full: {self._ring.n_waiting} messages wait"
            self._note(Notice("overflow", topic, received_ns, detail))
        self._dropped[topic] = self._dropped.get(topic, 0) + 1

    def _has_room(self, body_bytes: int) -> bool:
        """Whether a message may be put. A loss is to be one hole, and not many small ones."""
        assert self._ring is not None  # noqa: S101 - the caller has looked
        ring, limit = self._ring, self._queue_limit
        if self._is_full:
            self._is_full = ring.is_half_full or 2 * ring.n_waiting >= limit
        self._is_full = self._is_full or ring.n_waiting >= limit or not ring.has_room(body_bytes)
        return not self._is_full

    def _keep(self, frames: list[bytes], received_ns: int) -> None:
        """Keep a message until there is a ring; what is beyond the limit is noted, and shows as a gap."""
        n_kept = len(self._before_ring)
        if n_kept < self._queue_limit:
            self._before_ring.append((frames, received_ns))
        elif n_kept == self._queue_limit:
            detail = f"{n_kept} messages came before the session began"
            self._before_ring += [Notice("overflow", topic, received_ns, detail) for topic in self._endpoints]

    def _note(self, notice: Notice) -> None:
        """Put a notice behind those that wait for room."""
        if self._ring is None:
            self._before_ring.append(notice)
            return
        self._notices.append(notice)
        while self._notices and self._ring.put_notice(self._notices[0]):
            self._notices.popleft()

    def _note_connection(self, reason: str, endpoint: str) -> None:
        for topic, address in self._endpoints.items():
            if address == endpoint:
                self._note(Notice(reason, topic, time.time_ns(), endpoint))

    def _note_dropped(self, topic: str, now_ns: int) -> None:
        """Say how many messages of a topic found no room: here it goes on, or ends."""
        detail = f"{self._dropped.pop(topic)} messages found our queue full"
        self._note(Notice("overflow", topic, now_ns, detail))


def main(arguments: Sequence[str]) -> int:
    """Receive until the end of the input; returns the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # meant for the collector, which then ends our input
    receiver = Receiver(Setup(**json.loads(arguments[0])))
    silent = receiver.connect()
    os.write(_OUTPUT, f"{'silent' if silent else 'connected'} {' '.join(sorted(silent))}\n".encode())
    if silent:
        return 1
    os.set_blocking(_OUTPUT, False)
    try:
        receiver.run()
    except Exception as error:  # noqa: BLE001 - whatever it is, the collector must hear of it
        receiver.fail(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
