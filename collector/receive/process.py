"""Run the receiver, a process that stamps what one node publishes, checks counters and fills the ring.

It is a process of its own so that nothing the collector does, such as decoding a block, can delay a stamp. It
decodes nothing itself. A message is received when it is in the ring (`collector.receive.ring`): no kill of
this process, of the collector or of both can lose it after that. Only the check of the counter comes between
the stamp and the ring, which takes some microseconds.

Every topic has a counter of its own in the last frame, 4 bytes little-endian. A jump means that messages were
lost between the node and us, because the node's queue was full or the connection broke. A smaller number
means that the node was restarted. The ring is bounded: a message that finds no room is dropped, and a notice
says so.

A frame larger than any block is refused. libzmq then closes the connection, as it does for anything that is
not ZMTP, and never opens it again. So the receiver notes why the connection ended and opens a new one; the
pauses grow while this repeats. libzmq bounds a frame and not the number of frames of a message, and gives us
a message only when it is complete. So when this process uses too much memory, a message that never ends is
the cause: the receiver closes its connections, which drops that message, and opens them again after a pause.

`collector.receive.source` starts it as `python -m collector.receive.process SETUP`, with SETUP in JSON. It
answers with one line, the addresses that cannot be used as JSON, each with the reason. Then it reads commands
from its standard input, one line of JSON each: the path of the ring (until then it keeps messages in memory),
or topics whose connections are to be opened anew. It writes an empty line when the ring has something new and
the collector waits for that. It ends when its input ends, which is when the collector stops or is killed;
what has reached this machine by then still goes into the ring.
"""

import ctypes
import json
import mmap
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from collector.backoff import Backoff
from collector.receive.records import COUNTER_RANGE, Notice
from collector.receive.ring import CAPACITY_BYTES, Ring

N_FRAMES: Final = 3  # topic, body, counter
COUNTER_BYTES: Final = 4
POLL_S: Final = 0.05  # the longest time between two checks of the connections and the input
KEEPALIVE_IDLE_S: Final = 60
HEARTBEAT_MS: Final = (10_000, 30_000)  # the pause between two pings to the node, and the wait for its answer
RECONNECT_MS: Final = (100, 5000)  # the first and the longest wait between attempts
# A block has at most 4,000,000 bytes: MAX_BLOCK_SERIALIZED_SIZE in Bitcoin Core's consensus.h. Twice as much
# leaves a margin, and bounds what one frame can take of our memory.
MAX_FRAME_BYTES: Final = 2 * 4_000_000
MAX_MEMORY_BYTES: Final = 256 << 20  # of this process without the ring; it usually has some 30 MB
ABANDON_S: Final = 0.5  # libzmq reports at once that it will reconnect; after so long it will not
RENEW_S: Final = (1.0, 60.0)  # the first and the longest wait before we open such a connection again
DRAIN_S: Final = 2.0  # the longest time it goes on receiving after the end of its input
_INPUT: Final = 0
_OUTPUT: Final = 1


class Setup(NamedTuple):
    """Holds the settings of a receiver, which it gets on its command line."""

    endpoints: dict[str, str]  # topic -> address
    queue_limit: int  # the most records that may wait in the ring
    timeout_s: float  # the time in which every endpoint must shake hands
    memory_bytes: int = MAX_MEMORY_BYTES  # above this, all connections are closed and opened again


