"""Test that many transactions decoded at once give the records and refusals of one at a time."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.codec.block import Block, decode_block, parse_block
from collector.codec.rows import block_rows
from collector.codec.transaction import (
    FEW,
    RecentTransactions,
    Transaction,
    decode_transaction,
    decode_transactions,
)
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import BLOCKS, CHAINS, TRANSACTIONS, VERDICTS
from collector.errors import DecodeError
from tests.collector.codec import made_blocks as made
from tests.collector.codec.plain_rows import plain_block_rows
from tests.collector.codec.plain_traits import with_plain_traits
from tests.collector.codec.test_decode import transactions


def alone(raw: bytes) -> Transaction | str:
    """Decode one transaction; return the text of the error if it is refused."""
    try:
        return with_plain_traits(decode_transaction(raw))
    except DecodeError as error:
        return str(error)


def read_alone(raw: bytes) -> Block:
    """Decode a block with `decode_block`."""
    return parse_block(raw).block


def block_or_reason(decode: Callable[[bytes], Block], raw: bytes) -> Block | str:
    """Decode a block; return the text of the error if it is refused."""
    try:
        return decode(raw)
    except DecodeError as error:
        return str(error)


@st.composite
def bodies(draw: st.DrawFn) -> list[bytes]:
    """Draw more transactions than are decoded one by one, some with a byte changed, lost or added."""
    made_few = [each.serialize() for each in draw(st.lists(transactions(), min_size=2, max_size=4))]
    raws = (made_few * (FEW + 1))[: draw(st.integers(FEW + 1, FEW + 4))]
    for at in draw(st.sets(st.integers(0, len(raws) - 1), max_size=2)):
        broken = bytearray(raws[at])
        where = draw(st.integers(0, len(broken) - 1))
        broken[where : where + draw(st.integers(0, 1))] = draw(st.binary(max_size=1))
        raws[at] = bytes(broken)
    return raws


@settings(max_examples=100, deadline=None)
@given(bodies())
def test_bodies_decode_together_as_each_alone(raws: list[bytes]) -> None:
    """Every field of every record is the same, and so is each refusal; one that is broken costs no other."""
    together = [str(each) if isinstance(each, DecodeError) else each for each in decode_transactions(raws)]

    assert together == [alone(raw) for raw in raws]


@settings(max_examples=60, deadline=None)
@given(made.blocks(max_transactions=4), st.data())
def test_a_block_is_read_as_the_decoder_reads_it(raw: bytes, data: st.DataObject) -> None:
    """A valid or changed block gives the same record, or the same refusal, both ways."""
    changed = bytearray(raw)
    if data.draw(st.booleans()):
        changed[data.draw(st.integers(80, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    assert block_or_reason(read_alone, bytes(changed)) == block_or_reason(decode_block, bytes(changed))


@settings(max_examples=60, deadline=None)
@given(made.blocks(max_transactions=4), st.data())
def test_a_block_has_the_rows_of_the_plain_way(raw: bytes, data: st.DataObject) -> None:
    """Valid or not, with all fees, some or none: every column of every row is the same."""
    block = decode_block(raw)
    fee = st.none() | st.integers(-(10**6), 10**9)
    n_tx = len(block.transactions)
    said: dict[str, Any] = {
        "chain": data.draw(st.sampled_from(CHAINS)),
        "height": data.draw(st.integers(0, 1_000_000)),
        "height_source": "tree",
        "source": data.draw(st.sampled_from(["zmq", "rpc"])),
        "verdict": data.draw(st.sampled_from(VERDICTS)),
        "verified_by": "cpu",
        "fees": data.draw(st.none() | st.lists(fee, min_size=n_tx, max_size=n_tx)),
    }
    row, rows = plain_block_rows(block, **said)

    blocks, transactions = block_rows(parse_block(raw), **said)

    assert blocks.equals(to_batch(BLOCKS, [row]), check_metadata=True)
    assert transactions.equals(to_batch(TRANSACTIONS, rows), check_metadata=True)


def test_a_script_of_any_length_leaves_values_where_they_are() -> None:
    """The value of an output stands before the size of its script, which takes one, three or five bytes."""
    outputs = tuple(made.TxOutput(7 + size, bytes(size)) for size in (0, 252, 253, 65_535, 65_536))
    raw = made.RegtestTransaction((made.TxInput(bytes(range(32)), 0),), outputs).raw

    found = decode_transactions([raw] * (FEW + 1))

    assert found == [with_plain_traits(decode_transaction(raw))] * (FEW + 1)
    assert isinstance(found[0], Transaction)
    assert [output.value_sat for output in found[0].outputs] == [each.value_sat for each in outputs]


def test_a_body_is_decoded_once_and_a_broken_one_is_reported_each_time() -> None:
    """Bytes seen before are not decoded again; bytes that cannot be decoded are reported each time."""
    kept = RecentTransactions()
    raw = made.RegtestTransaction((made.TxInput(bytes(range(32)), 0),), (made.TxOutput(5, b"\x51"),)).raw
    broken = raw[:-1]

    first, second, *bad = kept.decode_new([raw, raw, broken, broken], 1)
    (again, still_bad) = kept.decode_new([raw, broken], 2)

    assert first == with_plain_traits(decode_transaction(raw))
    assert (second, again) == (None, None)
    assert [str(each) for each in (*bad, still_bad)] == [alone(broken)] * 3
    assert kept.pop(first.txid) == first
    assert kept.pop(first.txid) is None
