"""Make the rows of a block the plain way, a mapping for each: to compare `collector.codec.rows` with.

Of what the collector makes its rows with, only the decoder's records and what a coinbase says are used.
"""

from collections.abc import Sequence
from typing import Any

from collector.codec.block import Block
from collector.codec.coinbase import subsidy_sat, witness_commitment
from collector.codec.format import TXID_BYTES
from collector.codec.transaction import Transaction
from tests.collector.codec.plain_feerate import plain_feerates
from tests.collector.codec.plain_scripts import plain_output_type
from tests.collector.codec.plain_traits import plain_traits

Row = dict[str, Any]
Fees = Sequence[int | None]


def plain_block_rows(
    block: Block,
    *,
    chain: str,
    height: int,
    height_source: str,
    source: str,
    verdict: str,
    verified_by: str,
    fees: Fees | None,
    spent_types: Sequence[Sequence[str] | None] | None = None,
) -> tuple[Row, list[Row]]:
    """Return the row of `blocks` and the rows of `transactions`, as `to_batch` takes them.

    fees are as `collector.codec.rows.block_rows` takes them; spent_types has, for each transaction, the type
    of the output that each input spends, None for the coinbase.
    """
    fees = [None] * len(block.transactions) if fees is None else [None, *fees[1:]]
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
    return row, _transaction_rows(block, height, fees, spent_types or [None] * len(fees))


def _transaction_rows(
    block: Block, height: int, fees: Fees, spent_types: Sequence[Sequence[str] | None]
) -> list[Row]:
    transactions = block.transactions
    parents = _parents(transactions)
    rates = plain_feerates([transaction.vsize_vb for transaction in transactions], fees, parents)
    return [
        {
            "block_hash": block.block_hash,
            "height": height,
            "tx_index": index,
            **_transaction_columns(transaction),
            "output_types": [plain_output_type(output.script) for output in transaction.outputs],
            "input_value_sat": None if fee is None else transaction.output_value_sat + fee,
            "fee_sat": fee,
            "is_coinbase": index == 0,
            "parents": parents[index],
            "effective_feerate_sat_vb": rates[index],
            "spent_types": spent,
            **plain_traits(transaction, spent),
        }
        for index, (transaction, fee, spent) in enumerate(zip(transactions, fees, spent_types, strict=True))
    ]


def _parents(transactions: Sequence[Transaction]) -> list[list[int]]:
    """Return, for each transaction, the positions of earlier ones in the block that it spends from."""
    position = {transaction.txid: index for index, transaction in enumerate(transactions)}
    parents: list[list[int]] = []
    for index, transaction in enumerate(transactions):
        spent = [outpoint[:TXID_BYTES] for outpoint in transaction.outpoints]
        found = {position[txid] for txid in spent if txid in position}
        parents.append(sorted(parent for parent in found if parent < index))
    return parents


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
        "coinbase_version": coinbase.version,
        "coinbase_sequence": coinbase.inputs[0].sequence,
        "coinbase_locktime": coinbase.locktime,
        "coinbase_reserved_value": block.coinbase_witness[0] if block.coinbase_witness else None,
    }
