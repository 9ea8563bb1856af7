"""Run faults from the command line, as `make chaos` does, and write their report."""

import argparse
import json
import platform
import secrets
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import structlog

from collector.regtest import find_bitcoind
from tests.functional.chaos.catalogue import FAULTS
from tests.functional.chaos.registry import Fault, NotHereError
from tests.functional.chaos.table import markdown

ALONE = ("burst", "flood")
FAILED = ("fails", "broken")
MOST_SEED = 1_000_000  # short enough to type again


def play(fault: Fault, *, seed: int, scale: float | None, keep: Path | None) -> dict[str, Any]:
    """Play one fault and return its row of the report; files are kept in the folder `keep`, if given."""
    began_s = time.monotonic()
    scale = fault.usual_scale if scale is None else scale
    with tempfile.TemporaryDirectory(prefix=f"chaos-{fault.name}-") as temporary:
        folder = keep / fault.name if keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        row: dict[str, Any] = {"fault": fault.name, "sentence": fault.sentence, "scale": scale}
        try:
            verdict = fault.run(folder, seed=seed, scale=scale)
        except NotHereError as error:
            row |= {"outcome": "not played", "why": str(error)}
        except Exception as error:  # noqa: BLE001 - one fault that cannot be judged must not hide the others
            at = traceback.extract_tb(error.__traceback__)[-1]
            said = f"{type(error).__name__} in {Path(at.filename).name}, line {at.lineno}: {error}"
            row |= {"outcome": "broken", "faults": [said]}
        else:
            outcome = "fails" if verdict.faults else "holds"
            row |= {"outcome": outcome, "faults": verdict.faults, "figures": verdict.figures}
    return row | {"duration_s": round(time.monotonic() - began_s, 1)}


def play_all(
    names: list[str], *, jobs: int, seed: int, scale: float | None, keep: Path | None
) -> Iterator[dict[str, Any]]:
    """Play faults, `jobs` at a time, and yield their rows of the report.

    Faults that need the whole machine are played last, one at a time.
    """
    play_one = partial(play, seed=seed, scale=scale, keep=keep)
    together = [FAULTS[name] for name in names if jobs > 1 and name not in ALONE]
    with ProcessPoolExecutor(jobs, initializer=quiet) as workers:
        for done in as_completed([workers.submit(play_one, fault) for fault in together]):
            yield done.result()
    for name in names:
        if FAULTS[name] not in together:
            yield play_one(FAULTS[name])


def tell(row: dict[str, Any]) -> None:
    """Print one fault's row of the report: its name, its outcome and what was wrong."""
    print(f"{row['fault']}: {row['sentence']}")
    print(f"  {row['outcome']} after {row['duration_s']} s {json.dumps(row.get('figures', row.get('why')))}")
    for each in row.get("faults", []):
        print(f"    {each}")
    sys.stdout.flush()


def quiet() -> None:
    """Make structlog drop all messages below the level of errors."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))


def begin(seed: int, earlier: Path | None) -> dict[str, Any]:
    """Return the head of a report, with the rows of an earlier report of the same node, Python and seed."""
    report: dict[str, Any] = {
        "seed": seed,
        "node": find_bitcoind().version,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in ("pyarrow", "pyzmq")},
    }
    found = json.loads(earlier.read_text()) if earlier is not None and earlier.exists() else {}
    return report | {"faults": found["faults"] if found.items() >= report.items() else []}


def seed_of(word: str) -> int:
    """Return the seed for an argument of the command line; `random` gives a new number each time."""
    return secrets.randbelow(MOST_SEED) if word == "random" else int(word)


def command(arguments: argparse.Namespace) -> str:
    """Return the `make chaos` command that makes such a report; with RESUME, earlier runs made part of it."""
    words = ["make chaos", f"SEED={arguments.seed}", f"JOBS={arguments.jobs}"]
    words += [f"SCALE={arguments.scale:g}"] if arguments.scale is not None else []
    return " ".join([*words, *["RESUME=1"] * arguments.resume])


def main() -> None:
    """Play the named faults, or all; exit with status 1 when one fails or cannot be judged."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"{', '.join(FAULTS)}; all unless given")
    parser.add_argument(
        "--seed", type=seed_of, default=1, help="number that all inputs are drawn from, or `random`"
    )
    parser.add_argument(
        "--scale",
        type=float,
        help="stretches counts and times; 1 is in full",
    )
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--jobs", type=int, default=1, help="faults that are played at the same time")
    parser.add_argument("--resume", action="store_true", help="keep what holds in the report of --json")
    parser.add_argument(
        "--table", type=Path, help="where to write the table, when every fault is in the report"
    )
    parser.add_argument("--keep", type=Path, help="folder to keep datasets and logs in")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    quiet()
    unknown = set(arguments.faults) - set(FAULTS)
    if unknown:
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    report = begin(arguments.seed, arguments.json if arguments.resume else None)
    report["command"] = command(arguments)
    done = {row["fault"] for row in report["faults"] if row["outcome"] not in (*FAILED, "not played")}
    names = arguments.faults or [name for name in FAULTS if name not in done]
    shared = {"seed": arguments.seed, "scale": arguments.scale, "keep": arguments.keep}
    for row in play_all(names, jobs=arguments.jobs, **shared):
        tell(row)
        rows = {each["fault"]: each for each in [*report["faults"], row]}
        report["faults"] = [rows[each] for each in FAULTS if each in rows]
        if arguments.json:
            arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.table and len(report["faults"]) == len(FAULTS):
        arguments.table.write_text(markdown(report))
    played = [row for row in report["faults"] if row["fault"] in names]
    raise SystemExit(any(row["outcome"] in FAILED for row in played))