class Receiver:
    """Receives what one node publishes over ZMQ by one socket, and puts it into the ring.

    The ring is the buffer file from which the collector reads.
    """

    def __init__(self, setup: Setup) -> None:
        self._endpoints = setup.endpoints
        self._queue_limit = setup.queue_limit
        self._timeout_s = setup.timeout_s
        self._memory_bytes = setup.memory_bytes
        self._topics = {topic.encode(): topic for topic in setup.endpoints}
        self._expected: dict[str, int] = {}
        self._dropped: dict[str, int] = {}  # by topic: messages dropped since the last one that found room
        self._is_full = False  # from the first message without room until half of the room is free again
        self._notices: deque[Notice] = deque()  # notices that found no room yet
        self._before_ring: list[tuple[list[bytes], int] | Notice] = []  # received before the ring
        self._n_before_ring_bytes = 0
        self._has_overflown = False  # something was dropped before there was a ring
        # By endpoint: when libzmq counts as having abandoned it, when we open it again, when it connected
        # last, and the pauses between two tries.
        self._abandoned_at_s: dict[str, float] = {}
        self._renew_at_s: dict[str, float] = {}
        self._connected_at_s: dict[str, float] = {}
        self._pauses = {endpoint: Backoff(*RENEW_S) for endpoint in setup.endpoints.values()}
        self._ring: Ring | None = None
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._monitor = self._socket.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECT_RETRIED
        )

    def connect(self) -> dict[str, str]:
        """Subscribe to all topics, and wait until every endpoint has completed the ZMQ handshake.

        Returns the endpoints that did not, each with a text: why ZMQ refuses the address, or "" if the
        endpoint is silent.
        """
        # No limit here: the ring is the limit, and an overflow of the ring is noted.
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.set(zmq.MAXMSGSIZE, MAX_FRAME_BYTES)
        self._socket.set(zmq.TCP_KEEPALIVE, 1)
        self._socket.set(zmq.TCP_KEEPALIVE_IDLE, KEEPALIVE_IDLE_S)
        self._socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS[0])
        self._socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_MS[1])
        self._socket.set(zmq.RECONNECT_IVL, RECONNECT_MS[0])
        self._socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MS[1])
        for topic in self._topics:
            self._socket.subscribe(topic)
        waiting = dict.fromkeys(self._endpoints.values(), "")
        for endpoint in waiting:
            try:
                self._connect(endpoint)
            except zmq.ZMQError as error:
                waiting[endpoint] = zmq.strerror(error.errno or 0)
            except UnicodeEncodeError:
                waiting[endpoint] = "UTF-8 cannot encode it"
        if any(waiting.values()):
            return waiting
        deadline = time.monotonic() + self._timeout_s
        while waiting:
            left_ms = int((deadline - time.monotonic()) * 1000)
            if left_ms <= 0 or not self._monitor.poll(left_ms):
                break
            event = recv_monitor_message(self._monitor)
            if event["event"] == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                for endpoint in self._meant_by(event["endpoint"].decode()):
                    waiting.pop(endpoint, None)
        return waiting

    def _connect(self, endpoint: str) -> None:
        # Only for IPv6: with this option, a host without IPv6 does not reach its IPv4 addresses either.
        self._socket.set(zmq.IPV6, "[" in endpoint)
        self._socket.connect(endpoint)

    def run(self) -> None:
        """Receive messages and follow the commands of the collector until the standard input ends."""
        poller = zmq.Poller()
        poller.register(_INPUT, zmq.POLLIN)
        self._socket.set(zmq.RCVTIMEO, round(POLL_S * 1000))
        while True:
            self._receive()
            ready = dict(poller.poll(0))
            while self._monitor.poll(0):
                event = recv_monitor_message(self._monitor)
                for endpoint in self._meant_by(event["endpoint"].decode()):
                    self._follow_connection(event["event"], endpoint)
            self._renew_abandoned()
            self._limit_memory()
            if self._notices:
                self._put_notices()
                self._wake()
            if _INPUT in ready:
                commands = os.read(_INPUT, 1 << 16).decode()
                if not commands:
                    break
                for line in commands.splitlines():
                    self._execute(**json.loads(line))
        self._drain()

    def fail(self, error: BaseException) -> None:
        """Put a notice into the ring (the buffer file) that names the error which ends the receiver."""
        self._note(Notice("failed", None, time.time_ns(), f"{type(error).__name__}: {error}"))

    def _receive(self) -> int:
        """Receive messages until POLL_S seconds are over, or no message has come for so long.

        Returns the number of messages.
        """
        receive, now_ns, take, wake = self._socket.recv, time.time_ns, self._take, self._wake
        now_s = time.monotonic
        taken = 0
        until_s = now_s() + POLL_S
        with suppress(zmq.Again):
            while now_s() < until_s:
                frame = receive(copy=False)
                received_ns = now_ns()
                frames = [frame.bytes]
                while frame.more:  # as recv_multipart does, in half the time
                    frame = receive(copy=False)
                    frames.append(frame.bytes)
                take(frames, received_ns)
                wake()
                taken += 1
        return taken

    def _wake(self) -> None:
        """Tell the collector that the ring has something new, if the collector waits for that."""
        if self._ring is not None and self._ring.clear_wait_flag():
            with suppress(OSError):
                os.write(_OUTPUT, b"\n")

    def _drain(self) -> None:
        """Receive the messages that have already reached this machine; put notices of drops into the ring."""
        deadline = time.monotonic() + DRAIN_S
        self._socket.set(zmq.RCVTIMEO, 0)
        while self._receive() and time.monotonic() < deadline:
            pass
        for topic in list(self._dropped):
            self._note_dropped(topic, time.time_ns())

    def _execute(self, *, ring: str | None = None, reconnect: Sequence[str] = ()) -> None:
        """Execute an order of the collector: use the ring (buffer file) at `ring`, or reconnect topics."""
        if ring is not None:
            self._begin_ring(Path(ring))
        for endpoint in {self._endpoints[topic] for topic in reconnect}:
            self._note_connection("reconnect", endpoint)  # the monitor reports no end that we cause
            self._open_again(endpoint)
        self._wake()

    def _open_again(self, endpoint: str) -> None:
        """Close the connection to an endpoint, if libzmq still has it, and open it again."""
        self._abandoned_at_s.pop(endpoint, None)
        self._renew_at_s.pop(endpoint, None)
        with suppress(zmq.ZMQError):
            self._socket.disconnect(endpoint)
        self._connect(endpoint)

    def _meant_by(self, named: str) -> list[str]:
        """Return our endpoints that an event of the monitor, which names an address, can be about."""
        return [each for each in dict.fromkeys(self._endpoints.values()) if may_mean(each, named)]

    def _follow_connection(self, event: int, endpoint: str) -> None:
        """Put a notice into the ring when a connection was lost or is back.

        After a loss, watch whether libzmq abandons the connection.
        """
        now_s = time.monotonic()
        if event == zmq.EVENT_DISCONNECTED:
            self._abandoned_at_s[endpoint] = now_s + ABANDON_S
            return
        if self._abandoned_at_s.pop(endpoint, None) is not None:
            self._note_connection("reconnect", endpoint)
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._connected_at_s[endpoint] = now_s
            self._note_connection("connected", endpoint)
        self._wake()

    def _renew_abandoned(self) -> None:
        """Reopen, after a pause, each connection that libzmq abandoned; put a notice of it into the ring."""
        now_s = time.monotonic()
        for endpoint in [each for each, at_s in self._abandoned_at_s.items() if at_s <= now_s]:
            del self._abandoned_at_s[endpoint]
            detail = f"{endpoint} sent a frame above {MAX_FRAME_BYTES} bytes, or what is not ZMTP"
            self._renew_later(endpoint, detail)
        for endpoint in [each for each, at_s in self._renew_at_s.items() if at_s <= now_s]:
            self._open_again(endpoint)

    def _renew_later(self, endpoint: str, detail: str) -> None:
        """Put notices into the ring on why a connection ended, and choose when to open the connection again.

        One of the notices has the reason `malformed` and no bytes: it becomes a row of `rejects`. The pauses
        grow with each failure, and are short again after a connection that lasted.
        """
        now_s = time.monotonic()
        self._note(Notice("malformed", None, time.time_ns(), detail))
        self._note_connection("reconnect", endpoint, detail)
        if now_s - self._connected_at_s.get(endpoint, now_s) > RENEW_S[1]:
            self._pauses[endpoint].reset()
        self._renew_at_s[endpoint] = now_s + self._pauses[endpoint].next_s()
        self._wake()

    def _limit_memory(self) -> None:
        """Close every connection when this process uses too much memory; they are opened again later."""
        if own_memory_bytes() <= self._memory_bytes:
            return
        trim_memory()  # of connections that were closed before
        used_bytes = own_memory_bytes()
        if used_bytes <= self._memory_bytes:
            return
        for endpoint in set(self._endpoints.values()) - self._renew_at_s.keys():
            self._abandoned_at_s.pop(endpoint, None)
            with suppress(zmq.ZMQError):
                self._socket.disconnect(endpoint)
            detail = f"{endpoint}: the receiver used {used_bytes >> 20} MiB; a message of the node had no end"
            self._renew_later(endpoint, detail)

    def _begin_ring(self, path: Path) -> None:
        """Open the ring (buffer file) at `path`, and put into it what was received before."""
        self._ring = Ring.open(path)
        waiting, self._before_ring = self._before_ring, []
        for item in waiting:
            if isinstance(item, Notice):
                self._note(item)
            else:
                self._take(*item)

    def _take(self, frames: list[bytes], received_ns: int) -> None:
        """Put one message into the ring, after a notice if its counter is not the expected one.

        A message of a wrong form is put as a notice that holds its bytes. When the ring is full, the message
        is dropped and counted, and a notice says so.
        """
        if self._ring is None:
            self._keep(frames, received_ns)
            return
        topic = self._topics.get(frames[0])
        if len(frames) != N_FRAMES or len(frames[2]) != COUNTER_BYTES or topic is None:
            name = frames[0].decode("ascii", "replace")
            sizes = [len(frame) for frame in frames[:9]]
            detail = f"frames: {len(frames)}, bytes of each: {sizes}, topic {name[:20]!r}"
            self._note(Notice("malformed", None, received_ns, detail, b"".join(frames)))
            return
        sequence = int.from_bytes(frames[2], "little")
        expected = self._expected.get(topic, sequence)
        self._expected[topic] = (sequence + 1) % COUNTER_RANGE
        # Counters are 32 bits wide. Up to half the range ahead is a jump; anything else is a step back.
        is_jump = (sequence - expected) % COUNTER_RANGE < COUNTER_RANGE // 2
        if sequence != expected:
            reason = "gap" if is_jump else "node_restart"
            detail = f"counter is {sequence}, expected {expected}"
            self._note(Notice(reason, topic, received_ns, detail))
        if self._notices:
            self._put_notices()
        body = frames[1]
        is_flowing = not self._dropped and not self._notices and self._ring.n_waiting < self._queue_limit
        if is_flowing and self._ring.put(topic, sequence, received_ns, body):
            return
        if self._has_room(len(body)):
            if topic in self._dropped:
                self._note_dropped(topic, received_ns)
            if not self._notices and self._ring.put(topic, sequence, received_ns, body):
                return
        if topic not in self._dropped:  # note it at once: the topic's next message may come much later
            detail = f"our queue is full: messages that wait: {self._ring.n_waiting}"
            self._note(Notice("overflow", topic, received_ns, detail))
        self._dropped[topic] = self._dropped.get(topic, 0) + 1

    def _has_room(self, body_bytes: int) -> bool:
        """Return whether the ring has room for a message; after an overflow, only once half of it is free.

        So a loss is one large gap, not many small ones.
        """
        assert self._ring is not None  # noqa: S101 - the caller has checked it
        ring, limit = self._ring, self._queue_limit
        if self._is_full:
            self._is_full = ring.is_half_full or 2 * ring.n_waiting >= limit
        self._is_full = self._is_full or ring.n_waiting >= limit or not ring.has_room(body_bytes)
        return not self._is_full

    def _keep(self, frames: list[bytes], received_ns: int) -> None:
        """Keep a message in memory until there is a ring.

        Beyond the limit, drop it and keep an overflow notice.
        """
        n_kept = len(self._before_ring)
        n_bytes = self._n_before_ring_bytes + sum(map(len, frames))
        if n_kept < self._queue_limit and n_bytes <= CAPACITY_BYTES:
            self._before_ring.append((frames, received_ns))
            self._n_before_ring_bytes = n_bytes
        elif not self._has_overflown:
            self._has_overflown = True
            detail = f"messages that came before the session began: {n_kept}"
            self._before_ring += [Notice("overflow", topic, received_ns, detail) for topic in self._endpoints]

    def _note(self, notice: Notice) -> None:
        """Put a notice (a fact such as a gap) into the ring, after the notices that still wait for room."""
        if self._ring is None:
            self._before_ring.append(notice)
            return
        self._notices.append(notice)
        self._put_notices()

    def _put_notices(self) -> None:
        """Put the notices that wait for room into the ring, as far as there is room now."""
        while self._ring is not None and self._notices and self._ring.put_notice(self._notices[0]):
            self._notices.popleft()

    def _note_connection(self, reason: str, endpoint: str, detail: str = "") -> None:
        """Put a notice into the ring for each topic of an endpoint: its connection was lost or is back."""
        for topic, address in self._endpoints.items():
            if address == endpoint:
                self._note(Notice(reason, topic, time.time_ns(), detail or endpoint))

    def _note_dropped(self, topic: str, now_ns: int) -> None:
        """Put a notice into the ring that says how many messages of a topic were dropped.

        It comes where messages of the topic are put again, or at the end of the stream.
        """
        detail = f"{self._dropped.pop(topic)} messages found our queue full"
        self._note(Notice("overflow", topic, now_ns, detail))


