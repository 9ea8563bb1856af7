"""Make the rows of the tables `blocks` and `transactions`, without a Python object per transaction."""

import reprlib
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.codec.arrays import FAIL, Bytes, Integers
from collector.codec.block import Block, ParsedBlock, parse_block
from collector.codec.chunk import WEIGHT_PER_VB, BlockRef, Chunk, RawBlocks, complete_chunk
from collector.codec.coinbase import subsidy_sat, witness_commitment
from collector.codec.feerates import UNKNOWN
from collector.codec.format import HEADER_BYTES, MAX_MONEY_SAT, NO_HASH
from collector.codec.scripts import UNKNOWN_TYPE, type_of_script
from collector.codec.timing import StageTimes
from collector.codec.transaction import FEW, TxOut, decode_transactions
from collector.codec.verify import warm_up_hashing
from collector.dataset.parquet_files import coded_schema, to_batch
from collector.dataset.rows import BlockRow, CoinbaseOutputItem
from collector.dataset.schema import BLOCKS, OUTPUT_TYPES, TRANSACTIONS, hash_hex, satoshi
from collector.dataset.schema.model import HASH, TRAITS
from collector.errors import DecodeError

Fees = Sequence[int | None]


def block_rows(
    parsed: ParsedBlock,
    *,
    chain: str,
    height: int,
    height_source: str,
    source: str,
    verdict: str,
    verified_by: str,
    fees: Fees | None,
    spent_types: Bytes | None = None,
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the row of `blocks` and the rows of `transactions` of one block, as two Arrow batches.

    `fees` has one entry per transaction in block order, in satoshi; that of the coinbase is not read. An
    entry is None, or all of `fees`, where no fee is known. `spent_types` is as `spent_types_from_getblock`
    gives it. Raises DecodeError when there are more or fewer fees than transactions, or types than inputs:
    they belong to another block.
    """
    block = parsed.block
    raw_blocks = RawBlocks(
        refs=[BlockRef(block.block_hash, height, height_source, source, source)],
        data=np.frombuffer(parsed.raw, np.uint8),
        limits=np.array([0, len(parsed.raw)]),
        fees_sat=[None if fees is None else _checked_fees(block, fees)],
        spent_types=[spent_types],
    )
    n_inputs = len(parsed.layout.spends)
    if spent_types is not None and len(spent_types) != n_inputs:
        raise DecodeError(
            f"block {hash_hex(block.block_hash)}: inputs {n_inputs}, types given for {len(spent_types)}"
        )
    chunk = complete_chunk(raw_blocks, parsed.layout, [block], (parsed.txids, parsed.wtxids), StageTimes())
    row = blocks_table(chunk, chain=chain, verified_by=verified_by, verdict=verdict)
    return row.to_batches()[0], transactions_table(chunk).to_batches()[0]


def blocks_table(chunk: Chunk, *, chain: str, verified_by: str, verdict: str = "valid") -> pa.Table:
    """Return an Arrow table with the row of the table `blocks` for each block of a chunk."""
    sums = _sums(chunk)
    rows: list[BlockRow] = []
    for i, (ref, head) in enumerate(zip(chunk.refs, chunk.heads, strict=True)):
        header, coinbase = head.header, head.coinbase
        rows.append(
            {
                "block_hash": head.block_hash,
                "height": ref.height,
                "height_source": ref.height_source,
                "prev_hash": header.prev_hash,
                "version": header.version,
                "merkle_root": header.merkle_root,
                "header_time": header.time_s,
                "bits": header.bits,
                "nonce": header.nonce,
                "size_bytes": head.size_bytes,
                "stripped_bytes": head.stripped_bytes,
                "weight_wu": head.weight_wu,
                "n_tx": sums["n_tx"][i],
                "n_segwit_tx": sums["n_segwit_tx"][i],
                "n_inputs": sums["n_inputs"][i],
                "n_outputs": sums["n_outputs"][i],
                "output_value_sat": sums["output_value_sat"][i],
                "fees_sat": sums["fees_sat"][i],
                "subsidy_sat": subsidy_sat(ref.height, chain),
                "coinbase_txid": coinbase.txid,
                "coinbase_value_sat": coinbase.output_value_sat,
                "coinbase_script": coinbase.inputs[0].script,
                "coinbase_outputs": [_output_item(output) for output in coinbase.outputs],
                "witness_commitment": witness_commitment(coinbase.outputs),
                "verdict": verdict,
                "verified_by": verified_by,
                "source": ref.source,
                "coinbase_version": coinbase.version,
                "coinbase_sequence": coinbase.inputs[0].sequence,
                "coinbase_locktime": coinbase.locktime,
                "coinbase_reserved_value": _reserved_value(head.coinbase_witness),
            }
        )
    return pa.Table.from_batches([to_batch(BLOCKS, rows)])


def transactions_table(chunk: Chunk, *, coded: bool = False) -> pa.Table:
    """Return an Arrow table with the rows of `transactions` for a chunk, by block and position in it.

    With `coded`, the names of types are an Arrow dictionary. `Dataset.write` makes the same file of it in
    less time.
    """
    txs, n_tx = chunk.layout.txs, chunk.layout.blocks["n_tx"]
    hashes = np.frombuffer(b"".join(head.block_hash for head in chunk.heads), np.uint8).reshape(-1, 32)
    weight_wu = 3 * chunk.stripped_bytes + chunk.size_bytes
    columns = {
        "block_hash": _hashes(np.repeat(hashes, n_tx, axis=0)),
        "height": np.repeat([ref.height for ref in chunk.refs], n_tx),
        "tx_index": np.arange(len(txs)) - np.repeat(chunk.layout.blocks["first_tx"], n_tx),
        "txid": _hashes(chunk.txids),
        "wtxid": _hashes(chunk.wtxids),
        "version": txs["version"],
        "locktime": txs["locktime"],
        "size_bytes": chunk.size_bytes,
        "weight_wu": weight_wu,
        "vsize_vb": (weight_wu + WEIGHT_PER_VB - 1) // WEIGHT_PER_VB,
        "n_inputs": txs["n_inputs"],
        "n_outputs": txs["n_outputs"],
        "input_value_sat": _null_unknown(chunk.input_value_sat),
        "output_value_sat": txs["output_value_sat"],
        "fee_sat": _null_unknown(chunk.fee_sat),
        "is_coinbase": txs["is_coinbase"],
        "has_witness": txs["witness_at"] > 0,
        "signals_rbf": txs["signals_rbf"],
        "output_types": _lists(
            np.append(txs["first_output"], len(chunk.output_types)),
            _type_names(chunk.output_types, coded=coded),
        ),
        "parents": _lists(chunk.parent_limits, pa.array(chunk.parents, pa.int32())),
        "spent_types": _spent_types(chunk, coded=coded),
        "sigop_cost": pa.array(chunk.traits["sigop_cost"], mask=chunk.traits["sigop_cost"] == FAIL),
        "effective_feerate_sat_vb": pa.array(
            chunk.effective_feerates, mask=np.isnan(chunk.effective_feerates)
        ),
    }
    columns |= {column.name: chunk.traits[column.name] for column in TRAITS}
    schema = coded_schema(TRANSACTIONS) if coded else TRANSACTIONS.arrow
    arrays = [_column(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def warm_up() -> None:
    """Compile, or load from disk, every compiled function that turns bytes of blocks into rows.

    The first call takes seconds, and later ones in the process take no time.
    """
    warm_up_hashing()
    # A coinbase with a witness: one input, one output, neither with a script, and one item of one byte.
    parts = (bytes(4), b"\0\1\1", NO_HASH, b"\xff" * 4, bytes(5), b"\1", bytes(9), b"\1\1\0", bytes(4))
    coinbase = b"".join(parts)
    decode_transactions([coinbase] * (FEW + 1))
    type_of_script(coinbase)
    block_rows(
        parse_block(bytes(HEADER_BYTES) + b"\1" + coinbase),
        chain="regtest",
        height=0,
        height_source="rpc",
        source="rpc",
        verdict="valid",
        verified_by="",
        fees=None,
    )


def fees_from_getblock(answer: Mapping[str, Any]) -> list[int | None]:
    """Return the fee of each transaction, in satoshi, from the answer of `getblock <hash> 3`.

    The fees are those of `amounts_from_getblock`, which says when it raises DecodeError.
    """
    return amounts_from_getblock(answer)[0]


def amounts_from_getblock(answer: Mapping[str, Any]) -> tuple[list[int | None], list[list[int]]]:
    """Return two lists in satoshi, fees and spent values, from the answer of `getblock <hash> 3`.

    The first list has the fee of each transaction, None for the coinbase. The second has, for each
    transaction after the coinbase, the value of the output that each of its inputs spends. A fee is the sum
    of the spent outputs minus the sum of the outputs, and equal to the fee in the answer if there is one.
    Amounts must be Decimal, as `rpc` reads them. Raises DecodeError when the answer names no spent outputs
    (verbosity below 3, or the node has pruned the undo data), and when it has another form.
    """
    try:
        transactions = answer["tx"][1:]
        spent_sat = [_spent_sat(transaction) for transaction in transactions]
        fees_sat = list(map(_fee_sat, transactions, spent_sat))
    except (AttributeError, TypeError, LookupError, ValueError, ArithmeticError) as error:
        raise DecodeError(
            f"the answer to getblock has another form than a block: {reprlib.repr(error)}"
        ) from None
    return [None, *fees_sat], spent_sat


def spent_types_from_getblock(answer: Mapping[str, Any]) -> Bytes | None:
    """Return the type of the output that each input spends, from the answer of `getblock <hash> 3`.

    The result is uint8[n_inputs], positions in schema.OUTPUT_TYPES, with UNKNOWN_TYPE for the input of the
    coinbase; None when the answer does not have the scripts of all spent outputs.
    """
    try:
        types = [
            type_of_script(bytes.fromhex(spent["prevout"]["scriptPubKey"]["hex"]))
            for transaction in answer["tx"][1:]
            for spent in transaction["vin"]
        ]
    except (TypeError, LookupError, ValueError):
        return None
    return np.array([UNKNOWN_TYPE, *types], np.uint8)


def fee_array(fees: Fees) -> Integers:
    """Return a block's fees (sat) as an array, with UNKNOWN for the coinbase and for fees that are None."""
    return np.array([UNKNOWN, *(UNKNOWN if fee is None else fee for fee in fees[1:])], np.int64)


def _checked_fees(block: Block, fees: Fees) -> Integers:
    """Return a block's fees (sat) as an array; raise DecodeError unless there is one fee per transaction."""
    n_tx = len(block.transactions)
    if len(fees) != n_tx:
        raise DecodeError(
            f"block {hash_hex(block.block_hash)}: transactions {n_tx}, fees given for {len(fees)}"
        )
    return fee_array(fees)


def _spent_sat(transaction: Mapping[str, Any]) -> list[int]:
    """Return the values (sat) of the outputs that a transaction in an answer of getblock spends.

    Raises DecodeError when the answer does not name them.
    """
    try:
        return [satoshi(spent["prevout"]["value"]) for spent in transaction["vin"]]
    except KeyError:
        raise DecodeError(
            "the node names no spent outputs; ask with verbosity 3 for a block whose undo data it has"
        ) from None


def _fee_sat(transaction: Mapping[str, Any], spent_sat: list[int]) -> int:
    """Return the fee (sat) of a transaction in an answer of getblock: values spent minus outputs.

    Raises DecodeError when the answer states another fee, or the fee is out of range.
    """
    fee_sat = sum(spent_sat) - sum(satoshi(made["value"]) for made in transaction["vout"])
    stated = transaction.get("fee")
    if stated is not None and satoshi(stated) != fee_sat:
        raise DecodeError(
            f"a fee of {reprlib.repr(stated)} BTC in an answer to getblock; its outputs give {fee_sat} sat"
        )
    if not 0 <= fee_sat <= MAX_MONEY_SAT:
        raise DecodeError(f"a fee of {fee_sat} sat in an answer to getblock: not 0 to {MAX_MONEY_SAT}")
    return fee_sat


def _output_item(output: TxOut) -> CoinbaseOutputItem:
    return {"value_sat": output.value_sat, "script": output.script}


def _sums(chunk: Chunk) -> dict[str, list[Any]]:
    """Return, by column name, the sums over each block's transactions; most leave out the coinbase."""
    txs, first = chunk.layout.txs, chunk.layout.blocks["first_tx"]
    is_other = ~txs["is_coinbase"]
    is_unknown = is_other & (chunk.fee_sat == UNKNOWN)
    fees_sat = np.add.reduceat(np.where(is_other & ~is_unknown, chunk.fee_sat, 0), first).tolist()
    has_unknown = np.logical_or.reduceat(is_unknown, first).tolist()
    return {
        "n_tx": chunk.layout.blocks["n_tx"].tolist(),
        "n_segwit_tx": _sum_per_block(is_other & (txs["witness_at"] > 0), first),
        "n_inputs": _sum_per_block(np.where(is_other, txs["n_inputs"], 0), first),
        "n_outputs": _sum_per_block(txs["n_outputs"], first),
        "output_value_sat": _sum_per_block(np.where(is_other, txs["output_value_sat"], 0), first),
        "fees_sat": [None if lacks else fee for fee, lacks in zip(fees_sat, has_unknown, strict=True)],
    }


def _sum_per_block(values: npt.NDArray[Any], first: Integers) -> list[int]:
    return list(np.add.reduceat(values.astype(np.int64), first).tolist())


def _column(values: pa.Array | npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_boolean(type_):
        return pa.array(np.ascontiguousarray(values))
    return pa.array(np.ascontiguousarray(values, type_.to_pandas_dtype()), type_)


def _hashes(values: Bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(HASH, len(values), [None, pa.py_buffer(values)])


def _null_unknown(values: Integers) -> pa.Array:
    """Return an Arrow array of int64 with a null in the place of UNKNOWN."""
    return pa.array(values, pa.int64(), mask=values == UNKNOWN)


def _lists(limits: Integers, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(limits.astype(np.int32)), values)


def _type_names(types: Bytes, *, coded: bool) -> pa.Array:
    if coded:
        return pa.DictionaryArray.from_arrays(pa.array(types.view(np.int8)), _all_type_names())
    return _all_type_names().take(pa.array(types))


def _spent_types(chunk: Chunk, *, coded: bool) -> pa.Array:
    """Return for each transaction the types of the outputs that it spends; null if one is not known."""
    first, n_inputs = chunk.layout.txs["first_input"], chunk.layout.txs["n_inputs"]
    is_unknown = chunk.spent_types == UNKNOWN_TYPE
    lacks_type = np.logical_or.reduceat(is_unknown, first) if len(first) else np.empty(0, np.bool_)
    limits = np.zeros(len(first) + 1, np.int32)
    np.cumsum(np.where(lacks_type, 0, n_inputs), out=limits[1:])
    names = _type_names(chunk.spent_types[~np.repeat(lacks_type, n_inputs)], coded=coded)
    return pa.ListArray.from_arrays(pa.array(limits), names, mask=pa.array(lacks_type))


def _reserved_value(witness: Sequence[bytes]) -> bytes | None:
    """Return the only item of the coinbase's witness if it has the form of BIP 141, else None."""
    return witness[0] if len(witness) == 1 and len(witness[0]) == HASH.byte_width else None


@cache
def _all_type_names() -> pa.Array:
    """Return an Arrow array of the names of output types, in which a type's number is its position.

    It is made at the first call, not at import: Arrow loads pandas with the first array it makes, unless
    `hide_unneeded` has run.
    """
    return pa.array(OUTPUT_TYPES, pa.string())
