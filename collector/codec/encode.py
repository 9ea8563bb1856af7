"""Put a chunk into the contract's Arrow tables without making a Python object per transaction."""

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.codec.arrays import Bytes, Integers
from collector.codec.chunk import WEIGHT_PER_VB, Chunk
from collector.codec.coinbase import subsidy_sat, witness_commitment
from collector.codec.feerates import UNKNOWN
from collector.dataset.schema import BLOCKS, OUTPUT_TYPES, TRANSACTIONS
from collector.dataset.schema.model import HASH
from collector.dataset.writer import to_batch


def blocks_table(chunk: Chunk, *, chain: str, verified_by: str, verdict: str = "valid") -> pa.Table:
    """Rows of `blocks`."""
    sums = _sums(chunk)
    rows = []
    for i, (place, head) in enumerate(zip(chunk.places, chunk.heads, strict=True)):
        header, coinbase = head.header, head.coinbase
        rows.append(
            {
                "block_hash": head.block_hash,
                "height": place.height,
                "height_source": place.height_source,
                "prev_hash": header.prev_hash,
                "version": header.version,
                "merkle_root": header.merkle_root,
                "header_time": header.time_s,
                "bits": header.bits,
                "nonce": header.nonce,
                "size_bytes": head.size_bytes,
                "stripped_bytes": head.stripped_bytes,
                "weight_wu": head.weight_wu,
                **{name: values[i] for name, values in sums.items()},
                "subsidy_sat": subsidy_sat(place.height, chain),
                "coinbase_txid": coinbase.txid,
                "coinbase_value_sat": coinbase.output_value_sat,
                "coinbase_script": coinbase.inputs[0].script,
                "coinbase_outputs": [output._asdict() for output in coinbase.outputs],
                "witness_commitment": witness_commitment(coinbase.outputs),
                "verdict": verdict,
                "verified_by": verified_by,
                "source": place.source,
            }
        )
    return pa.Table.from_batches([to_batch(BLOCKS, rows)])


def transactions_table(chunk: Chunk) -> pa.Table:
    """Rows of `transactions`, in order of block and position."""
    txs, n_tx = chunk.walked.txs, chunk.walked.blocks["n_tx"]
    hashes = np.frombuffer(b"".join(head.block_hash for head in chunk.heads), np.uint8).reshape(-1, 32)
    weight_wu = 3 * chunk.stripped_bytes + chunk.size_bytes
    columns = {
        "block_hash": _hashes(np.repeat(hashes, n_tx, axis=0)),
        "height": np.repeat([place.height for place in chunk.places], n_tx),
        "tx_index": np.arange(len(txs)) - np.repeat(chunk.walked.blocks["first_tx"], n_tx),
        "txid": _hashes(chunk.txids),
        "wtxid": _hashes(chunk.wtxids),
        "version": txs["version"],
        "locktime": txs["locktime"],
        "size_bytes": chunk.size_bytes,
        "weight_wu": weight_wu,
        "vsize_vb": (weight_wu + WEIGHT_PER_VB - 1) // WEIGHT_PER_VB,
        "n_inputs": txs["n_inputs"],
        "n_outputs": txs["n_outputs"],
        "input_value_sat": _known(chunk.input_value_sat),
        "output_value_sat": txs["output_value_sat"],
        "fee_sat": _known(chunk.fee_sat),
        "is_coinbase": txs["is_coinbase"],
        "has_witness": txs["witness_at"] > 0,
        "signals_rbf": txs["signals_rbf"],
        "output_types": _lists(np.append(txs["first_output"], len(chunk.output_types)), _types(chunk)),
        "parents": _lists(chunk.parent_limits, pa.array(chunk.parents, pa.int32())),
        "effective_feerate_sat_vb": pa.array(
            chunk.effective_feerates, mask=np.isnan(chunk.effective_feerates)
        ),
    }
    schema = TRANSACTIONS.arrow
    arrays = [_column(columns[field.name], field.type) for field in schema]
    return pa.Table.from_arrays(arrays, schema=schema)


def _sums(chunk: Chunk) -> dict[str, list[Any]]:
    """Columns of `blocks` that are sums over transactions; most leave the coinbase out."""
    txs, first = chunk.walked.txs, chunk.walked.blocks["first_tx"]
    is_other = ~txs["is_coinbase"]
    is_unknown = is_other & (chunk.fee_sat == UNKNOWN)
    fees_sat = np.add.reduceat(np.where(is_other & ~is_unknown, chunk.fee_sat, 0), first).tolist()
    has_unknown = np.logical_or.reduceat(is_unknown, first).tolist()
    return {
        "n_tx": chunk.walked.blocks["n_tx"].tolist(),
        "n_segwit_tx": _per_block(is_other & (txs["witness_at"] > 0), first),
        "n_inputs": _per_block(np.where(is_other, txs["n_inputs"], 0), first),
        "n_outputs": _per_block(txs["n_outputs"], first),
        "output_value_sat": _per_block(np.where(is_other, txs["output_value_sat"], 0), first),
        "fees_sat": [None if lacks else fee for fee, lacks in zip(fees_sat, has_unknown, strict=True)],
    }


def _per_block(values: npt.NDArray[Any], first: Integers) -> list[int]:
    return list(np.add.reduceat(values.astype(np.int64), first).tolist())


def _column(values: pa.Array | npt.NDArray[Any], type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    if pa.types.is_boolean(type_):
        return pa.array(np.ascontiguousarray(values))
    return pa.array(np.ascontiguousarray(values, type_.to_pandas_dtype()), type_)


def _hashes(values: Bytes) -> pa.Array:
    return pa.FixedSizeBinaryArray.from_buffers(HASH, len(values), [None, pa.py_buffer(values)])


def _known(values: Integers) -> pa.Array:
    return pa.array(values, pa.int64(), mask=values == UNKNOWN)


def _lists(limits: Integers, values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(limits.astype(np.int32)), values)


def _types(chunk: Chunk) -> pa.Array:
    return _type_names().take(pa.array(chunk.output_types))


@cache
def _type_names() -> pa.Array:
    """Names by number; not made at import, because `memory.avoid_pandas` must run before."""
    return pa.array(OUTPUT_TYPES, pa.string())
