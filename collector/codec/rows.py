"""Make the rows of `blocks` and `transactions` out of a block that was read, and its fees."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from collector.codec import verify
from collector.codec.amounts import satoshi
from collector.codec.arrays import Integers
from collector.codec.chunk import Bodies, Place, finish
from collector.codec.decode import HEADER_BYTES, NO_HASH, Block
from collector.codec.decode_many import FEW, ParsedBlock, decode_transactions, parse_block
from collector.codec.encode import blocks_table, transactions_table
from collector.codec.feerates import UNKNOWN
from collector.codec.timing import Stages
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError

Fees = Sequence[int | None]


def block_rows(
    body: ParsedBlock,
    *,
    chain: str,
    height: int,
    height_source: str,
    source: str,
    verdict: str,
    verified_by: str,
    fees: Fees | None,
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Return the row of `blocks` and the rows of `transactions`.

    fees has one entry per transaction in block order, in satoshi; that of the coinbase is not read. None, for
    one or for all, is a fee that is not known. Raises DecodeError when there are more or fewer fees than
    transactions: they are of another block.
    """
    block = body.block
    bodies = Bodies(
        places=[Place(block.block_hash, height, height_source, source, source)],
        data=np.frombuffer(body.raw, np.uint8),
        limits=np.array([0, len(body.raw)]),
        fees_sat=[None if fees is None else _checked_fees(block, fees)],
    )
    chunk = finish(bodies, body.walked, [block], (body.txids, body.wtxids), Stages())
    row = blocks_table(chunk, chain=chain, verified_by=verified_by, verdict=verdict)
    return row.to_batches()[0], transactions_table(chunk).to_batches()[0]


def warm_up() -> None:
    """Compile what is needed from bytes to rows, some seconds at the first use; later calls cost nothing."""
    verify.warm_up()
    # A coinbase with a witness: one input, one output, neither with a script, and one item of one byte.
    parts = (bytes(4), b"\0\1\1", NO_HASH, b"\xff" * 4, bytes(5), b"\1", bytes(9), b"\1\1\0", bytes(4))
    coinbase = b"".join(parts)
    decode_transactions([coinbase] * (FEW + 1))
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
    """Read the fee of each transaction, in satoshi, from the answer of `getblock <hash> 3`.

    The coinbase's is None. The fees are what the spent outputs in the answer come to, minus the outputs;
    amounts must be Decimal, as `rpc` reads them. Raises DecodeError when the answer names no spent outputs
    (verbosity below 3, or the node has pruned the undo data).
    """
    return [None, *(_fee_sat(transaction) for transaction in answer["tx"][1:])]


def fee_array(fees: Fees) -> Integers:
    """Put the fees of a block into an array, UNKNOWN for the coinbase and where they are not known."""
    return np.array([UNKNOWN, *(UNKNOWN if fee is None else fee for fee in fees[1:])], np.int64)


def _checked_fees(block: Block, fees: Fees) -> Integers:
    """Give one fee per transaction; raises DecodeError for those of another block."""
    n_tx = len(block.transactions)
    if len(fees) != n_tx:
        raise DecodeError(
            f"{len(fees)} fees for the {n_tx} transactions of block {hash_hex(block.block_hash)}"
        )
    return fee_array(fees)


def _fee_sat(transaction: Mapping[str, Any]) -> int:
    try:
        spent = [spent["prevout"]["value"] for spent in transaction["vin"]]
    except KeyError:
        raise DecodeError(
            "the node names no spent outputs; ask with verbosity 3 for a block whose undo data it has"
        ) from None
    made = [made["value"] for made in transaction["vout"]]
    return satoshi(sum(spent, Decimal()) - sum(made, Decimal()))
