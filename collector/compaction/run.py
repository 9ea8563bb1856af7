"""Compact a dataset, partition by partition, while it is written to and read.

The new folder is built out of every reader's sight, in `.compaction` beside the chains, and changes places
with the old one in a single step. Before that it may be lost at any moment, after that the old one may: what
lies in `.compaction` is never needed, and the next run removes it.

Two things keep rows whole. A file whose journal segment is still there is not merged: after a kill the
journal seals it once more, under the same name. And a folder changes places only while no file is being added
to it; what was added since the merge is linked into the new one first.
"""

import datetime as dt
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.compaction.merge import Merged, merge
from collector.compaction.swap import exchange, require_exchange
from collector.dataset import locks
from collector.dataset.atomic_write import make_folder, sync_folder
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset
from collector.dataset.query import query_engine
from collector.dataset.schema import HEIGHT_SPAN, TABLES, Table
from collector.errors import DatasetError
from collector.journal.present_blocks import remove_orphaned_transactions
from collector.journal.segment import unsealed_segments

WORK: Final = ".compaction"
# A reader that has opened the old folder, and not yet read the names in it, must not find it empty.
GRACE_S: Final = 1.0

_DAY = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_SPAN = re.compile(r"height=(\d+)-\d+")


class Outcome(NamedTuple):
    """What came of one partition."""

    partition: str  # <table>/<folder>
    n_files: int  # that were merged
    merged: Merged | None
    error: str = ""  # why it was left as it is


def compact(dataset: Dataset, *, today: dt.date) -> Iterator[Outcome]:
    """Merge the files of every day before `today` and of every closed span of heights; yields as it goes.

    A partition that cannot be merged is left as it is. Raises DatasetError when another compaction is
    running, or folders cannot change places in this file system.
    """
    work = dataset.root / WORK / dataset.chain
    with _alone(work):
        _sweep(work)
        require_exchange(work)
        retired: deque[tuple[float, Path]] = deque()
        with query_engine(work / "spill") as connection:
            for table in TABLES.values():
                for folder in closed_folders(dataset, table, today):
                    outcome = _compact_folder(dataset, table, folder, connection, work)
                    _remove(retired, GRACE_S)
                    if outcome is not None:
                        yield outcome[0]
                        retired += outcome[1]
        while retired:
            time.sleep(max(0.0, retired[0][0] + GRACE_S - time.monotonic()))
            _remove(retired, GRACE_S)


def closed_folders(dataset: Dataset, table: Table, today: dt.date) -> list[Path]:
    """Folders to which nothing is expected to come: past days, spans that are full or not the last."""
    pattern = _DAY if table.day_column is not None else _SPAN
    found = [
        (match[1], path)
        for path in (dataset.folder / table.name).glob("*")
        if (match := pattern.fullmatch(path.name)) and path.is_dir()
    ]
    if table.day_column is not None:
        return [path for day, path in sorted(found) if day < today.isoformat()]
    spans = [path for _, path in sorted(found, key=lambda each: int(each[0]))]
    return spans if spans and _is_full(spans[-1]) else spans[:-1]


def _is_full(span: Path) -> bool:
    """Whether a folder has rows of each of its heights."""
    heights: set[int] = set()
    try:
        for path in span.glob("*.parquet"):
            column = pq.ParquetFile(path).read(columns=["height"]).column(0)
            heights.update(pc.unique(column).to_pylist())
    except UNREADABLE:
        return False  # merging it would fail as well
    return len(heights) == HEIGHT_SPAN


def _compact_folder(
    dataset: Dataset, table: Table, folder: Path, connection: duckdb.DuckDBPyConnection, work: Path
) -> tuple[Outcome, list[tuple[float, Path]]] | None:
    """Merge the files of a folder; None when there is nothing to merge, else also the folder to remove."""
    partition = f"{table.name}/{folder.name}"
    token = secrets.token_hex(8)  # a name that no earlier file had: a reader may still look for that one
    staged = work / f"{table.name}-{folder.name}-{token}"
    # A backfill that is killed leaves transactions without their blocks, and finds them again by their name.
    is_of_heights = table.day_column is None
    n_files = 0
    try:
        if len(list(folder.glob("*.parquet"))) < 2:  # noqa: PLR2004 - one file is merged already
            return None
        with dataset.backfill_lock() if is_of_heights else nullcontext():
            if is_of_heights:
                remove_orphaned_transactions(dataset)
            sources = _sources(dataset, folder)
            n_files = len(sources)
            if n_files < 2:  # noqa: PLR2004 - the same
                return None
            _make_staged(staged, folder)
            merged = merge(connection, table, sources, staged / f"compact-{token}.parquet")
            _swap(dataset, folder, staged, sources)
    except DatasetError as error:
        shutil.rmtree(staged, ignore_errors=True)
        return Outcome(partition, n_files, None, str(error)), []
    except OSError as error:  # both folders are whole, and only the next run removes one
        return Outcome(partition, n_files, None, f"{folder}: {error.strerror or error}"), []
    return Outcome(partition, n_files, merged), [(time.monotonic(), staged)]


def _make_staged(staged: Path, folder: Path) -> None:
    try:
        staged.mkdir()
        shutil.copymode(folder, staged)
    except OSError as error:
        raise DatasetError(f"cannot make {staged}: {error.strerror or error}; free space or rights") from None


def _sources(dataset: Dataset, folder: Path) -> list[Path]:
    """List the files that no journal will seal again; them first: a segment is there before its files."""
    files = sorted(folder.glob("*.parquet"))
    unsealed = {segment.stem for segment in unsealed_segments(dataset.root, dataset.chain)}
    return [path for path in files if path.stem not in unsealed]


def _swap(dataset: Dataset, folder: Path, staged: Path, sources: list[Path]) -> None:
    """Put the new folder in the place of the old one, with every file of that which was not merged.

    DatasetError when nothing was changed; OSError when the disk may not have taken what was.
    """
    with dataset.replace_lock():
        try:
            present = set(folder.iterdir())
            gone = set(sources) - present
            if gone:
                raise DatasetError(f"{min(gone)} has gone while it was merged; nothing was changed")
            for path in present.difference(sources):
                if not _is_left_over(path):
                    os.link(path, staged / path.name)
            sync_folder(staged)
            exchange(staged, folder)
        except OSError as error:
            raise DatasetError(
                f"cannot put the merged {folder} in its place: {error.strerror or error}; nothing was changed"
            ) from None
        # On disk before the next file is added here, and before the old files go.
        sync_folder(folder.parent)
        sync_folder(staged.parent)


def _is_left_over(path: Path) -> bool:
    """Whether a file is what a killed writer had not finished; nobody is writing now."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def _remove(retired: deque[tuple[float, Path]], age_s: float) -> None:
    """Remove the old folders that no reader can be about to list any more."""
    while retired and time.monotonic() - retired[0][0] >= age_s:
        shutil.rmtree(retired.popleft()[1], ignore_errors=True)


@contextmanager
def _alone(work: Path) -> Iterator[None]:
    """Hold the folder of work. Raises DatasetError when another compaction does, or it cannot be made."""
    try:
        make_folder(work)
        handle = locks.take(
            work / locks.FOLDER_LOCK,
            f"another compaction of {work.parent.parent} is running; wait until it has ended",
        )
    except OSError as error:
        raise DatasetError(f"cannot use {work}: {error.strerror or error}; free space or rights") from None
    try:
        yield
    finally:
        os.close(handle)


def _sweep(work: Path) -> None:
    """Remove what a killed run left."""
    left = [path for path in work.iterdir() if path.is_dir()]
    if left:
        time.sleep(GRACE_S)
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
