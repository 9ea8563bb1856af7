"""Test receiving from real sockets: stamps, counters, losses and connections."""

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import zmq

from collector.errors import NodeError, NodeUnavailable
from collector.receive.process import ABANDON_S, MAX_FRAME_BYTES, may_mean
from collector.receive.records import Message, Notice
from collector.receive.ring import Ring
from collector.receive.source import MessageSource
from collector.regtest.ports import free_ports

TIMEOUT_S = 60.0
Inbox = queue.SimpleQueue[Any]


class Publisher:
    """Publishes as a node does: topics with a counter each, on one port."""

    def __init__(self, port: int = 0) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.XPUB)  # as PUB, and it hears of subscriptions
        self.socket.set(zmq.XPUB_VERBOSE, 1)
        self.socket.set(zmq.RCVTIMEO, round(TIMEOUT_S * 1000))
        self.socket.set(zmq.SNDHWM, 0)
        self.socket.set(zmq.LINGER, 0)
        self.port = port or free_ports(1)[0]
        self.endpoint = f"tcp://127.0.0.1:{self.port}"
        self.socket.bind(self.endpoint)  # the port is ours while no socket listens, and so may come back

    def send(self, topic: str, body: bytes, counter: int) -> None:
        """Publish one message."""
        self.socket.send_multipart([topic.encode(), body, counter.to_bytes(4, "little")])

    def wait_for_subscription(self, topic: str) -> None:
        """Wait until the next subscription to a topic has arrived."""
        while self.socket.recv() != b"\1" + topic.encode():
            pass

    def send_fence(self, inbox: Inbox) -> list[Any]:
        """Publish a malformed message.

        Return the items up to its notice, that is, all that was sent before it.
        """
        self.socket.send_multipart([b"rawtx"])
        items = take(inbox, 1)
        while getattr(items[-1], "reason", "") != "malformed":
            items += take(inbox, 1)
        return items[:-1]

    def close(self) -> None:
        """Close the socket, as a node that ends does."""
        self.socket.close(0)
        self.context.term()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    """Make a publisher on a free port."""
    publishing = Publisher()
    yield publishing
    publishing.close()


def ring_for(source: MessageSource, folder: Path) -> Ring:
    """Make the ring through which a source forwards."""
    return Ring.create(folder / "x.ring", node=source.node, session=source.session, topics=source.topics)


@pytest.fixture
def connect(publisher: Publisher, tmp_path: Path) -> Iterator[Callable[..., Inbox]]:
    """Make a function that connects a source to the publisher and returns its inbox."""
    sources = []

    def start() -> Inbox:
        inbox: Inbox = queue.SimpleQueue()
        topics = dict.fromkeys(("sequence", "rawtx"), publisher.endpoint)
        sources.append(MessageSource("alpha", "s1", topics, inbox=inbox))
        sources[-1].connect()
        sources[-1].start_forwarding(ring_for(sources[-1], tmp_path))
        return inbox

    yield start
    for source in sources:
        source.stop()


