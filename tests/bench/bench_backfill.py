"""Measure the backfill on a regtest chain made for it: rates, ratios to others, and where the time goes.

    python tests/bench/bench_backfill.py [--transactions N] [--rounds N] [--etl PATH] [--out FILE] [--smoke]

The chain is made once, in .cache/bench-chain. Everything runs on this machine in this run; what is compared
takes turns, and ratios are of medians. bitcoin-etl (export and enrich) runs when its program is given or is
at .cache/bitcoin-etl/bin/bitcoinetl (`python -m venv .cache/bitcoin-etl && .cache/bitcoin-etl/bin/pip install
bitcoin-etl setuptools`); on a part of the chain, since it takes long; as its manual calls it, with one call
per request, and with a thousand, which is the fastest that we found.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench_chain import FULL_SIZE, OPTIONS, ChainSize, make_chain
from bench_limits import stage_limits
from rich.console import Console

from collector.backfill import run as backfill_run
from collector.backfill.blockfiles import BlockFolder
from collector.backfill.progress import ProgressView
from collector.backfill.report import Report
from collector.backfill.run import from_files, from_node
from collector.backfill.selection import BlockSelection
from collector.backfill.workers import WorkerPool
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.node.access import Access
from collector.regtest import RegtestNode, find_bitcoind
from gpuhash.measure import machine

ROOT = Path(__file__).resolve().parents[2]
CHAIN = ROOT / ".cache" / "bench-chain"
ETL = ROOT / ".cache" / "bitcoin-etl" / "bin" / "bitcoinetl"
SMOKE = ChainSize(splits=1, coins_per_split=1_000, tx_per_block=50)
SMOKE_TX = 200
PART_BLOCKS = 4  # for what is slow
ETL_RUNS = {"bitcoin_etl": (1, 1), "bitcoin_etl_in_batches": (1000, 8)}  # calls per request, blocks


def main() -> None:
    """Make the chain, measure, write JSON."""
    options = parse()
    size = SMOKE if options.smoke else FULL_SIZE
    make_chain(options.chain, options.transactions, size)
    backfill_run.open_pool = lambda count, _engine: WorkerPool(
        count
    )  # one worker is a process too: the same work, one core
    part = BlockSelection(first_height=size.first_full, last_height=size.first_full + PART_BLOCKS - 1)
    rounds: dict[str, list[dict[str, Any]]] = {"one": [], "two": []}
    for number in range(options.rounds):
        for name, workers in (("one", 1), ("two", 2)):
            facts = measured(lambda dataset, n=workers: by_files(options.chain, dataset, BlockSelection(), n))
            rounds[name].append(facts)
            say(f"round {number + 1}, {workers} workers: {facts['tx_per_s']:,} tx/s")
    facts = {
        "machine": asdict(machine.describe()),
        "system": platform.platform(),
        "load_before": os.getloadavg(),
        "chain": {"n_tx": options.transactions, "block_bytes": rounds["two"][0]["block_bytes"]},
        "one_worker": best(rounds["one"]),
        "two_workers": best(rounds["two"]),
        "scaling_ratio": median_rate(rounds["two"]) / median_rate(rounds["one"]),
        "limits": stage_limits(options.chain / "regtest" / "blocks", best(rounds["one"])),
        "memory": memory_by_length(options, size),
    }
    facts |= against_others(options, part, median_rate(rounds["two"]))
    options.out.write_text(json.dumps(facts, indent=2, default=str) + "\n")
    tell(facts)
    say(f"written: {options.out}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--transactions", type=int, default=800_000, help="least length of the chain")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of each kind, taking turns")
    parser.add_argument("--etl", type=Path, default=ETL, help="bitcoinetl program to compare with")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-backfill.json", help="where the JSON goes")
    parser.add_argument(
        "--chain", type=Path, default=CHAIN, help="folder of the chain; made if it is not there"
    )
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    options = parser.parse_args()
    if options.smoke:
        options.transactions, options.rounds, options.etl = SMOKE_TX, 1, Path("/nowhere")
    return options


def by_files(chain: Path, dataset: Dataset, selection: BlockSelection, workers: int) -> Report:
    """Backfill from the block files."""
    folder = BlockFolder(chain / "regtest" / "blocks")
    with ProgressView(Console(quiet=True), workers) as progress:
        return from_files(folder, dataset, selection, workers=workers, progress=progress)


def measured(backfill: Callable[[Dataset], Report]) -> dict[str, Any]:
    """Backfill into a new dataset; return the report, its seconds, and the sizes of the tables."""
    with tempfile.TemporaryDirectory() as folder:
        dataset = Dataset.open(Path(folder) / "dataset", "regtest", create=True)
        begun_s = time.perf_counter()
        report = backfill(dataset)
        total_s = time.perf_counter() - begun_s
        sizes = {
            table.name: sum(path.stat().st_size for path in dataset.paths(table))
            for table in (BLOCKS, TRANSACTIONS)
        }
    facts = report.as_data()
    facts["total_s"] = total_s
    facts["file_bytes_by_table"] = sizes
    facts["transactions_bytes_per_tx"] = sizes["transactions"] / max(facts["n_tx"], 1)
    return facts


def memory_by_length(options: argparse.Namespace, size: ChainSize) -> list[dict[str, float]]:
    """Return the most memory of a worker for a tenth, a third and all of the chain (a smoke run: all)."""
    chain = options.chain
    n_blocks = -(-options.transactions // size.tx_per_block)
    found = []
    for share in (1.0,) if options.smoke else (0.1, 1 / 3, 1.0):
        last_height = size.first_full + int(n_blocks * share)
        selection = BlockSelection(first_height=size.first_full, last_height=last_height)
        facts = measured(lambda dataset, selection=selection: by_files(chain, dataset, selection, 2))
        found.append({"n_tx": facts["n_tx"], "worker_memory_bytes": facts["worker_memory_bytes"]})
    return found


def against_others(options: argparse.Namespace, part: BlockSelection, rate: float) -> dict[str, Any]:
    """Measure the same blocks by RPC, and with bitcoin-etl, against a node on the chain."""
    etl, facts = options.etl, dict[str, Any]()
    with RegtestNode(find_bitcoind(), datadir=options.chain, options=OPTIONS) as node:
        user, password = node.cookie_path.read_text().split(":")
        access = Access(node.rpc_url, node.cookie_path, None, None)

        def by_node(dataset: Dataset) -> Report:
            with ProgressView(Console(quiet=True), 2) as progress:
                return from_node(access, dataset, part, workers=2, progress=progress)

        rates = [measured(by_node)["tx_per_s"] for _ in range(1 if options.smoke else 3)]
        facts["node_tx_per_s"] = statistics.median(rates)
        facts["ratio_to_node"] = rate / facts["node_tx_per_s"]
        if etl.exists():
            wait_for_index(node)
            uri = node.rpc_url.replace("http://", f"http://{user}:{password}@")
            for name, (batch_size, n_blocks) in ETL_RUNS.items():
                facts[name] = etl_rates(etl, uri, batch_size, n_blocks)
                facts[f"ratio_to_{name}"] = rate / facts[name]["tx_per_s"]
        else:
            say(f"no bitcoin-etl at {etl}: not compared")
    return facts


def wait_for_index(node: RegtestNode) -> None:
    """Return when the node can find any transaction: bitcoin-etl needs that for fees."""
    while not node.client().call("getindexinfo").get("txindex", {}).get("synced"):
        time.sleep(0.1)


def etl_rates(etl: Path, uri: str, batch_size: int, n_blocks: int) -> dict[str, Any]:
    """Measure how fast bitcoin-etl exports blocks and adds the spent outputs to their transactions."""
    folder = Path(tempfile.mkdtemp())
    plain, enriched = folder / "transactions.json", folder / "enriched.json"
    common = ["--provider-uri", uri, "--max-workers", "5", "--batch-size", str(batch_size)]
    first = FULL_SIZE.first_full
    span = ["--start-block", str(first), "--end-block", str(first + n_blocks - 1)]
    try:
        begun_s = time.perf_counter()
        outputs = ["--blocks-output", str(folder / "blocks.json"), "--transactions-output", str(plain)]
        subprocess.run(
            [etl, "export_blocks_and_transactions", *span, *common, *outputs], check=True, capture_output=True
        )
        exported_s = time.perf_counter() - begun_s
        transfer = ["--transactions-input", str(plain), "--transactions-output", str(enriched)]
        subprocess.run([etl, "enrich_transactions", *common, *transfer], check=True, capture_output=True)
        total_s = time.perf_counter() - begun_s
        n_tx = sum(1 for _ in enriched.open())
    finally:
        shutil.rmtree(folder)
    return {
        "n_tx": n_tx,
        "export_s": exported_s,
        "enrich_s": total_s - exported_s,
        "tx_per_s": n_tx / total_s,
    }


def median_rate(rounds: list[dict[str, Any]]) -> float:
    """Return the median of transactions per second."""
    return statistics.median(each["tx_per_s"] for each in rounds)


def best(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the facts of the round in the middle."""
    facts = sorted(rounds, key=lambda each: each["tx_per_s"])[len(rounds) // 2]
    return facts | {"tx_per_s_of_rounds": [each["tx_per_s"] for each in rounds]}


def tell(facts: dict[str, Any]) -> None:
    """Print the main figures."""
    two = facts["two_workers"]
    say(f"2 workers: {two['tx_per_s']:,} tx/s, {two['block_bytes_per_s'] / 1e6:.0f} MB/s of blocks")
    say(f"2 workers to 1: {facts['scaling_ratio']:.2f}")
    say(f"to --node: {facts['ratio_to_node']:.1f}")
    for name in ETL_RUNS:
        if name in facts:
            say(f"to {name} ({facts[name]['tx_per_s']:,.0f} tx/s): {facts[f'ratio_to_{name}']:.0f}")
    say(f"bytes per transaction: {two['transactions_bytes_per_tx']:.1f}")
    for stage, limit in facts["limits"].items():
        say(
            f"{stage:8} {limit['share_ratio']:6.1%} of the time; "
            f"{limit['of_limit_ratio']:6.1%} of {limit['limit']}"
        )
    for each in facts["memory"]:
        say(f"{each['n_tx']:,} transactions: {each['worker_memory_bytes'] / 1e6:.0f} MB per worker")


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
