"""Test PendingEntries: a row gets its fee from the mempool, a block or its inputs, or is given up."""

from decimal import Decimal
from typing import Any

import pytest

from collector.blocks.recent import RecentBlock
from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.transaction import Transaction, decode_transaction, decode_transactions, outpoint
from collector.dataset.schema import OUTPUT_TYPES
from collector.errors import RpcError
from collector.journal.batches import Batch
from collector.mempool.entries import (
    GIVE_UP_BYTES_US,
    GIVE_UP_US,
    EntryAnswer,
    EntryRequest,
    OutputRequest,
    PendingEntries,
    PendingEntry,
)
from collector.mempool.fee_lookup import outputs_of_answers
from collector.mempool.sync import KEEP_DEPARTED_US, MempoolContents, SpentOutput, TxLeft
from collector.regtest.transaction import FINAL, TxInput, TxOutput
from collector.regtest.transaction import RegtestTransaction as Made

GONE = RpcError("getmempoolentry", -5, "Transaction not in mempool")
SCRIPT = b"\x51"
P2PKH = b"\x76\xa9\x14" + bytes(20) + b"\x88\xac"
COIN = bytes(31) + b"\x07"
LOST = bytes(31) + b"\x08"


def body(*inputs: tuple[bytes, int], value_sat: int = 900) -> Transaction:
    """Return a transaction that spends these outputs."""
    spent = tuple(TxInput(txid, index, b"", (), FINAL) for txid, index in inputs)
    return decode_transaction(Made(spent, (TxOutput(value_sat, SCRIPT),)).raw)


def entered(
    pending: PendingEntries, contents: MempoolContents, transaction: Transaction, kind: str = "pushed"
) -> PendingEntry:
    """Add a transaction to the mempool contents and to the pending entries."""
    contents.enter(transaction.txid, transaction)
    entry = PendingEntry(transaction.txid, kind, 1000, 5, transaction, contents.parents(transaction))
    pending.add(entry)
    return entry


def mempool_entry(transaction: Transaction, fee: str, depends: list[bytes]) -> dict[str, Any]:
    """Return an answer to getmempoolentry."""
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


def output_answer(value: str, script: bytes = P2PKH) -> dict[str, Any]:
    """Return an answer to gettxout, of a node that calls the script's type by a word of its own."""
    return {"value": Decimal(value), "scriptPubKey": {"hex": script.hex(), "type": "of a later version"}}


def setup() -> tuple[PendingEntries, MempoolContents]:
    """Return empty PendingEntries and the mempool contents that they use."""
    contents = MempoolContents()
    return PendingEntries("alpha", "s", contents), contents


def test_the_mempool_entry_completes_the_row() -> None:
    """Fee, sizes and ancestors come from the node's answer, and the histogram counts the transaction."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    entered(pending, contents, transaction)
    assert pending.next_requests(10) == [EntryRequest(transaction.txid, needs_body=False)]
    (done,) = pending.take_answers(
        [EntryAnswer(transaction.txid, mempool_entry(transaction, "0.00000500", []), None)], 0
    )
    assert (done.row["fee_sat"], done.row["fee_source"], done.row["node_entered_at"]) == (
        500,
        "mempool_entry",
        77,
    )
    assert [(each["n_tx"], each["fees_sat"]) for each in contents.histogram()] == [(1, 500)]
    contents.leave(transaction.txid, 0)
    assert contents.histogram() == []
    assert len(pending) == 0


def test_what_was_pushed_is_asked_before_what_was_there() -> None:
    """Transactions that were there at the start are requested after those that messages announced."""
    pending, contents = setup()
    old = [body((COIN, number)) for number in range(5)]
    for each in old:
        entered(pending, contents, each, "at_start")
    new = body((COIN, 9))
    entered(pending, contents, new)
    assert [request.txid for request in pending.next_requests(3)] == [new.txid, old[0].txid, old[1].txid]
    assert pending.n_unasked == 3


def test_a_body_that_was_not_published_is_asked_for() -> None:
    """The bytes in the node's answer give the row its sizes and the mempool contents the spent outpoints."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    contents.enter(transaction.txid, None)
    pending.add(PendingEntry(transaction.txid, "at_start", 1000, None, None, None))
    assert pending.next_requests(1) == [EntryRequest(transaction.txid, needs_body=True)]
    raw = Made((TxInput(COIN, 0, b"", (), FINAL),), (TxOutput(900, SCRIPT),)).raw.hex()
    answer = EntryAnswer(transaction.txid, mempool_entry(transaction, "0.00000100", [COIN]), raw)
    (done,) = pending.take_answers([answer], 0)
    assert (done.row["n_inputs"], done.row["size_bytes"]) == (1, transaction.size_bytes)
    assert done.row["parents"] == [COIN]
    assert contents.outpoints(transaction.txid) == frozenset({COIN + bytes(4)})


