"""Show each raw table of a dataset as a view in DuckDB, with the contract's columns and types.

A table without files is an empty relation, and a column that older files lack is null, so every query works
on every dataset. `collector.dataset` opens and reads the dataset; this module turns its errors into those of
the analysis. One sentence names a file that cannot be read.
"""

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb

from analysis.database import built_from, named_dataset, names_in_queries
from analysis.errors import DatasetError, DatasetGoneError, NoSuchChainError
from collector.dataset import DatasetError as CollectorDatasetError
from collector.dataset.footer import find_unreadable_file
from collector.dataset.open import Dataset, open_to_read
from collector.dataset.query import contract_rows, contract_rows_matching, contract_types
from collector.dataset.schema import DATASET_MARKER, TABLES, Table
from collector.errors import NoSuchChain

# Files of a dataset by the name of their table; paths are relative to the dataset's folder of the chain.
Listing = Mapping[str, Sequence[str]]


def open_dataset(root: Path, chain: str | None = None) -> Dataset:
    """Check that a folder is a dataset with at least one table file, and return it with the chain to read.

    `root` may also be the address of a copy in an object store, as a path. Raises DatasetError for a folder
    that is missing, empty or no dataset, for another version of the format, and for several chains when
    `chain` is None; NoSuchChainError for a chain that the dataset lacks.
    """
    try:
        dataset = open_to_read(root, chain)
    except NoSuchChain as error:
        raise NoSuchChainError(str(error)) from None
    except CollectorDatasetError as error:
        raise DatasetError(str(error)) from None
    if not any(dataset.paths(table) for table in TABLES.values()):
        raise DatasetError(f"{root} has no data yet; let pool-collector run until it has sealed a file")
    return Dataset(dataset.root.resolve(), dataset.chain)


def listed_files(dataset: Dataset) -> Listing:
    """Return the complete files of every table of the contract, sorted by name.

    Raises DatasetError where files would pass for removed ones, as `Dataset.paths` does.
    """
    return {
        name: [path.relative_to(dataset.folder).as_posix() for path in dataset.paths(table)]
        for name, table in TABLES.items()
    }


def create_views(connection: duckdb.DuckDBPyConnection, dataset: Dataset, files: Listing) -> None:
    """Create one view per table of the contract, with the contract's columns and types in its order.

    A view has the rows of `files` alone, also when the collector seals another one meanwhile. Raises
    DatasetError for a file of another table or program, duckdb.Error for a file that cannot be read.
    """
    refuse_strange_paths(dataset)
    for name, table in TABLES.items():
        paths = [dataset.folder / file for file in files[name]]
        if paths:
            _check_columns(connection, table, paths)
        connection.execute(f"CREATE VIEW {name} AS FROM {contract_rows(table, paths)}")
        _check_types(connection, table, paths)


def find_later_files(connection: duckdb.DuckDBPyConnection, dataset: Dataset, files: Listing) -> None:
    """Let the views of the tables that have `files` name them by a pattern.

    They then find files that the collector seals, and those that compaction makes, later.
    """
    for name, table in TABLES.items():
        if files[name]:
            rows = contract_rows_matching(table, [dataset.pattern(table)])
            connection.execute(f"CREATE OR REPLACE VIEW {name} AS FROM {rows}")


@contextmanager
def raw_files_locked(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Hold the read lock of the dataset that a database was built from while the `with` block runs.

    Compaction then moves none of its files. Marts need no lock, because their rows are not in the dataset.
    If that dataset is gone, nothing is locked, and a query that needs a file of it ends with
    DatasetGoneError. Raises DatasetError for a pipe or a broken link.
    """
    dataset = built_from(connection)
    if dataset is None:
        with _absence_told(connection):
            yield
        return
    with dataset.read_lock():
        refuse_strange_paths(dataset)  # the views would open them
        yield


@contextmanager
def _absence_told(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Turn DuckDB's error on a file of the dataset, which is gone, into a DatasetGoneError."""
    try:
        yield
    except (duckdb.IOException, duckdb.PermissionException) as error:
        dataset = named_dataset(connection)
        if dataset is None or not any(name in str(error) for name in names_in_queries(dataset.folder)):
            raise
        raise DatasetGoneError(
            f"the dataset {dataset.root} is not there; put it back, or build again with --dataset"
        ) from None


def refuse_strange_paths(dataset: Dataset) -> None:
    """Raise DatasetError if a pipe or a broken link stands among the files of a raw table."""
    try:
        for table in TABLES.values():
            dataset.refuse_strange_paths(table)
    except CollectorDatasetError as error:
        raise DatasetError(str(error)) from None


def unreadable_file(dataset: Dataset) -> DatasetError | None:
    """Look for a file of a dataset that cannot be read; return a DatasetError that names the first one.

    The result is None if all files can be read.
    """
    found = find_unreadable_file(path for table in TABLES.values() for path in dataset.paths(table))
    return None if found is None else DatasetError(str(found))


@contextmanager
def unreadable_named(dataset: Dataset) -> Iterator[None]:
    """Turn an OSError on a file of the dataset in the `with` block into a DatasetError; let others pass.

    An error that names a second file passes too: it is one of writing a copy, such as a full disk.
    """
    try:
        yield
    except OSError as error:
        file = error.filename
        if not isinstance(file, str | Path) or error.filename2 is not None:
            raise
        marker = dataset.root / DATASET_MARKER  # other files beside it may be a database's
        if Path(file) != marker and not Path(file).is_relative_to(dataset.folder):
            raise
        reason = error.strerror or error
        raise DatasetError(f"{file} cannot be read ({reason}); make it readable, or put it back") from None


def _check_columns(connection: duckdb.DuckDBPyConnection, table: Table, paths: Sequence[Path]) -> None:
    """Raise DatasetError if a file of `table` lacks a column that is never null, so is something else."""
    needed = [column.name for column in table.columns if not column.nullable]
    rows = connection.execute(
        "SELECT file_name, list(name) FROM parquet_schema(?) GROUP BY file_name ORDER BY file_name",
        [[glob.escape(str(path)) for path in paths]],
    ).fetchall()
    for file, names in rows:
        missing = [name for name in needed if name not in names]
        if missing:
            raise DatasetError(
                f"{file} has no column {missing[0]}, so it is no file of {table.name}; move it elsewhere"
            )


def _check_types(connection: duckdb.DuckDBPyConnection, table: Table, paths: Sequence[Path]) -> None:
    """Raise DatasetError for a file with a column type that cannot be widened to the contract's type.

    Such a file would change the type of the view's column.
    """
    expected = contract_types(table)
    if _types_of(connection, f"FROM {table.name}") == expected:
        return
    for path in paths:
        quoted = glob.escape(str(path)).replace("'", "''")
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
    """Return the type, as DuckDB names it, of each column of a query's result, by the column's name."""
    return {name: type_ for name, type_, *_ in connection.execute(f"DESCRIBE {query}").fetchall()}
