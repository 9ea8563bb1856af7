"""A row per entry: complete at once, from its block, from what it spent, or given up."""

from decimal import Decimal
from typing import Any

import pytest

from collector.codec.decode import Transaction, decode_transaction
from collector.errors import RpcError
from collector.mempool.contents import KEEP_LEFT_US, MempoolContents
from collector.mempool.entries import (
    GIVE_UP_US,
    EntryAnswer,
    EntryRequest,
    OutputRequest,
    PendingEntries,
    PendingEntry,
    output_values,
)
from collector.mempool.sync import TxLeft
from collector.regtest.transaction import FINAL, TxInput, TxOutput
from collector.regtest.transaction import Transaction as Made

GONE = RpcError("getmempoolentry", -5, "Transaction not in mempool")
SCRIPT = b"\x51"
COIN = bytes(31) + b"\x07"


def body(*inputs: tuple[bytes, int], value_sat: int = 900) -> Transaction:
    """Make a transaction that spends these outputs."""
    spent = tuple(TxInput(txid, index, b"", (), FINAL) for txid, index in inputs)
    return decode_transaction(Made(spent, (TxOutput(value_sat, SCRIPT),)).raw)


def entered(
    entries: PendingEntries, live: MempoolContents, transaction: Transaction, kind: str = "pushed"
) -> PendingEntry:
    """Let a transaction enter."""
    live.enter(transaction.txid, transaction)
    entry = PendingEntry(transaction.txid, kind, 1000, 5, transaction, live.parents(transaction))
    entries.entered(entry)
    return entry


def mempool_entry(transaction: Transaction, fee: str, depends: list[bytes]) -> dict[str, Any]:
    """Write an answer of getmempoolentry."""
    return {
        "wtxid": transaction.wtxid[::-1].hex(),
        "time": 77,
        "weight": transaction.weight_wu,
        "vsize": transaction.vsize_vb,
        "fees": {"base": Decimal(fee), "ancestor": Decimal(fee), "descendant": Decimal(fee)},
        "ancestorcount": 1,
        "ancestorsize": transaction.vsize_vb,
        "descendantcount": 1,
        "descendantsize": transaction.vsize_vb,
        "depends": [txid[::-1].hex() for txid in depends],
    }


def setup() -> tuple[PendingEntries, MempoolContents]:
    """Begin with nothing."""
    live = MempoolContents()
    return PendingEntries("alpha", "s", live), live


def test_the_mempool_entry_completes_the_row() -> None:
    """Fee, sizes and ancestors come from the answer; the histogram knows the transaction then."""
    entries, live = setup()
    transaction = body((COIN, 0))
    entered(entries, live, transaction)
    assert entries.questions(10) == [EntryRequest(transaction.txid, needs_body=False)]
    (done,) = entries.answers(
        [EntryAnswer(transaction.txid, mempool_entry(transaction, "0.00000500", []), None)], 0
    )
    assert (done.row["fee_sat"], done.row["fee_source"], done.row["node_entered_at"]) == (
        500,
        "mempool_entry",
        77,
    )
    assert [(each["n_tx"], each["fees_sat"]) for each in live.histogram()] == [(1, 500)]
    live.leave(transaction.txid, 0)
    assert live.histogram() == []
    assert len(entries) == 0


def test_what_was_pushed_is_asked_before_what_was_there() -> None:
    """The backlog of the start waits for the gaps between new entries."""
    entries, live = setup()
    old = [body((COIN, number)) for number in range(5)]
    for each in old:
        entered(entries, live, each, "at_start")
    new = body((COIN, 9))
    entered(entries, live, new)
    assert [question.txid for question in entries.questions(3)] == [new.txid, old[0].txid, old[1].txid]
    assert entries.n_unasked == 3


def test_a_body_that_was_not_published_is_asked_for() -> None:
    """With the body in the answer the row has its sizes, and the mempool its outpoints."""
    entries, live = setup()
    transaction = body((COIN, 0))
    live.enter(transaction.txid, None)
    entries.entered(PendingEntry(transaction.txid, "at_start", 1000, None, None, None))
    assert entries.questions(1) == [EntryRequest(transaction.txid, needs_body=True)]
    raw = Made((TxInput(COIN, 0, b"", (), FINAL),), (TxOutput(900, SCRIPT),)).raw.hex()
    answer = EntryAnswer(transaction.txid, mempool_entry(transaction, "0.00000100", [COIN]), raw)
    (done,) = entries.answers([answer], 0)
    assert (done.row["n_inputs"], done.row["size_bytes"]) == (1, transaction.size_bytes)
    assert done.row["parents"] == [COIN]
    assert live.outpoints(transaction.txid) == frozenset({COIN + bytes(4)})