def test_a_mined_transaction_has_the_fee_of_its_block() -> None:
    """The row of a mined transaction waits for the fees of the block that the event names."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    entered(pending, contents, transaction)
    pending.next_requests(1)
    assert pending.take_answers([EntryAnswer(transaction.txid, GONE, None)], 0) == []
    assert pending.resolve_gone() == ([], [])
    pending.note_left(TxLeft(transaction.txid, "mined", None, b"block"))
    assert pending.resolve_gone() == ([], [])
    assert pending.blocks_wanted() == [b"block"]
    (done,) = pending.take_block_fees(b"block", {transaction.txid: 321})
    assert (done.row["fee_sat"], done.row["fee_source"]) == (321, "block")


def test_a_block_that_came_before_the_answer_gives_the_fee() -> None:
    """A block's fee is kept until the node answers that the transaction is gone, even without an event."""
    pending, contents = setup()
    gone, there, waiting = (body((COIN, number)) for number in range(3))
    for each in (gone, there, waiting):
        entered(pending, contents, each, "at_start")
    pending.next_requests(2)
    assert pending.take_block_fees(b"block", {each.txid: 321 for each in (gone, there, waiting)}) == []
    answer = EntryAnswer(
        there.txid, mempool_entry(there, "0.00000321", []), None
    )  # the block was disconnected
    first, second = pending.take_answers([EntryAnswer(gone.txid, GONE, None), answer], 0)
    assert (first.row["txid"], first.row["fee_sat"], first.row["fee_source"]) == (gone.txid, 321, "block")
    assert (second.row["txid"], second.row["fee_source"]) == (there.txid, "mempool_entry")
    (third,) = pending.flush()
    assert (third.row["fee_sat"], third.row["fee_source"]) == (321, "block")
    assert pending.blocks_wanted() == []


def test_a_block_that_comes_after_the_answer_tells_the_fee() -> None:
    """Once the node has said that a transaction is gone, the fees of its block complete the row at once."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    entered(pending, contents, transaction)
    pending.next_requests(1)
    assert pending.take_answers([EntryAnswer(transaction.txid, GONE, None)], 50) == []
    assert pending.take_block_fees(b"other", {COIN: 5}) == []
    (done,) = pending.take_block_fees(b"block", {transaction.txid: 321})
    assert (done.row["fee_sat"], done.row["fee_source"]) == (321, "block")
    assert (len(pending), pending.resolve_gone()) == (0, ([], []))


@pytest.mark.parametrize("answer_is_first", [True, False])
def test_a_known_fee_waits_for_the_size(answer_is_first: bool) -> None:  # noqa: FBT001 - a parameter
    """A transaction came back and was mined before the node answered: its row waits for its bytes."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    contents.enter(transaction.txid, None)
    pending.add(PendingEntry(transaction.txid, "pushed", 1000, 5, None, None))
    steps = [
        lambda: pending.take_answers([EntryAnswer(transaction.txid, GONE, None)], 7),
        lambda: pending.take_block_fees(b"stale", {transaction.txid: 321}),
    ]
    pending.next_requests(10)
    for step in steps if answer_is_first else reversed(steps):
        assert step() == []

    pending.learn_body(transaction.txid, transaction)
    pending.note_left(TxLeft(transaction.txid, "mined", None, b"block"))
    assert pending.resolve_gone() == ([], [])
    (done,) = pending.take_block_fees(b"block", {transaction.txid: 321})
    assert (done.row["fee_sat"], done.row["fee_source"]) == (321, "block")
    assert done.row["vsize_vb"] == transaction.vsize_vb
    assert len(pending) == 0


