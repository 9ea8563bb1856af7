"""RecentTransactions wait for their event: not for ever, and not all that ever came."""

import pytest

from collector.codec.decode import Transaction
from collector.mempool.recent_txs import KEEP_US, RecentTransactions
from collector.regtest.transaction import Transaction as Made
from collector.regtest.transaction import TxInput, TxOutput


def received(bodies: RecentTransactions, count: int) -> list[Transaction]:
    """Receive different transactions."""
    made = [Made((TxInput(bytes([number] * 32), 0),), (TxOutput(1, b"\x51"),)) for number in range(count)]
    found = bodies.received([each.raw for each in made], 0)
    return [each for each in found if isinstance(each, Transaction)]


def test_a_body_that_nobody_asks_for_is_dropped_after_a_time() -> None:
    """It is a block's, or a coinbase."""
    bodies = RecentTransactions()
    (transaction,) = received(bodies, 1)
    bodies.forget(KEEP_US)
    assert bodies.get(transaction.txid) is transaction
    bodies.forget(KEEP_US + 1)
    assert bodies.get(transaction.txid) is None


def test_no_more_than_a_number_of_bodies_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest are dropped: memory has a bound whatever comes within the time."""
    monkeypatch.setattr("collector.mempool.recent_txs.MOST_KEPT", 3)
    bodies = RecentTransactions()
    made = received(bodies, 5)
    assert len(made) == 5
    bodies.forget(0)
    assert [bodies.get(each.txid) for each in made] == [None, None, *made[2:]]
