"""The command line of the chaos runs: `make chaos`."""

import argparse
import json
import platform
import tempfile
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

import structlog

from collector.regtest import find_bitcoind
from tests.functional.chaos.catalogue import FAULTS
from tests.functional.chaos.registry import Fault, NotHereError
from tests.functional.chaos.table import COMMAND, markdown


def play(fault: Fault, *, seed: int, scale: float, keep: Path | None) -> dict[str, Any]:
    """Play one fault and return its row of the report."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"chaos-{fault.name}-") as temporary:
        folder = keep / fault.name if keep else Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        row: dict[str, Any] = {"fault": fault.name, "sentence": fault.sentence}
        try:
            verdict = fault.run(folder, seed=seed, scale=scale)
        except NotHereError as error:
            row |= {"outcome": "not played", "why": str(error)}
        except Exception as error:  # noqa: BLE001 - one fault that cannot be judged must not hide the others
            said = f"{type(error).__name__}: {error}"
            row |= {"outcome": "broken", "faults": [said], "trace": traceback.format_exc()}
        else:
            outcome = "fails" if verdict.faults else "holds"
            row |= {"outcome": outcome, "faults": verdict.faults, "figures": verdict.figures}
    return row | {"duration_s": round(time.monotonic() - began_s, 1)}


def play_all(names: list[str], *, seed: int, scale: float, keep: Path | None) -> dict[str, Any]:
    """Play faults one after the other, and say on the way what becomes of them."""
    rows = []
    for name in names:
        print(f"{name}: {FAULTS[name].sentence}", flush=True)
        row = play(FAULTS[name], seed=seed, scale=scale, keep=keep)
        rows.append(row)
        said = json.dumps(row.get("figures", row.get("why")))
        print(f"  {row['outcome']} after {row['duration_s']} s {said}")
        for each in row.get("faults", []):
            print(f"    {each}")
        if "trace" in row:
            print(row["trace"])
    return {
        "command": COMMAND if scale == 1 else f"{COMMAND} SCALE={scale:g}",
        "seed": seed,
        "scale": scale,
        "node": find_bitcoind().version,
        "python": platform.python_version(),
        "versions": {name: metadata.version(name) for name in ("pyarrow", "pyzmq")},
        "faults": rows,
    }


def main() -> None:
    """Play the faults that are named, or all; exit 1 when one does not hold."""
    parser = argparse.ArgumentParser(prog="chaos", description=__doc__)
    parser.add_argument("faults", nargs="*", metavar="FAULT", help=f"{', '.join(FAULTS)}; all unless given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="stretches counts and times; 1 is in full")
    parser.add_argument("--json", type=Path, help="where to write the report")
    parser.add_argument("--table", type=Path, help="where to write the table, when every fault was played")
    parser.add_argument("--keep", type=Path, help="folder to keep datasets and logs in")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    unknown = set(arguments.faults) - set(FAULTS)
    if unknown:
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(FAULTS)}")
    names = arguments.faults or list(FAULTS)
    report = play_all(names, seed=arguments.seed, scale=arguments.scale, keep=arguments.keep)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    if arguments.table and names == list(FAULTS):
        arguments.table.write_text(markdown(report))
    raise SystemExit(any(row["outcome"] in ("fails", "broken") for row in report["faults"]))
