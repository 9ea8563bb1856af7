"""Test what is read from coinbases and scripts, at the edges of the rules."""

import pytest
from bitcoin.core import COutPoint, CScript, CTransaction, CTxIn, CTxOut
from hypothesis import given
from hypothesis import strategies as st

from collector.codec.block import Block, Header
from collector.codec.coinbase import bip34_height, subsidy_sat, witness_commitment
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
