"""Measure what a build costs after a change: a new day, nothing at all, and a changed pool rule.

    python -m tests.bench.bench_builds [--blocks N ... | --days N ...] [--entering N] [--memory GB] [--once]
                                       [--threads N] [--out FILE] [--smoke]

A planted world is built without its last whole day, which then comes. (Its very last day is not whole, and
is left out.) Each build runs in a process of its own with
one thread of DuckDB, and its processor time counts, also that of its start. What is told is its part of the
time of a full build of the same days, and the most memory of the process. With more threads, which a quiet
machine needs, the time that passes is told as well. A changed rule makes the blocks of
one pool unknown. With several lengths the exponent of the full build over its length is told: the slope
of a least-squares line on logarithmic scales. --entering makes worlds of fewer transactions per block. With
--once the build without the last day stands for the full one, which a year makes long. With --smoke a small
world gives a few marts only, so that the figures say nothing.
"""

import argparse
import json
import multiprocessing
import shutil
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from analysis import engine
from gpuhash.measure import machine
from tests.analysis.days import PlantedDays
from tests.analysis.test_late import changed_rules
from tests.bench.bench_analysis import ROOT, say
from tests.bench.planted_world import Size

SMOKE: Final = Size(n_blocks=330, entering=6, taken=4)
SMOKE_MARTS: Final = ("block_order", "pool_share")  # one of ranges and a late column, one made as a whole
MEMORY_GB: Final = 8.0
N_NAMED: Final = 12
BLOCKS_PER_DAY: Final = 144


def main() -> None:
    """Measure, write JSON."""
    options = parse()
    with tempfile.TemporaryDirectory(dir=options.work) as work:
        facts: dict[str, Any] = {
            "machine": asdict(machine.describe()),
            "entering": options.entering,
            "memory_gb": options.memory,
            "builds": {},
        }
        sizes = [
            Size(n_blocks=blocks, entering=options.entering, taken=options.entering * 4 // 5)
            for blocks in options.blocks or [days * BLOCKS_PER_DAY for days in options.days]
        ]
        for size in [SMOKE] if options.smoke else sizes:
            folder = Path(work, str(size.n_blocks))
            marts = SMOKE_MARTS if options.smoke else None
            facts["builds"][size.n_blocks] = told(measured(folder, size, options, marts), size)
            shutil.rmtree(folder)
            options.out.write_text(json.dumps(facts, indent=2) + "\n")
    if len(facts["builds"]) > 1:
        times = [builds["full"]["processor_s"] for builds in facts["builds"].values()]
        facts["exponent"] = slope = float(np.polyfit(np.log(list(facts["builds"])), np.log(times), 1)[0])
        say(f"time of a full build over its length: exponent {slope:.2f}")
    options.out.write_text(json.dumps(facts, indent=2) + "\n")
    say(f"written: {options.out}")


def told(builds: dict[str, dict[str, Any]], size: Size) -> dict[str, dict[str, Any]]:
    """Print what the builds of one length cost, and add each cost as a part of a full build."""
    full_s = builds["full"]["processor_s"]
    for name, build in builds.items():
        build["part_of_full"] = build["processor_s"] / full_s
        say(
            f"{size.n_blocks:,} blocks, {name}: {build['processor_s']:.1f} s of a processor,"
            f" {build['part_of_full']:.3f} of a full build, {build['n_made']} marts made,"
            f" {build['peak_gb']:.2f} GB" + (f", in {build['wall_s']:.1f} s" if build["threads"] > 1 else "")
        )
    return builds


def measured(
    work: Path, size: Size, options: argparse.Namespace, marts: Sequence[str] | None
) -> dict[str, dict[str, Any]]:
    """Return the costs of each kind of build, by name; with `marts`, of builds of these alone.

    With the option `once` the build without the last day is also the full one.
    """
    built = partial(in_a_process, memory_gb=options.memory, threads=options.threads, marts=marts)
    world = PlantedDays(work, size)
    *before, new, _ = world.days
    dataset, database = work / "dataset", work / "a.duckdb"
    world.add(dataset, before)
    found = {"without the last day": built(dataset, world.pools, database)}
    world.add(dataset, [new])
    found["a new day"] = built(dataset, world.pools, database)
    found["repeated"] = built(dataset, world.pools, database)
    found["a changed rule"] = built(dataset, changed_rules(world.pools, work / "changed"), database)
    found["full"] = (
        found["without the last day"] if options.once else built(dataset, world.pools, work / "full.duckdb")
    )
    return found


def in_a_process(
    dataset: Path, rules: Path, database: Path, *, memory_gb: float, threads: int, marts: Sequence[str] | None
) -> dict[str, Any]:
    """Build in another process, and return what it cost, with the start of the process."""
    begun_s = time.monotonic()
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        found = pool.submit(_build, dataset, rules, database, memory_gb, threads, marts).result()
        return found | {"wall_s": time.monotonic() - begun_s}


def _build(  # noqa: PLR0917 - handed to another process
    dataset: Path,
    rules: Path,
    database: Path,
    memory_gb: float,
    threads: int,
    marts: Sequence[str] | None,
) -> dict[str, Any]:
    steps: list[tuple[str, float]] = []
    result = engine.build(
        dataset,
        rules,
        database,
        marts=marts,
        memory_gb=memory_gb,
        threads=threads,
        progress=lambda step: steps.append((step.name, time.process_time())),
    )
    processor_s = time.process_time()
    marks = [*steps, ("end", processor_s)]
    spent = {name: end_s - at_s for (name, at_s), (_, end_s) in pairwise(marks)}
    largest = sorted(spent.items(), key=lambda item: -item[1])[:N_NAMED]
    return {
        "processor_s": processor_s,
        "threads": threads,
        "n_made": len(result.made),
        "peak_gb": peak_gb(),
        "largest_s": dict(largest) if threads == 1 else {},  # several marts share the time
    }


def peak_gb() -> float:
    """Return the most memory (10^9 bytes) that this process had in RAM.

    Linux tells it. The ru_maxrss of a new process is not less than that of its parent, which made the world.
    """
    with Path("/proc/self/status").open(encoding="ascii") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--blocks", type=int, nargs="+", help=f"blocks. Default: {BLOCKS_PER_DAY * 7}")
    length.add_argument("--days", type=int, nargs="+", default=[7], help="days of 144 blocks")
    parser.add_argument("--once", action="store_true", help="make no full build beside the one before")
    parser.add_argument("--entering", type=int, default=2500, help="transactions that enter per block")
    parser.add_argument("--memory", type=float, default=MEMORY_GB, help="GB of a build. Default: %(default)s")
    parser.add_argument(
        "--threads", type=int, default=1, help="of DuckDB; marts at once. Default: %(default)s"
    )
    parser.add_argument("--work", type=Path, default=None, help="folder for the world. Default: temporary")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-builds.json", help="where the JSON goes")
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    main()
