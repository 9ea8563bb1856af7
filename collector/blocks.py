"""Make the rows of `blocks` and `transactions` out of a decoded block and its fees."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from collector.coinbase import output_type, subsidy_sat, witness_commitment
from collector.decode import TXID_BYTES, Block, Transaction
from collector.errors import DecodeError
from collector.feerate import effective_feerates
from collector.rpc import satoshi
from collector.schema import hash_hex

Row = dict[str, Any]
Fees = Sequence[int | None]


def block_rows(
    block: Block,
    *,
    chain: str,
    height: int,
    height_source: str,
    source: str,
    verdict: str,
    verified_by: str,
    fees: Fees | None,
) -> tuple[Row, list[Row]]:
    """Return the row of `blocks` and the rows of `transactions`, as `writer.to_batch` takes them.

    fees has one entry per transaction in block order, in satoshi; that of the coinbase is not read. None, for
    one or for all, is a fee that is not known. Raises DecodeError when there are more or fewer fees than
    transactions: they are of another block.
    """
    transactions = block.transactions
    fees = _checked_fees(block, fees)
    parents = _parents(transactions)
    types = block.output_types or _output_types(transactions)
    rates = effective_feerates([transaction.vsize_vb for transaction in transactions], fees, parents)
    rows = [
        {
            "block_hash": block.block_hash,
            "height": height,
            "tx_index": index,
            **_transaction_columns(transaction),
            "output_types": types[index],
            "input_value_sat": None if fee is None else transaction.output_value_sat + fee,
            "fee_sat": fee,
            "is_coinbase": index == 0,
            "parents": parents[index],
            "effective_feerate_sat_vb": rates[index],
        }
        for index, (transaction, fee) in enumerate(zip(transactions, fees, strict=True))
    ]
    known = [fee for fee in fees[1:] if fee is not None]
    row = {
        "height": height,
        "height_source": height_source,
        **_block_columns(block),
        "fees_sat": sum(known) if len(known) == len(fees) - 1 else None,
        "subsidy_sat": subsidy_sat(height, chain),
        "verdict": verdict,
        "verified_by": verified_by,
        "source": source,
    }
    return row, rows


def fees_from_getblock(answer: Mapping[str, Any]) -> list[int | None]:
    """Read the fee of each transaction, in satoshi, from the answer of `getblock <hash> 3`.

    The coinbase's is None. The fees are what the spent outputs in the answer come to, minus the outputs;
    amounts must be Decimal, as `rpc` reads them. Raises DecodeError when the answer names no spent outputs
    (verbosity below 3, or the node has pruned the undo data).
    """
    return [None, *(_fee_sat(transaction) for transaction in answer["tx"][1:])]


def _checked_fees(block: Block, fees: Fees | None) -> list[int | None]:
    """Give one fee per transaction, the coinbase's as None; raises DecodeError for those of another block."""
    n_tx = len(block.transactions)
    if fees is None:
        return [None] * n_tx
    if len(fees) != n_tx:
        raise DecodeError(
            f"{len(fees)} fees for the {n_tx} transactions of block {hash_hex(block.block_hash)}"
        )
    return [None, *fees[1:]]


def _fee_sat(transaction: Mapping[str, Any]) -> int:
    try:
        spent = [spent["prevout"]["value"] for spent in transaction["vin"]]
    except KeyError:
        raise DecodeError(
            "the node names no spent outputs; ask with verbosity 3 for a block whose undo data it has"
        ) from None
    made = [made["value"] for made in transaction["vout"]]
    return satoshi(sum(spent, Decimal()) - sum(made, Decimal()))


def _parents(transactions: Sequence[Transaction]) -> list[list[int]]:
    """For each transaction, the positions of those before it in the block that it spends from, ascending."""
    position = {transaction.txid: index for index, transaction in enumerate(transactions)}
    parents: list[list[int]] = []
    for index, transaction in enumerate(transactions):
        spent = [outpoint[:TXID_BYTES] for outpoint in transaction.outpoints]
        found = {position[txid] for txid in spent if txid in position}
        parents.append(sorted(parent for parent in found if parent < index))
    return parents


def _output_types(transactions: Sequence[Transaction]) -> list[list[str]]:
    return [[output_type(output.script) for output in transaction.outputs] for transaction in transactions]


def _transaction_columns(transaction: Transaction) -> Row:
    return {
        "txid": transaction.txid,
        "wtxid": transaction.wtxid,
        "version": transaction.version,
        "locktime": transaction.locktime,
        "size_bytes": transaction.size_bytes,
        "weight_wu": transaction.weight_wu,
        "vsize_vb": transaction.vsize_vb,
        "n_inputs": transaction.n_inputs,
        "n_outputs": transaction.n_outputs,
        "output_value_sat": transaction.output_value_sat,
        "has_witness": transaction.has_witness,
        "signals_rbf": transaction.signals_rbf,
    }


def _block_columns(block: Block) -> Row:
    header, coinbase, others = block.header, block.coinbase, block.transactions[1:]
    outputs = coinbase.outputs
    return {
        "block_hash": block.block_hash,
        "prev_hash": header.prev_hash,
        "version": header.version,
        "merkle_root": header.merkle_root,
        "header_time": header.time_s,
        "bits": header.bits,
        "nonce": header.nonce,
        "size_bytes": block.size_bytes,
        "stripped_bytes": block.stripped_bytes,
        "weight_wu": block.weight_wu,
        "n_tx": len(block.transactions),
        "n_segwit_tx": sum(transaction.has_witness for transaction in others),
        "n_inputs": sum(transaction.n_inputs for transaction in others),
        "n_outputs": sum(transaction.n_outputs for transaction in block.transactions),
        "output_value_sat": sum(transaction.output_value_sat for transaction in others),
        "coinbase_txid": coinbase.txid,
        "coinbase_value_sat": coinbase.output_value_sat,
        "coinbase_script": coinbase.inputs[0].script,
        "coinbase_outputs": [{"value_sat": output.value_sat, "script": output.script} for output in outputs],
        "witness_commitment": witness_commitment(outputs),
    }
