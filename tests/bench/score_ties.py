"""Score a stock node's own template against the best payers of its mempool: ties shared, and ranked by entry.

    python -m tests.bench.score_ties [--transactions N] [--seeds N]

Wallets choose whole feerates, so thousands of transactions pay exactly the same. Where the last of the top X
is one of them, the order among equals says nothing about the pool: a stock node takes any of them. For each
seed a node gets N transactions with such feerates, none of which spends another, and mines one block of its
own template while the collector watches. Printed is the part of the top X that it took: with the places that
are left shared among equals, as `feerate_strategy_block` has it, and with equals ranked by their entry.
"""

import argparse
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from analysis.attribution.rules import default_rules_dir
from analysis.database import open_database
from analysis.engine import build
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_TXS, TRANSACTIONS
from collector.regtest import RegtestNode, find_bitcoind, make_wallet
from collector.regtest.scripts import payment_script
from collector.regtest.transaction import TxOutput
from collector.regtest.wallet import Wallet, pay
from tests.functional.conftest import CollectorProcess

BATCH: Final = 500
FEERATES: Final = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 50)  # sat/vB
WEIGHTS: Final = (30, 22, 5, 30, 6, 5, 4, 3, 3, 2, 2, 1, 1, 1)  # how often each is drawn
SHARED: Final = (
    "SELECT n_top, n_tied, top_x_ratio FROM feerate_strategy_block WHERE x > 0 AND feerate_kind = 'cluster'"
)


class Score(NamedTuple):
    """Holds the part of the top X that a block took."""

    n_top: int
    n_tied: int  # taken, and paying what the last of the top X pays
    shared_ratio: float
    by_entry_ratio: float


def fill(node: RegtestNode, wallet: Wallet, n_transactions: int, draw: random.Random) -> None:
    """Send transactions with whole feerates to the node; raise the first refusal."""
    rpc = node.client(timeout_s=120)
    made = []
    for feerate in draw.choices(FEERATES, WEIGHTS, k=n_transactions):
        outputs = [TxOutput(1_000, payment_script("p2tr", draw.randbytes(8)))] * draw.choice((0, 1, 1, 2, 5))
        made.append(pay([wallet.take()], outputs, feerate_sat_vb=feerate).transaction.raw.hex())
    for at in range(0, len(made), BATCH):
        for answer in rpc.batch([("sendrawtransaction", raw) for raw in made[at : at + BATCH]]):
            if isinstance(answer, Exception):
                raise answer


def collect(folder: Path, n_transactions: int, seed: int, options: Sequence[str] = ()) -> Dataset:
    """Play one seed while a collector watches; return its dataset, which has the block of the template."""
    with RegtestNode(find_bitcoind(), options=options) as node:
        wallet = make_wallet(node, n_transactions, seed=seed)
        collector = CollectorProcess(node, folder)
        collector.start()
        fill(node, wallet, n_transactions, random.Random(seed))  # noqa: S311 - repeatable chance
        collector.wait_taken()
        node.client().call("generatetodescriptor", 1, "raw(51)")
        collector.wait_complete()
        collector.stop()
        return Dataset.open(collector.dataset, "regtest")


def score(dataset: Dataset, database: Path) -> Score:
    """Build what ranks the one block of a dataset that has transactions; return its score.

    No transaction spends another, so the three kinds of feerate are one.
    """
    build(dataset.root, default_rules_dir(), database, marts=["feerate_strategy_block"])
    with open_database(database) as connection:
        [(n_top, n_tied, shared_ratio)] = connection.execute(SHARED).fetchall()
    mined = {row["txid"] for row in dataset.read(TRANSACTIONS).to_pylist()}
    waiting = dataset.read(MEMPOOL_TXS).to_pylist()
    waiting.sort(key=lambda row: (-row["fee_sat"] / row["vsize_vb"], row["entered_at"]))
    n_by_entry = sum(row["txid"] in mined for row in waiting[:n_top])
    return Score(n_top, n_tied, shared_ratio, n_by_entry / n_top)


def main() -> None:
    """Print a table with a line for each seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transactions", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    print("| seed | top X | tied, taken | taken, ties shared | taken, ranked by entry |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for seed in range(1, options.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            dataset = collect(Path(folder), options.transactions, seed)
            found = score(dataset, Path(folder) / "analysis.duckdb")
        ratios = f"{found.shared_ratio:.1%} | {found.by_entry_ratio:.1%}"
        print(f"| {seed} | {found.n_top:,} | {found.n_tied:,} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
