"""What coinbases and scripts say, at the edges of the rules."""

import pytest
from bitcoin.core import COutPoint, CScript, CTransaction, CTxIn, CTxOut
from bitcoin.core.script import OP_0, OP_RETURN
from hypothesis import given
from hypothesis import strategies as st

from collector.coinbase import bip34_height, output_type, subsidy_sat, witness_commitment
from collector.decode import Block, Header, TxOut, decode_transaction
from collector.schema import OUTPUT_TYPES

KEY, LONG_KEY = b"\x02" + bytes(32), b"\x04" + bytes(64)


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
    """What `CScript() << height` begins with is read back, whatever follows."""
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
    """Everything but a height as BIP 34 writes it, in a block of version 2, is none."""
    assert bip34_height(block(script, version)) is None


def test_the_last_commitment_counts() -> None:
    """BIP 141: of several commitments the one with the highest index; longer scripts are allowed."""
    first, last = bytes([1]) * 32, bytes([2]) * 32
    head = bytes.fromhex("6a24aa21a9ed")
    outputs = [TxOut(0, head + first), TxOut(0, head + last + b"more"), TxOut(0, head + last[:31])]
    assert witness_commitment(outputs) == last
    assert witness_commitment(outputs[:1]) == first
    assert witness_commitment(outputs[2:]) is None


def multisig(m: bytes, keys: list[bytes], n: bytes) -> bytes:
    """Write a bare multisig script."""
    return m + b"".join(bytes([len(key)]) + key for key in keys) + n + b"\xae"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (b"\x76\xa9\x14" + bytes(20) + b"\x88\xac", "pubkeyhash"),
        (b"\xa9\x14" + bytes(20) + b"\x87", "scripthash"),
        (b"\x00\x14" + bytes(20), "witness_v0_keyhash"),
        (b"\x00\x20" + bytes(32), "witness_v0_scripthash"),
        (b"\x00\x15" + bytes(21), "nonstandard"),  # no program of version 0 has this length
        (b"\x51\x20" + bytes(32), "witness_v1_taproot"),
        (b"\x51\x02\x4e\x73", "anchor"),
        (b"\x51\x02\x4e\x74", "witness_unknown"),
        (b"\x52\x20" + bytes(32), "witness_unknown"),
        (b"\x60\x28" + bytes(40), "witness_unknown"),
        (b"\x51\x29" + bytes(41), "nonstandard"),  # too long for a program
        (b"\x51\x01\x00", "nonstandard"),  # too short
        (b"\x21" + KEY + b"\xac", "pubkey"),
        (b"\x41" + LONG_KEY + b"\xac", "pubkey"),
        (b"\x21\x05" + bytes(32) + b"\xac", "nonstandard"),  # no key begins with 5
        (b"\x6a", "nulldata"),
        (b"\x6a" + bytes(CScript([b"x" * 80])), "nulldata"),
        (b"\x6a" + bytes(CScript([b"x" * 300, OP_0])), "nulldata"),
        (b"\x6a\x05x", "nonstandard"),  # the push is cut off
        (bytes(CScript([OP_RETURN, OP_RETURN])), "nonstandard"),
        (multisig(b"\x51", [KEY], b"\x51"), "multisig"),
        (multisig(b"\x52", [KEY, LONG_KEY, KEY], b"\x53"), "multisig"),
        (multisig(b"\x53", [KEY, KEY], b"\x52"), "nonstandard"),  # more signatures than keys
        (multisig(b"\x51", [KEY, KEY], b"\x53"), "nonstandard"),  # fewer keys than it says
        (multisig(b"\x51", [KEY] * 17, b"\x01\x11"), "multisig"),
        (multisig(b"\x51", [KEY] * 20, b"\x01\x14"), "multisig"),
        (multisig(b"\x51", [KEY] * 21, b"\x01\x15"), "nonstandard"),
        (multisig(b"\x51", [KEY] * 16, b"\x01\x10"), "nonstandard"),  # 16 has an opcode
        (multisig(b"\x51", [], b"\x00"), "nonstandard"),
        (multisig(b"\x51", [KEY[:32]], b"\x51"), "nonstandard"),
        (b"\xae", "nonstandard"),
        (b"\x51\x21" + KEY + b"\xae", "nonstandard"),
        (b"\x4d\xff\xff\xae", "nonstandard"),
        (b"", "nonstandard"),
        (b"\x51", "nonstandard"),
    ],
)
def test_outputs_have_the_type_the_node_gives_them(script: bytes, expected: str) -> None:
    """Each rule of the node's solver, and the scripts that just miss it."""
    assert output_type(script) == expected


@given(st.binary(max_size=60))
def test_any_script_has_a_type(script: bytes) -> None:
    """Hostile scripts are typed, and never an error."""
    for tail in (b"", b"\xac", b"\xae"):
        assert output_type(script + tail) in OUTPUT_TYPES
