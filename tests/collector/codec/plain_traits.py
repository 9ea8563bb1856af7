"""Traits of transactions the plain way: to compare `collector.codec.traits` with.

python-bitcoinlib reads the transactions, and cuts scripts into operations.
"""

from collections.abc import Sequence
from typing import Any, Final

from bitcoin.core import CTransaction
from bitcoin.core.script import CScript

from collector.codec.transaction import Transaction, TxTraits
from tests.collector.codec.plain_scripts import plain_output_type

ANNEX: Final = 0x50
OP_RETURN: Final = b"\x6a"
IF, NOT_IF, END_IF = 0x63, 0x64, 0x68
CHECKSIG, CHECKMULTISIG = (0xAC, 0xAD), (0xAE, 0xAF)  # each also with VERIFY


def plain_traits(
    transaction: Transaction, spent_types: Sequence[str] | None = None, *, in_block: bool = True
) -> dict[str, Any]:
    """Return the columns of a transaction; spent_types has one type per input.

    The sigop cost of a coinbase is known in a block without them.
    """
    raw = transaction.source[transaction.begin : transaction.begin + transaction.size_bytes]
    core = CTransaction.deserialize(raw)
    stacks = [list(each.scriptWitness.stack) for each in core.wit.vtxinwit] or [[]] * len(core.vin)
    envelopes = [size for stack in stacks for size in plain_envelopes(_leaf_script(stack))]
    is_known = spent_types is not None or (transaction.is_coinbase and in_block)
    return {
        "op_return_bytes": max(
            (len(out.scriptPubKey) for out in core.vout if out.scriptPubKey[:1] == OP_RETURN), default=0
        ),
        "n_dust_outputs": sum(plain_dust(out.nValue, bytes(out.scriptPubKey)) for out in core.vout),
        "n_envelopes": len(envelopes),
        "envelope_bytes": sum(envelopes),
        "sigop_cost": plain_sigop_cost(core, stacks, spent_types) if is_known else None,
    }


def with_plain_traits(transaction: Transaction) -> Transaction:
    """Return the transaction as `decode_transactions` gives it: with its traits."""
    columns = plain_traits(transaction)
    del columns["sigop_cost"]
    types = [plain_output_type(output.script) for output in transaction.outputs]
    return transaction._replace(traits=TxTraits(**columns, output_types=types))


def plain_dust(value_sat: int, script: bytes) -> bool:
    """Tell whether an output is dust at 3 sat/vB, Core's GetDustThreshold."""
    if script[:1] == OP_RETURN or len(script) > 10_000:
        return False
    size = 8 + (1 if len(script) < 253 else 3) + len(script)
    return value_sat < 3 * (size + (67 if is_program(script) else 148))


def is_program(script: bytes) -> bool:
    """Tell whether a script is a witness program of any version."""
    has_version = script[:1] == b"\x00" or b"\x51" <= script[:1] <= b"\x60"
    return 4 <= len(script) <= 42 and has_version and script[1] == len(script) - 2


def plain_envelopes(script: bytes) -> list[int]:
    """Return the size of each envelope in a script."""
    sizes: list[int] = []
    operations = _operations(script)
    at = 0
    while at + 1 < len(operations):
        if (operations[at][0], operations[at + 1][0]) == (0, IF):
            depth = 1
            end = at + 2
            while end < len(operations) and depth:
                depth += {IF: 1, NOT_IF: 1, END_IF: -1}.get(operations[end][0], 0)
                end += 1
            if depth:
                break
            sizes.append(operations[end - 1][2] - operations[at][1])
            at = end
        else:
            at += 1
    return sizes


def plain_sigop_cost(
    core: CTransaction, stacks: Sequence[Sequence[bytes]], spent_types: Sequence[str] | None
) -> int:
    """Return the cost as BIP 141 counts it."""
    cost = 4 * sum(_count(put.scriptSig) for put in core.vin)
    cost += 4 * sum(_count(out.scriptPubKey) for out in core.vout)
    for put, stack, spent in zip(core.vin, stacks, spent_types or [""] * len(core.vin), strict=True):
        program = b""
        if spent == "scripthash":
            redeem = _last_push(put.scriptSig)
            cost += 4 * _count(redeem, accurate=True)
            program = redeem if is_program(redeem) else b""
        if spent == "witness_v0_keyhash" or (program[:1] == b"\x00" and len(program) == 22):
            cost += 1
        elif spent == "witness_v0_scripthash" or (program[:1] == b"\x00" and len(program) == 34):
            cost += _count(stack[-1], accurate=True) if stack else 0
    return cost


def _leaf_script(stack: Sequence[bytes]) -> bytes:
    """Return the script of a taproot script-path spend; nothing for another spend."""
    items = list(stack)
    if len(items) > 1 and items[-1][:1] == bytes([ANNEX]):
        items.pop()
    if len(items) < 2:
        return b""
    control = items[-1]
    is_control = len(control) >= 33 and (len(control) - 33) % 32 == 0 and len(control) <= 33 + 32 * 128
    return items[-2] if is_control and control[0] >= 0xC0 else b""


def _operations(script: bytes) -> list[tuple[int, int, int]]:
    """Return opcode, begin and end of each operation, up to where a push is cut off."""
    whole = script[: _cut_at(script)]
    found = [(int(opcode), at) for opcode, _, at in CScript(whole).raw_iter()]
    ends = [*(at for _, at in found[1:]), len(whole)]
    return [(opcode, at, end) for (opcode, at), end in zip(found, ends, strict=False)]


def _count(script: bytes, *, accurate: bool = False) -> int:
    """Count signature operations; `accurate` takes the number of keys that stands before a CHECKMULTISIG.

    `CScript.GetSigOpCount` fails where such a number stands.
    """
    count, last = 0, 0xFF
    for opcode, _, _ in CScript(script[: _cut_at(script)]).raw_iter():
        if opcode in CHECKSIG:
            count += 1
        elif opcode in CHECKMULTISIG:
            count += last - 0x50 if accurate and 0x51 <= last <= 0x60 else 20
        last = opcode
    return count


def _cut_at(script: bytes) -> int:
    """Return where the first operation begins whose push is cut off, or the end of the script."""
    at = 0
    while at < len(script):
        opcode, size, width = script[at], 0, 0
        if opcode <= 0x4E:
            width = {0x4C: 1, 0x4D: 2, 0x4E: 4}.get(opcode, 0)
            size = int.from_bytes(script[at + 1 : at + 1 + width], "little") if width else opcode
        if at + 1 + width + size > len(script):
            return at
        at += 1 + width + size
    return at


def _last_push(script: bytes) -> bytes:
    """Return what the last operation of a script pushes; nothing if one is cut off or is no push."""
    if _cut_at(script) < len(script):
        return b""
    last = b""
    for opcode, data, _ in CScript(script).raw_iter():
        if opcode > 0x60:
            return b""
        last = (data or b"") if opcode <= 0x4E else b""
    return last
