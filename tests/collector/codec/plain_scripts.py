"""Types of outputs the plain way: to compare `collector.codec.scripts` with.

The rules are those of Bitcoin Core's `Solver` (src/script/solver.cpp). The patterns that make up nearly every
output are matched on bytes; python-bitcoinlib reads the opcodes of the rest.
"""

from typing import Final

from bitcoin.core.script import CScript, CScriptInvalidError

_MAX_MULTISIG_KEYS: Final = 20

_OP_0: Final = 0x00
_OP_1: Final = 0x51
_OP_16: Final = 0x60
_OP_RETURN: Final = b"\x6a"
_OP_CHECKSIG: Final = b"\xac"
_OP_CHECKMULTISIG: Final = b"\xae"
_KEY_BYTES: Final = {2: 33, 3: 33, 4: 65, 6: 65, 7: 65}  # by first byte; 6 and 7 are hybrid keys
_VERSION_0: Final = {22: "witness_v0_keyhash", 34: "witness_v0_scripthash"}  # by size
_ANCHOR: Final = bytes.fromhex("51024e73")


def plain_output_type(script: bytes) -> str:
    """Return the type of an output as the node names it, one of schema.OUTPUT_TYPES."""
    return _program_type(script) or _template_type(script)


def _template_type(script: bytes) -> str:
    """Return the type of an output that is no witness program."""
    size = len(script)
    found = "nonstandard"
    if size == 25 and script.startswith(b"\x76\xa9\x14") and script.endswith(b"\x88\xac"):
        found = "pubkeyhash"
    elif size == 23 and script.startswith(b"\xa9\x14") and script.endswith(b"\x87"):
        found = "scripthash"
    elif script.startswith(_OP_RETURN):
        found = "nulldata" if _is_push_only(script[1:]) else found
    elif script.endswith(_OP_CHECKSIG):
        found = "pubkey" if script[0] == size - 2 and _is_key(script[1:-1]) else found
    elif script.endswith(_OP_CHECKMULTISIG):
        found = "multisig" if _is_multisig(script) else found
    return found


def _program_type(script: bytes) -> str | None:
    """Return the type of a witness program (BIP 141: version opcode, one push); None for any other script."""
    size = len(script)
    if not 4 <= size <= 42 or script[1] != size - 2:
        return None
    version = script[0]
    if version == _OP_0:
        return _VERSION_0.get(size, "nonstandard")
    if not _OP_1 <= version <= _OP_16:
        return None
    if version == _OP_1 and size == 34:
        return "witness_v1_taproot"
    return "anchor" if script == _ANCHOR else "witness_unknown"


def _is_push_only(script: bytes) -> bool:
    """Return whether a script only pushes data; nearly always it is one short push."""
    if script and script[0] == len(script) - 1 <= 75:
        return True
    return bool(CScript(script).is_push_only())


def _is_multisig(script: bytes) -> bool:
    """Return whether a script is m, keys, n, OP_CHECKMULTISIG, with n keys."""
    try:
        operations = [(int(opcode), data) for opcode, data, _ in CScript(script).raw_iter()]
    except CScriptInvalidError:
        return False
    if len(operations) < 3:
        return False
    (m, *keys, n), last = operations[:-1], operations[-1][0]
    if last != _OP_CHECKMULTISIG[0] or not all(_is_key(data) for _, data in keys):
        return False
    required, count = _key_count(*m), _key_count(*n)
    return required is not None and count == len(keys) and required <= count


def _is_key(data: bytes | None) -> bool:
    return data is not None and len(data) == _KEY_BYTES.get(next(iter(data), 0))


def _key_count(opcode: int, data: bytes | None) -> int | None:
    """Read a number of keys: 1 to 16 by opcode, 17 to 20 as one byte of data."""
    if _OP_1 <= opcode <= _OP_16:
        return opcode - _OP_1 + 1
    if opcode == 1 and data and 16 < data[0] <= _MAX_MULTISIG_KEYS:
        return data[0]
    return None
