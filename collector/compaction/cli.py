"""The command `pool-collector compact`."""

import datetime as dt
import json
from pathlib import Path
from typing import Annotated

import typer

from collector.compaction.run import Outcome, compact
from collector.dataset.open import ChainOption, DatasetArgument, open_existing


def compact_dataset(
    dataset: DatasetArgument = Path("data/dataset"),
    chain: ChainOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per partition, and nothing else.")
    ] = False,
) -> None:
    """Merge the small files of closed days and of full ranges of heights. Exit 1 when one could not be.

    Safe while a collector writes and others read. Every row stays, except copies that are alike throughout.
    """
    opened = open_existing(dataset, chain)
    n_merged = n_failed = 0
    for outcome in compact(opened, today=dt.datetime.now(dt.UTC).date()):
        print(_as_json(outcome) if as_json else _as_text(outcome), flush=True)
        n_failed += bool(outcome.error)
        n_merged += not outcome.error
    if not as_json:
        print(f"{n_merged} partitions merged, {n_failed} left as they are")
    raise typer.Exit(1 if n_failed else 0)


def _as_text(outcome: Outcome) -> str:
    if outcome.merged is None:
        return f"{outcome.partition}: left as it is: {outcome.error}"
    merged = outcome.merged
    text = (
        f"{outcome.partition}: {outcome.n_files} files are one, {merged.n_rows} rows, "
        f"{merged.bytes_before} bytes are {merged.bytes_after}"
    )
    if merged.n_removed:
        text += f"; {merged.n_removed} rows were there twice, alike, and are there once"
    if merged.n_differing:
        text += (
            f"; {merged.n_differing} are there twice and differ: all kept, `pool-collector check` names them"
        )
    return text


def _as_json(outcome: Outcome) -> str:
    merged = {} if outcome.merged is None else outcome.merged._asdict()
    return json.dumps(
        {"partition": outcome.partition, "n_files": outcome.n_files, **merged, "error": outcome.error or None}
    )
