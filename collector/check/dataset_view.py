"""Show a dataset as it is at one moment: its files, and the rows that its journals still hold.

A collector may be running. While it seals a journal segment, some files of the segment are there and others
are not yet: all of them are left out, and the rows are read from the segment. In DuckDB each table is a view
under its own name; the view `all_<table>` adds the rows of the journals.
"""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import duckdb
import pyarrow as pa

from collector.check.journals import Journals, messages_table, read_journals
from collector.check.model import MAX_FINDINGS, CheckResult, Describe, Examples
from collector.dataset.footer import find_unreadable_file
from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import TABLES
from collector.errors import DatasetError
from collector.journal.segment import unsealed_segments

TRIES: Final = 5
T = TypeVar("T")


@dataclass
class DatasetFiles:
    """Lists the files of each table at one moment, and what the journals held at that moment."""

    by_table: dict[str, list[Path]]
    strange: list[Path]  # named like files, but pipes, devices or links to nothing
    journals: Journals


@dataclass
class DatasetView:
    """Gives SQL access to the files and journals of a dataset at one moment."""

    dataset: Dataset
    files: DatasetFiles
    readable: Mapping[str, Sequence[Path]]  # those of the files that can be read
    connection: duckdb.DuckDBPyConnection
    is_being_backfilled: bool  # a backfill or an import is writing

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a SQL query on the dataset and return its rows; the query must turn times into text."""
        return self.connection.execute(query).fetchall()

    def count(self, query: str) -> int:
        """Return how many rows a SQL query on the dataset finds."""
        return int(self.rows(f"SELECT count(*) FROM ({query})")[0][0])  # noqa: S608 - a query of ours

    def examples(self, query: str) -> Examples:
        """Return how many rows a SQL query on the dataset finds, and the first of them as examples."""
        found = self.rows(f"SELECT *, count(*) OVER () FROM ({query}) LIMIT {MAX_FINDINGS}")  # noqa: S608 - a query of ours
        return Examples(int(found[0][-1]), [row[:-1] for row in found]) if found else Examples(0, [])

    def result(self, name: str, title: str, looked_at: str, query: str, describe: Describe) -> CheckResult:
        """Run a check that is one query: each row that `query` finds is a breach, worded by `describe`.

        `looked_at` is a query for the rows that the check looks at; their number goes into the result.
        """
        result = CheckResult(name, title, self.count(looked_at))
        result.breaches(self.examples(query), describe)
        return result


def retry_while_files_move(dataset: Dataset, read: Callable[[], T]) -> T:
    """Call `read` while compaction waits, and again if a file has gone nevertheless; return its result.

    Raises DatasetError after `TRIES` such failures, or when this user may not read something.
    """
    for _ in range(TRIES):
        try:
            with dataset.read_lock():
                return read()
        except (FileNotFoundError, duckdb.IOException) as error:
            last = error
        except PermissionError as error:
            raise DatasetError(
                f"this user may not read all of {dataset.root}: {error}; be the user that collects, or of "
                "its group"
            ) from None
        except duckdb.OutOfMemoryException as error:
            raise DatasetError(
                f"there is not enough memory or disk space to read {dataset.folder}: "
                f"{str(error).splitlines()[0]}; give this process more"
            ) from None
        except duckdb.Error as error:
            raise _unreadable(dataset) or DatasetError(
                f"DuckDB cannot read {dataset.folder}: {str(error).splitlines()[0]}; where a file is "
                "damaged, `pool-collector check` names it"
            ) from None
    reason = str(last).splitlines()[0]
    raise _unreadable(dataset) or DatasetError(
        f"the files of {dataset.folder} change while they are read ({reason}); try it again later"
    )


def _unreadable(dataset: Dataset) -> DatasetError | None:
    """Return an error for the first file of a dataset that cannot be read; None if all can."""
    return find_unreadable_file(path for table in TABLES.values() for path in dataset.paths(table))


def list_files(dataset: Dataset) -> DatasetFiles:
    """List the files of every table, without those of journal segments that are not wholly sealed.

    Raises PermissionError for a folder that this user may not read: its rows would seem to be missing.
    """
    for folder in (dataset.folder, *dataset.folder.glob("*"), *dataset.folder.glob("*/*")):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    for _ in range(TRIES):
        journals = read_journals(dataset.root, dataset.chain)
        listed = {name: dataset.paths(table) for name, table in TABLES.items()}
        later = {segment.stem for segment in unsealed_segments(dataset.root, dataset.chain)}
        if journals.stems == later:
            break
    unsealed = journals.stems | later
    kept = {name: [path for path in paths if path.stem not in unsealed] for name, paths in listed.items()}
    strange = [path for table in TABLES.values() for path in dataset.strange_paths(table)]
    return DatasetFiles(kept, strange, journals)


def open_dataset_view(
    dataset: Dataset,
    files: DatasetFiles,
    readable: Mapping[str, Sequence[Path]],
    connection: duckdb.DuckDBPyConnection,
    copied_bytes: int = 0,
) -> DatasetView:
    """Make views in DuckDB for each table, without and with the rows that the journals hold.

    `readable` has the files of each table that can be read. A table whose files have at most `copied_bytes`
    is copied for those who query it often: each query on a view opens all of its files.
    """
    journals = files.journals
    for name, table in TABLES.items():
        n_bytes = sum(path.stat().st_size for path in readable[name])
        kind = "TABLE" if 0 < n_bytes <= copied_bytes else "VIEW"
        connection.execute(
            f"CREATE OR REPLACE TEMP {kind} {name} AS FROM {contract_rows(table, readable[name])}"
        )
        batches = list(journals.rows.get(name, []))
        if name == "coverage" and journals.coverage:
            batches.append(pa.RecordBatch.from_pylist(journals.coverage, schema=table.arrow))
        if not batches:  # every query on a union is planned for both of its sides
            connection.execute(f"CREATE OR REPLACE TEMP VIEW all_{name} AS FROM {name}")
            continue
        journalled = pa.Table.from_batches(
            [_conformed(table.arrow, batch) for batch in batches], schema=table.arrow.remove_metadata()
        )
        connection.register("journalled", journalled)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE journal_{name} AS FROM journalled")
        connection.unregister("journalled")
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW all_{name} AS FROM {name} UNION ALL BY NAME FROM journal_{name}"
        )
    connection.register("journalled", messages_table(journals.messages))
    connection.execute("CREATE OR REPLACE TEMP TABLE journal_messages AS FROM journalled")
    connection.unregister("journalled")
    return DatasetView(dataset, files, readable, connection, dataset.is_being_backfilled)


def _conformed(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a batch of a journal with all columns of the contract, in its order; missing ones are null.

    An older version of this software may have written the batch.
    """
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.remove_metadata())
