"""Compact a dataset, partition by partition, while a collector writes to it and others read it.

The small files of a partition become one file with the same rows. `collector.compaction.replacement` lets
readers see either the old files or the new one.
"""

import datetime as dt
import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.compaction.file_merge import Merged, merge
from collector.compaction.replacement import Replacements, open_replacements, sealed_files
from collector.dataset.files import is_temporary, make_folder, sync_folder
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import SPAN_FOLDER, has_old_name, new_name
from collector.dataset.query import query_engine
from collector.dataset.schema import HEIGHT_SPAN, TABLES, Table
from collector.errors import DatasetError
from collector.journal.present_blocks import remove_orphaned_transactions

MIN_FILES: Final = 2  # one file is merged already

_DAY = re.compile(r"date=(\d{4}-\d\d-\d\d)")


class PartitionResult(NamedTuple):
    """Says what compaction did with one partition: files merged, folder renamed, or the error."""

    partition: str  # <table>/<folder>
    n_files: int  # that were merged
    merged: Merged | None
    error: str = ""  # why it was left as it is
    moved_to: str = ""  # the new name of a folder that had an old one


def compact(dataset: Dataset, *, today: dt.date) -> Iterator[PartitionResult]:
    """Merge the files of every day before `today` and of every full span of heights; yield each result.

    Before that, the files of folders with a name of an earlier version move to the folder with the present
    name. A partition that cannot be merged is left as it is. Raises DatasetError when another compaction is
    running, or folders cannot change places in this file system.
    """
    with open_replacements(dataset) as replacements, query_engine(replacements.spill) as connection:
        for table in TABLES.values():
            yield from _move_old_folders(dataset, table)
            for folder in closed_folders(dataset, table, today):
                result = _compact_folder(dataset, table, folder, connection, replacements)
                replacements.remove_retired()
                if result is not None:
                    yield result


def closed_folders(dataset: Dataset, table: Table, today: dt.date) -> list[Path]:
    """Return the folders of `table` that should get no more rows.

    These are the days before `today`, or all spans of heights but the last one, and the last one too if it is
    full.
    """
    pattern = _DAY if table.day_column is not None else SPAN_FOLDER
    found = [
        (match[1], path)
        for path in (dataset.folder / table.name).glob("*")
        if (match := pattern.fullmatch(path.name)) and path.is_dir()
    ]
    if table.day_column is not None:
        return [path for day, path in sorted(found) if day < today.isoformat()]
    spans = [path for _, path in sorted(found, key=lambda each: int(each[0]))]
    return spans if spans and _is_full(spans[-1]) else spans[:-1]


def _move_old_folders(dataset: Dataset, table: Table) -> Iterator[PartitionResult]:
    """Move the files of folders named by an earlier version to folders with the present name; yield results.

    Each file moves in one step while nobody reads or writes, so a kill leaves every file in one of the two
    folders, which readers both read. A folder that cannot be moved is left as it is.
    """
    for folder in sorted((dataset.folder / table.name).glob("*")):
        if table.day_column is not None or not has_old_name(folder) or not folder.is_dir():
            continue
        partition = f"{table.name}/{folder.name}"
        names = [path.name for path in folder.iterdir()]
        try:
            with dataset.backfill_lock(), dataset.replace_lock():
                _move_files(folder, new_name(folder))
        except DatasetError as error:
            yield PartitionResult(partition, len(names), None, str(error))
        except OSError as error:
            yield PartitionResult(partition, len(names), None, f"{folder}: {error.strerror or error}")
        else:
            yield PartitionResult(partition, len(names), None, moved_to=new_name(folder).name)


def _move_files(old: Path, new: Path) -> None:
    """Move every file of the folder `old` to `new`, and remove `old`; all is on disk afterwards.

    Raises DatasetError when `new` has a file of the same name.
    """
    make_folder(new)
    for path in old.iterdir():
        if is_temporary(path):  # a killed writer left it: nobody is writing now
            path.unlink()
        elif (new / path.name).exists():
            raise DatasetError(f"{new} has a file {path.name} too; move one of them out of the dataset")
        else:
            path.rename(new / path.name)
    sync_folder(new)
    old.rmdir()
    sync_folder(old.parent)


def _is_full(span: Path) -> bool:
    """Return whether the files in the folder of a span of heights have rows for every height of the span."""
    heights: set[int] = set()
    try:
        for path in span.glob("*.parquet"):
            if not path.is_file():
                return False
            column = pq.ParquetFile(path).read(columns=["height"]).column(0)
            heights.update(pc.unique(column).to_pylist())
    except UNREADABLE:
        return False  # merging it would fail as well
    return len(heights) == HEIGHT_SPAN


def _compact_folder(
    dataset: Dataset,
    table: Table,
    folder: Path,
    connection: duckdb.DuckDBPyConnection,
    replacements: Replacements,
) -> PartitionResult | None:
    """Merge the files of `folder` into one and return what was done; None when there is nothing to merge.

    A failure leaves the folder as it is and is described in the result.
    """
    partition = f"{table.name}/{folder.name}"
    is_of_heights = table.day_column is None
    n_files = 0
    try:
        if len(list(folder.glob("*.parquet"))) < MIN_FILES:
            return None
        # A killed backfill leaves transactions without their blocks, and finds them by their file name.
        with dataset.backfill_lock() if is_of_heights else nullcontext():
            if is_of_heights:
                _refuse_absent_blocks(folder, remove_orphaned_transactions(dataset, is_backfill=False))
            sources = sealed_files(dataset, folder)
            n_files = len(sources)
            if n_files < MIN_FILES:
                return None
            merged = replacements.replace(
                folder, sources, "compact", lambda target: merge(connection, table, sources, target)
            )
    except DatasetError as error:
        return PartitionResult(partition, n_files, None, str(error))
    except OSError as error:  # both folders are whole, and only the next run removes one
        return PartitionResult(partition, n_files, None, f"{folder}: {error.strerror or error}")
    return PartitionResult(partition, n_files, merged)


def _refuse_absent_blocks(folder: Path, of_absent_blocks: Iterable[Path]) -> None:
    """Raise DatasetError where the heights of `folder` have transactions of blocks that are not there."""
    here = [path for path in of_absent_blocks if path.parent.name == folder.name]
    if here:
        raise DatasetError(
            f"{here[0]} has transactions of blocks that are not there; mount the disk that has the blocks, or"
            " call `pool-collector backfill`, which completes or removes what a killed one left"
        )
