"""The command `pool-collector check`."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table as Grid

from collector.check.model import BREACH, OK, Outcome
from collector.check.run import check
from collector.dataset.open import ChainOption, DatasetArgument, open_existing
from collector.log import printable


def check_dataset(
    dataset: DatasetArgument = Path("data/dataset"),
    chain: ChainOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Verify that a dataset keeps its contract, and say how to mend it. Exit 1 on a breach.

    Reads everything and changes nothing; a collector may be running.
    """
    opened = open_existing(dataset, chain)
    with Console(stderr=True).status("checking") as status:
        outcomes = check(opened, told=lambda what: status.update(f"checking {what}"))
    n_breached = sum(outcome.status == BREACH for outcome in outcomes)
    if as_json:
        print(
            json.dumps({"ok": not n_breached, "checks": [asdict(outcome) for outcome in outcomes]}, indent=1)
        )
    else:
        _print(outcomes)
        print(f"{n_breached} of {len(outcomes)} checks found a breach" if n_breached else "no breach")
    raise typer.Exit(1 if n_breached else 0)


def _print(outcomes: list[Outcome]) -> None:
    grid = Grid("check", "outcome", "looked at", "found", "what holds when it is ok", box=None)
    for outcome in outcomes:
        found = str(outcome.n_found) if outcome.n_found else ""
        grid.add_row(outcome.name, outcome.status, str(outcome.n_rows), found, outcome.title)
    Console().print(grid, markup=False, highlight=False)
    for outcome in outcomes:
        if outcome.status == OK:
            continue
        print(f"\n{outcome.name}: {outcome.status}, {outcome.n_found} in all")
        for finding in outcome.findings:
            print(f"  {printable(finding.what)}\n    mend: {printable(finding.mend)}")
