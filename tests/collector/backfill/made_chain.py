"""Make a chain on a real node with everything that block files can hold, and the rows it must give."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from collector.codec.block import decode_block
from collector.codec.rows import fees_from_getblock
from collector.codec.verify import backend_name, verify_block
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.errors import DecodeError, RpcError
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode
from collector.regtest.block_assembly import Candidate
from collector.regtest.mining import MiningTemplate, build_block, submit, take_template
from collector.regtest.scripts import COIN_KINDS
from collector.regtest.transaction import REPLACEABLE, RegtestTransaction, TxInput, TxOutput
from tests.collector.codec.made_blocks import SCRIPTS
from tests.collector.codec.plain_rows import plain_block_rows

COIN = COIN_KINDS["p2wsh"]
SUBSIDY_SAT = 5_000_000_000
MATURITY = 100


class Miner:
    """Mines blocks of given transactions, without the mempool and its policy."""

    def __init__(self, node: RegtestNode) -> None:
        self.rpc: RpcClient = node.client()
        self.coins: list[RegtestTransaction] = []  # coinbases in order; their output 0 is ours
        self._n_mined = 0

    def mine(self, body: Sequence[tuple[RegtestTransaction, int]] = ()) -> str:
        """Mine a block of transactions and their fees on the tip; returns its hash."""
        block = self.build(take_template(self.rpc), body)
        submit(self.rpc, block)
        self.coins.append(block.coinbase)
        return block.hash

    def build(self, template: MiningTemplate, body: Sequence[tuple[RegtestTransaction, int]] = ()) -> Any:
        """Solve a block on a template."""
        self._n_mined += 1
        entries = [
            Candidate(
                txid=transaction.txid_hex,
                raw=transaction.raw,
                fee_sat=fee_sat,
                vsize_vb=transaction.vsize_vb,
                weight_wu=transaction.weight_wu,
                parents=frozenset(),
                arrival=0,
                is_planted=False,
            )
            for transaction, fee_sat in body
        ]
        return build_block(
            template, entries, tag=b"/made/", payout_script=COIN.script, extranonce=self._n_mined
        )

    def take(self) -> tuple[bytes, int]:
        """Remove our oldest coinbase from the unspent ones; return its txid and value."""
        coinbase = self.coins.pop(0)
        return coinbase.txid, coinbase.outputs[0].value_sat


def spend(
    txid: bytes, vout: int, outputs: Sequence[TxOutput], sequence: int = REPLACEABLE
) -> RegtestTransaction:
    """Spend one of our coins."""
    return RegtestTransaction((TxInput(txid, vout, b"", COIN.witness, sequence),), tuple(outputs))


def make_chain(node: RegtestNode) -> None:
    """Mine tiny blocks, one with every script type, a deep package, a huge one, and stale branches."""
    miner = Miner(node)
    for _ in range(MATURITY + 10):
        miner.mine()
    miner.mine(every_type(miner))
    miner.mine(deep_package(miner))
    miner.mine(huge(miner))
    miner.mine(spends_every_type(miner))
    stale_branches(miner)
    for _ in range(3):
        miner.mine()


def every_type(miner: Miner) -> list[tuple[RegtestTransaction, int]]:
    """Make one transaction that pays to a script of every type."""
    txid, value_sat = miner.take()
    share_sat = value_sat // (len(SCRIPTS) + 1)
    outputs = [TxOutput(share_sat + i, script) for i, script in enumerate(SCRIPTS)]
    rest_sat = value_sat - sum(output.value_sat for output in outputs)
    transaction = spend(txid, 0, [*outputs, TxOutput(rest_sat - 12_345, COIN.script)])
    return [(transaction, 12_345)]


def spends_every_type(miner: Miner) -> list[tuple[RegtestTransaction, int]]:
    """Split a coin over every kind of coin, and spend all of them at once."""
    txid, value_sat = miner.take()
    kinds = list(COIN_KINDS.values())
    share_sat = value_sat // len(kinds) - 1_000
    split = spend(txid, 0, [TxOutput(share_sat, kind.script) for kind in kinds])
    inputs = [TxInput(split.txid, i, kind.script_sig, kind.witness) for i, kind in enumerate(kinds)]
    merged = RegtestTransaction(tuple(inputs), (TxOutput(share_sat, COIN.script),))
    return [(split, value_sat - share_sat * len(kinds)), (merged, share_sat * (len(kinds) - 1))]


def deep_package(miner: Miner) -> list[tuple[RegtestTransaction, int]]:
    """Make 25 transactions in a chain with rising fees, and two children of one parent."""
    txid, value_sat = miner.take()
    body = []
    for i in range(25):
        fee_sat = 200 + 700 * i
        value_sat -= fee_sat
        transaction = spend(txid, 0, [TxOutput(value_sat, COIN.script)])
        body.append((transaction, fee_sat))
        txid = transaction.txid
    half_sat = value_sat // 2
    parent = spend(txid, 0, [TxOutput(half_sat, COIN.script)] * 2)
    body.append((parent, value_sat - 2 * half_sat))
    for vout, fee_sat in ((0, 90_000), (1, 50)):
        body.append((spend(parent.txid, vout, [TxOutput(half_sat - fee_sat, COIN.script)]), fee_sat))
    return body


def huge(miner: Miner) -> list[tuple[RegtestTransaction, int]]:
    """Fill a block with nearly 4,000,000 weight units, in few transactions of many outputs."""
    body = []
    for _ in range(8):
        txid, value_sat = miner.take()
        outputs = [TxOutput(1_000, b"\x6a\x4d\x0c\x1e" + bytes(7_692)) for _ in range(15)]
        rest_sat = value_sat - 1_000 * len(outputs) - 120_000
        body.append((spend(txid, 0, [*outputs, TxOutput(rest_sat, COIN.script)]), 120_000))
    return body


def stale_branches(miner: Miner) -> None:
    """Leave one block behind that was connected once, and one that never was."""
    txid, value_sat = miner.take()
    once = miner.mine([(spend(txid, 0, [TxOutput(value_sat - 777, COIN.script)]), 777)])
    miner.rpc.call("invalidateblock", once)
    template = take_template(miner.rpc)
    miner.mine()
    miner.mine()
    never = miner.build(template)
    assert miner.rpc.call("submitblock", never.raw.hex()) == "inconclusive"


def node_rows(
    rpc: RpcClient, hashes: Sequence[str], *, height_source: str = "tree", source: str = "blkfile"
) -> tuple[pa.Table, pa.Table]:
    """Make the rows of these blocks from the node's RPC answers, fees included."""
    block_list: list[dict[str, Any]] = []
    tx_list: list[dict[str, Any]] = []
    for block_hash in hashes:
        raw = bytes.fromhex(rpc.call("getblock", block_hash, 0))
        verbose = rpc.call("getblock", block_hash, 3)
        block = decode_block(raw)
        try:
            fees = fees_from_getblock(verbose)
            types = [None, *(stated_types(transaction) for transaction in verbose["tx"][1:])]
        except (DecodeError, RpcError):
            fees = types = None
        row, rows = plain_block_rows(
            block,
            chain="regtest",
            height=verbose["height"],
            height_source=height_source,
            source=source,
            verdict=verify_block(block, "regtest", height=verbose["height"]),
            verified_by=backend_name(),
            fees=fees,
            spent_types=types,
        )
        block_list.append(row)
        tx_list += rows
    ordering = [("height", "ascending"), ("block_hash", "ascending")]
    return (
        pa.Table.from_batches([to_batch(BLOCKS, block_list)]).sort_by(ordering),
        pa.Table.from_batches([to_batch(TRANSACTIONS, tx_list)]).sort_by(
            [*ordering, ("tx_index", "ascending")]
        ),
    )


def stated_types(transaction: dict[str, Any]) -> list[str]:
    """Return the type of each output that a transaction spends, in the node's own words."""
    return [spent["prevout"]["scriptPubKey"]["type"] for spent in transaction["vin"]]


def all_hashes(rpc: RpcClient) -> list[str]:
    """Return the hash of every block that the node has, stale ones included."""
    height = rpc.call("getblockcount")
    active = [rpc.call("getblockhash", i) for i in range(height + 1)]
    stale = []
    for tip in rpc.call("getchaintips"):
        at = tip["hash"]
        while at not in active and at not in stale:
            stale.append(at)
            at = rpc.call("getblockheader", at)["previousblockhash"]
    return active + stale
