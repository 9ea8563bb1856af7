"""What a coinbase and the scripts of outputs say: height, commitment, subsidy, output types.

Script rules are those of Bitcoin Core's `Solver` (src/script/solver.cpp). The patterns that make up nearly
every output are matched on bytes; python-bitcoinlib reads the opcodes of the rest.
"""

from collections.abc import Sequence
from typing import Final

from bitcoin.core.script import CScript, CScriptInvalidError

from collector.decode import Block, TxOut

_COIN_SAT: Final = 100_000_000
_FIRST_SUBSIDY_SAT: Final = 50 * _COIN_SAT
_HALVING_BLOCKS: Final = 210_000
_REGTEST_HALVING_BLOCKS: Final = 150
_MAX_HALVINGS: Final = 64  # shifting further is undefined in Bitcoin Core, which stops here

_COMMITMENT: Final = bytes.fromhex("6a24aa21a9ed")
_COMMITMENT_BYTES: Final = 38
_MAX_HEIGHT_BYTES: Final = 4
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


def subsidy_sat(height: int, chain: str) -> int:
    """Return the new coins that a block at this height may make, in satoshi."""
    halvings = height // (_REGTEST_HALVING_BLOCKS if chain == "regtest" else _HALVING_BLOCKS)
    return _FIRST_SUBSIDY_SAT >> halvings if halvings < _MAX_HALVINGS else 0


def bip34_height(block: Block) -> int | None:
    """Height that the coinbase states, BIP 34; None when it states none.

    Blocks of version 1 are older than the rule: what their coinbase begins with means nothing.
    """
    script = block.coinbase.inputs[0].script
    if block.header.version < 2 or not script:  # noqa: PLR2004 - BIP 34 came with version 2
        return None
    size = script[0]
    if size == _OP_0:
        return 0
    if _OP_1 <= size <= _OP_16:
        return size - _OP_1 + 1
    number = script[1 : 1 + size]
    if not 0 < size <= _MAX_HEIGHT_BYTES or len(number) < size or number[-1] & 0x80:
        return None
    return int.from_bytes(number, "little")


def witness_commitment(outputs: Sequence[TxOut]) -> bytes | None:
    """Find the commitment to the witness data among a coinbase's outputs, BIP 141: the last one counts."""
    for output in reversed(outputs):
        if output.script.startswith(_COMMITMENT) and len(output.script) >= _COMMITMENT_BYTES:
            return output.script[len(_COMMITMENT) : _COMMITMENT_BYTES]
    return None


def output_type(script: bytes) -> str:
    """Type of an output as the node names it, one of schema.OUTPUT_TYPES."""
    return _program_type(script) or _template_type(script)


def _template_type(script: bytes) -> str:
    """Type of an output that is no witness program."""
    size = len(script)
    found = "nonstandard"
    if size == 25 and script.startswith(b"\x76\xa9\x14") and script.endswith(b"\x88\xac"):  # noqa: PLR2004 - P2PKH
        found = "pubkeyhash"
    elif size == 23 and script.startswith(b"\xa9\x14") and script.endswith(b"\x87"):  # noqa: PLR2004 - P2SH
        found = "scripthash"
    elif script.startswith(_OP_RETURN):
        found = "nulldata" if _is_push_only(script[1:]) else found
    elif script.endswith(_OP_CHECKSIG):
        found = "pubkey" if script[0] == size - 2 and _is_key(script[1:-1]) else found
    elif script.endswith(_OP_CHECKMULTISIG):
        found = "multisig" if _is_multisig(script) else found
    return found


def _program_type(script: bytes) -> str | None:
    """Type of a witness program, None when it is no program: a version opcode and one push, BIP 141."""
    size = len(script)
    if not 4 <= size <= 42 or script[1] != size - 2:  # noqa: PLR2004 - a program has 2 to 40 bytes
        return None
    version = script[0]
    if version == _OP_0:
        return _VERSION_0.get(size, "nonstandard")
    if not _OP_1 <= version <= _OP_16:
        return None
    if version == _OP_1 and size == 34:  # noqa: PLR2004 - BIP 341
        return "witness_v1_taproot"
    return "anchor" if script == _ANCHOR else "witness_unknown"


def _is_push_only(script: bytes) -> bool:
    """Whether a script only pushes data; nearly always it is one short push."""
    if script and script[0] == len(script) - 1 <= 75:  # noqa: PLR2004 - longer pushes have another opcode
        return True
    return bool(CScript(script).is_push_only())


def _is_multisig(script: bytes) -> bool:
    """Whether a script is m, keys, n, OP_CHECKMULTISIG with as many keys as n says."""
    try:
        operations = [(int(opcode), data) for opcode, data, _ in CScript(script).raw_iter()]
    except CScriptInvalidError:
        return False
    if len(operations) < 3:  # noqa: PLR2004 - m, n and the opcode
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
    if opcode == 1 and data and 16 < data[0] <= _MAX_MULTISIG_KEYS:  # noqa: PLR2004 - up to 16 by opcode
        return data[0]
    return None