def test_a_known_fee_does_not_wait_for_ever() -> None:
    """Without a block that tells the bytes, the row has the fee alone."""
    pending, contents = setup()
    contents.enter(COIN, None)
    pending.add(PendingEntry(COIN, "pushed", 1000, 5, None, None))
    pending.next_requests(10)
    assert pending.take_block_fees(b"stale", {COIN: 321}) == []
    assert pending.take_answers([EntryAnswer(COIN, GONE, None)], 7) == []
    assert pending.give_up(7 + GIVE_UP_US) == []
    (done,) = pending.give_up(8 + GIVE_UP_US)
    assert done.row["fee_sat"] == 321
    assert "vsize_vb" not in done.row


def test_a_removed_transaction_has_the_fee_of_what_it_spent() -> None:
    """The input values of a removed transaction come from parents in the mempool and from gettxout."""
    pending, contents = setup()
    parent = body((COIN, 0), value_sat=700)
    entered(pending, contents, parent)
    child = body((parent.txid, 0), (COIN, 1), value_sat=900)
    entry = entered(pending, contents, child)
    assert entry.parents == [parent.txid]
    pending.next_requests(9)
    pending.take_answers([EntryAnswer(child.txid, GONE, None)], 0)
    pending.note_left(TxLeft(child.txid, "removed", None))
    done, requests = pending.resolve_gone()
    assert (done, requests) == ([], [OutputRequest(child.txid, COIN, 1)])
    (finished,) = pending.take_outputs(requests, outputs_of_answers(requests, [output_answer("0.00000350")]))
    assert (finished.row["fee_sat"], finished.row["fee_source"]) == (150, "inputs")


def test_a_removed_transaction_waits_for_its_bytes() -> None:
    """Bytes that come after the node has dropped the transaction complete its row; without them it ends."""
    pending, contents = setup()
    late = body((COIN, 0), value_sat=300)
    for txid in (late.txid, LOST):
        contents.enter(txid, None)
        pending.add(PendingEntry(txid, "pushed", 1000, 5, None, None))
    pending.next_requests(9)
    pending.take_answers([EntryAnswer(txid, GONE, GONE) for txid in (late.txid, LOST)], 7)
    for txid in (late.txid, LOST):
        pending.note_left(TxLeft(txid, "removed", None))
    assert pending.resolve_gone() == ([], [])
    pending.learn_body(late.txid, late)
    done, requests = pending.resolve_gone()
    assert (done, requests) == ([], [OutputRequest(late.txid, COIN, 0)])
    (finished,) = pending.take_outputs(requests, outputs_of_answers(requests, [output_answer("0.00000350")]))
    assert (finished.row["fee_sat"], finished.row["vsize_vb"]) == (50, late.vsize_vb)
    assert pending.give_up(7 + GIVE_UP_BYTES_US, is_filling=True) == []
    (lost,) = pending.give_up(8 + GIVE_UP_BYTES_US, is_filling=True)
    assert (lost.entry.txid, len(pending)) == (LOST, 0)


def test_a_row_says_what_its_transaction_spends() -> None:
    """The types of spent outputs come from parents in the mempool, and from the node in the same request."""
    pending, contents = setup()
    (parent,) = decode_transactions([Made((TxInput(COIN, 0, b"", (), FINAL),), (TxOutput(9, P2PKH),)).raw])
    assert isinstance(parent, Transaction)
    contents.enter(parent.txid, parent)
    known, unknown = body((parent.txid, 0), (COIN, 1)), body((parent.txid, 0), (COIN, 2))
    for each in (known, unknown):
        entered(pending, contents, each)
    requests = pending.next_requests(9, most_outputs=9)
    assert [request.outputs for request in requests] == [
        (OutputRequest(known.txid, COIN, 1),),
        (OutputRequest(unknown.txid, COIN, 2),),
    ]
    found = outputs_of_answers(requests[0].outputs, [output_answer("0.00000001", b"\x00\x14" + bytes(20))])
    rows = pending.take_answers(
        [
            EntryAnswer(known.txid, mempool_entry(known, "0.00000500", []), None, found),
            EntryAnswer(unknown.txid, mempool_entry(unknown, "0.00000500", []), None),
        ],
        0,
    )
    assert [each.spent_types for each in rows] == [
        bytes(map(OUTPUT_TYPES.index, ("pubkeyhash", "witness_v0_keyhash"))),
        None,
    ]


