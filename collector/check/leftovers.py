"""Names of what is not data: unfinished files, journals that nobody seals, damaged parts, strangers."""

import time
from pathlib import Path
from typing import Final

from collector.check.model import Outcome
from collector.check.view import View
from collector.dataset import locks
from collector.journal.segment import journal_folders

YOUNG_S: Final = 3600.0  # a file under way is not older


def check_leftovers(view: View) -> Outcome:
    """Look for files that are no part of the dataset. None is a breach: no row is wrong by them."""
    outcome = Outcome("leftovers", "nothing unfinished, unsealed, damaged or foreign lies about")
    known = {path for paths in view.files.by_table.values() for path in paths}
    unsealed = view.files.journals.stems
    for path in sorted(view.dataset.folder.rglob("*")):
        outcome.n_rows += 1
        if path.is_dir() or path in known or path.stem in unsealed:
            continue
        if path.name.startswith(".") and path.name.endswith(".tmp"):
            if _age_s(path) > YOUNG_S:
                outcome.note(
                    f"{path} was never finished", "remove it: its rows are in the journal or elsewhere"
                )
        elif path.name.endswith(".parquet.damaged"):
            outcome.note(
                f"{path} was damaged on disk; its rows were in the journal and are written anew",
                "look at the disk and at `dataset.damaged` in the log; remove it when that is done",
            )
        elif not (path.parent == view.dataset.folder and path.name.endswith(".lock")) and _age_s(path) > 1:
            outcome.note(f"{path} is none of the dataset's files", "move it out of the dataset")
    _journals(view, outcome)
    _compaction(view, outcome)
    return outcome


def _journals(view: View, outcome: Outcome) -> None:
    running = view.files.journals.running
    for segment in view.files.journals.segments:
        outcome.n_rows += 1
        if segment.parent.name not in running:
            outcome.note(
                f"the journal {segment} is not sealed and no collector runs",
                f"`pool-collector run` with a node named {segment.parent.name} seals it",
            )
    for folder in journal_folders(view.dataset.root, view.dataset.chain):
        for path in sorted(folder.glob("*.ring")):
            if folder.name not in running:
                outcome.note(
                    f"{path} may hold messages that a killed collector had received",
                    f"`pool-collector run` with a node named {folder.name} takes them over",
                )
        for path in sorted(folder.glob("*.damaged")):
            outcome.note(
                f"{path} was damaged ({path.stat().st_size} bytes); what could be read of it is sealed",
                "look into the log for `journal.damaged`; remove it when you do not want to examine it",
            )


def _compaction(view: View, outcome: Outcome) -> None:
    work = view.dataset.root / ".compaction" / view.dataset.chain
    left = [path for path in work.glob("*") if path.is_dir()]
    if left and not locks.is_held(work / locks.FOLDER_LOCK):
        outcome.note(
            f"a killed compaction left {len(left)} folders in {work}",
            "the next `pool-collector compact` removes them",
        )


def _age_s(path: Path) -> float:
    """Return how long a file has not been written to; 0 when it has gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
