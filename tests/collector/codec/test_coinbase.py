"""Test what is read from coinbases and scripts, at the edges of the rules."""

import pytest
from bitcoin.core import (
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

from collector.codec.block import Block, Header
from collector.codec.coinbase import bip34_height, coinbase_bytes, subsidy_sat, witness_commitment
from collector.codec.transaction import TxOut, decode_transaction


def block(script: bytes, version: int = 2) -> Block:
    """Make a block whose coinbase has this script."""
    spends_nothing = CTxIn(COutPoint(bytes(32), 0xFFFFFFFF), CScript(script))
    coinbase = decode_transaction(CTransaction([spends_nothing], [CTxOut(0, CScript())]).serialize())
    return Block(
        header=Header(version, bytes(32), bytes(32), 0, 0, 0),
        block_hash=bytes(32),
        transactions=(coinbase,),
        size_bytes=141,
        stripped_bytes=141,
        coinbase_witness=(),
    )


@pytest.mark.parametrize(
    ("height", "chain", "subsidy"),
    [
        (0, "main", 5_000_000_000),
        (209_999, "main", 5_000_000_000),
        (210_000, "main", 2_500_000_000),
        (840_000, "test", 312_500_000),
        (6_929_999, "main", 1),
        (6_930_000, "main", 0),
        (210_000 * 64, "main", 0),
        (210_000 * 70, "main", 0),
        (149, "regtest", 5_000_000_000),
        (150, "regtest", 2_500_000_000),
    ],
)
def test_subsidy_halves_every_210000_blocks(height: int, chain: str, subsidy: int) -> None:
    """The last satoshi is made at height 6,929,999; regtest halves every 150 blocks."""
    assert subsidy_sat(height, chain) == subsidy


@given(st.integers(0, 2**31 - 1), st.binary(max_size=20))
def test_the_height_is_read_as_nodes_write_it(height: int, tail: bytes) -> None:
    """A height written as `CScript() << height` is read back, whatever follows it."""
    assert bip34_height(block(bytes(CScript([height])) + tail)) == height


@pytest.mark.parametrize(
    ("script", "version"),
    [
        (b"", 2),
        (b"\x03\x01\x02", 2),  # cut off
        (b"\x03\x01\x02\x83", 2),  # negative
        (b"\x05\x01\x02\x03\x04\x05", 2),  # no height for the next centuries
        (b"\x4c\x01\x05", 2),  # pushed with another opcode
        (b"\x03\x01\x02\x03", 1),  # older than the rule
    ],
)
def test_a_coinbase_may_state_no_height(script: bytes, version: int) -> None:
    """A script in another form than BIP 34 gives, in a block of version 2, states no height."""
    assert bip34_height(block(script, version)) is None


def test_the_last_commitment_counts() -> None:
    """BIP 141: of several commitments the one with the highest index; longer scripts are allowed."""
    first, last = bytes([1]) * 32, bytes([2]) * 32
    head = bytes.fromhex("6a24aa21a9ed")
    outputs = [TxOut(0, head + first), TxOut(0, head + last + b"more"), TxOut(0, head + last[:31])]
    assert witness_commitment(outputs) == last
    assert witness_commitment(outputs[:1]) == first
    assert witness_commitment(outputs[2:]) is None


@given(
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 2**50), st.binary(max_size=70_000)), max_size=3),
    st.integers(0, 2**32 - 1),
    st.none() | st.binary(min_size=32, max_size=32),
)
def test_a_coinbase_is_rebuilt_as_the_peer_library_writes_it(
    script: bytes, outputs: list[tuple[int, bytes]], number: int, reserved_value: bytes | None
) -> None:
    """Scripts of any size, any numbers of 32 bits, with and without a witness."""
    peer = CMutableTransaction(
        [CTxIn(COutPoint(bytes(32), 0xFFFFFFFF), CScript(script), number)],
        [CTxOut(value_sat, CScript(script)) for value_sat, script in outputs],
        number,
        2,
    )
    if reserved_value is not None:
        peer.wit = CTxWitness((CTxInWitness(CScriptWitness([reserved_value])),))
    row = {
        "coinbase_version": 2,
        "coinbase_script": script,
        "coinbase_sequence": number,
        "coinbase_outputs": [{"value_sat": value_sat, "script": script} for value_sat, script in outputs],
        "coinbase_reserved_value": reserved_value,
        "coinbase_locktime": number,
    }
    assert coinbase_bytes(row) == peer.serialize()
    assert coinbase_bytes(row, with_witness=False) == peer.serialize({"include_witness": False})


def test_a_row_of_an_older_version_rebuilds_no_coinbase() -> None:
    """Version 0.1.0 did not store what a coinbase needs."""
    assert coinbase_bytes({"coinbase_version": None}) is None