def take(inbox: Inbox, count: int) -> list[Any]:
    """Take so many items from the inbox."""
    return [inbox.get(timeout=TIMEOUT_S) for _ in range(count)]


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def test_messages_come_stamped_and_in_order(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """Each message has its topic, counter, body and the time of its arrival on our clock."""
    inbox = connect()
    before_ns = time.time_ns()
    for counter in range(5):
        publisher.send("rawtx", b"body %d" % counter, counter + 40)
    messages = take(inbox, 5)
    assert [(each.topic, each.sequence, each.body) for each in messages] == [
        ("rawtx", counter + 40, b"body %d" % counter) for counter in range(5)
    ]
    stamps = [each.received_ns for each in messages]
    assert before_ns < stamps[0] <= stamps[-1] < time.time_ns()
    assert stamps == sorted(stamps)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_both_kinds_of_addresses_are_reached(host: str, tmp_path: Path) -> None:
    """A node that publishes on IPv6 only is reached, also by a renewed connection."""
    with zmq.Context() as context, context.socket(zmq.PUB) as publishing:
        publishing.set(zmq.IPV6, "[" in host)
        try:
            port = publishing.bind_to_random_port(f"tcp://{host}")
        except zmq.ZMQError:
            pytest.skip("this machine has no such addresses")
        inbox: Inbox = queue.SimpleQueue()
        source = MessageSource("alpha", "s1", {"rawtx": f"tcp://{host}:{port}"}, inbox=inbox)
        try:
            source.connect()
            source.start_forwarding(ring_for(source, tmp_path))
            source.reconnect({"rawtx"})
            assert [item.reason for item in take(inbox, 2)] == ["reconnect", "connected"]
        finally:
            source.stop()


def test_a_jump_is_noticed_before_the_message_behind_it(
    publisher: Publisher, connect: Callable[..., Inbox]
) -> None:
    """A jump of one topic's counter makes one gap notice, for that topic, before the next message."""
    inbox = connect()
    for topic, counter in (("rawtx", 7), ("sequence", 3), ("rawtx", 11), ("sequence", 4)):
        publisher.send(topic, b"", counter)
    items = take(inbox, 5)
    assert [type(each) for each in items] == [Message, Message, Notice, Message, Message]
    assert (items[2].reason, items[2].topic) == ("gap", "rawtx")
    assert "11, expected 8" in items[2].detail


def test_the_counter_begins_again_without_a_gap(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """The counter after 2**32 - 1 is 0, and no notice comes between."""
    inbox = connect()
    publisher.send("rawtx", b"", 2**32 - 1)
    publisher.send("rawtx", b"", 0)
    assert [type(each) for each in take(inbox, 2)] == [Message, Message]


def test_a_counter_that_goes_back_is_a_restart(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """A counter that goes back makes a notice `node_restart`."""
    inbox = connect()
    publisher.send("sequence", b"", 900)
    publisher.send("sequence", b"", 0)
    items = take(inbox, 3)
    assert (items[1].reason, items[1].topic) == ("node_restart", "sequence")


def test_malformed_messages_become_notices(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """A wrong number of frames, a short counter and a topic that only begins like ours are malformed."""
    inbox = connect()
    for frames in ([b"rawtx"], [b"rawtx", b"x", b"\0"], [b"rawtxx", b"y", bytes(4)], [b"rawtx"] * 4):
        publisher.socket.send_multipart(frames)
    items = take(inbox, 4)
    assert {each.reason for each in items} == {"malformed"}
    assert items[1].body == b"rawtxx\0"


def test_a_full_queue_drops_and_says_so(publisher: Publisher, tmp_path: Path) -> None:
    """Messages beyond the limit are dropped, and one notice says so at once.

    No message is taken again before half of the room is free. Then a notice says how many were dropped.
    """
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox, queue_limit=10)
    source.connect()
    ring = ring_for(source, tmp_path)
    source.start_forwarding(ring)
    publisher.send("rawtx", b"", 0)
    ring.release(take(inbox, 1)[0].number)
    for counter in range(1, 51):
        publisher.send("rawtx", b"", counter)
    messages = take(inbox, 10)
    assert [each.sequence for each in messages] == list(range(1, 11))
    (first,) = publisher.send_fence(inbox)
    ring.release(messages[3].number)  # six wait, and the notices
    publisher.send("rawtx", b"", 51)
    assert publisher.send_fence(inbox) == []
    ring.release(messages[-1].number)
    publisher.send("rawtx", b"", 52)
    notice, message = take(inbox, 2)
    source.stop()
    assert {(each.reason, each.topic) for each in (first, notice)} == {("overflow", "rawtx")}
    assert "41 messages" in notice.detail
    assert message.sequence == 52


def test_a_stop_says_how_many_messages_were_dropped(publisher: Publisher, tmp_path: Path) -> None:
    """When no more messages of the topic come, the notice of how many were dropped comes at the stop."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox, queue_limit=2)
    source.connect()
    source.start_forwarding(ring_for(source, tmp_path))
    publisher.send("rawtx", b"", 0)
    items = take(inbox, 1)
    for counter in range(1, 5):
        publisher.send("rawtx", b"", counter)
    items += publisher.send_fence(inbox)
    source.stop()
    items += take(inbox, inbox.qsize())
    assert [type(item) for item in items] == [Message, Message, Notice, Notice]
    assert {item.reason for item in items[2:]} == {"overflow"}
    assert "3 messages" in items[-1].detail


def test_messages_before_the_ring_exists_are_kept(publisher: Publisher, tmp_path: Path) -> None:
    """Messages from before the ring have their time of arrival; those beyond the limit are noted as a gap."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox, queue_limit=3)
    source.connect()
    for counter in range(5):
        publisher.send("rawtx", b"", counter)
    time.sleep(2)  # nothing shows what the receiver has in its memory
    before_ns = time.time_ns()
    ring = ring_for(source, tmp_path)
    source.start_forwarding(ring)
    items = take(inbox, 4)
    ring.release(items[-2].number)
    publisher.send("rawtx", b"", 5)
    items += take(inbox, 2)
    source.stop()
    received = [item.sequence if isinstance(item, Message) else item.reason for item in items]
    assert received == [0, 1, 2, "overflow", "gap", 5]
    assert items[2].received_ns < before_ns


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_lost_connection_is_noticed_and_comes_back(host: str, tmp_path: Path) -> None:
    """Each time the publisher goes and comes back, each topic gets a notice of both, and no other."""
    publishing = Publisher()
    inbox: Inbox = queue.SimpleQueue()
    endpoints = dict.fromkeys(("sequence", "rawtx"), f"tcp://{host}:{publishing.port}")
    source = MessageSource("alpha", "s1", endpoints, inbox=inbox)
    source.connect()
    source.start_forwarding(ring_for(source, tmp_path))
    notices: list[Notice] = []
    try:
        for _ in range(2):
            publishing.close()
            notices += take(inbox, 2)
            time.sleep(2 * ABANDON_S)  # after which a connection that libzmq abandoned would be opened anew
            publishing = Publisher(publishing.port)
            notices += take(inbox, 2)
    finally:
        publishing.close()
        source.stop()
    both = [(reason, topic) for reason in ("reconnect", "connected") for topic in ("sequence", "rawtx")]
    assert [(each.reason, each.topic) for each in notices] == both * 2


def test_a_named_host_that_answers_late_is_connected() -> None:
    """A publisher that is not ready at our first attempt is found at the next, also by its host's name."""
    opened: list[Publisher] = []
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as early:

        def open_after_first_attempt() -> None:
            early.accept()[0].close()
            early.close()
            opened.append(Publisher(port))

        opening = threading.Thread(target=open_after_first_attempt)
        opening.start()
        source = MessageSource("alpha", "s1", {"rawtx": f"tcp://localhost:{port}"}, inbox=queue.SimpleQueue())
        try:
            source.connect(timeout_s=TIMEOUT_S)
        finally:
            opening.join()
            source.stop()
            opened[0].close()


@pytest.mark.parametrize(
    ("address", "named", "is_meant"),
    [
        ("tcp://10.0.0.1:28332", "tcp://10.0.0.1:28332", True),
        ("tcp://10.0.0.1:28332", "tcp://10.0.0.2:28332", False),
        ("tcp://node.internal:28332", "tcp://10.0.0.1:28332", True),
        ("tcp://node.internal:28332", "tcp://[fd00::1]:28332", True),
        ("tcp://node.internal:28333", "tcp://10.0.0.1:28332", False),
        ("tcp://[fd00:0:0:0:0:0:0:1]:28332", "tcp://[fd00::1]:28332", True),
        ("tcp://[fd00::2]:28332", "tcp://[fd00::1]:28332", False),
        ("ipc:///run/node", "ipc:///run/node", True),
        ("ipc:///run/node", "tcp://10.0.0.1:28332", False),
    ],
)
def test_the_address_that_an_event_means_is_found(address: str, named: str, *, is_meant: bool) -> None:
    """A name of a host may have any numbers; numbers mean only the same host, however they are written."""
    assert may_mean(address, named) is is_meant


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 400 << 20])
def test_a_frame_too_large_ends_the_connection_with_a_reason(
    publisher: Publisher, tmp_path: Path, size: int
) -> None:
    """After a frame above the limit, the receiver says why the connection ended, renews it, stays small."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox)
    source.connect()
    source.start_forwarding(ring_for(source, tmp_path))
    publisher.wait_for_subscription("rawtx")
    publisher.send("rawtx", b"before", 0)
    publisher.send("rawtx", bytes(size), 1)
    items = take(inbox, 4)
    publisher.wait_for_subscription("rawtx")
    publisher.send("rawtx", bytes(MAX_FRAME_BYTES), 2)
    items += take(inbox, 2)
    assert source._process is not None
    status = Path(f"/proc/{source._process.pid}/status").read_text()
    source.stop()
    reasons = ["malformed", "reconnect", "connected", "gap"]
    assert [item.sequence if isinstance(item, Message) else item.reason for item in items] == [0, *reasons, 2]
    assert all(f"a frame above {MAX_FRAME_BYTES} bytes" in item.detail for item in items[1:3])
    (peak_kib,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    assert peak_kib < 150 << 10


class EndlessPublisher:
    """Speaks ZMTP 3.0 as a publisher, and sends a message of empty frames until the connection ends."""

    GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x03PUB"
    MORE_TO_COME = b"\x01\x00"

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._server.getsockname()[1]}"
        self.n_connections = 0
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def close(self) -> None:
        """Stop listening; the connections end with their clients."""
        self._server.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._server.close()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            self.n_connections += 1
            with connection, suppress(OSError):
                connection.sendall(self.GREETING + b"\x04" + bytes([len(self.READY)]) + self.READY)
                # The subscription comes after the handshake, and may be cut by the end of the connection.
                received = connection.recv(1 << 10)
                while b"rawtx" not in received and (more := connection.recv(1 << 10)):
                    received += more
                while True:
                    connection.sendall(self.MORE_TO_COME * 10_000)


def test_a_message_that_never_ends_does_not_take_the_memory(tmp_path: Path) -> None:
    """A receiver above its limit of memory closes the connection with a reason, and opens it again."""
    limit_bytes = 100 << 20
    endless = EndlessPublisher()
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": endless.endpoint}, inbox=inbox, memory_bytes=limit_bytes)
    try:
        source.connect()
        source.start_forwarding(ring_for(source, tmp_path))
        named, lost, back, _, lost_again = take(inbox, 5)
        assert source._process is not None
        status = Path(f"/proc/{source._process.pid}/status").read_text()
    finally:
        source.stop()
        endless.close()
    assert [lost.reason, back.reason, lost_again.reason] == ["reconnect", "connected", "reconnect"]
    assert named.reason == "malformed"
    assert all("a message of the node had no end" in each.detail for each in (named, lost))
    assert endless.n_connections >= 2
    (peak_kib,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")]
    assert peak_kib << 10 < 4 * limit_bytes


def test_a_peer_that_is_no_publisher_is_named(tmp_path: Path) -> None:
    """Bytes that are not ZMTP end the connection with a reason, and the next connection is tried."""
    inbox: Inbox = queue.SimpleQueue()
    first = Publisher()
    source = MessageSource("alpha", "s1", {"rawtx": first.endpoint}, inbox=inbox)
    source.connect()
    source.start_forwarding(ring_for(source, tmp_path))
    first.close()
    (lost,) = take(inbox, 1)
    with socket.create_server(("127.0.0.1", first.port)) as server:
        connection, _ = server.accept()
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
        connection.close()
    second = Publisher(first.port)
    items = take(inbox, 1)
    while items[-1].reason != "connected":
        items += take(inbox, 1)
    second.close()
    source.stop()
    assert lost.reason == "reconnect"


def test_a_closed_port_fails_with_its_name() -> None:
    """When nobody publishes, the error after the timeout names the topic and the address."""
    closed = Publisher()
    closed.close()
    source = MessageSource("alpha", "s1", {"rawblock": closed.endpoint}, inbox=queue.SimpleQueue())
    with pytest.raises(NodeUnavailable, match=f"rawblock at {closed.endpoint}"):
        source.connect(timeout_s=0.3)
    source.stop()
    source.stop()


def received_over_a_renewal(
    publisher: Publisher, folder: Path, before: int, after: int, count: int
) -> list[Any]:
    """Send one counter, renew the connection, send another; return the counters and reasons that came.

    `count` items are expected after the renewal.
    """
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox)
    source.connect()
    source.start_forwarding(ring_for(source, folder))
    publisher.wait_for_subscription("rawtx")
    publisher.send("rawtx", b"", before)
    items = take(inbox, 1)
    source.reconnect({"rawtx"})
    items += take(inbox, 2)
    publisher.wait_for_subscription("rawtx")
    publisher.send("rawtx", b"", after)
    items += take(inbox, count)
    source.stop()
    return [item.sequence if isinstance(item, Message) else item.reason for item in items]


def test_a_renewed_connection_goes_on_and_says_so(publisher: Publisher, tmp_path: Path) -> None:
    """After both notices, what is published later comes, and the jump between makes a gap notice.

    When the messages between were lost, before or after the connection was back, nobody knows.
    """
    received = received_over_a_renewal(publisher, tmp_path, 0, 7, 2)
    assert received == [0, "reconnect", "connected", "gap", 7]


def test_a_restart_behind_a_dead_connection_is_noticed(publisher: Publisher, tmp_path: Path) -> None:
    """A node whose counter is lower on the renewed connection makes a notice `node_restart`."""
    received = received_over_a_renewal(publisher, tmp_path, 900, 3, 2)
    assert received == [900, "reconnect", "connected", "node_restart", 3]


def test_a_receiver_that_dies_is_noticed(publisher: Publisher, tmp_path: Path) -> None:
    """When the receiver dies, a notice says so, and what came before is in the inbox."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox)
    source.connect()
    source.start_forwarding(ring_for(source, tmp_path))
    publisher.send("rawtx", b"x", 0)
    items = take(inbox, 1)
    assert source._process is not None
    source._process.kill()
    items += take(inbox, 1)
    assert not source.is_receiving
    source.stop()
    assert [item.body for item in items] == [b"x", b""]
    assert items[1].reason == "failed"


def test_a_command_that_a_dead_receiver_did_not_read_is_no_error(publisher: Publisher) -> None:
    """A receiver that died before a command came is stopped like any other."""
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=queue.SimpleQueue())
    source.connect()
    assert source._process is not None
    source._process.kill()
    source._process.wait()
    source.reconnect(["rawtx"])
    source.stop()
    assert not source.is_receiving


