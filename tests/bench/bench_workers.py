"""Replay measured times of parts on many simulated workers, and print how much of their time they work.

    python -m tests.bench.bench_workers [--blocks N] [--out FILE] [--smoke]

One build of a planted world, with one thread of DuckDB, tells what each part costs in processor time. The
schedules are computed (tests/bench/replay.py): no other machine takes part. A longer history is the measured
one, repeated: so many more ranges of the same costs, and as much more of what is made as a whole. With
--smoke a world of two blocks stands for the measured one, so that the figures say nothing.
"""

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gpuhash.measure import machine
from tests.bench.bench_analysis import ROOT, SMOKE_BLOCKS, say, world
from tests.bench.part_times import measure_parts
from tests.bench.replay import largest_whole, lengthened, nodes, replays

WORKERS: Final = (1, 2, 4, 16, 64, 256)
BLOCKS_PER_DAY: Final = 144
DAYS: Final = (28, 365, 3650)
MIN_EFFICIENCY: Final = 0.8
JUDGED_WORKERS: Final = 64
JUDGED_DAYS: Final = 365
MEMORY_GB: Final = 8.0


def main() -> None:
    """Measure, replay, write JSON."""
    options = parse()
    folder = world(SMOKE_BLOCKS if options.smoke else options.blocks)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        times = measure_parts(folder / "dataset", folder / "pools", Path(work, "a.duckdb"), MEMORY_GB)
    graph = nodes(times.parts)
    ranged_s = sum(sum(node.parts_s) for node in graph if node.is_ranged)
    facts: dict[str, Any] = {
        "machine": asdict(machine.describe()),
        "is_simulation": True,
        "blocks": options.blocks,
        "measured": asdict(times),
        "in_ranges_ratio": ranged_s / times.all_s,
        "made_whole_s": largest_whole(graph),
        "efficiency": {},
    }
    say(f"{times.all_s:.0f} s of a processor, {facts['in_ranges_ratio']:.0%} of them in parts of ranges")
    for days in DAYS:
        factor = days * BLOCKS_PER_DAY / options.blocks
        longer = [lengthened(node, factor) for node in graph]
        found = {n: replays(longer, times.alone_s * factor, times.beside_s * factor, n) for n in WORKERS}
        facts["efficiency"][days] = found
        for kind in found[WORKERS[0]]:
            shown = ", ".join(f"{n}: {one[kind]:.2f}" for n, one in found.items())
            say(f"{days:,} days, simulated efficiency, {kind}, by workers: {shown}")
    reached = facts["efficiency"][JUDGED_DAYS][JUDGED_WORKERS]
    facts["judgements"] = {
        f"simulated efficiency {ratio:.2f} ({kind}) of {JUDGED_WORKERS} workers over {JUDGED_DAYS} days,"
        f" at least {MIN_EFFICIENCY}": ratio >= MIN_EFFICIENCY
        for kind, ratio in reached.items()
    }
    for line, holds in facts["judgements"].items():
        say(f"{'holds' if holds else 'FAILS'}: {line}")
    options.out.write_text(json.dumps(facts, indent=2) + "\n")
    say(f"written: {options.out}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=1000, help="blocks of the measured world")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-workers.json", help="where the JSON goes")
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    return parser.parse_args()


if __name__ == "__main__":
    main()
