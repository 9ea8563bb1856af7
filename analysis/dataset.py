"""Open a dataset of the collector for reading: find its chain, show each table of the contract as a view.

A table without files is an empty relation with the contract's types, and a column that older files lack is
null, so every query works on every dataset. What cannot be read is named in one sentence.
"""

import fcntl
import glob
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow.parquet as pq
from pyarrow import ArrowException

from analysis.errors import DatasetError
from collector.dataset.schema import DATASET_FORMAT, DATASET_MARKER, DATASET_VERSION, TABLES, Table

CHAIN_PREFIX: Final = "chain="
# As in collector.dataset.writer: whoever moves files of a chain holds this file of its folder alone.
WRITE_LOCK: Final = ".write.lock"


@dataclass(frozen=True)
class Source:
    """One chain of one dataset folder."""

    root: Path
    chain: str

    def pattern(self, table: Table) -> str:
        """Glob pattern of the files of one table, as DuckDB reads it."""
        return f"{glob.escape(str(self._folder(table)))}/**/*.parquet"

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keep compaction from moving files that were listed; files may be added meanwhile.

        Where the lock file is missing or may not be read, as in a copy, nothing is held.
        """
        try:
            handle = os.open(self._chain_folder / WRITE_LOCK, os.O_RDONLY)
        except OSError:
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def files(self, table: Table) -> Iterator[Path]:
        """Files of one table that are there now."""
        return self._folder(table).rglob("*.parquet")

    def _folder(self, table: Table) -> Path:
        return self._chain_folder / table.name

    @property
    def _chain_folder(self) -> Path:
        return self.root / f"{CHAIN_PREFIX}{self.chain}"


def open_dataset(root: Path, chain: str | None = None) -> Source:
    """Check that a folder is a dataset with something in it, and choose the chain to read.

    Raises DatasetError for a missing, foreign or empty folder, another version, an absent chain, and for
    several chains where none is named.
    """
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; name the dataset that pool-collector writes with --dataset")
    _check_marker(root / DATASET_MARKER)
    chains = sorted(
        folder.name.removeprefix(CHAIN_PREFIX)
        for folder in root.glob(f"{CHAIN_PREFIX}*")
        if next(folder.rglob("*.parquet"), None) is not None
    )
    if not chains:
        raise DatasetError(f"{root} has no data yet; let pool-collector run until it has sealed a file")
    if chain is None and len(chains) > 1:
        raise DatasetError(f"{root} has the chains {', '.join(chains)}; choose one with --chain")
    if chain is not None and chain not in chains:
        raise DatasetError(
            f"{root} has no chain {chain!r}, only {', '.join(chains)}; set --chain to one of these"
        )
    return Source(root=root.resolve(), chain=chain or chains[0])


def create_views(connection: duckdb.DuckDBPyConnection, source: Source) -> None:
    """Make one view per table of the contract, with the contract's columns and types in its order.

    Raises DatasetError for a file that is not of its table, duckdb.Error for one that cannot be read.
    """
    for table in TABLES.values():
        _check_columns(connection, source, table)
        connection.execute(_view(connection, source, table))
        _check_types(connection, source, table)


@contextmanager
def steady_files(connection: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Keep compaction from moving the files that the views of a built database read, as `Source.steady` does.

    Marts need no such thing: they are tables of the database.
    """
    facts = dict(connection.execute("SELECT key, value FROM run_manifest").fetchall())
    if "dataset" not in facts or "chain" not in facts:
        yield
        return
    with Source(root=Path(facts["dataset"]), chain=facts["chain"]).steady():
        yield


def unreadable(source: Source) -> DatasetError | None:
    """Look for the file that DuckDB has failed on: read all of them, name the first that cannot be read."""
    for table in TABLES.values():
        for file in sorted(source.files(table)):
            try:
                with pq.ParquetFile(file) as parquet:
                    for _batch in parquet.iter_batches():
                        pass
            except (OSError, ArrowException, UnicodeDecodeError) as error:
                reason = str(error).splitlines()[0]
                return DatasetError(
                    f"{file} cannot be read ({reason}); restore it or move it out of the dataset"
                )
    return None


