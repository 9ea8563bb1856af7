"""Test that RecentTransactions keeps transactions while events wait, and up to a limited number."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.codec.transaction import KEEP_US, RecentTransactions, Transaction
from collector.errors import DecodeError
from collector.regtest.transaction import RegtestTransaction as Made
from collector.regtest.transaction import TxInput, TxOutput

SOUND = [Made((TxInput(bytes([number] * 32), 0),), (TxOutput(1, b"\x51"),)) for number in range(4)]
RAWS = [*(each.raw for each in SOUND), b"", b"\x00" * 70]  # the last two are no transactions


def decode(recent: RecentTransactions, count: int) -> list[Transaction]:
    """Decode and keep `count` different transactions."""
    made = [Made((TxInput(bytes([number] * 32), 0),), (TxOutput(1, b"\x51"),)) for number in range(count)]
    found = recent.decode_new([each.raw for each in made], 0)
    return [each for each in found if isinstance(each, Transaction)]


def test_a_body_that_nobody_asks_for_is_dropped_after_a_time() -> None:
    """A transaction that no event needed is dropped when it is older than the limit."""
    recent = RecentTransactions()
    (transaction,) = decode(recent, 1)
    recent.forget(KEEP_US)
    assert recent.get(transaction.txid) is transaction
    recent.forget(KEEP_US + 1)
    assert recent.get(transaction.txid) is None


def test_no_more_than_a_number_of_bodies_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above a number of kept transactions the oldest are dropped, so that memory has a bound."""
    monkeypatch.setattr("collector.codec.transaction.MOST_KEPT", 3)
    recent = RecentTransactions()
    made = decode(recent, 5)
    assert len(made) == 5
    recent.forget(0)
    assert [recent.get(each.txid) for each in made] == [None, None, *made[2:]]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(0, len(RAWS) - 1), max_size=12), max_size=4))
def test_only_the_first_of_equal_bytes_is_decoded(batches: list[list[int]]) -> None:
    """In any order of new, repeated and faulty bytes; faulty ones are reported each time."""
    recent = RecentTransactions()
    seen: set[int] = set()
    for batch in batches:
        found = recent.decode_new([RAWS[number] for number in batch], 0)
        assert len(found) == len(batch)
        for number, result in zip(batch, found, strict=True):
            if number >= len(SOUND):
                assert isinstance(result, DecodeError)
            elif number in seen:
                assert result is None
            else:
                assert isinstance(result, Transaction)
                assert result.txid == SOUND[number].txid
                assert recent.get(result.txid) is result
            seen.add(number)
