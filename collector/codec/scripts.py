"""Find the output type of a script, as the node's Solver does, with compiled functions.

A type is a number here: its position in `schema.OUTPUT_TYPES`. Source: Bitcoin Core, src/script/solver.cpp.
"""

from typing import Final

import numpy as np

from collector.codec.arrays import FAIL, Bytes
from collector.dataset.schema import OUTPUT_TYPES
from gpuhash.compiled import compiler

compiled = compiler(__package__)

PUBKEY: Final = OUTPUT_TYPES.index("pubkey")
PUBKEYHASH: Final = OUTPUT_TYPES.index("pubkeyhash")
SCRIPTHASH: Final = OUTPUT_TYPES.index("scripthash")
MULTISIG: Final = OUTPUT_TYPES.index("multisig")
NULLDATA: Final = OUTPUT_TYPES.index("nulldata")
WITNESS_V0_KEYHASH: Final = OUTPUT_TYPES.index("witness_v0_keyhash")
WITNESS_V0_SCRIPTHASH: Final = OUTPUT_TYPES.index("witness_v0_scripthash")
WITNESS_V1_TAPROOT: Final = OUTPUT_TYPES.index("witness_v1_taproot")
ANCHOR: Final = OUTPUT_TYPES.index("anchor")
WITNESS_UNKNOWN: Final = OUTPUT_TYPES.index("witness_unknown")
NONSTANDARD: Final = OUTPUT_TYPES.index("nonstandard")
UNKNOWN_TYPE: Final = 0xFF  # the script is not known

OP_PUSHDATA1: Final = 0x4C
OP_PUSHDATA4: Final = 0x4E
OP_1: Final = 0x51
OP_16: Final = 0x60
OP_RETURN: Final = 0x6A
OP_DUP: Final = 0x76
OP_EQUAL: Final = 0x87
OP_EQUALVERIFY: Final = 0x88
OP_HASH160: Final = 0xA9
OP_CHECKSIG: Final = 0xAC
OP_CHECKMULTISIG: Final = 0xAE

SCRIPTHASH_BYTES: Final = 23
PUBKEYHASH_BYTES: Final = 25
KEY_HASH_BYTES: Final = 20
SCRIPT_HASH_BYTES: Final = 32
COMPRESSED_KEY_BYTES: Final = 33
EVEN_KEY: Final = 2  # first bytes of keys, SEC 1
ODD_KEY: Final = 3
PLAIN_KEY: Final = 4
HYBRID_KEY: Final = 6
PLAIN_KEY_BYTES: Final = 65
MIN_PROGRAM_SCRIPT_BYTES: Final = 4
MAX_PROGRAM_SCRIPT_BYTES: Final = 42
MAX_MULTISIG_KEYS: Final = 20
ANCHOR_PROGRAM: Final = (0x4E, 0x73)


def type_of_script(script: bytes) -> int:
    """Return the type of a script, as its number in `schema.OUTPUT_TYPES`.

    A node's own word for it depends on its version: an older one calls an anchor `witness_unknown`.
    """
    return output_type(np.frombuffer(script, np.uint8), 0, len(script))


@compiled
def output_type(data: Bytes, begin: int, end: int) -> int:  # noqa: PLR0911 - one return per type reads best
    """Return the type of the script data[begin:end], as its number in `schema.OUTPUT_TYPES`."""
    size = end - begin
    if size == 0:
        return NONSTANDARD
    first = data[begin]
    if (
        size == SCRIPTHASH_BYTES
        and first == OP_HASH160
        and data[begin + 1] == KEY_HASH_BYTES
        and data[end - 1] == OP_EQUAL
    ):
        return SCRIPTHASH
    if (
        MIN_PROGRAM_SCRIPT_BYTES <= size <= MAX_PROGRAM_SCRIPT_BYTES
        and (first == 0 or OP_1 <= first <= OP_16)
        and data[begin + 1] == size - 2
    ):
        return _witness_type(data, begin, size)
    if first == OP_RETURN:
        return NULLDATA if _is_push_only(data, begin + 1, end) else NONSTANDARD
    if _is_key(data, begin + 1, size - 2) and first == size - 2 and data[end - 1] == OP_CHECKSIG:
        return PUBKEY
    if (
        size == PUBKEYHASH_BYTES
        and first == OP_DUP
        and data[begin + 1] == OP_HASH160
        and data[begin + 2] == KEY_HASH_BYTES
        and data[end - 2] == OP_EQUALVERIFY
        and data[end - 1] == OP_CHECKSIG
    ):
        return PUBKEYHASH
    return MULTISIG if _is_multisig(data, begin, end) else NONSTANDARD