def test_a_mined_transaction_has_the_fee_of_its_block() -> None:
    """It waits for the block's fees, whichever comes first, absence or event."""
    entries, live = setup()
    transaction = body((COIN, 0))
    entered(entries, live, transaction)
    entries.questions(1)
    assert entries.answers([EntryAnswer(transaction.txid, GONE, None)], 0) == []
    assert entries.resolve_gone() == ([], [])
    entries.left(TxLeft(transaction.txid, "mined", None, b"block"))
    assert entries.resolve_gone() == ([], [])
    assert entries.blocks_wanted() == [b"block"]
    (done,) = entries.block_fees(b"block", {transaction.txid: 321})
    assert (done.row["fee_sat"], done.row["fee_source"]) == (321, "block")


def test_a_block_that_came_before_the_answer_has_told_the_fee() -> None:
    """No event says that it left, and the block is forgotten when the node says that it is gone."""
    entries, live = setup()
    gone, there, waiting = (body((COIN, number)) for number in range(3))
    for each in (gone, there, waiting):
        entered(entries, live, each, "at_start")
    entries.questions(2)
    assert entries.block_fees(b"block", {each.txid: 321 for each in (gone, there, waiting)}) == []
    answer = EntryAnswer(
        there.txid, mempool_entry(there, "0.00000321", []), None
    )  # the block was disconnected
    first, second = entries.answers([EntryAnswer(gone.txid, GONE, None), answer], 0)
    assert (first.row["txid"], first.row["fee_sat"], first.row["fee_source"]) == (gone.txid, 321, "block")
    assert (second.row["txid"], second.row["fee_source"]) == (there.txid, "mempool_entry")
    (third,) = entries.flush()
    assert (third.row["fee_sat"], third.row["fee_source"]) == (321, "block")
    assert entries.blocks_wanted() == []


def test_a_block_that_comes_after_the_answer_tells_the_fee() -> None:
    """It need not be kept until somebody looks: many may come in one turn."""
    entries, live = setup()
    transaction = body((COIN, 0))
    entered(entries, live, transaction)
    entries.questions(1)
    assert entries.answers([EntryAnswer(transaction.txid, GONE, None)], 50) == []
    assert entries.block_fees(b"other", {COIN: 5}) == []
    (done,) = entries.block_fees(b"block", {transaction.txid: 321})
    assert (done.row["fee_sat"], done.row["fee_source"]) == (321, "block")
    assert (len(entries), entries.resolve_gone()) == (0, ([], []))


def test_a_removed_transaction_has_the_fee_of_what_it_spent() -> None:
    """Values come from parents that we know and from gettxout; together they give the fee."""
    entries, live = setup()
    parent = body((COIN, 0), value_sat=700)
    entered(entries, live, parent)
    child = body((parent.txid, 0), (COIN, 1), value_sat=900)
    entry = entered(entries, live, child)
    assert entry.parents == [parent.txid]
    entries.questions(9)
    entries.answers([EntryAnswer(child.txid, GONE, None)], 0)
    entries.left(TxLeft(child.txid, "removed", None))
    done, questions = entries.resolve_gone()
    assert (done, questions) == ([], [OutputRequest(child.txid, COIN, 1)])
    (finished,) = entries.outputs(questions, output_values(questions, [{"value": Decimal("0.00000350")}]))
    assert (finished.row["fee_sat"], finished.row["fee_source"]) == (150, "inputs")


def test_the_block_that_spent_an_output_tells_its_value() -> None:
    """A replacement was mined before gettxout was asked: the value is that of the block's input."""
    entries, live = setup()
    transaction = body((COIN, 0), (COIN, 1), value_sat=900)
    entered(entries, live, transaction)
    entries.questions(1)
    entries.answers([EntryAnswer(transaction.txid, GONE, None)], 0)
    entries.left(TxLeft(transaction.txid, "removed", None))
    _, questions = entries.resolve_gone()
    said = output_values(questions, [{"value": Decimal("0.00001000")}, None])
    assert entries.outputs(questions, said) == []
    assert entries.look_for_spent(lambda _txid, _output: None) == []
    (done,) = entries.look_for_spent(lambda txid, output: {(COIN, 1): 400}.get((txid, output)))
    assert (done.row["fee_sat"], done.row["fee_source"]) == (500, "inputs")
    assert len(entries) == 0


def test_a_value_that_nobody_tells_leaves_the_fee_unknown() -> None:
    """When neither gettxout nor a block has it, the row is there without a fee after a while."""
    entries, live = setup()
    transaction = body((COIN, 0))
    entered(entries, live, transaction)
    entries.questions(1)
    entries.answers([EntryAnswer(transaction.txid, GONE, None)], 50)
    entries.left(TxLeft(transaction.txid, "removed", None))
    _, questions = entries.resolve_gone()
    assert entries.outputs(questions, output_values(questions, [None])) == []
    assert entries.give_up(50 + GIVE_UP_US) == []
    (done,) = entries.give_up(51 + GIVE_UP_US)
    assert "fee_sat" not in done.row
    assert done.row["n_inputs"] == 1


