"""What looks at a node and counts of its messages tell: who is silent, what was lost, when all is well."""

import pytest

from collector.dataset.schema import ZMQ_TOPICS
from collector.receive.records import Message
from collector.service.watchdog import GONE, Heard, Look, Ours, Watchdog

TIP = b"\x01" * 32
NEXT_TIP = b"\x02" * 32


def look(number: int, n_tx: int = 5, tip: bytes = TIP, topics: tuple[str, ...] = ZMQ_TOPICS) -> Look:
    """Make the look of a moment, in seconds."""
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
    """Looks, one a second, and what was heard until each."""

    def __init__(self) -> None:
        self.watchdog = Watchdog(ZMQ_TOPICS)
        self.heard = Heard()
        self.ours = Ours(TIP, 5)
        self.number = 0

    def hear(self, topic: str, letter: bytes = b"A", count: int = 1) -> None:
        """Receive messages."""
        body = bytes(32) + letter
        self.heard.take([Message("n", "s", topic, at, 0, body) for at in range(count)])

    def look(
        self, n_tx: int = 5, tip: bytes = TIP, topics: tuple[str, ...] = ZMQ_TOPICS
    ) -> list[tuple[str, str]]:
        """Look at a node that holds so much; return the findings."""
        self.number += 1
        asked = self.heard.copy()
        findings = self.watchdog.looked(look(self.number, n_tx, tip, topics), asked, asked, self.ours)
        return [(finding.topic, finding.reason) for finding in findings]


def test_a_quiet_node_is_whole() -> None:
    """Nothing changes and nothing is said: all is well, and known to be until the last look."""
    story = Story()
    assert [story.look() for _ in range(4)] == [[]] * 4
    assert story.watchdog.proven_us == 4 * 10**6


def test_a_change_that_nothing_spoke_of_is_silence() -> None:
    """It is found one look after the change was seen: until then the message may be on its way."""
    story = Story()
    story.look()
    assert story.look(n_tx=6) == []
    assert story.watchdog.proven_us == 0
    assert story.look(n_tx=6) == [("sequence", "silent")]


def test_a_message_that_comes_late_is_no_silence() -> None:
    """Between the look that saw the change and the next there is time for it."""
    story = Story()
    story.look()
    story.look(n_tx=6)
    story.hear("sequence")
    story.hear("rawtx")
    story.ours = Ours(TIP, 6)
    assert story.look(n_tx=6) == []


@pytest.mark.parametrize(("letter", "expected"), [(b"A", [("rawtx", "silent")]), (b"R", [])])
def test_events_without_bodies_betray_rawtx(letter: bytes, expected: list[tuple[str, str]]) -> None:
    """Every A, C and D comes with bodies; an R does not."""
    story = Story()
    story.look()
    story.hear("sequence", letter)
    story.look(n_tx=6)
    story.ours = Ours(TIP, 6)
    assert story.look(n_tx=6) == expected


def test_bodies_without_events_betray_sequence() -> None:
    """When what came and what went are of the same size, the bodies still tell."""
    story = Story()
    story.look()
    story.hear("rawtx", count=2)
    story.look()
    assert story.look() == [("sequence", "silent")]


def test_a_tip_without_its_block_betrays_rawblock() -> None:
    """The other topics told of the block."""
    story = Story()
    story.look()
    story.hear("sequence", b"C")
    story.hear("rawtx")
    story.ours = Ours(NEXT_TIP, 5)
    story.look(tip=NEXT_TIP)
    assert story.look(tip=NEXT_TIP) == [("rawblock", "silent")]


def test_what_was_lost_last_is_found_when_it_is_quiet() -> None:
    """Our copy differs from the node's though neither moves: something was lost behind the last message."""
    story = Story()
    story.ours = Ours(TIP, 4)
    for _ in range(2):
        story.hear("sequence", b"R")
        story.look()
    assert story.look() == [("sequence", "gap")]
    story.ours = Ours(NEXT_TIP, 5)
    story.look()
    assert story.look() == [("sequence", "gap")]


def test_a_copy_that_is_out_of_step_is_not_compared() -> None:
    """A snapshot is on its way: it will put things right."""
    story = Story()
    story.ours = Ours(TIP, None)
    assert [story.look() for _ in range(3)] == [[]] * 3
    assert story.watchdog.proven_us == 0


def test_a_notifier_that_the_node_gave_up_is_told_at_once() -> None:
    """The node no longer lists it."""
    watchdog = Watchdog(ZMQ_TOPICS)
    found = watchdog.looked(look(1, topics=("sequence", "rawtx")), Heard(), Heard(), Ours(TIP, 5))
    assert [(finding.topic, finding.is_gone, finding.detail) for finding in found] == [
        ("rawblock", True, GONE)
    ]


def test_a_break_makes_the_comparison_begin_anew() -> None:
    """What changed while the stream was broken is another hole, and named already."""
    story = Story()
    story.look()
    story.look(n_tx=6)
    story.watchdog.forget()
    assert story.look(n_tx=6) == []
