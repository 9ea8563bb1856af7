"""The account of what was observed: no interval claims more than was received, none is lost."""

from collector.coverage import Ledger


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
    (row,) = ledger.close("rawtx", "shutdown", at_us=60)
    assert (row["from_at"], row["to_at"], row["first_sequence"], row["n_messages"]) == (50, 60, 12, 1)


def test_a_seal_leaves_no_hole() -> None:
    """The next interval begins where the sealed one ends, with a count of its own."""
    ledger = Ledger("alpha", "s")
    ledger.open("sequence", 10)
    ledger.count("sequence", 1, 20)
    (sealed,) = ledger.seal(100)
    (last,) = ledger.close_all("shutdown", at_us=200)
    assert (sealed["end_reason"], sealed["to_at"], sealed["n_messages"]) == ("sealed", 100, 1)
    assert (last["from_at"], last["to_at"], last["n_messages"], last["first_sequence"]) == (100, 200, 0, None)


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


def test_a_closed_topic_has_nothing_to_close() -> None:
    """Closing twice gives one row."""
    ledger = Ledger("alpha", "s")
    ledger.open("mempool", 1)
    assert ledger.is_open("mempool")
    assert len(ledger.close("mempool", "resync")) == 1
    assert ledger.close("mempool", "shutdown") == []
    assert not ledger.is_open("mempool")
