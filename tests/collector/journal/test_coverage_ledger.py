"""Test the coverage ledger: no interval claims more than was received, and no interval is lost."""

import random
from itertools import pairwise

from collector.journal.coverage_ledger import CoverageLedger
from collector.receive.records import COUNTER_RANGE, Message, Notice

SPAN = ("from_at", "to_at", "first_sequence", "last_sequence", "n_messages")


def test_a_gap_ends_an_interval_at_its_last_message() -> None:
    """An interval ends at the last message before a gap; the next begins with the first one after it."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("rawtx", 10)
    ledger.count("rawtx", 7, 20)
    ledger.count("rawtx", 8, 30)
    (row,) = ledger.close("rawtx", "gap", "counter is 12, expected 9")
    assert row == {
        "node": "alpha",
        "session": "s",
        "topic": "rawtx",
        "from_at": 10,
        "to_at": 30,
        "first_sequence": 7,
        "last_sequence": 8,
        "n_messages": 2,
        "end_reason": "gap",
        "detail": "counter is 12, expected 9",
    }
    ledger.count("rawtx", 12, 50)
    (row,) = ledger.close("rawtx", "shutdown")
    assert (row["from_at"], row["to_at"], row["first_sequence"], row["n_messages"]) == (50, 50, 12, 1)


def test_a_seal_leaves_no_hole_and_claims_nothing_unproven() -> None:
    """A sealed interval ends at its last message; the next begins there and counts from zero."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.open("rawblock", 10)
    ledger.count("sequence", 1, 20)
    (sealed,) = ledger.seal({})
    assert (sealed["topic"], sealed["end_reason"]) == ("sequence", "sealed")
    assert (sealed["from_at"], sealed["to_at"], sealed["n_messages"]) == (10, 20, 1)
    assert ledger.seal({}) == []  # no message came since
    ledger.extend_until("sequence", 70)
    grown, still = ledger.close_all("shutdown")
    assert (still["topic"], still["from_at"], still["to_at"]) == ("rawblock", 10, 10)
    assert (grown["from_at"], grown["to_at"], grown["n_messages"]) == (20, 70, 0)
    assert grown["first_sequence"] is None


def test_a_seal_claims_no_message_whose_rows_are_not_committed() -> None:
    """Messages without committed rows, and those after them, count in the interval after the sealed one."""
    ledger = CoverageLedger("alpha", "s")
    for topic in ("sequence", "mempool", "rawtx"):
        ledger.open(topic, 10)
    for number in range(5, 9):
        ledger.count("sequence", number, number * 10)
        ledger.count("rawtx", number, number * 10)
    ledger.count("mempool", 5, 50)  # the others are not applied yet
    unfinished = {"sequence": Message("alpha", "s", "sequence", 7, 70_000, b"")}
    rows = ledger.seal(unfinished) + ledger.close_all("shutdown")
    spans = [tuple(row[name] for name in ("topic", *SPAN)) for row in rows]
    assert spans == [
        ("sequence", 10, 70, 5, 6, 2),
        ("mempool", 10, 50, 5, 5, 1),
        ("rawtx", 10, 80, 5, 8, 4),
        ("sequence", 70, 80, 7, 8, 2),
        ("mempool", 50, 50, None, None, 0),
        ("rawtx", 80, 80, None, None, 0),
    ]


def test_a_seal_waits_for_an_interval_of_which_nothing_is_committed() -> None:
    """A seal returns no row of an interval without committed messages, also where the counter begins anew."""
    ledger = CoverageLedger("alpha", "s")
    ledger.count("sequence", COUNTER_RANGE - 1, 50)
    ledger.count("sequence", 0, 60)
    before_the_gap = {"sequence": Message("alpha", "s", "sequence", COUNTER_RANGE - 9, 20_000, b"")}
    assert ledger.seal(before_the_gap) == []
    newest = {"sequence": Message("alpha", "s", "sequence", 0, 60_000, b"")}
    (row,) = ledger.seal(newest)
    assert [row[name] for name in SPAN] == [50, 60, COUNTER_RANGE - 1, COUNTER_RANGE - 1, 1]
    (row,) = ledger.close_all("shutdown")
    assert [row[name] for name in SPAN] == [60, 60, 0, 0, 1]