def _check_marker(marker: Path) -> None:
    """Refuse a folder that is not a dataset of a version we can read."""
    try:
        content = json.loads(marker.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(
            f"{marker.parent} is not a dataset: it has no {marker.name}; name a folder of pool-collector"
        ) from None
    except (OSError, ValueError) as error:
        raise DatasetError(f"{marker} cannot be read ({error}); restore it from a copy") from None
    found = content if isinstance(content, dict) else {}
    if found.get("format") != DATASET_FORMAT:
        raise DatasetError(f"{marker.parent} is not a dataset of {DATASET_FORMAT}; name another folder")
    if found.get("version") != DATASET_VERSION:
        raise DatasetError(
            f"{marker.parent} is a dataset of version {found.get('version')!r}, this software reads"
            f" {DATASET_VERSION}; use the release that wrote it"
        )


def _check_columns(connection: duckdb.DuckDBPyConnection, source: Source, table: Table) -> None:
    """Refuse a file that lacks a column which is never null: it belongs to something else."""
    if next(source.files(table), None) is None:
        return
    needed = [column.name for column in table.columns if not column.nullable]
    rows = connection.execute(
        "SELECT file_name, list(name) FROM parquet_schema(?) GROUP BY file_name ORDER BY file_name",
        [source.pattern(table)],
    ).fetchall()
    for file, names in rows:
        missing = [name for name in needed if name not in names]
        if missing:
            raise DatasetError(
                f"{file} has no column {missing[0]}, so it is none of {table.name}; move it elsewhere"
            )


def _check_types(connection: duckdb.DuckDBPyConnection, source: Source, table: Table) -> None:
    """Refuse files whose types do not fit into the contract's, which would change those of the view."""
    expected = duckdb_types(connection, table)
    if _types_of(connection, f"FROM {table.name}") == dict(expected):
        return
    for file in sorted(source.files(table)):
        path = str(file).replace("'", "''")
        found = _types_of(connection, f"FROM read_parquet('{path}', hive_partitioning = false)")
        for name, type_ in expected:
            both = (
                f"SELECT CAST(NULL AS {type_}) AS x UNION ALL SELECT CAST(NULL AS {found.get(name, type_)})"
            )
            if _types_of(connection, both)["x"] != type_:
                raise DatasetError(
                    f"{file}: column {name} is {found[name]}, but {table.name} has {type_}; write it anew or "
                    "move it out of the dataset"
                )


def _types_of(connection: duckdb.DuckDBPyConnection, query: str) -> dict[str, str]:
    return {name: type_ for name, type_, *_ in connection.execute(f"DESCRIBE {query}").fetchall()}


def _view(connection: duckdb.DuckDBPyConnection, source: Source, table: Table) -> str:
    """Write the statement that makes one view; its columns are the contract's, whatever the files have."""
    columns = ", ".join(column.name for column in table.columns)
    empty = ", ".join(f"CAST(NULL AS {type_}) AS {name}" for name, type_ in duckdb_types(connection, table))
    select = f"SELECT {empty} WHERE false"
    if next(source.files(table), None) is not None:
        pattern = source.pattern(table).replace("'", "''")
        files = f"read_parquet('{pattern}', union_by_name = true, hive_partitioning = false)"
        select = f"SELECT {columns} FROM ({select} UNION ALL BY NAME SELECT * FROM {files})"  # noqa: S608 - names are the contract's, the path is quoted
    return f"CREATE VIEW {table.name} AS {select}"


def duckdb_types(connection: duckdb.DuckDBPyConnection, table: Table) -> list[tuple[str, str]]:
    """Give the columns of a table with the types that DuckDB reads them as."""
    connection.register("contract_table", table.arrow.empty_table())
    rows = connection.execute("DESCRIBE contract_table").fetchall()
    connection.unregister("contract_table")
    return [(name, type_) for name, type_, *_ in rows]