def may_mean(address: str, named: str) -> bool:
    """Return whether libzmq can mean `address`, which it was given, by the address `named` in an event.

    After its first attempt it names the numbers that it found for the name of the host.
    """
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    named_host, _, named_port = named.removeprefix("tcp://").rpartition(":")
    if address == named or not named.startswith("tcp://") or port != named_port:
        return address == named
    try:
        return ip_address(host.strip("[]")) == ip_address(named_host.strip("[]"))
    except ValueError:  # a name
        return True


def own_memory_bytes() -> int:
    """Return how many bytes of memory this process shares with no other; 0 where there is no /proc."""
    try:
        _, resident, shared, *_ = Path("/proc/self/statm").read_bytes().split()
    except OSError:
        return 0
    return (int(resident) - int(shared)) * mmap.PAGESIZE


def trim_memory() -> None:
    """Give the memory that the C library has freed and kept back to the system; only glibc can."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def main(arguments: Sequence[str]) -> int:
    """Run the receiver with the settings (JSON) in `arguments` until standard input ends.

    Returns the exit status: 1 if an address of the node cannot be used or the receiver fails, 0 otherwise.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the collector handles it, and then ends our input
    receiver = Receiver(Setup(**json.loads(arguments[0])))
    unusable = receiver.connect()
    os.write(_OUTPUT, json.dumps(unusable).encode() + b"\n")
    if unusable:
        return 1
    os.set_blocking(_OUTPUT, False)
    try:
        receiver.run()
    except Exception as error:  # noqa: BLE001 - the collector must be told, whatever it is
        receiver.fail(error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
