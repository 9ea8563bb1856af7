"""One moment of a dataset: the files that belong together, and the rows in the journals beside them.

A collector may be running. Of a journal segment that is being sealed some files are there and others not yet:
they are left out, all of them, and its rows count as journalled. In DuckDB each table is a view under its own
name; `<table>_known` has the journals' rows besides.
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
from collector.check.model import SHOWN, Found, Outcome, Tell
from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows
from collector.dataset.schema import TABLES
from collector.errors import DatasetError
from collector.journal.segment import unsealed_segments

TRIES: Final = 5
T = TypeVar("T")


@dataclass
class Files:
    """The files of each table at one moment, and what the journals held then."""

    by_table: dict[str, list[Path]]
    journals: Journals


@dataclass
class View:
    """Files and journals of one moment, and DuckDB over them."""

    dataset: Dataset
    files: Files
    sound: Mapping[str, Sequence[Path]]  # those of the files that can be read
    connection: duckdb.DuckDBPyConnection
    is_backfilling: bool  # a backfill or an import is writing

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query and return its rows; times must be made text in it."""
        return self.connection.execute(query).fetchall()

    def count(self, query: str) -> int:
        """Count the rows of a query."""
        return int(self.rows(f"SELECT count(*) FROM ({query})")[0][0])  # noqa: S608 - a query of ours

    def examples(self, query: str) -> Found:
        """Return how many rows a query has, and as many of them as are shown."""
        found = self.rows(f"SELECT *, count(*) OVER () FROM ({query}) LIMIT {SHOWN}")  # noqa: S608 - a query of ours
        return Found(int(found[0][-1]), [row[:-1] for row in found]) if found else Found(0, [])

    def outcome(self, name: str, title: str, looked_at: str, query: str, tell: Tell) -> Outcome:
        """Return what comes of a check that is one query: each of its rows is a breach."""
        outcome = Outcome(name, title, self.count(looked_at))
        outcome.breaches(self.examples(query), tell)
        return outcome


def retrying(dataset: Dataset, read: Callable[[], T]) -> T:
    """Read a dataset while compaction holds still, and once more when a file has gone all the same.

    Raises DatasetError when that goes on and on, or when something may not be read.
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
        except duckdb.Error as error:
            raise DatasetError(
                f"DuckDB cannot read {dataset.folder}: {str(error).splitlines()[0]}; where a file is "
                "damaged, `pool-collector check` names it"
            ) from None
    reason = str(last).splitlines()[0]
    raise DatasetError(
        f"the files of {dataset.folder} change while they are read ({reason}); try it again later"
    )


def take_files(dataset: Dataset) -> Files:
    """List the files of every table, less those of segments that are being sealed.

    Raises PermissionError for a folder that may not be read: without what is in it all else looks wrong.
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
    return Files(kept, journals)


def open_view(
    dataset: Dataset, files: Files, sound: Mapping[str, Sequence[Path]], connection: duckdb.DuckDBPyConnection
) -> View:
    """Make the views; `sound` are the files of each table that can be read."""
    journals = files.journals
    for name, table in TABLES.items():
        connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS FROM {contract_rows(table, sound[name])}")
        batches = list(journals.rows.get(name, []))
        if name == "coverage":
            batches.append(pa.RecordBatch.from_pylist(journals.coverage, schema=table.arrow))
        journalled = pa.Table.from_batches(
            [_conformed(table.arrow, batch) for batch in batches], schema=table.arrow.remove_metadata()
        )
        connection.register("journalled", journalled)
        connection.execute(f"CREATE OR REPLACE TEMP TABLE journal_{name} AS FROM journalled")
        connection.unregister("journalled")
        connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {name}_known AS FROM {name} UNION ALL BY NAME FROM journal_{name}"
        )
    connection.register("journalled", messages_table(journals.messages))
    connection.execute("CREATE OR REPLACE TEMP TABLE journal_messages AS FROM journalled")
    connection.unregister("journalled")
    return View(dataset, files, sound, connection, dataset.is_being_backfilled)


def _conformed(schema: pa.Schema, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Give a batch of a journal, maybe of an older version, the contract's columns."""
    arrays = [
        batch.column(field.name) if field.name in batch.schema.names else pa.nulls(len(batch), field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema.remove_metadata())