def test_no_more_outputs_are_asked_for_than_allowed() -> None:
    """A transaction with more inputs than are left is not asked about, nor any in a burst."""
    pending, contents = setup()
    made = [body(*((COIN, 10 * number + index) for index in range(3))) for number in range(4)]
    for each in made:
        entered(pending, contents, each)
    assert [len(request.outputs) for request in pending.next_requests(3, most_outputs=7)] == [3, 3, 0]
    assert [len(request.outputs) for request in pending.next_requests(3)] == [0]


def test_the_block_that_spent_an_output_tells_its_value() -> None:
    """When a replacement is mined before gettxout is asked, its block gives the value of the input."""
    pending, contents = setup()
    transaction = body((COIN, 0), (COIN, 1), value_sat=900)
    entered(pending, contents, transaction)
    pending.next_requests(1)
    pending.take_answers([EntryAnswer(transaction.txid, GONE, None)], 0)
    pending.note_left(TxLeft(transaction.txid, "removed", None))
    _, requests = pending.resolve_gone()
    said = outputs_of_answers(requests, [output_answer("0.00001000"), None])
    assert pending.take_outputs(requests, said) == []
    assert pending.find_spent_values(lambda _txid, _output: None) == []
    (done,) = pending.find_spent_values(lambda txid, output: {(COIN, 1): 400}.get((txid, output)))
    assert (done.row["fee_sat"], done.row["fee_source"]) == (500, "inputs")
    assert len(pending) == 0


def test_a_block_tells_the_values_of_what_it_replaced() -> None:
    """The value is kept from the block until the node says that the transaction is gone, much later."""
    pending, contents = setup()
    replaced, mined = body((COIN, 0), value_sat=300), body((COIN, 0), value_sat=200)
    for transaction in (replaced, mined):
        entered(pending, contents, transaction)
    pending.next_requests(9)
    pending.note_left(TxLeft(replaced.txid, "removed", None))
    pending.learn_spent(RecentBlock(9, COIN, 0, {mined.txid: 150}, {outpoint(COIN, 0): 350}))
    pending.take_answers([EntryAnswer(replaced.txid, GONE, None)], 0)
    (finished,), requests = pending.resolve_gone()
    assert (finished.row["fee_sat"], finished.row["fee_source"], requests) == (50, "inputs", [])
    assert finished.spent_types is None


def test_a_value_that_nobody_tells_leaves_the_fee_unknown() -> None:
    """A row is completed without a fee when for too long neither gettxout nor a block has an input value."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    entered(pending, contents, transaction)
    pending.next_requests(1)
    pending.take_answers([EntryAnswer(transaction.txid, GONE, None)], 50)
    pending.note_left(TxLeft(transaction.txid, "removed", None))
    _, requests = pending.resolve_gone()
    assert pending.take_outputs(requests, outputs_of_answers(requests, [None])) == []
    assert pending.give_up(50 + GIVE_UP_US) == []
    (done,) = pending.give_up(51 + GIVE_UP_US)
    assert "fee_sat" not in done.row
    assert done.row["n_inputs"] == 1


def test_an_absence_that_nothing_explains_is_given_up() -> None:
    """The row of a transaction that is gone is given up after a limit, unless a recent block contains it."""
    pending, contents = setup()
    first, second = body((COIN, 0)), body((COIN, 1))
    for each in (first, second):
        entered(pending, contents, each)
    pending.next_requests(2)
    pending.take_answers([EntryAnswer(each.txid, GONE, None) for each in (first, second)], 50)
    pending.find_blocks_of_gone({second.txid: b"block"}.get)
    assert pending.give_up(50 + GIVE_UP_US) == []
    pending.resolve_gone()
    assert [done.row["txid"] for done in pending.give_up(51 + GIVE_UP_US)] == [first.txid]
    assert pending.blocks_wanted() == [b"block"]


def test_an_answer_to_an_earlier_entry_is_not_taken_for_a_later_one() -> None:
    """A transaction that enters again before its first answer gets a request of its own."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    entered(pending, contents, transaction)
    pending.next_requests(1)
    again = PendingEntry(transaction.txid, "pushed", 2000, 9, transaction, [])
    pending.add(again)
    answer = EntryAnswer(transaction.txid, mempool_entry(transaction, "0.00000500", []), None)
    assert pending.take_answers([answer], 0) == []
    pending.next_requests(1)
    earlier, later = pending.take_answers([answer], 0)
    assert (later.row["entered_at"], later.row["ancestor_count"]) == (2000, 1)
    assert (earlier.row["entered_at"], earlier.row["fee_sat"]) == (1000, 500)
    assert "ancestor_count" not in earlier.row


