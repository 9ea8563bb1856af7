"""Measure time and memory of `pool-collector check` over planted datasets of ever more rows.

    python -m tests.bench.bench_check [--rows N ...] [--keep FOLDER] [--out FILE] [--smoke]

Each dataset is a planted world (`planted_files`) of about N rows, with coverage that claims its messages, so
that every check has its full work. The made-up hashes and sums break the contract, and their findings are
part of that work. Told are seconds, and the most private memory (anonymous pages) that was seen.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow.parquet as pq

from collector.dataset.open import Dataset
from collector.dataset.schema import COVERAGE, TABLES
from gpuhash.measure import machine
from tests.bench.bench_analysis import ROOT, WORLDS, say
from tests.bench.planted_files import CHAIN, write_world
from tests.bench.planted_world import Size, simulate
from tests.functional.chaos.memory_use import memory_use

ROWS: Final = (10_000_000,)
SMOKE_ROWS: Final = (20_000,)
ROWS_PER_BLOCK: Final = 9_530  # of all tables, with 2,500 transactions that enter per block
SAMPLE_S: Final = 0.1


def main() -> None:
    """Make the datasets, check them, write JSON."""
    options = parse()
    WORLDS.mkdir(parents=True, exist_ok=True)
    measured = []
    for n_rows in options.rows:
        with tempfile.TemporaryDirectory(dir=WORLDS) as work:
            folder = (options.keep or Path(work)) / str(n_rows)
            if not (folder / "truth.json").exists():
                make(folder, n_rows)
            facts = measure(folder / "dataset")
        measured.append(facts)
        say(
            f"{facts['n_rows']:,} rows, {facts['n_bytes'] / 1e9:.1f} GB: {facts['check_s']:.0f} s, "
            f"{facts['most_private_bytes'] / 1e9:.2f} GB of private memory"
        )
    content = {"machine": asdict(machine.describe()), "measured": measured}
    options.out.write_text(json.dumps(content, indent=2) + "\n")
    say(f"written: {options.out}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, help="rows of each dataset, about")
    parser.add_argument("--keep", type=Path, help="folder in which the datasets stay, and are found again")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-check.json", help="where the JSON goes")
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    options = parser.parse_args()
    if options.smoke:
        options.rows = SMOKE_ROWS
    return options


def make(folder: Path, n_rows: int) -> None:
    """Write a world of about so many rows; let coverage claim the messages of its node."""
    dataset = Dataset.open(write_world(simulate(Size(max(2, n_rows // ROWS_PER_BLOCK))), folder), CHAIN)
    n_events = sum(pq.read_metadata(path).num_rows for path in dataset.paths(TABLES["mempool_events"]))
    rows = dataset.read(COVERAGE).to_pylist()
    for row in rows:
        if row["topic"] in {"sequence", "mempool"}:
            row |= {"first_sequence": 0, "last_sequence": n_events - 1, "n_messages": n_events}
    for path in dataset.paths(COVERAGE):
        path.unlink()
    dataset.write(COVERAGE, rows, stem="all")


def measure(dataset: Path) -> dict[str, Any]:
    """Check a dataset in a process of its own; return its size, the time, the memory and what was found."""
    files = list(dataset.glob("chain=*/*/*/*.parquet"))
    command = [sys.executable, "-P", "-m", "collector", "check", "--json", str(dataset)]
    private = [0]
    begun_s = time.monotonic()
    with tempfile.TemporaryFile() as output, subprocess.Popen(command, stdout=output) as process:
        while process.poll() is None:
            with suppress(KeyError, FileNotFoundError):  # it is about to end
                private.append(memory_use([process.pid]).private)
            time.sleep(SAMPLE_S)
        duration_s = time.monotonic() - begun_s
        output.seek(0)
        checks = json.loads(output.read())["checks"]
    return {
        "n_rows": sum(pq.read_metadata(path).num_rows for path in files),
        "n_files": len(files),
        "n_bytes": sum(path.stat().st_size for path in files),
        "check_s": duration_s,
        "most_private_bytes": int(np.max(private)),
        "looked_at": {each["name"]: each["n_rows"] for each in checks},
        "found": {each["name"]: each["n_found"] for each in checks if each["n_found"]},
    }


if __name__ == "__main__":
    main()