@compiled
def _witness_type(data: Bytes, begin: int, size: int) -> int:
    """Return the type of a script that is a witness program, BIP 141."""
    version, program_bytes = data[begin], size - 2
    if version == 0:
        if program_bytes == KEY_HASH_BYTES:
            return WITNESS_V0_KEYHASH
        return WITNESS_V0_SCRIPTHASH if program_bytes == SCRIPT_HASH_BYTES else NONSTANDARD
    if version == OP_1 and program_bytes == SCRIPT_HASH_BYTES:
        return WITNESS_V1_TAPROOT
    if (
        version == OP_1
        and program_bytes == len(ANCHOR_PROGRAM)
        and data[begin + 2] == ANCHOR_PROGRAM[0]
        and data[begin + 3] == ANCHOR_PROGRAM[1]
    ):
        return ANCHOR
    return WITNESS_UNKNOWN


@compiled
def next_operation(data: Bytes, pos: int, end: int) -> tuple[int, int, int]:
    """Read one opcode at `pos` of a script and the data that the opcode pushes.

    Returns the opcode, where the pushed data begins, and where that data ends: FAIL when the data is cut off.
    """
    if pos >= end:
        return 0, pos, FAIL
    opcode = int(data[pos])
    pos += 1
    if opcode > OP_PUSHDATA4:
        return opcode, pos, pos
    size = opcode
    if opcode >= OP_PUSHDATA1:
        width = 1 << (opcode - OP_PUSHDATA1)
        if pos + width > end:
            return opcode, pos, FAIL
        size = 0
        for i in range(width):
            size |= int(data[pos + i]) << (8 * i)
        pos += width
    return opcode, pos, (pos + size if size <= end - pos else FAIL)


@compiled
def _is_push_only(data: Bytes, pos: int, end: int) -> bool:
    """Return whether the script data[pos:end] only pushes data."""
    while pos < end:
        opcode, _, pos = next_operation(data, pos, end)
        if pos == FAIL or opcode > OP_16:
            return False
    return True


@compiled
def _is_key(data: Bytes, begin: int, size: int) -> bool:
    """Return whether the byte at `begin` may start a public key of this size (SEC 1)."""
    if size == COMPRESSED_KEY_BYTES:
        return bool(EVEN_KEY <= data[begin] <= ODD_KEY)
    if size == PLAIN_KEY_BYTES:
        return bool(data[begin] == PLAIN_KEY or HYBRID_KEY <= data[begin] <= HYBRID_KEY + 1)
    return False


@compiled
def _key_count(data: Bytes, opcode: int, at: int, least: int) -> int:
    """Return the number of keys or signatures that an operation of a multisig script states, or FAIL.

    FAIL means that it states no number, one not in its shortest form, or one outside `least` to 20.
    """
    count = FAIL
    if OP_1 <= opcode <= OP_16:
        count = opcode - OP_1 + 1
    elif opcode == 1 and data[at] > OP_16 - OP_1 + 1:
        count = int(data[at])
    return count if least <= count <= MAX_MULTISIG_KEYS else FAIL


@compiled
def _is_multisig(data: Bytes, begin: int, end: int) -> bool:
    """Return whether a script is a bare multisig: m, n keys, n, OP_CHECKMULTISIG."""
    if data[end - 1] != OP_CHECKMULTISIG:
        return False
    opcode, at, pos = next_operation(data, begin, end)
    if pos == FAIL:
        return False
    required = _key_count(data, opcode, at, 1)
    if required == FAIL:
        return False
    n_keys = 0
    while True:
        opcode, at, pos = next_operation(data, pos, end)
        if pos == FAIL:
            return False
        if not (opcode <= OP_PUSHDATA4 and _is_key(data, at, pos - at)):
            break
        n_keys += 1
    return _key_count(data, opcode, at, required) == n_keys and pos + 1 == end