def test_a_transaction_that_comes_back_is_finished_once_per_entry() -> None:
    """When a transaction enters twice before its fee is known, its second block gives both rows the fee."""
    pending, contents = setup()
    transaction = body((COIN, 0))
    owners = [Batch(), Batch()]
    for number, block_hash in enumerate((b"stale", b"active")):
        pending.add(
            PendingEntry(transaction.txid, "pushed", number, number, transaction, [], owner=owners[number])
        )
        pending.next_requests(1)
        pending.take_answers([EntryAnswer(transaction.txid, GONE, None)], 0)
        pending.note_left(TxLeft(transaction.txid, "mined", None, block_hash))
        pending.resolve_gone()
    assert pending.take_block_fees(b"stale", {transaction.txid: 321}) == []
    done = pending.take_block_fees(b"active", {transaction.txid: 321})
    assert [(each.owner, each.row["fee_sat"], each.row["fee_source"]) for each in done] == [
        (owners[0], 321, "block"),
        (owners[1], 321, "block"),
    ]
    assert len(pending) == 0
    assert contents.histogram() == []


def test_flush_leaves_nothing_open() -> None:
    """A flush completes every row, whatever the row waits for."""
    pending, contents = setup()
    made = [body((COIN, number)) for number in range(4)]
    for each in made:
        entered(pending, contents, each)
    pending.next_requests(3)
    pending.take_answers([EntryAnswer(each.txid, GONE, None) for each in made[:2]], 0)
    pending.note_left(TxLeft(made[0].txid, "mined", None, b"block"))
    pending.note_left(TxLeft(made[1].txid, "removed", None))
    pending.resolve_gone()
    assert {done.row["txid"] for done in pending.flush()} == {each.txid for each in made}
    assert len(pending) == pending.n_unasked == 0


def test_what_left_is_remembered_for_its_children() -> None:
    """The output values of a transaction are known for half a minute after it left the mempool."""
    contents = MempoolContents()
    transaction = body((COIN, 0), value_sat=42)
    contents.enter(transaction.txid, transaction)
    contents.leave(transaction.txid, 100)
    contents.forget(100 + KEEP_DEPARTED_US)
    assert contents.output(transaction.txid, 0) == SpentOutput(42, UNKNOWN_TYPE)
    assert contents.output(transaction.txid, 1) is None
    contents.forget(101 + KEEP_DEPARTED_US)
    assert contents.output(transaction.txid, 0) is None


def test_what_left_is_remembered_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many transactions that left the mempool, only the latest are remembered."""
    monkeypatch.setattr("collector.mempool.sync.MOST_DEPARTED", 3)
    contents = MempoolContents()
    made = [body((COIN, number), value_sat=number) for number in range(5)]
    for transaction in made:
        contents.enter(transaction.txid, transaction)
        contents.learn_fee(transaction.txid, 7, 100)
        contents.leave(transaction.txid, 0)
    known = [SpentOutput(value_sat, UNKNOWN_TYPE) for value_sat in (2, 3, 4)]
    assert [contents.output(each.txid, 0) for each in made] == [None, None, *known]
    assert (len(contents), contents.histogram()) == (0, [])
