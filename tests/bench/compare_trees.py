"""Compare the speed of the collector in this checkout with that in another one, in pairs, by processor time.

    python tests/bench/compare_trees.py FOLDER [--pairs N] [--transactions N] [--chain FOLDER] [--out FILE]

FOLDER is the other checkout (`git worktree add FOLDER COMMIT`). Both take turns on the same input with the
same libraries, each in processes of its own. Parts: `entries`, `blocks` and `whole` of bench_collector;
`quiet`, the whole collector while 20 transactions enter in a second, some more than on mainnet; and
`backfill` of the chain of bench_backfill by one worker. A ratio above 1 says that this checkout takes more
processor time for the same work. Each line has the median of the pairs' ratios, the smallest and the largest,
and the ratio of the least times: on a busy machine, other programs slow down some runs and hasten none. For
the same reason `entries`, `blocks` and `backfill` are the best of three.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from bench_chain import FULL_SIZE, make_chain
from bench_collector import TRAFFIC, prepare

HERE: Final = Path(__file__).resolve().parents[2]
PARTS: Final = ("entries", "blocks", "whole", "quiet", "backfill")
# Runs one part with the sources of the checkout that PYTHONPATH names, and prints its facts.
SCRIPT: Final = """
import json, os, pathlib, sys, tempfile, time
import pyarrow as pa
import bench_backfill, bench_collector
from bench_running import Running

def live(part, folder):
    found = [bench_collector.chain(folder / part) for _ in range(3)]
    return {"s": min(1 / each["tx_per_cpu_s"] for each in found)}

def whole(_, folder):
    found = bench_collector.whole_collector(folder / "whole")
    sizes = {name: each["parquet"] for name, each in found["bytes_per_row"].items()}
    return {"s": 1 / found["tx_per_cpu_s"], **sizes}

def quiet(_, folder):
    node = bench_collector.Node(folder / "whole", bench_collector.NODE_CORE)
    os.sched_setaffinity(0, {bench_collector.OUR_CORE})
    with tempfile.TemporaryDirectory() as at:
        running = Running(node, pathlib.Path(at))
        node.send(200)
        time.sleep(3)
        begun_s = bench_collector.used_here_s()
        for _ in range(400):
            node.send(2)
            time.sleep(0.05)
        used_s = bench_collector.used_here_s() - begun_s
        running.finish()
    node.close()
    return {"s": used_s / 400}

def backfill(_, chain):
    pa.set_cpu_count(1)
    os.environ["GPUHASH_THREADS"] = "1"
    times = []
    for _ in range(3):
        begun_s = time.process_time()
        found = bench_backfill.measured(
            lambda dataset: bench_backfill.by_files(chain, dataset, bench_backfill.BlockSelection(), 1)
        )
        times.append(time.process_time() - begun_s)
    return {"s": min(times) / found["n_tx"], "transactions": found["transactions_bytes_per_tx"]}

if __name__ == "__main__":
    part, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    measure = {"whole": whole, "quiet": quiet, "backfill": backfill}.get(part, live)
    print(json.dumps(bench_collector.in_a_process(measure, part, folder, method="spawn")))
"""


def main() -> None:
    """Measure the pairs, print a line for each part, and write JSON."""
    options = parse()
    if "backfill" in options.parts:
        make_chain(options.chain, options.transactions, FULL_SIZE)
    traffic = options.chain if options.parts == ["backfill"] else prepare(options)
    facts: dict[str, Any] = {"other": str(options.other), "load_before": os.getloadavg(), "parts": {}}
    for part in options.parts:
        source = options.chain if part == "backfill" else traffic
        pairs = [pair(part, source, options.other, first=number % 2) for number in range(options.pairs)]
        facts["parts"][part] = summary(pairs)
        print(line(part, facts["parts"][part]), flush=True)
        options.out.write_text(json.dumps(facts, indent=2) + "\n")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS, help="which to measure; all")
    parser.add_argument("--transactions", type=int, default=50_000)
    parser.add_argument("--traffic", type=Path, default=TRAFFIC, help="folder of what the node sends")
    parser.add_argument("--chain", type=Path, default=HERE / ".cache" / "compare-chain")
    parser.add_argument("--out", type=Path, default=Path("bench-trees.json"))
    options = parser.parse_args()
    options.waiting = 200
    options.chain, options.traffic = options.chain.resolve(), options.traffic.resolve()
    return options


def pair(part: str, source: Path, other: Path, *, first: int) -> dict[str, dict[str, float]]:
    """Measure one part with both checkouts, one after the other; `first` says which one begins."""
    trees = [("here", HERE), ("other", other.resolve())]
    return {name: measured(part, source, tree) for name, tree in (trees[first], trees[1 - first])}


def measured(part: str, source: Path, tree: Path) -> dict[str, float]:
    """Return the processor seconds of a part per transaction, as `s`, and the bytes of a row by table."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "part.py"
        script.write_text(SCRIPT)
        said = run_in(tree, sys.executable, str(script), part, str(source))
    facts: dict[str, float] = json.loads(said.splitlines()[-1])
    return facts


def run_in(tree: Path, *command: str) -> str:
    """Run a command with the sources of a checkout; return its output, or raise with its errors."""
    paths = f"{tree}{os.pathsep}{tree / 'tests' / 'bench'}"
    cache = tree / ".cache" / "numba"  # of each checkout its own compiled functions
    environment = os.environ | {"PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(cache)}
    ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} in {tree} failed:\n{ended.stderr}")
    return ended.stdout


def summary(pairs: list[dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Return the ratios of the pairs with their median, and the medians of the sizes."""
    ratios = [each["here"]["s"] / each["other"]["s"] for each in pairs]
    names = pairs[0]["here"].keys() - {"s"}
    sizes = {
        tree: {name: statistics.median(each[tree][name] for each in pairs) for name in names}
        for tree in ("here", "other")
    }
    least = {tree: min(each[tree]["s"] for each in pairs) for tree in ("here", "other")}
    return {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "ratio_of_least": least["here"] / least["other"],
        "bytes_per_row": sizes,
    }


def line(part: str, facts: dict[str, Any]) -> str:
    """Write the line of a part."""
    sizes = "; ".join(
        f"{table} {facts['bytes_per_row']['other'][table]:.1f} -> {size:.1f} bytes a row"
        for table, size in facts["bytes_per_row"]["here"].items()
    )
    ratios = facts["ratios"]
    spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
    return f"{part:8}: {facts['ratio']:.3f} ({spread}), of the least {facts['ratio_of_least']:.3f} {sizes}"


if __name__ == "__main__":
    main()
