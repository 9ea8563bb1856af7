"""Define the command `pool-collector check`."""

import json
from dataclasses import asdict
from typing import Annotated, Final

import typer

from collector.check.model import BREACH, OK, CheckResult
from collector.dataset.command_options import (
    ChainOption,
    ConfigOption,
    DatasetArgument,
    DatasetOption,
    chosen_dataset,
)
from collector.log import counted, printable

COLUMNS: Final = ("check", "result", "looked at", "found", "ok means")
LEFTOVERS: Final = "leftovers"  # the check that looks also at locks and folders


def check_dataset(
    dataset: DatasetArgument = None,
    dataset_option: DatasetOption = None,
    config: ConfigOption = None,
    chain: ChainOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else.")] = False,
) -> None:
    """Verify that a dataset keeps its contract, and say how to mend it. Exit 1 on a breach.

    Reads everything and changes nothing; a collector may be running.
    """
    from collector.dataset.open import open_to_read

    opened = open_to_read(
        chosen_dataset(dataset, dataset_option, config), chain
    )  # before large libraries load
    from rich.console import Console

    from collector.check.run import check

    with Console(stderr=True).status("checking") as status:
        results = check(opened, progress=lambda what: status.update(f"checking {printable(what)}"))
    n_breached = sum(result.status == BREACH for result in results)
    if as_json:
        print(json.dumps({"ok": not n_breached, "checks": [asdict(result) for result in results]}, indent=1))
    else:
        _print(results)
        print(_verdict(results, n_breached))
    raise typer.Exit(1 if n_breached else 0)


def _verdict(results: list[CheckResult], n_breached: int) -> str:
    """Return the last line: how many checks found a breach, and how many had nothing to look at."""
    if n_breached:
        verdict = f"{n_breached} of {counted(len(results), 'check')} found a breach"
    elif all(_had_nothing(result) for result in results if result.name != LEFTOVERS):
        return "no breach, because there was nothing to look at: the dataset holds no rows"
    else:
        verdict = "no breach"
    n_idle = sum(map(_had_nothing, results))
    return f"{verdict}; {counted(n_idle, 'check')} had nothing to look at" if n_idle else verdict


def _had_nothing(result: CheckResult) -> bool:
    return result.status == OK and not result.n_rows


def _print(results: list[CheckResult]) -> None:
    from rich.console import Console

    from collector.terminal import write_cells

    cells = []
    for result in results:
        found = str(result.n_found) if result.n_found else ""
        status = "no data" if _had_nothing(result) else result.status
        cells.append((result.name, status, str(result.n_rows), found, result.title))
    write_cells(COLUMNS, cells, Console(), folding=COLUMNS[-1:])
    for result in results:
        if result.status == OK:
            continue
        print(f"\n{result.name}: {result.status}, {result.n_found} in all")
        for finding in result.findings:
            print(f"  {printable(finding.what)}\n    mend: {printable(finding.mend)}")