def test_what_was_received_after_the_last_state_is_counted() -> None:
    """Messages and notices that a kill left in the ring extend and end the intervals of the state."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 10)
    late = [
        Message("alpha", "s", "sequence", 5, 20_000, b""),
        Message("alpha", "other", "sequence", 900, 25_000, b""),
        Notice("gap", "sequence", 30_000, "counter is 9, expected 6"),
        Message("alpha", "s", "sequence", 9, 30_000, b""),
    ]
    rows = CoverageLedger("alpha", "s").close_after_kill(ledger.state(), late)
    assert [(row["from_at"], row["to_at"], row["last_sequence"], row["end_reason"]) for row in rows] == [
        (10, 20, 5, "gap"),
        (30, 30, 9, "killed"),
    ]


def test_a_kill_closes_what_was_open_by_its_state() -> None:
    """After a kill, the next run ends open intervals at the last message journalled with the state."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.open("rawtx", 10)
    ledger.count("sequence", 4, 25)
    rows = CoverageLedger("alpha", "s").close_after_kill(ledger.state())
    assert {(row["topic"], row["to_at"], row["n_messages"], row["end_reason"]) for row in rows} == {
        ("sequence", 25, 1, "killed"),
        ("rawtx", 10, 0, "killed"),
    }


def test_a_jump_behind_a_damaged_journal_ends_an_interval() -> None:
    """A jump of the counter after the last state shows lost messages, also when a seal came between."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.count("sequence", 7, 20)
    assert len(ledger.seal({})) == 1
    late = [Message("alpha", "s", "sequence", number, number * 10_000, b"") for number in (8, 12, 13)]
    rows = CoverageLedger("alpha", "s").close_after_kill(ledger.state(), late)
    whole = CoverageLedger("alpha", "s").close_after_kill(None, late[1:])
    spans = [(row["first_sequence"], row["last_sequence"], row["end_reason"]) for row in rows]
    assert spans == [(8, 8, "killed"), (12, 13, "killed")]
    assert [(row["from_at"], row["to_at"], row["n_messages"]) for row in whole] == [(120, 130, 2)]


def test_an_interval_of_a_cut_journal_ends_at_the_cut() -> None:
    """With `is_cut`, an interval ends even when its state has no counter that would show the loss."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 10)
    late = [Message("alpha", "s", "sequence", number, number * 10_000, b"") for number in (8, 9)]
    rows = CoverageLedger("alpha", "s").close_after_kill(ledger.state(), late, is_cut=True)
    assert [(row["from_at"], row["to_at"], row["n_messages"]) for row in rows] == [(10, 10, 0), (80, 90, 2)]


def test_closing_a_topic_twice_gives_one_row() -> None:
    """Closing a topic a second time returns no row."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("mempool", 1)
    assert ledger.is_open("mempool")
    assert len(ledger.close("mempool", "resync")) == 1
    assert ledger.close("mempool", "shutdown") == []
    assert not ledger.is_open("mempool")


def test_a_row_is_held_back_until_its_messages_are_committed() -> None:
    """A seal returns the committed part of a held row; after a kill, the rest is in the state."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 10)
    for number in range(5, 9):
        ledger.count("sequence", number, number * 10)
    ledger.hold_back(ledger.close("sequence", "gap", "lost"))
    unfinished = {"sequence": Message("alpha", "s", "sequence", 7, 70_000, b"")}
    assert ledger.release_committed(unfinished) == []
    (sealed,) = ledger.seal(unfinished)
    (killed,) = CoverageLedger("alpha", "s").close_after_kill(ledger.state())
    (ended,) = ledger.release_committed({})
    assert [sealed[name] for name in (*SPAN, "end_reason")] == [10, 70, 5, 6, 2, "sealed"]
    assert [ended[name] for name in (*SPAN, "end_reason", "detail")] == [70, 80, 7, 8, 2, "gap", "lost"]
    assert killed == ended
    assert ledger.release_committed({}) == []


