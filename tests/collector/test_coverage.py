"""The account of what was observed: no interval claims more than was received, none is lost."""

from collector.coverage import Ledger
from collector.records import Message, Notice


def test_a_gap_ends_an_interval_at_its_last_message() -> None:
    """The row ends at the last message before the hole; the next begins with the first behind it."""
    ledger = Ledger("alpha", "s")
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
    """A sealed interval ends at its last message, and the next begins there with a count of its own."""
    ledger = Ledger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.open("rawblock", 10)
    ledger.count("sequence", 1, 20)
    (sealed,) = ledger.seal()
    assert (sealed["topic"], sealed["end_reason"]) == ("sequence", "sealed")
    assert (sealed["from_at"], sealed["to_at"], sealed["n_messages"]) == (10, 20, 1)
    assert ledger.seal() == []  # nothing came since
    ledger.prove("sequence", 70)
    first, second = ledger.close_all("shutdown")
    assert (first["topic"], first["from_at"], first["to_at"]) == ("rawblock", 10, 10)
    assert (second["from_at"], second["to_at"], second["n_messages"]) == (20, 70, 0)
    assert second["first_sequence"] is None


def test_what_was_received_after_the_last_state_is_counted() -> None:
    """Messages and notices that a kill left in the ring extend and close what the state had open."""
    ledger = Ledger("alpha", "s")
    ledger.open("sequence", 10)
    late = [
        Message("alpha", "s", "sequence", 5, 20_000, b""),
        Message("alpha", "other", "sequence", 900, 25_000, b""),
        Notice("gap", "sequence", 30_000, "counter is 9, expected 6"),
        Message("alpha", "s", "sequence", 9, 30_000, b""),
    ]
    rows = Ledger("alpha", "s").close_killed(ledger.state(), late)
    assert [(row["from_at"], row["to_at"], row["last_sequence"], row["end_reason"]) for row in rows] == [
        (10, 20, 5, "gap"),
        (30, 30, 9, "killed"),
    ]


def test_a_kill_closes_what_was_open_by_its_state() -> None:
    """Another run closes the intervals at the last message that was journalled with the state."""
    ledger = Ledger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.open("rawtx", 10)
    ledger.count("sequence", 4, 25)
    rows = Ledger("alpha", "s").close_killed(ledger.state())
    assert {(row["topic"], row["to_at"], row["n_messages"], row["end_reason"]) for row in rows} == {
        ("sequence", 25, 1, "killed"),
        ("rawtx", 10, 0, "killed"),
    }


def test_a_jump_behind_a_damaged_journal_ends_an_interval() -> None:
    """What the journal lost lies between its last state and what was received since; seals do not hide it."""
    ledger = Ledger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.count("sequence", 7, 20)
    assert len(ledger.seal()) == 1
    late = [Message("alpha", "s", "sequence", number, number * 10_000, b"") for number in (8, 12, 13)]
    rows = Ledger("alpha", "s").close_killed(ledger.state(), late)
    whole = Ledger("alpha", "s").close_killed(None, late[1:])
    spans = [(row["first_sequence"], row["last_sequence"], row["end_reason"]) for row in rows]
    assert spans == [(8, 8, "killed"), (12, 13, "killed")]
    assert [(row["from_at"], row["to_at"], row["n_messages"]) for row in whole] == [(120, 130, 2)]


def test_what_a_cut_journal_left_open_does_not_go_on_behind_the_cut() -> None:
    """No counter tells what was lost when the state had counted no message yet."""
    ledger = Ledger("alpha", "s")
    ledger.open("sequence", 10)
    late = [Message("alpha", "s", "sequence", number, number * 10_000, b"") for number in (8, 9)]
    rows = Ledger("alpha", "s").close_killed(ledger.state(), late, is_cut=True)
    assert [(row["from_at"], row["to_at"], row["n_messages"]) for row in rows] == [(10, 10, 0), (80, 90, 2)]


def test_a_closed_topic_has_nothing_to_close() -> None:
    """Closing twice gives one row."""
    ledger = Ledger("alpha", "s")
    ledger.open("mempool", 1)
    assert ledger.is_open("mempool")
    assert len(ledger.close("mempool", "resync")) == 1
    assert ledger.close("mempool", "shutdown") == []
    assert not ledger.is_open("mempool")
