"""Show each raw table of a dataset as a view in DuckDB, with the contract's columns and types.

A table without files is an empty relation, and a column that older files lack is null, so every query works
on every dataset. `collector.dataset` opens and reads the dataset; here its errors become those of the
analysis. What cannot be read is named in one sentence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from analysis.database import built_from
from analysis.errors import DatasetError
from collector.dataset import DatasetError as CollectorDatasetError
from collector.dataset.footer import UNREADABLE
from collector.dataset.open import Dataset, open_existing
from collector.dataset.query import contract_rows_matching, contract_types
from collector.dataset.schema import TABLES, Table


def open_dataset(root: Path, chain: str | None = None) -> Dataset:
    """Check that a folder is a dataset with something in it, and choose the chain to read.

    Raises DatasetError for a missing, foreign or empty folder, another version, an absent chain, and for
    several chains where none is named.
    """
    try:
        dataset = open_existing(root, chain)
    except CollectorDatasetError as error:
        raise DatasetError(str(error)) from None
    if not any(dataset.paths(table) for table in TABLES.values()):
        raise DatasetError(f"{root} has no data yet; let pool-collector run until it has sealed a file")
    return Dataset(root.resolve(), dataset.chain)


def create_views(connection: duckdb.DuckDBPyConnection, dataset: Dataset) -> None:
    """Make one view per table of the contract, with the contract's columns and types in its order.

    A view names its files by a pattern, so that it also finds those that compaction makes later. Raises
    DatasetError for a file that is not of its table, duckdb.Error for one that cannot be read.
    """
    _refuse_strange_paths(dataset)
    for table in TABLES.values():
        patterns = [dataset.pattern(table)] if dataset.paths(table) else []
        if patterns:
            _check_columns(connection, dataset, table)
        connection.execute(f"CREATE VIEW {table.name} AS FROM {contract_rows_matching(table, patterns)}")
        _check_types(connection, dataset, table)


@contextmanager
def raw_files_locked(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Keep compaction from moving the files that the views of a built database read.

    Marts need no lock: they are tables of the database.
    """
    dataset = built_from(connection)
    if dataset is None:
        yield
        return
    with dataset.read_lock():
        _refuse_strange_paths(dataset)  # the views would open them
        yield


def _refuse_strange_paths(dataset: Dataset) -> None:
    """Raise DatasetError for a pipe, or a link to nothing, that has the name of a file."""
    try:
        for table in TABLES.values():
            dataset.refuse_strange_paths(table)
    except CollectorDatasetError as error:
        raise DatasetError(str(error)) from None


def find_unreadable_file(dataset: Dataset) -> DatasetError | None:
    """Look for the file that DuckDB has failed on: read all of them, name the first that cannot be read."""
    for table in TABLES.values():
        for path in dataset.paths(table):
            try:
                with pq.ParquetFile(path) as parquet:
                    for _batch in parquet.iter_batches():
                        pass
            except UNREADABLE as error:
                reason = str(error).splitlines()[0]
                return DatasetError(
                    f"{path} cannot be read ({reason}); restore it or move it out of the dataset"
                )
    return None


def _check_columns(connection: duckdb.DuckDBPyConnection, dataset: Dataset, table: Table) -> None:
    """Refuse a file that lacks a column which is never null: it belongs to something else."""
    needed = [column.name for column in table.columns if not column.nullable]
    rows = connection.execute(
        "SELECT file_name, list(name) FROM parquet_schema(?) GROUP BY file_name ORDER BY file_name",
        [dataset.pattern(table)],
    ).fetchall()
    for file, names in rows:
        missing = [name for name in needed if name not in names]
        if missing:
            raise DatasetError(
                f"{file} has no column {missing[0]}, so it is no file of {table.name}; move it elsewhere"
            )


def _check_types(connection: duckdb.DuckDBPyConnection, dataset: Dataset, table: Table) -> None:
    """Refuse files whose types do not fit into the contract's, which would change those of the view."""
    expected = contract_types(table)
    if _types_of(connection, f"FROM {table.name}") == expected:
        return
    for path in dataset.paths(table):
        quoted = str(path).replace("'", "''")
        found = _types_of(connection, f"FROM read_parquet('{quoted}', hive_partitioning = false)")
        for name, type_ in expected.items():
            both = (
                f"SELECT CAST(NULL AS {type_}) AS x UNION ALL SELECT CAST(NULL AS {found.get(name, type_)})"
            )
            if _types_of(connection, both)["x"] != type_:
                raise DatasetError(
                    f"{path}: column {name} is {found[name]}, but {table.name} has {type_}; write it anew or "
                    "move it out of the dataset"
                )


def _types_of(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, str]:
    """Return the columns that a query gives, and DuckDB's names of their types."""
    return {name: type_ for name, type_, *_ in connection.execute(f"DESCRIBE {query}").fetchall()}