def test_a_stream_that_never_pauses_does_not_keep_it_from_stopping(
    publisher: Publisher, tmp_path: Path
) -> None:
    """The receiver follows commands while messages come without a pause."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox)
    source.connect()
    stop = threading.Event()

    def publish() -> None:
        counter = 0
        while not stop.is_set():
            publisher.send("rawtx", b"", counter)
            counter += 1
            time.sleep(0.01)

    sending = threading.Thread(target=publish)
    sending.start()
    try:
        source.start_forwarding(ring_for(source, tmp_path))
        first = take(inbox, 1)
        process = source._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()  # as the operating system does when the collector ends
        assert process.wait(TIMEOUT_S) == 0
    finally:
        stop.set()
        sending.join()
        source.stop()
    assert first[0].sequence == 0


@pytest.mark.parametrize("is_released", [True, False])
def test_throttled_messages_stay_in_the_ring(
    publisher: Publisher, tmp_path: Path, *, is_released: bool
) -> None:
    """Throttled messages come when the throttle ends, or when half of the ring's room is in use."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox, queue_limit=20)
    source.is_throttled = True
    try:
        source.connect()
        ring = ring_for(source, tmp_path)
        source.start_forwarding(ring)
        publisher.send("rawtx", b"", 0)
        assert take(inbox, 1)[0].sequence == 0
        for counter in range(1, 9):
            publisher.send("rawtx", b"", counter)
        wait_until(lambda: ring.n_waiting == 9)
        assert inbox.empty()
        source.is_throttled = not is_released
        publisher.send("rawtx", b"", 9)
        assert [each.sequence for each in take(inbox, 9)] == list(range(1, 10))
    finally:
        source.stop()


