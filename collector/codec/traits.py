"""Find what the policies of nodes and pools ask about a transaction, with compiled functions.

These are dust outputs, OP_RETURN outputs, witness envelopes and the cost of signature operations. The live
collector and the backfill call the same function.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

import gpuhash
from collector.codec.arrays import FAIL, Bytes, Integers, Record, Records
from collector.codec.format import OUTPOINT_BYTES, VALUE_BYTES
from collector.codec.scripts import (
    KEY_HASH_BYTES,
    MAX_PROGRAM_SCRIPT_BYTES,
    MIN_PROGRAM_SCRIPT_BYTES,
    MULTISIG,
    NONSTANDARD,
    OP_1,
    OP_16,
    OP_CHECKMULTISIG,
    OP_CHECKSIG,
    OP_RETURN,
    PUBKEY,
    PUBKEYHASH,
    SCRIPT_HASH_BYTES,
    SCRIPTHASH,
    UNKNOWN_TYPE,
    WITNESS_V0_KEYHASH,
    WITNESS_V0_SCRIPTHASH,
    next_operation,
    output_type,
)
from collector.codec.walk import Layout, compact_size_width, read_compact_size, read_u64, walk_transactions
from gpuhash.compiled import compiler

compiled = compiler(__package__)

TRAITS: Final = np.dtype(
    [
        ("n_dust_outputs", np.int32),
        ("op_return_bytes", np.int32),
        ("n_envelopes", np.int32),
        ("envelope_bytes", np.int32),
        ("sigop_cost", np.int32),  # FAIL where the types of the spent outputs are not known
    ]
)

# Bitcoin Core, src/policy/policy.cpp, GetDustThreshold: a node spends these bytes to spend an output later.
DUST_FEERATE_SAT_VB: Final = 3
SPENDING_BYTES: Final = 148
WITNESS_SPENDING_BYTES: Final = 67
MAX_SCRIPT_BYTES: Final = 10_000  # a longer one cannot be spent

# BIP 341: what the last items of a witness stack are.
ANNEX: Final = 0x50
CONTROL_BASE_BYTES: Final = 33
CONTROL_NODE_BYTES: Final = 32
MAX_CONTROL_NODES: Final = 128
LEAST_LEAF_VERSION: Final = 0xC0

OP_0: Final = 0x00
OP_IF: Final = 0x63
OP_NOTIF: Final = 0x64
OP_ENDIF: Final = 0x68
OP_CHECKSIGVERIFY: Final = 0xAD
OP_CHECKMULTISIGVERIFY: Final = 0xAF

# BIP 141: the weight of a signature operation outside the witness, and the count for an unknown multisig.
WITNESS_SCALE: Final = 4
MAX_MULTISIG_SIGOPS: Final = 20
LEGACY: Final = 0  # ways to count them
ACCURATE: Final = 1


class Traits(NamedTuple):
    """Holds what policies ask about some transactions, and the types of their outputs."""

    of_txs: Records  # TRAITS[n_txs]
    output_types: Bytes  # uint8[n_outputs]: positions in schema.OUTPUT_TYPES, as `scripts.output_type` says


def transaction_traits(data: Bytes, layout: Layout, spent_types: Bytes | None = None) -> Traits:
    """Return the traits of each transaction (dust, OP_RETURN, envelopes, sigop cost) and its outputs' types.

    `spent_types` has the type of the output which each input spends, uint8[n_inputs], UNKNOWN_TYPE where it
    is not known. Without it no sigop cost is known. The layout must be sound. All is found in one pass,
    because reading the bytes from memory takes most of the time.

    - Dust: an output below the dust threshold of Bitcoin Core at its default feerate of 3 sat/vB
      (src/policy/policy.cpp, GetDustThreshold).
    - OP_RETURN: the size of the largest output script that begins with this opcode, which is counted too.
    - Envelope: OP_0 OP_IF ... OP_ENDIF in the script of a taproot script-path spend, the form that
      inscriptions have; its size counts from the first opcode to the last.
    - Sigop cost: BIP 141 (Bitcoin Core, src/consensus/tx_verify.cpp, GetTransactionSigOpCost).
    """
    traits = Traits(np.zeros(len(layout.txs), TRAITS), np.empty(len(layout.scripts), np.uint8))
    if spent_types is None:
        spent_types = np.empty(0, np.uint8)
    _fill_traits(data, layout, spent_types, traits)
    return traits


def sigop_costs(raws: Sequence[bytes], spent_types: Bytes) -> Integers:
    """Return the sigop cost (BIP 141) of each serialised transaction, int32[len(raws)].

    `spent_types` is as for `transaction_traits`, with every type known. Each transaction must be sound.
    """
    data, limits = gpuhash.join(raws)
    layout = walk_transactions(data, limits)
    costs: Integers = transaction_traits(data, layout, spent_types).of_txs["sigop_cost"]
    return costs


@compiled
def _fill_traits(data: Bytes, layout: Layout, spent_types: Bytes, traits: Traits) -> None:
    for k in range(len(layout.txs)):
        tx, found = layout.txs[k], traits.of_txs[k]
        n_sigops = _read_outputs(data, tx, layout.scripts, traits.output_types, found)
        cost = _read_inputs(data, tx, layout.spends, spent_types, found)
        found.sigop_cost = cost if cost == FAIL else cost + WITNESS_SCALE * n_sigops


@compiled
def _read_outputs(data: Bytes, tx: Record, scripts: Integers, types: Bytes, traits: Record) -> int:
    """Write what the outputs of one transaction show: types into `types`, dust and OP_RETURN into `traits`.

    Returns the number of signature operations in their scripts.
    """
    n_dust = op_return_bytes = n_sigops = 0
    for i in range(tx.first_output, tx.first_output + tx.n_outputs):
        begin, end = scripts[i, 0], scripts[i, 1]
        size = end - begin
        types[i] = kind = output_type(data, begin, end)
        if size > 0 and data[begin] == OP_RETURN:
            op_return_bytes = max(op_return_bytes, size)
        elif _is_dust(data, begin, end, kind):
            n_dust += 1
        if kind in (PUBKEY, PUBKEYHASH):
            n_sigops += 1
        elif kind in (MULTISIG, NONSTANDARD):  # the other types have none
            n_sigops += count_sigops(data, begin, end, LEGACY)
    traits.n_dust_outputs = n_dust
    traits.op_return_bytes = op_return_bytes
    return n_sigops


@compiled
def _is_dust(data: Bytes, begin: int, end: int, kind: int) -> bool:
    """Return whether the output of type `kind` with the script data[begin:end], no OP_RETURN, is dust."""
    size = end - begin
    if size > MAX_SCRIPT_BYTES:
        return False
    width = compact_size_width(size)
    value_sat = int(np.int64(read_u64(data, begin - width - VALUE_BYTES)))
    is_program = kind >= WITNESS_V0_KEYHASH if kind != NONSTANDARD else _is_witness_program(data, begin, end)
    spending = WITNESS_SPENDING_BYTES if is_program else SPENDING_BYTES
    return value_sat < DUST_FEERATE_SAT_VB * (VALUE_BYTES + width + size + spending)


@compiled
def _is_witness_program(data: Bytes, begin: int, end: int) -> bool:
    """Return whether a script is a witness program of any version and length, BIP 141."""
    size = end - begin
    return bool(
        MIN_PROGRAM_SCRIPT_BYTES <= size <= MAX_PROGRAM_SCRIPT_BYTES
        and (data[begin] == OP_0 or OP_1 <= data[begin] <= OP_16)
        and data[begin + 1] == size - 2
    )


@compiled
def _read_inputs(data: Bytes, tx: Record, spends: Integers, spent_types: Bytes, traits: Record) -> int:
    """Write into `traits` the envelopes in the inputs of one transaction; return the inputs' sigop cost.

    The cost is FAIL if it is not known.
    """
    n_envelopes = envelope_bytes = cost = 0
    is_known = len(spent_types) > 0
    witness = tx.witness_at
    for i in range(tx.first_input, tx.first_input + tx.n_inputs):
        size, script = read_compact_size(data, spends[i] + OUTPOINT_BYTES, tx.end)
        script_end = script + size
        before = before_end = last = last_end = final = 0
        if tx.witness_at > 0:
            before, before_end, last, last_end, final, witness = _last_items(data, witness, tx.end)
        if before > 0 and _is_control_block(data, last, last_end):
            n_found, n_bytes = _find_envelopes(data, before, before_end)
            n_envelopes += n_found
            envelope_bytes += n_bytes
        if not is_known:
            continue
        cost += WITNESS_SCALE * count_sigops(data, script, script_end, LEGACY)
        if spent_types[i] == SCRIPTHASH:
            cost += _script_hash_cost(data, script, script_end, final, witness)
        elif spent_types[i] == WITNESS_V0_KEYHASH:
            cost += 1
        elif spent_types[i] == WITNESS_V0_SCRIPTHASH:
            cost += count_sigops(data, final, witness, ACCURATE)
        elif spent_types[i] == UNKNOWN_TYPE and not tx.is_coinbase:
            is_known = False
    traits.n_envelopes = n_envelopes
    traits.envelope_bytes = envelope_bytes
    return cost if is_known else FAIL


@compiled
def _last_items(data: Bytes, pos: int, end: int) -> tuple[int, int, int, int, int, int]:
    """Find the last items of the witness stack at byte `pos`.

    Returns six positions. The first four are begin and end of the last item but one and of the last item, an
    annex not counted, 0 where there is no such item. The other two are begin and end of the very last item,
    annex or not. An annex is the last of several items and begins with 0x50.
    """
    n_items, pos = read_compact_size(data, pos, end)
    before = before_end = last = last_end = 0
    begin = pos
    for item in range(n_items):
        size, begin = read_compact_size(data, pos, end)
        pos = begin + size
        is_annex = item > 0 and item + 1 == n_items and size > 0 and data[begin] == ANNEX
        if not is_annex:
            before, before_end, last, last_end = last, last_end, begin, pos
    return before, before_end, last, last_end, begin, pos


@compiled
def _is_control_block(data: Bytes, begin: int, end: int) -> bool:
    """Return whether a witness item has the form of a control block of taproot, BIP 341."""
    size = end - begin
    n_nodes = (size - CONTROL_BASE_BYTES) // CONTROL_NODE_BYTES
    return bool(
        size >= CONTROL_BASE_BYTES
        and (size - CONTROL_BASE_BYTES) % CONTROL_NODE_BYTES == 0
        and n_nodes <= MAX_CONTROL_NODES
        and data[begin] >= LEAST_LEAF_VERSION
    )


@compiled
def _find_envelopes(data: Bytes, begin: int, end: int) -> tuple[int, int]:
    """Return the number of envelopes (inscriptions) in a script, and their size in bytes with opcodes."""
    n_found = n_bytes = 0
    opens_at = depth = 0  # the depth counts the IFs that are open in an envelope
    previous = FAIL
    pos = begin
    while pos < end:
        at = pos
        opcode, _, pos = next_operation(data, pos, end)
        if pos == FAIL:
            break
        if depth > 0:
            if opcode in (OP_IF, OP_NOTIF):
                depth += 1
            elif opcode == OP_ENDIF:
                depth -= 1
                if depth == 0:
                    n_found += 1
                    n_bytes += pos - opens_at
        elif opcode == OP_IF and previous == OP_0:
            opens_at, depth = at - 1, 1
        previous = opcode
    return n_found, n_bytes


@compiled
def _script_hash_cost(data: Bytes, begin: int, end: int, last: int, last_end: int) -> int:
    """Return the extra sigop cost of an input that spends a pay-to-script-hash output.

    The cost is that of the redeem script, or that of the witness where the redeem script is a witness program
    (BIP 141). The input script is data[begin:end], the last witness item data[last:last_end].
    """
    redeem = redeem_end = begin
    pos = begin
    while pos < end:
        opcode, redeem, pos = next_operation(data, pos, end)
        if pos == FAIL or opcode > OP_16:
            return 0
        redeem_end = pos
    size = redeem_end - redeem
    if _is_witness_program(data, redeem, redeem_end) and data[redeem] == OP_0:
        if size == KEY_HASH_BYTES + 2:
            return 1
        return count_sigops(data, last, last_end, ACCURATE) if size == SCRIPT_HASH_BYTES + 2 else 0
    return WITNESS_SCALE * count_sigops(data, redeem, redeem_end, ACCURATE)


@compiled
def count_sigops(data: Bytes, begin: int, end: int, way: int) -> int:
    """Return the number of signature operations of the script data[begin:end], up to where a push is cut off.

    `way` is LEGACY or ACCURATE. In the legacy way a multisig counts as 20. In the accurate way it counts as
    the number of keys that stands before it, if one does.
    Source: Bitcoin Core, src/script/script.cpp, CScript::GetSigOpCount.
    """
    count = 0
    previous = FAIL
    pos = begin
    while pos < end:
        opcode, _, pos = next_operation(data, pos, end)
        if pos == FAIL:
            break
        if opcode in (OP_CHECKSIG, OP_CHECKSIGVERIFY):
            count += 1
        elif opcode in (OP_CHECKMULTISIG, OP_CHECKMULTISIGVERIFY):
            has_number = way == ACCURATE and OP_1 <= previous <= OP_16
            count += previous - OP_1 + 1 if has_number else MAX_MULTISIG_SIGOPS
        previous = opcode
    return count
