"""Measure the build of all marts on worlds of planted truth: time, memory, growth, comparisons.

    python -m tests.bench.bench_analysis [--blocks N] [--cores N] [--memory GB] [--rounds N] [--out FILE]
        [--smoke]

The largest world has N blocks, with 2,500 transactions entering per block; the others a half and a quarter.
4,000 blocks are 10 million transactions in the mempool and 8 million confirmed. Worlds are made once, in
.cache/bench-analysis. Each build is a process of its own on so many cores, in which DuckDB may take as much
memory as it takes on a machine of 16 GB, or as --memory says. The most memory of the whole process is told,
and of each mart the most that is the process's own, looked at every 20 ms. Growth is fitted
through the three sizes, each at the best of its rounds. Then each mart is made again beside a bare scan of
the columns it reads, taking turns, and three of them beside pandas, on the smallest of the worlds. What is
known is written after every step. With --smoke one small world is built once and stands for all three, so
that the figures say nothing.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import sqlglot
from sqlglot import exp

from analysis.catalog import Model, load_catalog
from analysis.database import connect
from analysis.incremental import create_model
from analysis.query_facts import DIALECT
from gpuhash.measure import machine
from tests.bench import pandas_marts
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

ROOT: Final = Path(__file__).resolve().parents[2]
WORLDS: Final = ROOT / ".cache" / "bench-analysis"
PARTS: Final = (4, 2, 1)
SMOKE_BLOCKS: Final = 2
MAX_SCANS: Final = 30
MAX_EXPONENT: Final = 1.15
MAX_GB: Final = 16.0
# DuckDB takes at most four fifths of a machine's memory; the rest is for Python's part.
DUCKDB_GB: Final = 0.8 * MAX_GB
MIN_PANDAS: Final = 10.0
# Below this a mart's time is that of planning its query, whatever it reads: more than 30 scans are no matter.
JUDGED_S: Final = 0.5
# A mart below this in the smallest world is told, but no exponent is fitted: fixed costs decide.
FITTED_S: Final = 0.2
# The whole and each mart, by three clocks. What the system takes to hand out memory is in the first two.
CLOCKS: Final = {
    "wall": ("wall_s", "seconds"),
    "processor": ("cpu_s", "cpu_seconds"),
    "user": ("user_s", "user_seconds"),
}
BUILD: Final = """
import json, os, resource, shutil, sys, threading, time
from pathlib import Path
folder, cores, memory_gb = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
from analysis import engine
def now(name):
    used = resource.getrusage(resource.RUSAGE_SELF)
    return name, time.perf_counter(), used.ru_utime + used.ru_stime, used.ru_utime
def in_status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e9
moments, private_gb = [now("")], {}
def watch():
    while True:
        own, name = in_status("RssAnon"), moments[-1][0] or "staging"
        private_gb[name] = max(private_gb.get(name, 0), own)
        time.sleep(0.02)
threading.Thread(target=watch, daemon=True).start()
def progress(step):
    moments.append(now(step.name))
shutil.rmtree(folder / "a.duckdb.marts", ignore_errors=True)
paths = folder / "dataset", folder / "pools", folder / "a.duckdb"
result = engine.build(*paths, memory_gb=memory_gb, progress=progress)
moments.append(now(""))
pairs = list(zip(moments, moments[1:]))
print(json.dumps({
    "wall_s": result.wall_s,
    "cpu_s": moments[-1][2],
    "user_s": moments[-1][3],
    "peak_gb": in_status("VmHWM"),
    "private_gb": private_gb,
    "failed": [check.name for check in result.checks if check.n_offending],
    **{
        clock: {begin[0] or "staging": end[i] - begin[i] for begin, end in pairs}
        for i, clock in enumerate(("seconds", "cpu_seconds", "user_seconds"), 1)
    },
}))
"""


def main() -> None:
    """Make the worlds, build, compare, write JSON."""
    options = parse()
    worlds = {part: world(SMOKE_BLOCKS if options.smoke else options.blocks // part) for part in PARTS}
    facts: dict[str, Any] = {
        "machine": asdict(machine.describe()),
        "system": platform.platform(),
        "cores": options.cores,
        "load_before": os.getloadavg(),
        "builds": {},
    }
    best = {}
    smoke = built(worlds[PARTS[-1]], options.cores, options.memory) if options.smoke else None
    for part, folder in worlds.items():
        runs = (
            [smoke]
            if smoke
            else [built(folder, options.cores, options.memory) for _ in range(options.rounds)]
        )
        best[part] = fastest(runs)
        facts["builds"][f"{options.blocks // part} blocks"] = runs
        say(
            f"{options.blocks // part:,} blocks: {best[part]['wall_s']:.1f} s, {best[part]['peak_gb']:.1f} GB"
        )
        write(options.out, facts)
    facts["exponents"] = {clock: exponents(best, *names) for clock, names in CLOCKS.items()}
    database = worlds[PARTS[0]] / "a.duckdb"
    facts["scans_measured_on_blocks"] = options.blocks // PARTS[0]
    facts["scans"] = against_scans(database, options.rounds)
    write(options.out, facts)
    facts["pandas"] = pandas_marts.compare(database)
    facts["judgements"] = judgements(best, facts["exponents"], facts["scans"], facts["pandas"])
    write(options.out, facts)
    for line, holds in facts["judgements"].items():
        say(f"{'holds' if holds else 'FAILS'}: {line}")
    say(f"written: {options.out}")


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--blocks", type=int, default=4000, help="blocks of the largest world")
    parser.add_argument("--cores", type=int, default=2, help="cores of a build")
    parser.add_argument("--memory", type=float, default=DUCKDB_GB, help="GB that DuckDB may take")
    parser.add_argument("--rounds", type=int, default=3, help="times that each thing is measured")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-analysis.json", help="where the JSON goes")
    parser.add_argument("--smoke", action="store_true", help="measure nothing worth knowing, in seconds")
    options = parser.parse_args()
    if options.smoke:
        options.rounds = 1
    return options


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, flush=True)


def write(path: Path, facts: dict[str, Any]) -> None:
    """Write the facts found so far as JSON."""
    path.write_text(json.dumps(facts, indent=2, default=str) + "\n")


def world(n_blocks: int) -> Path:
    """Return the folder of a world; make the world if it is missing."""
    folder = WORLDS / f"{n_blocks}"
    if not (folder / "truth.json").exists():
        begun_s = time.perf_counter()
        write_world(simulate(Size(n_blocks)), folder)
        say(f"a world of {n_blocks:,} blocks made in {time.perf_counter() - begun_s:.0f} s")
    return folder


def built(folder: Path, cores: int, memory_gb: float) -> dict[str, Any]:
    """Build every mart in a process of its own; return its times and its peak memory."""
    command = [sys.executable, "-c", BUILD, str(folder), str(cores), str(memory_gb)]
    answer = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    facts: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    assert not facts["failed"], facts["failed"]
    return facts


def fastest(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the least time of the whole and of each mart among rounds, and the most memory."""
    best: dict[str, Any] = {"peak_gb": max(run["peak_gb"] for run in runs)}
    for whole, each in CLOCKS.values():
        best[whole] = min(run[whole] for run in runs)
        best[each] = {mart: min(run[each][mart] for run in runs) for mart in runs[0][each]}
    return best


