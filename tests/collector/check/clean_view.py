"""Keep a dataset without a fault open in DuckDB, so that a test writes only the tables that it changes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from collector.check.dataset_view import DatasetView, list_files, open_dataset_view
from collector.check.files import FileChecks, check_files
from collector.check.model import CheckResult
from collector.check.run import CHECKS, SMALL_BYTES
from collector.dataset.open import Dataset
from collector.dataset.query import contract_rows, query_engine
from collector.dataset.schema import TABLES
from tests.collector.check.made_dataset import Rows, write


class CleanView:
    """Holds the view of a dataset without a fault, and gives views in which some rows are other ones."""

    def __init__(self, rows: Rows, dataset: Dataset, connection: duckdb.DuckDBPyConnection) -> None:
        files = list_files(dataset)
        self._rows = rows
        self._paths = files.by_table
        self._connection = connection
        open_dataset_view(dataset, files, files.by_table, connection, SMALL_BYTES)

    @contextmanager
    def changed(self, rows: Rows, folder: Path) -> Iterator[DatasetView]:
        """Give a view of these rows; the tables that differ from the clean ones are written below `folder`.

        The view lists only the files of those tables, and reads the other tables from the clean dataset.
        """
        names = [name for name in TABLES if rows.get(name, []) != self._rows.get(name, [])]
        dataset = write(folder, {name: rows[name] for name in names})
        files = list_files(dataset)
        readable = self._paths | {name: files.by_table[name] for name in names}
        self._connection.execute("BEGIN")
        try:
            for name in names:
                query = contract_rows(TABLES[name], readable[name])
                self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {name} AS FROM {query}")
            yield DatasetView(dataset, files, readable, self._connection, is_being_backfilled=False)
        finally:
            self._connection.execute("ROLLBACK")

    def check(self, rows: Rows, folder: Path) -> dict[str, CheckResult]:
        """Run every check on these rows and on the files of `changed`; return the results by name."""
        with self.changed(rows, folder) as view:
            by_file = FileChecks(self._connection)
            check_files(view.files, by_file, lambda _: None)
            return {result.name: result for result in (*by_file.results, *(each(view) for each in CHECKS))}


@contextmanager
def clean_view(rows: Rows, folder: Path) -> Iterator[CleanView]:
    """Write a dataset of these rows, which have no fault, below `folder`, and open it."""
    with query_engine(folder / "spill") as connection:
        yield CleanView(rows, write(folder / "clean", rows), connection)
