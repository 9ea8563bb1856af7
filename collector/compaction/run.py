"""Compact a dataset, partition by partition, while a collector writes to it and others read it.

The small files of a partition become one file with the same rows. `collector.compaction.replacement` lets
readers see either the old files or the new one.
"""

import datetime as dt
import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.compaction.merge import Merged, merge
from collector.compaction.replacement import Replacements, open_replacements, sealed_files
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset
from collector.dataset.query import query_engine
from collector.dataset.schema import HEIGHT_SPAN, TABLES, Table
from collector.errors import DatasetError
from collector.journal.present_blocks import remove_orphaned_transactions

MIN_FILES: Final = 2  # one file is merged already

_DAY = re.compile(r"date=(\d{4}-\d\d-\d\d)")
_SPAN = re.compile(r"height=(\d+)-\d+")


class PartitionResult(NamedTuple):
    """Says what compaction did with one partition."""

    partition: str  # <table>/<folder>
    n_files: int  # that were merged
    merged: Merged | None
    error: str = ""  # why it was left as it is


def compact(dataset: Dataset, *, today: dt.date) -> Iterator[PartitionResult]:
    """Merge the files of every day before `today` and of every full span of heights; yield each result.

    A partition that cannot be merged is left as it is. Raises DatasetError when another compaction is
    running, or folders cannot change places in this file system.
    """
    with open_replacements(dataset) as replacements, query_engine(replacements.spill) as connection:
        for table in TABLES.values():
            for folder in closed_folders(dataset, table, today):
                result = _compact_folder(dataset, table, folder, connection, replacements)
                replacements.remove_retired()
                if result is not None:
                    yield result


def closed_folders(dataset: Dataset, table: Table, today: dt.date) -> list[Path]:
    """List the folders of `table` that should get no more rows.

    These are the days before `today`, or all spans of heights but the last one, and the last one too if it is
    full.
    """
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
    """Return whether the files in the folder of a span have rows of each of its heights."""
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
                remove_orphaned_transactions(dataset)
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
