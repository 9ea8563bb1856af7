"""Build with one and two processes beside the build, and replay measured times on many simulated workers.

    python -m tests.bench.bench_workers [--blocks N] [--out FILE] [--smoke]

Two builds of planted worlds, the second of a fifth of the blocks, with one thread of DuckDB each, tell what
each part, file and check costs in processor time. The schedules are computed (tests/bench/replay.py): no
other machine takes part. A longer history repeats the larger world. A mart in ranges gets more ranges of the
same cost. A mart made as a whole costs more in proportion, but a sample costs the same. The time of the
process that schedules is taken as a fixed time and a time per day, from both worlds.

Builds in this process with one thread, and with one and two others that work for it, are real. Their ratios
say something on a machine with two idle cores. With --smoke two marts of a few blocks are taken
for 28 days, so that the figures say nothing.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from analysis import engine
from analysis.processes import memory_of_each_gb, open_processes
from gpuhash.measure import machine
from tests.bench.bench_analysis import ROOT, SMOKE_BLOCKS, say, world
from tests.bench.bench_builds import SMOKE_MARTS
from tests.bench.part_times import PartTimes, measure_parts
from tests.bench.replay import (
    Build,
    largest_whole,
    lengthened,
    longer_checks,
    longer_files,
    nodes,
    parts_efficiency,
)

WORKERS: Final = (1, 2, 4, 16, 64, 256)
BLOCKS_PER_DAY: Final = 144
DAYS: Final = (28, 365)
MIN_EFFICIENCY: Final = 0.8
JUDGED_WORKERS: Final = 64
JUDGED_DAYS: Final = 365
SHORTER: Final = 5
REAL_WORKERS: Final = (0, 1, 2)
MIN_SPEEDUP: Final = 1.7
MAX_SLOWER: Final = 1.15
MEMORY_GB: Final = 8.0


def main() -> None:
    """Measure, replay, write JSON."""
    options = parse()
    n_blocks = SMOKE_BLOCKS * SHORTER if options.smoke else options.blocks
    n_days = DAYS[0] if options.smoke else n_blocks / BLOCKS_PER_DAY
    marts = SMOKE_MARTS if options.smoke else None
    shorter, times = measured(n_blocks // SHORTER, marts), measured(n_blocks, marts)
    graph = nodes(times.parts)
    built_s = {n: build_s(n_blocks, n, marts) for n in REAL_WORKERS}
    facts: dict[str, Any] = {
        "machine": asdict(machine.describe()),
        "is_simulation": True,
        "blocks": n_blocks,
        "measured": asdict(times),
        "shorter": {"alone_s": shorter.alone_s, "beside_s": shorter.beside_s},
        "made_whole_s": largest_whole(graph),
        "efficiency": {},
        "built_s": built_s,
        "judgements": ratios(built_s),
    }
    shown = ", ".join(f"{n or 'none'}: {one:.1f} s" for n, one in built_s.items())
    say(f"builds by the number of processes beside the one that schedules: {shown}")
    say(f"{times.all_s:.0f} s of a processor, {times.rest_s:.1f} s of them of the process that schedules")
    for days in DAYS:
        factor = days / n_days
        build = Build(
            [lengthened(node, factor) for node in graph],
            longer_files(times.files, factor),
            longer_checks(times.checks, factor),
            on_days(shorter.alone_s, times.alone_s, n_days, days),
            on_days(shorter.beside_s, times.beside_s, n_days, days),
        )
        found = {
            "the parts alone": {n: parts_efficiency(build.graph, n) for n in WORKERS},
            "the build": {n: build.efficiency(n) for n in WORKERS},
        }
        facts["efficiency"][days] = found
        facts[f"alone_and_beside_s of {days} days"] = [build.alone_s, build.beside_s]
        for kind, by_workers in found.items():
            shown = ", ".join(f"{n}: {one:.2f}" for n, one in by_workers.items())
            say(f"{days:,} days, simulated efficiency of {kind}, by workers: {shown}")
    facts["judgements"] |= {
        f"simulated efficiency {found[JUDGED_WORKERS]:.2f} of {kind} with {JUDGED_WORKERS} workers over"
        f" {JUDGED_DAYS} days, at least {MIN_EFFICIENCY}": found[JUDGED_WORKERS] >= MIN_EFFICIENCY
        for kind, found in facts["efficiency"][JUDGED_DAYS].items()
    }
    for line, holds in facts["judgements"].items():
        say(f"{'holds' if holds else 'FAILS'}: {line}")
    options.out.write_text(json.dumps(facts, indent=2) + "\n")
    say(f"written: {options.out}")


def build_s(n_blocks: int, n_workers: int, marts: Collection[str] | None) -> float:
    """Build a database with one thread and so many processes that work for it; return the seconds.

    With `marts`, these alone are built.
    """
    folder = world(n_blocks)
    with tempfile.TemporaryDirectory(dir=folder) as work, ExitStack() as stack:
        workers = stack.enter_context(open_processes(n_workers)) if n_workers else None
        begun_s = time.perf_counter()
        result = engine.build(
            folder / "dataset",
            folder / "pools",
            Path(work, "a.duckdb"),
            marts=marts,
            memory_gb=memory_of_each_gb(MEMORY_GB, n_workers),
            threads=1,
            workers=workers,
        )
        assert not result.failed_checks, result.failed_checks
        return time.perf_counter() - begun_s


def ratios(built_s: dict[int, float]) -> dict[str, bool]:
    """Return the judgements on real processes, each with whether it holds."""
    faster, slower = built_s[1] / built_s[2], built_s[1] / built_s[0]
    return {
        f"two processes are {faster:.2f} times as fast as one, at least {MIN_SPEEDUP}": faster >= MIN_SPEEDUP,
        f"one process takes {slower:.2f} of the time of none, at most {MAX_SLOWER}": slower <= MAX_SLOWER,
    }


def measured(n_blocks: int, marts: Collection[str] | None) -> PartTimes:
    """Build a planted world, and return what its pieces cost; with `marts`, those of these alone."""
    folder = world(n_blocks)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        database = Path(work, "a.duckdb")
        return measure_parts(folder / "dataset", folder / "pools", database, MEMORY_GB, marts)


def on_days(shorter_s: float, longer_s: float, n_days: float, days: float) -> float:
    """Return a time on `days` days, where it is `longer_s` on `n_days` and `shorter_s` on a fifth of them."""
    per_day_s = (longer_s - shorter_s) / (n_days - n_days / SHORTER)
    return longer_s + max(per_day_s, 0.0) * (days - n_days)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1000, help="blocks of the measured world")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-workers.json", help="where the JSON goes")
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    main()
