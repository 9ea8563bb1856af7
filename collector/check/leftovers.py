"""Find files that are no data: unfinished, foreign or damaged ones, and journals that nobody seals."""

import time
from pathlib import Path
from typing import Final

from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult
from collector.dataset.files import FOLDER_LOCK, is_lock_held, is_temporary
from collector.journal.segment import journal_folders
from collector.log import counted

YOUNG_S: Final = 3600.0  # a file that is being written is younger


def check_leftovers(view: DatasetView) -> CheckResult:
    """Find files in the dataset's folder that are no part of it; they are notes, because no row is wrong.

    Returns a CheckResult.
    """
    result = CheckResult("leftovers", "there are no unfinished, unsealed, damaged or foreign files")
    of_tables = {path for paths in view.files.by_table.values() for path in paths}
    of_tables.update(view.files.strange)  # the check `files` names them
    unsealed = view.files.journals.stems
    for path in sorted(view.dataset.folder.rglob("*")):
        result.n_rows += 1
        if path.is_dir() or path in of_tables or path.stem in unsealed:
            continue
        if is_temporary(path):
            if _age_s(path) > YOUNG_S:
                result.note(
                    f"{path} was never finished",
                    "the next `pool-collector compact` removes it: its rows are in the journal or elsewhere",
                )
        elif path.name.endswith(".parquet.damaged"):
            result.note(
                f"{path} was damaged on disk; its rows were in the journal and are written anew",
                "look at the disk and at `dataset.damaged` in the log; remove it when that is done",
            )
        elif not (path.parent == view.dataset.folder and path.name.endswith(".lock")) and _age_s(path) > 1:
            result.note(f"{path} is no file of the dataset", "move it out of the dataset")
    _journals(view, result)
    _compaction(view, result)
    return result


def _journals(view: DatasetView, result: CheckResult) -> None:
    running = view.files.journals.running
    for segment in view.files.journals.segments:
        result.n_rows += 1
        if segment.parent.name not in running:
            result.note(
                f"the journal {segment} is not sealed and no collector runs",
                f"`pool-collector run` with a node named {segment.parent.name} seals it",
            )
    for folder in journal_folders(view.dataset.root, view.dataset.chain):
        for path in sorted(folder.glob("*.ring")):
            if folder.name not in running:
                result.note(
                    f"{path} may hold messages that a killed collector had received",
                    f"`pool-collector run` with a node named {folder.name} takes them over",
                )
        for path in sorted(folder.glob("*.damaged")):
            result.note(
                f"{path} was damaged ({path.stat().st_size} bytes); what could be read of it is sealed",
                "look into the log for `journal.damaged`; remove it when you do not want to examine it",
            )


def _compaction(view: DatasetView, result: CheckResult) -> None:
    work = view.dataset.root / ".compaction" / view.dataset.chain
    left = [path for path in work.glob("*") if path.is_dir()]
    if left and not is_lock_held(work / FOLDER_LOCK):
        result.note(
            f"a killed compaction left {counted(len(left), 'folder')} in {work}",
            "the next `pool-collector compact` removes them",
        )


def _age_s(path: Path) -> float:
    """Return the seconds since a file was last written; 0 when it has gone."""
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
