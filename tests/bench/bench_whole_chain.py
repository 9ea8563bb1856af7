"""Estimate what the whole chain would cost, from the measured costs of planted worlds that have only blocks.

    python -m tests.bench.bench_whole_chain [--blocks N] [--backfill RATE] [--out FILE] [--smoke]

Four worlds, of N and N/2 blocks with 2,000 and 500 transactions each, are built with one thread, without a
mempool, as after a backfill. Three sums of processor time are fitted by least squares without negative costs,
as `a + b * blocks + c * transactions`: parts of ranges, parts that are made as a whole, and the work of the
process that schedules. RATE is what one worker of a backfill does in a second, as bench_backfill.py tells it
in transactions. Then the time on P cores is

    transactions / (RATE * P) + ranges / P + whole + rest

because today one process makes what is made as a whole. Nothing here ran on the whole chain: it is reckoned.
With --smoke one small world stands for all four, so that the figures say nothing.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import nnls

from gpuhash.measure import machine
from tests.bench.bench_analysis import ROOT, WORLDS, say
from tests.bench.part_times import PartTimes, measure_parts, names_in_ranges
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

CHAIN_BLOCKS: Final = 900_000
CHAIN_TX: Final = 1_200_000_000
CORES: Final = (2, 16, 256)
DENSITIES: Final = (2000, 500)  # transactions per block
SMOKE_DENSITIES: Final = (60, 20)
MEMORY_GB: Final = 8.0
BYTES_PER_TX: Final = 85  # Parquet of a backfill, see collector/MEASURED.md
TABLES: Final = ("blocks", "transactions")


def main() -> None:
    """Measure, fit, estimate, write JSON."""
    options = parse()
    densities = SMOKE_DENSITIES if options.smoke else DENSITIES
    worlds = [(n, taken) for n in (options.blocks // 2, options.blocks) for taken in densities]
    measured: list[dict[str, Any]] = []
    for n_blocks, taken in worlds:
        facts = measured[0] if options.smoke and measured else measured_world(n_blocks, taken)
        measured.append(facts)
        say(f"{n_blocks:,} blocks, {facts['n_tx']:,} transactions: {facts['all_s']:.1f} s of a processor")
    fits = {kind: fitted(measured, kind) for kind in ("ranges_s", "whole_s", "rest_s", "n_bytes")}
    totals = {kind: reckoned(fit) for kind, fit in fits.items()}
    hours = {n: hours_on(totals, options.backfill, n) for n in CORES}
    facts = {
        "machine": asdict(machine.describe()),
        "is_reckoned": True,
        "measured": measured,
        "fits": fits,
        "whole_chain": totals | {"dataset_bytes": CHAIN_TX * BYTES_PER_TX},
        "hours": hours,
    }
    say(f"the whole chain, reckoned: {', '.join(f'{name} {total:,.0f}' for name, total in totals.items())}")
    for n_cores, parts in hours.items():
        say(f"{n_cores} cores: " + ", ".join(f"{name} {value:.2f} h" for name, value in parts.items()))
    options.out.write_text(json.dumps(facts, indent=2) + "\n")
    say(f"written: {options.out}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1000, help="blocks of the larger worlds")
    parser.add_argument(
        "--backfill", type=float, default=254_000, help="transactions per second of one worker of a backfill"
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "bench-whole-chain.json", help="where the JSON goes"
    )
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    options = parser.parse_args()
    if options.smoke:
        options.blocks = 8
    return options


def measured_world(n_blocks: int, taken: int) -> dict[str, Any]:
    """Build a world that has only blocks; return its numbers of rows and its costs."""
    world = simulate(Size(n_blocks, entering=taken * 5 // 4, taken=taken))
    WORLDS.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORLDS) as work:
        dataset = only_blocks(write_world(world, Path(work, "all")), Path(work, "dataset"))
        times = measure_parts(dataset, Path(work, "all", "pools"), Path(work, "a.duckdb"), MEMORY_GB)
    n_tx = sum(len(each) for each in world.blocks.taken) + n_blocks
    return {"n_blocks": n_blocks, "n_tx": n_tx, "all_s": times.all_s, **sums(times), "parts": times.parts}


def only_blocks(source: Path, target: Path) -> Path:
    """Move what a backfill would have written of a dataset to a new one."""
    for table in source.glob("chain=*/*"):
        if table.name in TABLES:
            (target / table.parent.name).mkdir(parents=True, exist_ok=True)
            table.rename(target / table.parent.name / table.name)
    for marker in source.glob("*.json"):
        shutil.copyfile(marker, target / marker.name)
    return target


def sums(times: PartTimes) -> dict[str, float]:
    """Return the seconds of ranges, of whole marts, files and large checks, and of everything else."""
    ranges_s = sum(sum(times.parts.get(name, [])) for name in names_in_ranges())
    return {
        "ranges_s": ranges_s,
        "whole_s": times.all_s - times.rest_s - ranges_s,
        "rest_s": times.rest_s,
        "n_bytes": float(times.n_bytes),
    }


def fitted(measured: list[dict[str, Any]], kind: str) -> dict[str, float]:
    """Fit `a + b * blocks + c * transactions`, none negative; `off` is the largest error as a ratio."""
    facts = np.array([[1.0, one["n_blocks"], one["n_tx"]] for one in measured])
    values = np.array([one[kind] for one in measured])
    found, _ = nnls(facts, values)
    off = np.max(np.abs(facts @ found - values) / values)
    return {"a": found[0], "b": found[1], "c": found[2], "off": float(off)}


def reckoned(fit: Mapping[str, float]) -> float:
    """Return the value of a fit for the whole chain."""
    return fit["a"] + fit["b"] * CHAIN_BLOCKS + fit["c"] * CHAIN_TX


def hours_on(totals: Mapping[str, float], backfill: float, n_cores: int) -> dict[str, float]:
    """Return the hours of backfill and build on so many cores."""
    serial_s = totals["whole_s"] + totals["rest_s"]
    hours = {
        "backfill": CHAIN_TX / (backfill * n_cores) / 3600,
        "build": (totals["ranges_s"] / n_cores + serial_s) / 3600,
    }
    return hours | {"in all": sum(hours.values())}


if __name__ == "__main__":
    main()