def test_paused_messages_stay_in_the_ring_even_when_it_is_full(publisher: Publisher, tmp_path: Path) -> None:
    """In a pause, what finds no room is dropped and noted; after it, everything in the ring comes."""
    inbox: Inbox = queue.SimpleQueue()
    source = MessageSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox, queue_limit=20)
    source.is_paused = True
    try:
        source.connect()
        ring = ring_for(source, tmp_path)
        source.start_forwarding(ring)
        publisher.send("rawtx", b"", 0)
        assert take(inbox, 1)[0].sequence == 0
        for counter in range(1, 30):
            publisher.send("rawtx", b"", counter)
        wait_until(lambda: ring.n_waiting == 21)  # twenty messages and the notice
        assert inbox.empty()
        source.is_paused = False
        items = take(inbox, 20)
        assert [each.sequence for each in items[:-1]] == list(range(1, 20))
        assert (items[-1].reason, items[-1].topic) == ("overflow", "rawtx")
    finally:
        source.stop()


@pytest.mark.parametrize(
    "endpoint",
    ["", "zz", "tcp://127.0.0.1:x", "pgm://a", "\ud800", "udp://127.0.0.1:1", "ipc://" + "a" * 200],
)
def test_what_is_no_address_is_told_in_one_sentence(endpoint: str, capfd: pytest.CaptureFixture[str]) -> None:
    """ZMQ refuses the address: the error names the topic and the setting, and nothing else is said."""
    source = MessageSource("alpha", "s", {"sequence": endpoint}, inbox=queue.SimpleQueue())
    try:
        with pytest.raises(NodeError, match=r"cannot subscribe to sequence .* \[node\.zmq\]") as raised:
            source.connect(TIMEOUT_S)
    finally:
        source.stop()
    assert str(raised.value).isprintable()
    assert capfd.readouterr() == ("", "")