def test_a_state_of_an_older_version_is_read() -> None:
    """A state of an older version, which has only the open intervals, is restored."""
    (row,) = CoverageLedger("alpha", "s").close_after_kill(b'{"rawtx": [10, 30, 7, 8, 2, null]}')
    assert [row[name] for name in SPAN] == [10, 30, 7, 8, 2]


def test_an_interval_contains_the_messages_that_came_before_the_subscription_was_known() -> None:
    """A gap among them leaves two intervals that do not overlap, also in what a kill left."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("rawblock", 100)
    began = ledger.state()
    ledger.count("rawblock", 0, 20)
    rows = ledger.close("rawblock", "gap", "counter is 141, expected 1")
    ledger.count("rawblock", 141, 40)
    ledger.count("rawblock", 142, 170)
    rows += ledger.seal({})
    spans = [tuple(row[name] for name in SPAN) for row in rows]
    assert spans == [(20, 20, 0, 0, 1), (40, 170, 141, 142, 2)]
    left = [
        Message("alpha", "s", "rawblock", 0, 20_000, b""),
        Notice("gap", "rawblock", 40_000, "counter is 141, expected 1"),
        Message("alpha", "s", "rawblock", 141, 40_000, b""),
        Message("alpha", "s", "rawblock", 142, 170_000, b""),
    ]
    killed = CoverageLedger("alpha", "s").close_after_kill(began, left)
    assert [tuple(row[name] for name in SPAN) for row in killed] == spans


def test_a_break_before_the_subscription_was_known_ends_the_interval_when_it_came() -> None:
    """Else the interval of the new connection would begin before the row of the old one ends."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("rawtx", 100)
    late = [
        Notice("reconnect", "rawtx", 30_000, "lost"),
        Notice("connected", "rawtx", 50_000, "back"),
        Message("alpha", "s", "rawtx", 9, 60_000, b""),
    ]
    rows = CoverageLedger("alpha", "s").close_after_kill(ledger.state(), late)
    assert [(row["from_at"], row["to_at"], row["n_messages"]) for row in rows] == [(30, 30, 0), (50, 60, 1)]


def test_an_exact_beginning_stays() -> None:
    """It is one that a seal or another clock sets: no stamp before it moves it back."""
    ledger = CoverageLedger("alpha", "s")
    ledger.open("sequence", 100)
    ledger.extend_until("sequence", 200)
    ledger.open("rawtx", 100, is_exact=True)
    (sealed,) = ledger.seal({})
    for topic in ("sequence", "rawtx"):
        ledger.count(topic, 7, 90)
    rows = [sealed, *ledger.close_all("shutdown")]
    assert [tuple(row[name] for name in ("topic", *SPAN)) for row in rows] == [
        ("sequence", 100, 200, None, None, 0),
        ("sequence", 200, 200, 7, 7, 1),
        ("rawtx", 100, 100, 7, 7, 1),
    ]


def test_no_two_intervals_of_a_topic_overlap() -> None:
    """Drawn: messages, gaps and seals, before and after the moment from which the subscription is known."""
    for seed in range(300):
        draw = random.Random(seed)  # noqa: S311 - a test wants repeatable chance
        ledger = CoverageLedger("alpha", "s")
        ledger.open("rawblock", 500)
        rows, counter, stamps_us = [], draw.randrange(COUNTER_RANGE), sorted(draw.sample(range(1, 1000), 20))
        messages: list[Message] = []
        for at_us in stamps_us:
            if draw.random() < 0.3 and messages:
                counter += draw.randrange(1, COUNTER_RANGE // 2)
                ledger.hold_back(ledger.close("rawblock", "gap"))
            counter = (counter + 1) % COUNTER_RANGE
            ledger.count("rawblock", counter, at_us)
            messages.append(Message("alpha", "s", "rawblock", counter, at_us * 1000, b""))
            if draw.random() < 0.2:
                rows += ledger.seal({})
        rows += ledger.release_committed({}) + ledger.close_all("shutdown")
        rows.sort(key=lambda row: row["from_at"])
        assert all(row["to_at"] <= following["from_at"] for row, following in pairwise(rows)), seed
        for message in messages:
            at_us = message.received_ns // 1000
            assert any(row["from_at"] <= at_us <= row["to_at"] for row in rows), seed