def exponents(best: dict[int, dict[str, Any]], whole: str, each: str) -> dict[str, float]:
    """Fit time = c * size^e by least squares of logarithms, for the build and each slow enough mart."""
    times = {"build": [best[part][whole] for part in PARTS]}
    for name, took in best[PARTS[0]][each].items():
        if took >= FITTED_S:
            times[name] = [best[part][each][name] for part in PARTS]
    log_size = -np.log(PARTS)
    return {name: float(np.polyfit(log_size, np.log(took), 1)[0]) for name, took in times.items()}


def against_scans(database: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Time every mart, made again in memory, beside a bare scan of the columns that it reads."""
    found = {}
    with connect() as connection:
        connection.execute(f"ATTACH '{database}' AS built (READ_ONLY)")
        connection.execute("USE built")
        # Without this a scan is answered from the statistics of the table.
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")
        for model in load_catalog().layer("marts"):
            if model.is_view:
                continue
            read = columns_read(connection, model)
            scan_s, mart_s = [], []
            for _ in range(rounds):
                scan_s.append(timed(lambda read=read: scan(connection, read)))
                mart_s.append(timed(lambda model=model: make(connection, model)))
            scan_median_s, mart_median_s = statistics.median(scan_s), statistics.median(mart_s)
            found[model.name] = {
                "reads": read,
                "scan_s": scan_median_s,
                "mart_s": mart_median_s,
                "scans": mart_median_s / scan_median_s,
                "reason": model.cost,
            }
    return found


def columns_read(connection: duckdb.DuckDBPyConnection, model: Model) -> dict[str, list[str]]:
    """Return the columns of other relations that a query names."""
    tree = sqlglot.parse_one(model.sql, dialect=DIALECT)
    named = {column.name for column in tree.find_all(exp.Column)}
    everything = any(True for _ in tree.find_all(exp.Star))
    found = {}
    for relation in sorted(model.references):
        columns = [row[0] for row in connection.execute(f"DESCRIBE {relation}").fetchall()]
        read = [name for name in columns if name in named]
        found[relation] = read or (columns if everything else columns[:1])
    return found


def scan(connection: duckdb.DuckDBPyConnection, read: dict[str, list[str]]) -> None:
    """Read every value of these columns once."""
    for relation, columns in read.items():
        every = ", ".join(f"max({column})" for column in columns)
        connection.sql(f"SELECT {every} FROM {relation}").to_arrow_table()  # noqa: S608 - names of our own files


def make(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Make one mart in memory, and forget it."""
    connection.execute("USE memory")
    connection.execute("SET search_path = 'memory,built'")
    create_model(connection, model)
    connection.execute(f"DROP TABLE memory.{model.name}")
    connection.execute("USE built")


def timed(action: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begun_s = time.perf_counter()
    action()
    return time.perf_counter() - begun_s


def judgements(
    best: dict[int, dict[str, Any]],
    growth: dict[str, dict[str, float]],
    scans: dict[str, dict[str, Any]],
    pandas: dict[str, dict[str, Any]],
) -> dict[str, bool]:
    """Return whether each promise holds."""
    slow = [
        name
        for name, one in scans.items()
        if one["scans"] > MAX_SCANS and one["mart_s"] >= JUDGED_S and not one["reason"]
    ]
    peak_gb = max(build["peak_gb"] for build in best.values())
    worst = min(pandas.values(), key=lambda one: one["ratio"])["ratio"]
    steep = {
        clock: [f"{name} {exponent:.2f}" for name, exponent in found.items() if exponent > MAX_EXPONENT]
        for clock, found in growth.items()
    }
    return {
        f"peak memory {peak_gb:.1f} GB, at most {MAX_GB:.0f}": peak_gb <= MAX_GB,
        **{
            f"growth {growth[clock]['build']:.2f} by {clock} time; above {MAX_EXPONENT}: "
            f"{', '.join(names) or 'none'}": not names
            for clock, names in steep.items()
        },
        f"above {MAX_SCANS} scans without a reason: {', '.join(slow) or 'none'}": not slow,
        f"pandas takes at least {worst:.0f} times as long, of {len(pandas)} marts": worst >= MIN_PANDAS,
    }


if __name__ == "__main__":
    main()
