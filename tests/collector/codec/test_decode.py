"""Test the decoders against python-bitcoinlib, real blocks, and bytes that are nothing."""

import hashlib
import json
import struct
from pathlib import Path

import pytest
from bitcoin.core import (
    CBlock,
    CMutableTransaction,
    COutPoint,
    CScript,
    CTransaction,
    CTxIn,
    CTxInWitness,
    CTxOut,
    CTxWitness,
)
from bitcoin.core.script import CScriptWitness
from hypothesis import given
from hypothesis import strategies as st

from collector.codec.block import decode_block, decode_header
from collector.codec.format import MAX_MONEY_SAT
from collector.codec.transaction import decode_transaction
from collector.errors import DecodeError

U32 = st.integers(0, 0xFFFFFFFF)
SCRIPTS = st.binary(max_size=300)
WITNESS_STACKS = st.lists(st.binary(max_size=300), max_size=3)


@st.composite
def transactions(draw: st.DrawFn) -> CTransaction:
    """Draw any transaction that the format can carry, built by the peer library."""
    inputs = draw(
        st.lists(st.tuples(st.binary(min_size=32, max_size=32), U32, SCRIPTS, U32), min_size=1, max_size=4)
    )
    share = MAX_MONEY_SAT // 4
    outputs = draw(st.lists(st.tuples(st.integers(0, share), SCRIPTS), min_size=1, max_size=4))
    stacks = draw(st.lists(WITNESS_STACKS, min_size=len(inputs), max_size=len(inputs)))
    built = CMutableTransaction(
        [
            CTxIn(COutPoint(txid, index), CScript(script), sequence)
            for txid, index, script, sequence in inputs
        ],
        [CTxOut(value, CScript(script)) for value, script in outputs],
        draw(U32),
        draw(st.integers(-(2**31), 2**31 - 1)),
    )
    if any(stacks):
        built.wit = CTxWitness(tuple(CTxInWitness(CScriptWitness(stack)) for stack in stacks))
    return CTransaction.from_tx(built)


