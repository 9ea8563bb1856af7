"""Make a regtest chain to measure with: transactions as large as on mainnet, kept outside the repository.

Coins are locked by a script that drops two items the size of a signature and a key, so inputs weigh what
paying to a key hash weighs, and no time goes into signing. About one in eight transactions spends from its
own block.
"""

import json
import random
import shutil
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rich.progress import Progress

from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest.block_assembly import Candidate
from collector.regtest.mining import MinedBlock, MiningTemplate, build_block, submit, take_template
from collector.regtest.scripts import p2wsh, payment_script
from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput

SCRIPT = b"\x6d\x51"  # OP_2DROP OP_TRUE
COIN_SCRIPT = p2wsh(SCRIPT)
SIGNATURE_BYTES = 72
KEY_BYTES = 33
TX_PER_BLOCK = 2_000
MATURITY = 100
KINDS = ("p2wpkh", "p2tr", "p2pkh", "p2sh", "p2wsh", "op_return")
DONE_FILE = "made.json"


class ChainSize(NamedTuple):
    """Holds how many blocks split coins, into how many, and how many transactions the other blocks have."""

    splits: int = 30
    coins_per_split: int = 2_000
    tx_per_block: int = TX_PER_BLOCK

    @property
    def first_full(self) -> int:
        """Return the height of the first block with that many transactions."""
        return MATURITY + 2 * self.splits


FULL_SIZE = ChainSize()
OPTIONS = ("-txindex=1", "-blockmaxweight=4000000", "-dbcache=300", "-rpcworkqueue=256", "-rpcthreads=8")

Coin = tuple[bytes, int, int]  # txid, output, value
Sent = tuple[RegtestTransaction, int]  # with its fee


class Maker:
    """Makes transactions from coins that it keeps in a queue, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311 - a measurement wants the same chain again, not secrecy
        self._coins: deque[Coin] = deque()
        self._fresh: deque[Coin] = deque()  # of the block being made

    def __len__(self) -> int:
        return len(self._coins)

    def add(self, transaction: RegtestTransaction) -> None:
        """Add a transaction's outputs to the queue of coins."""
        self._coins.extend(
            (transaction.txid, i, output.value_sat)
            for i, output in enumerate(transaction.outputs)
            if output.script == COIN_SCRIPT
        )

    def split(self, coinbase: RegtestTransaction, n_coins: int) -> tuple[RegtestTransaction, int]:
        """Split a coinbase into many coins."""
        value_sat = coinbase.outputs[0].value_sat // (n_coins + 1)
        return self._spend(
            [(coinbase.txid, 0, coinbase.outputs[0].value_sat)],
            [TxOutput(value_sat, COIN_SCRIPT)] * n_coins,
        )

    def block(self, n_tx: int) -> Iterator[tuple[RegtestTransaction, int]]:
        """Make the transactions of one block, with their fees."""
        for _ in range(n_tx):
            n_inputs = self._draw.choices((1, 2, 3, 6, 25), (48, 24, 13, 9, 6))[0]
            coins = [self._coins.popleft() for _ in range(n_inputs)]
            if self._fresh and self._draw.random() < 1 / 8:
                coins[0], held = self._fresh.popleft(), coins[0]
                self._coins.append(held)
            total_sat = sum(value_sat for _, _, value_sat in coins)
            fee_sat = int(200 * len(coins) * self._draw.lognormvariate(1.5, 1))
            outputs = [
                TxOutput(546, self._payment()) for _ in range(self._draw.choices((1, 2, 5), (80, 15, 5))[0])
            ]
            n_coins = n_inputs if len(self._coins) < 40_000 else 1
            rest_sat = (total_sat - min(fee_sat, total_sat // 4)) // n_coins - 546 * len(outputs)
            outputs += [TxOutput(max(rest_sat, 0), COIN_SCRIPT)] * n_coins
            transaction, fee_sat = self._spend(coins, outputs)
            self._fresh.extend(
                (transaction.txid, len(outputs) - 1 - i, max(rest_sat, 0)) for i in range(n_coins)
            )
            yield transaction, fee_sat
        self._coins.extend(self._fresh)
        self._fresh.clear()

    def _spend(self, coins: list[Coin], outputs: list[TxOutput]) -> tuple[RegtestTransaction, int]:
        inputs = [
            TxInput(
                txid, i, b"", (self._draw.randbytes(SIGNATURE_BYTES), self._draw.randbytes(KEY_BYTES), SCRIPT)
            )
            for txid, i, _ in coins
        ]
        fee_sat = sum(value_sat for _, _, value_sat in coins) - sum(output.value_sat for output in outputs)
        return RegtestTransaction(tuple(inputs), tuple(outputs)), fee_sat

    def _payment(self) -> bytes:
        return payment_script(self._draw.choice(KINDS), self._draw.randbytes(8))


def make_chain(datadir: Path, n_tx: int, size: ChainSize = FULL_SIZE, seed: int = 5) -> None:
    """Make a chain of at least n_tx transactions in a datadir, unless it is there already."""
    done = datadir / DONE_FILE
    wanted = {"n_tx": n_tx, "seed": seed, "version": 3, "size": list(size)}
    if done.exists() and json.loads(done.read_text()) == wanted:
        return
    shutil.rmtree(datadir, ignore_errors=True)
    with RegtestNode(find_bitcoind(), datadir=datadir, options=OPTIONS) as node:
        _mine(node.client(timeout_s=300), Maker(seed), n_tx, size)
    done.write_text(json.dumps(wanted))


def _mine(rpc: RpcClient, maker: Maker, n_tx: int, size: ChainSize) -> None:
    coinbases = [_submit(rpc, []) for _ in range(MATURITY + size.splits)]
    for _ in range(size.splits):
        split = maker.split(coinbases.pop(0), size.coins_per_split)
        _submit(rpc, [split])
        maker.add(split[0])
    with Progress() as progress:
        for _ in progress.track(range(-(-n_tx // size.tx_per_block)), description="making the chain"):
            _submit(rpc, list(maker.block(size.tx_per_block)))


def build_bench_block(template: MiningTemplate, body: list[Sent], extranonce: int = 0) -> MinedBlock:
    """Build and solve a block of these transactions on a template."""
    entries = [
        Candidate(
            txid=transaction.txid_hex,
            raw=transaction.raw,
            fee_sat=fee_sat,
            vsize_vb=0,
            weight_wu=transaction.weight_wu,
            parents=frozenset(),
            arrival=0,
            is_planted=False,
        )
        for transaction, fee_sat in body
    ]
    return build_block(template, entries, tag=b"/bench/", payout_script=COIN_SCRIPT, extranonce=extranonce)


def _submit(rpc: RpcClient, body: list[Sent]) -> RegtestTransaction:
    block = build_bench_block(take_template(rpc), body)
    submit(rpc, block)
    return block.coinbase