def test_an_absence_that_nothing_explains_is_given_up() -> None:
    """After a while; a block that has it in the meantime explains it."""
    entries, live = setup()
    first, second = body((COIN, 0)), body((COIN, 1))
    for each in (first, second):
        entered(entries, live, each)
    entries.questions(2)
    entries.answers([EntryAnswer(each.txid, GONE, None) for each in (first, second)], 50)
    entries.look_for_gone({second.txid: b"block"}.get)
    assert entries.give_up(50 + GIVE_UP_US) == []
    entries.resolve_gone()
    assert [done.row["txid"] for done in entries.give_up(51 + GIVE_UP_US)] == [first.txid]
    assert entries.blocks_wanted() == [b"block"]


def test_an_answer_to_an_earlier_entry_is_not_taken_for_a_later_one() -> None:
    """A transaction that comes back before its answer gets a question of its own."""
    entries, live = setup()
    transaction = body((COIN, 0))
    entered(entries, live, transaction)
    entries.questions(1)
    again = PendingEntry(transaction.txid, "pushed", 2000, 9, transaction, [])
    entries.entered(again)
    answer = EntryAnswer(transaction.txid, mempool_entry(transaction, "0.00000500", []), None)
    assert entries.answers([answer], 0) == []
    entries.questions(1)
    later, earlier = entries.answers([answer], 0)
    assert (later.row["entered_at"], later.row["ancestor_count"]) == (2000, 1)
    assert (earlier.row["entered_at"], earlier.row["fee_sat"]) == (1000, 500)
    assert "ancestor_count" not in earlier.row


def test_a_transaction_that_comes_back_is_finished_once_per_entry() -> None:
    """A reorganisation brings it back before its block's fees are here; its next block tells them both."""
    entries, live = setup()
    transaction = body((COIN, 0))
    for number, block_hash in enumerate((b"stale", b"active")):
        entries.entered(
            PendingEntry(transaction.txid, "pushed", number, number, transaction, [], owner=number)
        )
        entries.questions(1)
        entries.answers([EntryAnswer(transaction.txid, GONE, None)], 0)
        entries.left(TxLeft(transaction.txid, "mined", None, block_hash))
        entries.resolve_gone()
    assert entries.block_fees(b"stale", {transaction.txid: 321}) == []
    done = entries.block_fees(b"active", {transaction.txid: 321})
    assert [(each.owner, each.row["fee_sat"], each.row["fee_source"]) for each in done] == [
        (1, 321, "block"),
        (0, 321, "block"),
    ]
    assert len(entries) == 0
    assert live.histogram() == []


def test_flush_leaves_nothing_open() -> None:
    """Every entry has a row in the end, in whatever state it was."""
    entries, live = setup()
    made = [body((COIN, number)) for number in range(4)]
    for each in made:
        entered(entries, live, each)
    entries.questions(3)
    entries.answers([EntryAnswer(each.txid, GONE, None) for each in made[:2]], 0)
    entries.left(TxLeft(made[0].txid, "mined", None, b"block"))
    entries.left(TxLeft(made[1].txid, "removed", None))
    entries.resolve_gone()
    assert {done.row["txid"] for done in entries.flush()} == {each.txid for each in made}
    assert len(entries) == entries.n_unasked == 0


def test_what_left_is_remembered_for_its_children() -> None:
    """For half a minute the values of its outputs can be asked for."""
    live = MempoolContents()
    transaction = body((COIN, 0), value_sat=42)
    live.enter(transaction.txid, transaction)
    live.leave(transaction.txid, 100)
    live.forget(100 + KEEP_LEFT_US)
    assert live.value_sat(transaction.txid, 0) == 42
    assert live.value_sat(transaction.txid, 1) is None
    live.forget(101 + KEEP_LEFT_US)
    assert live.value_sat(transaction.txid, 0) is None


def test_what_left_is_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood that goes through the mempool does not make memory grow; the newest are kept."""
    monkeypatch.setattr("collector.mempool.contents.MOST_LEFT", 3)
    live = MempoolContents()
    made = [body((COIN, number), value_sat=number) for number in range(5)]
    for transaction in made:
        live.enter(transaction.txid, transaction)
        live.learn_fee(transaction.txid, 7, 100)
        live.leave(transaction.txid, 0)
    assert [live.value_sat(each.txid, 0) for each in made] == [None, None, 2, 3, 4]
    assert (len(live), live.histogram()) == (0, [])
