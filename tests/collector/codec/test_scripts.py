"""Test the types of outputs, at the edges of the node's rules."""

import pytest
from bitcoin.core import CScript
from bitcoin.core.script import OP_0, OP_RETURN
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.dataset.schema import OUTPUT_TYPES
from tests.collector.codec.compiled_scripts import output_types_of

KEY, LONG_KEY = b"\x02" + bytes(32), b"\x04" + bytes(64)


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
    """Scripts that match each rule of the node's solver, or just miss it, get the node's type."""
    assert output_types_of([script]) == [expected]


@settings(deadline=None)  # the first compiles
@given(st.binary(max_size=60))
def test_any_script_has_a_type(script: bytes) -> None:
    """Every script gets a type, and none raises an error."""
    assert set(output_types_of([script, script + b"\xac", script + b"\xae"])) <= set(OUTPUT_TYPES)
