"""Test that the watchdog finds silent topics and lost messages by comparing looks with message counts."""

import pytest

from collector.dataset.schema import ZMQ_TOPICS
from collector.receive.records import Message
from collector.service.watchdog import GONE, Look, MessageCounts, OurState, Watchdog

TIP = b"\x01" * 32
NEXT_TIP = b"\x02" * 32


def look(number: int, n_tx: int = 5, tip: bytes = TIP, topics: tuple[str, ...] = ZMQ_TOPICS) -> Look:
    """Return the look that is taken at second `number`."""
    height = 100 + (tip == NEXT_TIP)
    return Look(
        asked_us=number * 10**6,
        asked_wall_us=number * 10**6,
        tip_hash=tip,
        tip_height=height,
        is_downloading=False,
        mempool=(n_tx, n_tx * 141),
        topics=frozenset(topics),
    )


class Story:
    """Plays looks, one each second, and the messages that arrive between them."""

    def __init__(self) -> None:
        self.watchdog = Watchdog(ZMQ_TOPICS)
        self.counts = MessageCounts()
        self.ours = OurState(TIP, 5)
        self.number = 0

    def hear(self, topic: str, letter: bytes = b"A", count: int = 1) -> None:
        """Count `count` messages of a topic as arrived; `letter` is the event if the topic is `sequence`."""
        body = bytes(32) + letter
        self.counts.add([Message("n", "s", topic, at, 0, body) for at in range(count)])

    def look(
        self, n_tx: int = 5, tip: bytes = TIP, topics: tuple[str, ...] = ZMQ_TOPICS
    ) -> list[tuple[str, str]]:
        """Look at a node with this mempool, tip and topics; return the topic and reason of each finding."""
        self.number += 1
        asked = self.counts.copy()
        findings = self.watchdog.compare(look(self.number, n_tx, tip, topics), asked, asked, self.ours)
        return [(finding.topic, finding.reason) for finding in findings]


def test_the_stream_of_a_quiet_node_is_complete() -> None:
    """When nothing changes and nothing arrives, the stream is proven complete until the last look."""
    story = Story()
    assert [story.look() for _ in range(4)] == [[]] * 4
    assert story.watchdog.proven_us == 4 * 10**6


def test_a_change_without_a_message_is_silence() -> None:
    """A change of the node without a message is found one look later; until then the message may come."""
    story = Story()
    story.look()
    assert story.look(n_tx=6) == []
    assert story.watchdog.proven_us == 0
    assert story.look(n_tx=6) == [("sequence", "silent")]


def test_a_message_that_comes_late_is_no_silence() -> None:
    """A message may arrive between the look that sees the change and the next look; then nothing is found."""
    story = Story()
    story.look()
    story.look(n_tx=6)
    story.hear("sequence")
    story.hear("rawtx")
    story.ours = OurState(TIP, 6)
    assert story.look(n_tx=6) == []


@pytest.mark.parametrize(("letter", "expected"), [(b"A", [("rawtx", "silent")]), (b"R", [])])
def test_events_without_transactions_show_that_rawtx_is_silent(
    letter: bytes, expected: list[tuple[str, str]]
) -> None:
    """`rawtx` counts as silent after an A, C or D event without a transaction, but not after an R event."""
    story = Story()
    story.look()
    story.hear("sequence", letter)
    story.look(n_tx=6)
    story.ours = OurState(TIP, 6)
    assert story.look(n_tx=6) == expected


def test_transactions_without_events_show_that_sequence_is_silent() -> None:
    """`sequence` counts as silent when `rawtx` brings transactions, though the mempool keeps its size."""
    story = Story()
    story.look()
    story.hear("rawtx", count=2)
    story.look()
    assert story.look() == [("sequence", "silent")]


def test_a_tip_without_its_block_shows_that_rawblock_is_silent() -> None:
    """`rawblock` counts as silent when the other topics announced a new tip and no block came."""
    story = Story()
    story.look()
    story.hear("sequence", b"C")
    story.hear("rawtx")
    story.ours = OurState(NEXT_TIP, 5)
    story.look(tip=NEXT_TIP)
    assert story.look(tip=NEXT_TIP) == [("rawblock", "silent")]


def test_lost_last_messages_are_found_when_the_node_is_quiet() -> None:
    """A lasting difference between our copy and the node's mempool shows that the last messages were lost."""
    story = Story()
    story.ours = OurState(TIP, 4)
    for _ in range(2):
        story.hear("sequence", b"R")
        story.look()
    assert story.look() == [("sequence", "gap")]
    story.ours = OurState(NEXT_TIP, 5)
    story.look()
    assert story.look() == [("sequence", "gap")]


def test_a_copy_that_is_out_of_step_is_not_compared() -> None:
    """While our copy of the mempool is out of step, it is not compared, as a snapshot will correct it."""
    story = Story()
    story.ours = OurState(TIP, None)
    assert [story.look() for _ in range(3)] == [[]] * 3
    assert story.watchdog.proven_us == 0


def test_a_notifier_that_the_node_gave_up_is_found_at_once() -> None:
    """A notifier that the node no longer lists is found at the first look."""
    watchdog = Watchdog(ZMQ_TOPICS)
    found = watchdog.compare(
        look(1, topics=("sequence", "rawtx")), MessageCounts(), MessageCounts(), OurState(TIP, 5)
    )
    assert [(finding.topic, finding.is_gone, finding.detail) for finding in found] == [
        ("rawblock", True, GONE)
    ]


def test_a_break_makes_the_comparison_begin_anew() -> None:
    """A change during a break of the stream is no second finding, because the break already has its row."""
    story = Story()
    story.look()
    story.look(n_tx=6)
    story.watchdog.forget()
    assert story.look(n_tx=6) == []