def compare(ours, peer: CTransaction) -> None:  # noqa: ANN001 - either kind of record with these fields
    """Assert that every field of our record equals that of the peer library."""
    raw = peer.serialize()
    assert ours.txid == peer.GetTxid()
    assert ours.wtxid == hashlib.sha256(hashlib.sha256(raw).digest()).digest()
    assert ours.version == peer.nVersion & 0xFFFFFFFF
    assert ours.locktime == peer.nLockTime
    assert ours.size_bytes == len(raw)
    assert ours.has_witness == peer.has_witness()
    assert ours.weight_wu == peer.calc_weight()
    assert ours.vsize_vb == -(-peer.calc_weight() // 4)
    assert [(i.prev_txid, i.prev_index, i.script, i.sequence) for i in ours.inputs] == [
        (i.prevout.hash, i.prevout.n, bytes(i.scriptSig), i.nSequence) for i in peer.vin
    ]
    assert [(o.value_sat, o.script) for o in ours.outputs] == [
        (o.nValue, bytes(o.scriptPubKey)) for o in peer.vout
    ]
    assert ours.output_value_sat == sum(o.nValue for o in peer.vout)


@given(transactions())
def test_transactions_decode_as_the_peer_library_reads_them(peer: CTransaction) -> None:
    """Whatever the format can carry comes out field by field as it went in."""
    compare(decode_transaction(peer.serialize()), peer)


@given(transactions(), st.data())
def test_a_transaction_cut_anywhere_is_an_error(peer: CTransaction, data: st.DataObject) -> None:
    """A transaction that is cut off, or followed by more bytes, is refused."""
    raw = peer.serialize()
    cut = data.draw(st.integers(0, len(raw) - 1))

    with pytest.raises(DecodeError):
        decode_transaction(raw[:cut])
    with pytest.raises(DecodeError, match="ends at byte"):
        decode_transaction(raw + b"\0")


@given(st.binary(max_size=400))
def test_arbitrary_bytes_decode_or_are_refused(raw: bytes) -> None:
    """Bytes that decode are whole; all others raise DecodeError and nothing else."""
    for decode in (decode_transaction, decode_block):
        try:
            decoded = decode(raw)
        except DecodeError:
            continue
        assert decoded.size_bytes == len(raw)


@given(transactions(), st.data())
def test_a_flipped_byte_never_gets_past_the_decoder_unnoticed(
    peer: CTransaction, data: st.DataObject
) -> None:
    """A damaged transaction is refused or has another wtxid; it never crashes the decoder."""
    raw = bytearray(peer.serialize())
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        decoded = decode_transaction(bytes(raw))
    except DecodeError:
        return
    assert decoded.wtxid == hashlib.sha256(hashlib.sha256(raw).digest()).digest()


@pytest.mark.parametrize(
    "size", [b"\xfd\xff\xff", b"\xfe\xff\xff\xff\x01", b"\xff" * 9, b"\xff" + b"\0\0\0\0\x01\0\0\0"]
)
@pytest.mark.parametrize("where", ["inputs", "outputs", "script", "stacks", "item", "transactions"])
def test_an_absurd_count_is_refused_before_anything_is_made_of_it(size: bytes, where: str) -> None:
    """A count that the remaining bytes cannot hold is refused by name, wherever it stands."""
    outpoint, output = bytes(36), bytes(8) + b"\0"
    before = {
        "inputs": bytes(4),
        "outputs": bytes(4) + b"\1" + outpoint + b"\0" + bytes(4),
        "script": bytes(4) + b"\1" + outpoint,
        "stacks": bytes(4) + b"\0\1\1" + outpoint + b"\0" + bytes(4) + b"\1" + output,
        "item": bytes(4) + b"\0\1\1" + outpoint + b"\0" + bytes(4) + b"\1" + output + b"\1",
        "transactions": bytes(80),
    }[where]
    decode = decode_block if where == "transactions" else decode_transaction

    with pytest.raises(DecodeError):
        decode(before + size + bytes(40))


@pytest.mark.parametrize(
    ("raw", "what"),
    [
        (bytes(4) + b"\0\0" + bytes(4), "no inputs"),
        (bytes(4) + b"\0\2" + bytes(60), "witness flag 2"),
        (bytes(4) + b"\0\1\0\0" + bytes(4), "no inputs"),
        (bytes(4) + b"\0\1\1" + bytes(41) + b"\1" + bytes(9) + b"\0" + bytes(4), "empty witness"),
        (bytes(4) + b"\1" + bytes(41) + b"\0" + bytes(4), "no outputs"),
        (bytes(4) + b"\xfd\1\0" + bytes(60), "shortest form"),
        (bytes(4) + b"\1" + bytes(41) + b"\1" + struct.pack("<q", -1) + bytes(5), "-1 sat"),
        (
            bytes(4) + b"\1" + bytes(41) + b"\1" + struct.pack("<q", MAX_MONEY_SAT + 1) + bytes(5),
            "sat at byte",
        ),
        (
            bytes(4) + b"\1" + bytes(41) + b"\2" + 2 * (struct.pack("<q", MAX_MONEY_SAT) + b"\0") + bytes(4),
            "sum to",
        ),
    ],
)
def test_what_no_node_would_pass_on_is_refused_with_the_reason(raw: bytes, what: str) -> None:
    """The message names what is wrong with the bytes."""
    with pytest.raises(DecodeError, match=what):
        decode_transaction(raw)


def coinbase_first(*others: bytes) -> bytes:
    """Make a block of zeros around a coinbase and other transactions."""
    coinbase = bytes(4) + b"\1" + bytes(32) + b"\xff" * 4 + b"\0" + bytes(4) + b"\1" + bytes(9) + bytes(4)
    return bytes(80) + bytes([1 + len(others)]) + coinbase + b"".join(others)


def test_a_block_needs_one_coinbase_and_it_comes_first() -> None:
    """No transaction, no coinbase in front and a second coinbase are each refused."""
    block = coinbase_first()
    coinbase = block[81:]
    payment = bytes(4) + b"\1" + b"\7" * 36 + b"\0" + bytes(4) + b"\1" + bytes(9) + bytes(4)

    assert len(decode_block(coinbase_first(payment)).transactions) == 2
    with pytest.raises(DecodeError, match="second coinbase"):
        decode_block(coinbase_first(coinbase))
    with pytest.raises(DecodeError, match="not a coinbase"):
        decode_block(bytes(80) + b"\1" + payment)
    with pytest.raises(DecodeError, match="no transactions"):
        decode_block(bytes(81))
    with pytest.raises(DecodeError, match="header alone"):
        decode_header(bytes(79))


def test_outputs_that_overflow_64_bits_together_are_refused() -> None:
    """Outputs that each stay below 21 million coins may sum to more than a column holds; they are refused."""
    rich = (
        bytes(4) + b"\1" + b"\7" * 36 + b"\0" + bytes(4) + b"\1" + struct.pack("<q", MAX_MONEY_SAT) + bytes(5)
    )
    block = coinbase_first()

    with pytest.raises(DecodeError, match="64 bits"):
        decode_block(block[:80] + b"\xfd" + struct.pack("<H", 4401) + block[81:] + 4400 * rich)


@pytest.mark.data
def test_real_blocks_decode_as_the_peer_library_reads_them(data_dir: Path) -> None:
    """Every field of every transaction of real blocks, segwit or not, of five networks."""
    files = [*data_dir.glob("mainnet-blocks/*.bin"), *data_dir.glob("other-net-blocks/*.bin")]
    assert files
    for file in files:
        raw = file.read_bytes()
        block, peer = decode_block(raw), CBlock.deserialize(raw)
        assert block.block_hash == peer.GetHash(), file.name
        assert block.block_hash[::-1].hex() in file.name
        assert (block.size_bytes, block.weight_wu) == (len(raw), peer.GetWeight()), file.name
        assert block.header == (
            peer.nVersion,
            peer.hashPrevBlock,
            peer.hashMerkleRoot,
            peer.nTime,
            peer.nBits,
            peer.nNonce,
        )
        for ours, theirs in zip(block.transactions, peer.vtx, strict=True):
            compare(ours, theirs)


@pytest.mark.data
def test_vectors_of_bitcoin_core_decode_unless_they_are_impossible(data_dir: Path) -> None:
    """Core's valid transactions decode; of its invalid ones all but those of impossible outputs."""
    folder = data_dir / "bitcoin-core-vectors" / "data"
    for name, refused in (("tx_valid.json", 0), ("tx_invalid.json", 4)):
        errors = []
        for vector in json.loads((folder / name).read_text()):
            if len(vector) != 3:
                continue
            raw = bytes.fromhex(vector[1])
            try:
                compare(decode_transaction(raw), CTransaction.deserialize(raw))
            except DecodeError as error:
                errors.append(str(error))
        assert len(errors) == refused, errors
