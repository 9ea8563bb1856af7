"""Receiving, from real sockets: stamps, counters, losses and connections."""

import queue
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import zmq

from collector.errors import NodeUnavailable
from collector.records import Message
from collector.zmq_source import Notice, ZmqSource

TIMEOUT_S = 10.0
Inbox = queue.SimpleQueue[Any]


class Publisher:
    """A node's notifiers: topics with a counter each, on one port."""

    def __init__(self, port: int = 0) -> None:
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.PUB)
        self.socket.set(zmq.SNDHWM, 0)
        self.socket.set(zmq.LINGER, 0)
        self.port = port or self.socket.bind_to_random_port("tcp://127.0.0.1")
        if port:
            self.socket.bind(f"tcp://127.0.0.1:{port}")
        self.endpoint = f"tcp://127.0.0.1:{self.port}"

    def send(self, topic: str, body: bytes, counter: int) -> None:
        """Publish one message."""
        self.socket.send_multipart([topic.encode(), body, counter.to_bytes(4, "little")])

    def close(self) -> None:
        """End as a node does."""
        self.socket.close(0)
        self.context.term()


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    """Publish on a free port."""
    publishing = Publisher()
    yield publishing
    publishing.close()


@pytest.fixture
def connect(publisher: Publisher) -> Iterator[Callable[..., Inbox]]:
    """Connect sources to the publisher; each is stopped at the end."""
    sources = []

    def start(queue_limit: int = 1000) -> Inbox:
        inbox: Inbox = queue.SimpleQueue()
        topics = dict.fromkeys(("sequence", "rawtx"), publisher.endpoint)
        sources.append(ZmqSource("alpha", "s1", topics, inbox=inbox, queue_limit=queue_limit))
        sources[-1].connect()
        return inbox

    yield start
    for source in sources:
        source.stop()


def take(inbox: Inbox, count: int) -> list[Any]:
    """Take so many items."""
    return [inbox.get(timeout=TIMEOUT_S) for _ in range(count)]


def test_messages_come_stamped_and_in_order(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """Each message has topic, counter, body and our time of its arrival."""
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


def test_a_jump_is_noticed_before_the_message_behind_it(
    publisher: Publisher, connect: Callable[..., Inbox]
) -> None:
    """Counters of topics are apart; a jump of one gives one gap for it."""
    inbox = connect()
    for topic, counter in (("rawtx", 7), ("sequence", 3), ("rawtx", 11), ("sequence", 4)):
        publisher.send(topic, b"", counter)
    items = take(inbox, 5)
    assert [type(each) for each in items] == [Message, Message, Notice, Message, Message]
    assert (items[2].reason, items[2].topic) == ("gap", "rawtx")
    assert "11, expected 8" in items[2].detail


def test_the_counter_runs_over_without_a_gap(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """After 2**32 - 1 comes 0."""
    inbox = connect()
    publisher.send("rawtx", b"", 2**32 - 1)
    publisher.send("rawtx", b"", 0)
    assert [type(each) for each in take(inbox, 2)] == [Message, Message]


def test_a_counter_that_goes_back_is_a_restart(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """A node that was restarted counts from 0."""
    inbox = connect()
    publisher.send("sequence", b"", 900)
    publisher.send("sequence", b"", 0)
    items = take(inbox, 3)
    assert (items[1].reason, items[1].topic) == ("node_restart", "sequence")


def test_what_is_no_message_of_a_node_is_kept_apart(
    publisher: Publisher, connect: Callable[..., Inbox]
) -> None:
    """Wrong numbers of frames, a short counter and a topic that only begins like ours are malformed."""
    inbox = connect()
    for frames in ([b"rawtx"], [b"rawtx", b"x", b"\0"], [b"rawtxx", b"y", bytes(4)], [b"rawtx"] * 4):
        publisher.socket.send_multipart(frames)
    items = take(inbox, 4)
    assert {each.reason for each in items} == {"malformed"}
    assert items[1].body == b"rawtxx\0"


def test_a_full_queue_drops_and_says_so(publisher: Publisher, connect: Callable[..., Inbox]) -> None:
    """Beyond the limit messages are lost to us, memory is not; told at once, counted later."""
    inbox = connect(queue_limit=10)
    for counter in range(50):
        publisher.send("rawtx", b"", counter)
    deadline = time.monotonic() + TIMEOUT_S
    while inbox.qsize() < 10 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    assert [each.sequence for each in take(inbox, 10)] == list(range(10))
    (first,) = take(inbox, 1)
    assert inbox.empty()
    publisher.send("rawtx", b"", 50)
    notice, message = take(inbox, 2)
    assert {(each.reason, each.topic) for each in (first, notice)} == {("overflow", "rawtx")}
    assert "40 messages" in notice.detail
    assert message.sequence == 50


def test_what_found_no_room_is_told_at_the_end(publisher: Publisher) -> None:
    """When no message of the topic comes any more, the stop says how many were dropped."""
    inbox: Inbox = queue.SimpleQueue()
    source = ZmqSource("alpha", "s1", {"rawtx": publisher.endpoint}, inbox=inbox, queue_limit=2)
    source.connect()
    for counter in range(5):
        publisher.send("rawtx", b"", counter)
    items = take(inbox, 1)
    time.sleep(0.3)
    source.stop()
    items += take(inbox, inbox.qsize())
    notices = [item for item in items if isinstance(item, Notice)]
    n_lost = 5 - len([item for item in items if isinstance(item, Message)])
    assert {notice.reason for notice in notices} == {"overflow"}
    assert f"{n_lost} messages" in notices[-1].detail


def test_a_lost_connection_is_noticed_and_comes_back() -> None:
    """When the publisher goes and comes again, each topic hears of both."""
    first = Publisher()
    inbox: Inbox = queue.SimpleQueue()
    source = ZmqSource("alpha", "s1", {"sequence": first.endpoint, "rawtx": first.endpoint}, inbox=inbox)
    source.connect()
    try:
        first.close()
        lost = take(inbox, 2)
        second = Publisher(first.port)
        back = take(inbox, 2)
        second.close()
    finally:
        source.stop()
    assert {(each.reason, each.topic) for each in lost} == {("reconnect", "sequence"), ("reconnect", "rawtx")}
    assert {each.reason for each in back} == {"connected"}


def test_a_closed_port_fails_with_its_name() -> None:
    """Nobody listens: after the timeout the error names topic and address."""
    closed = Publisher()
    closed.close()
    source = ZmqSource("alpha", "s1", {"rawblock": closed.endpoint}, inbox=queue.SimpleQueue())
    with pytest.raises(NodeUnavailable, match=f"rawblock at {closed.endpoint}"):
        source.connect(timeout_s=0.3)
    source.stop()
    source.stop()
