"""Write rows as Parquet files that appear only when they are complete.

A file is written beside its place as `.<name>.tmp`, which no reader's `*.parquet` picks up, forced to disk,
renamed, and its folder forced to disk: a reader sees a whole file or none, also after SIGKILL or a power cut.
The name is chosen by the caller (`stem`): writing the same rows under the same stem again changes nothing.

Who writes a file holds the dataset's write lock together with others who do; compaction, which puts whole
folders in the place of others, holds it alone for that moment.

Folders are those of `collector.dataset.schema`. The name of a `height=<first>-<last>` folder looks like a
column to readers that know Hive partitioning and would hide the real `height` (DuckDB does so without a word,
pyarrow and pandas refuse), so readers must be told not to look: DuckDB `hive_partitioning = false`, pyarrow
and pandas `partitioning=None`.
"""

import fcntl
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import structlog

from collector.dataset.footer import UNREADABLE
from collector.dataset.schema import (
    CHAINS,
    DATASET_FORMAT,
    DATASET_MARKER,
    DATASET_VERSION,
    HEIGHT_SPAN,
    Table,
)
from collector.dataset.schema.model import HASH, Column
from collector.errors import NO_SPACE, DatasetError, NoSpace

# Few enough rows that statistics exclude most of a large file, enough that they compress well.
ROW_GROUP_ROWS: Final = 65_536
COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 3
FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750
WRITE_LOCK: Final = ".write.lock"

_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
log = structlog.get_logger(__name__)


class Dataset:
    """The tables of one chain in a dataset folder. Use `Dataset.open`."""

    def __init__(self, root: Path, chain: str) -> None:
        self.root = root
        self.chain = chain
        self.folder = root / f"chain={chain}"

    @classmethod
    def open(cls, root: Path, chain: str, *, create: bool = False) -> Self:
        """Open the dataset at root; with create, make one of a folder that is missing or empty.

        Raises DatasetError when root is no dataset of ours, is one of another version, or cannot be made.
        """
        if chain not in CHAINS:
            raise DatasetError(f"no chain {chain!r}; the node's names are {', '.join(CHAINS)}")
        marker = root / DATASET_MARKER
        if create:
            _create(root)
        try:
            found = json.loads(marker.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise DatasetError(
                f"{root} is not a dataset: it has no {DATASET_MARKER}; choose another folder"
            ) from None
        except (ValueError, RecursionError):
            raise DatasetError(
                f"{marker} is not the marker of a dataset of ours; choose another folder"
            ) from None
        except OSError as error:
            raise DatasetError(
                f"cannot read {marker}: {error.strerror or error}; check its rights, or choose another folder"
            ) from None
        if not isinstance(found, dict) or found.get("format") != DATASET_FORMAT:
            raise DatasetError(f"{marker} marks the data of another program; choose another folder")
        if found.get("version") != DATASET_VERSION:
            raise DatasetError(
                f"{root} has version {found.get('version')!r}, this software reads {DATASET_VERSION}"
            )
        return cls(root, chain)

    def write(
        self,
        table: Table,
        rows: pa.Table | Sequence[Mapping[str, Any]],
        *,
        stem: str,
        is_sorted: bool = False,
    ) -> list[Path]:
        """Write rows into the table, one file `<stem>.parquet` per partition; returns their paths.

        A file of that name that is already there is complete, and is left as it is; one that cannot be read
        is damaged since, keeps the ending `.damaged`, and is written anew. Who says that the rows are sorted
        by `table.sort` saves sorting them. Raises DatasetError when a row does not fit the contract (then
        nothing is written) or the disk does not take the file, NoSpace when it is full.
        """
        if not _STEM.fullmatch(stem):
            raise DatasetError(f"{stem!r} cannot name a file: use letters, digits, dot, dash and underscore")
        content = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([to_batch(table, rows)])
        _refuse_unknown(table, content.column_names)
        content = _conform(table, content)
        written = []
        for partition, part in _partitions(table, content):
            path = self.folder / table.name / partition / f"{stem}.parquet"
            try:
                with self.write_lock():
                    if not _is_whole(path):
                        make_folder(path.parent)
                        _write_file(path, table, part, is_sorted=is_sorted)
            except OSError as error:
                raised = NoSpace if error.errno in NO_SPACE else DatasetError
                raise raised(
                    f"cannot write {path}: {error.strerror or error}; free space or rights"
                ) from None
            written.append(path)
        return written

    @contextmanager
    def write_lock(self, *, alone: bool = False) -> Iterator[None]:
        """Hold the right to add files; with `alone`, wait until nobody else has it, and keep all others out.

        OSError when the lock file cannot be made.
        """
        make_folder(self.folder)
        handle = os.open(self.folder / WRITE_LOCK, os.O_RDWR | os.O_CREAT, FILE_MODE)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)

    def paths(self, table: Table) -> list[Path]:
        """Every complete file of the table, in order of name."""
        return sorted((self.folder / table.name).glob("*/*.parquet"))

    def read(self, table: Table) -> pa.Table:
        """Read the whole table as the contract has it; columns that older files lack are null.

        Raises DatasetError naming the file that cannot be read. For tests and for small tables.
        """
        with self.steady():
            parts = [_conform(table, _read_file(path)) for path in self.paths(table)]
        return pa.concat_tables(parts) if parts else table.arrow.empty_table()

    def read_columns(self, table: Table, *names: str) -> Iterator[pa.Table]:
        """Read some columns that are never null, file by file.

        Raises DatasetError naming the file that cannot be read or is not one of this table.
        """
        with self.steady():
            for path in self.paths(table):
                rows = _read_file(path, names)
                for name in names:
                    expected = table.arrow.field(name).type
                    found = rows.schema.field(name).type if name in rows.column_names else None
                    if found != expected:
                        raise DatasetError(
                            f"{path} is none of {table.name}: column {name} is {found or 'missing'}, must be "
                            f"{expected}; move it out of the dataset"
                        )
                yield rows.select(names)

    @contextmanager
    def steady(self) -> Iterator[None]:
        """Keep compaction from moving files that were listed; without the lock file there is none to keep."""
        try:
            handle = os.open(self.folder / WRITE_LOCK, os.O_RDONLY)
        except (FileNotFoundError, PermissionError):
            yield
            return
        try:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield
        finally:
            os.close(handle)


def to_batch(table: Table, rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> pa.RecordBatch:
    """Make an Arrow batch of rows: one mapping each, by column name; or take one that was made elsewhere.

    A nullable column may be left out of a mapping. Times are datetimes, or integers in the column's own unit
    since 1970 UTC. Raises DatasetError for a missing or unknown column, a value of the wrong type, a null
    where the contract has none and a value outside a closed set.
    """
    if isinstance(rows, pa.RecordBatch):
        if rows.schema != table.arrow:
            raise DatasetError(f"a batch for {table.name} has other columns than the contract: {rows.schema}")
        check_values(table, rows)
        return rows
    given = set().union(*{tuple(row) for row in rows})  # a few kinds of rows, not each of them
    _refuse_unknown(table, given)
    arrays = []
    for column in table.columns:
        if column.nullable and column.name not in given:
            arrays.append(pa.nulls(len(rows), column.type))
            continue
        try:
            arrays.append(pa.array(_values(rows, column), column.type))
        except KeyError:
            raise DatasetError(f"a row of {table.name} has no {column.name}") from None
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise DatasetError(f"{table.name}.{column.name}: {error}") from None
    batch = pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
    check_values(table, batch)
    return batch


def _values(rows: Sequence[Mapping[str, Any]], column: Column) -> list[Any]:
    """Values of a column, None where a row leaves out what may be null; KeyError where it may not be."""
    try:
        return [row[column.name] for row in rows]
    except KeyError:
        if not column.nullable:
            raise
        return [row.get(column.name) for row in rows]


def _refuse_unknown(table: Table, names: Iterable[str]) -> None:
    unknown = set(names).difference(column.name for column in table.columns)
    if unknown:
        raise DatasetError(f"{table.name} has no column {', '.join(sorted(unknown))}")


def check_values(table: Table, rows: pa.Table | pa.RecordBatch) -> None:
    """Raise DatasetError for a null where the contract has none, or a value outside a closed set."""
    for column in table.columns:
        values = rows.column(column.name)
        if values.null_count and not column.nullable:
            raise DatasetError(f"{table.name}.{column.name} is null in a row, and must not be")
        if column.values:
            if pa.types.is_list(column.type):
                values = pc.list_flatten(values)
            strange = set(pc.unique(values).to_pylist()).difference(column.values, {None})
            if strange:
                raise DatasetError(
                    f"{table.name}.{column.name} is {', '.join(map(repr, sorted(strange)))}: "
                    f"not one of {', '.join(column.values)}"
                )


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, so that they survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _create(root: Path) -> None:
    """Make a dataset of a folder that is missing or empty; leave one that is there as it is."""
    marker = root / DATASET_MARKER
    text = json.dumps({"format": DATASET_FORMAT, "version": DATASET_VERSION}) + "\n"
    try:
        if marker.exists():
            return
        begun = f".{DATASET_MARKER}.tmp"  # a kill may have left it
        if root.is_dir() and any(path.name != begun for path in root.iterdir()):
            raise DatasetError(f"{root} is neither empty nor a dataset; choose another folder")
        make_folder(root)
        _place(marker, lambda sink: sink.write(text.encode()))
    except FileExistsError as error:
        raise DatasetError(f"{error.filename} is no folder; choose another for the dataset") from None
    except OSError as error:
        raise DatasetError(
            f"cannot make the dataset {root}: {error.strerror or error}; choose a folder that can be written"
        ) from None


def _conform(table: Table, rows: pa.Table) -> pa.Table:
    """Give rows the contract's columns, order, types and metadata."""
    schema = table.arrow
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            values = rows.column(field.name)
        else:
            values = pa.nulls(len(rows), field.type)
        try:
            columns.append(values if values.type == field.type else values.cast(field.type))
        except pa.ArrowException as error:
            raise DatasetError(f"{table.name}.{field.name}: {error}") from None
    conformed = pa.Table.from_arrays(columns, schema=schema)
    check_values(table, conformed)
    return conformed


def _partitions(table: Table, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by folder: UTC day, or span of heights."""
    if table.day_column is not None:
        keys = pc.cast(rows.column(table.day_column), pa.date32(), safe=False)
    else:
        keys = pc.divide(rows.column("height"), HEIGHT_SPAN)
    distinct = sorted(pc.unique(keys).to_pylist())
    for key in distinct:
        if table.day_column is not None:
            name = f"date={key.isoformat()}"
        else:
            name = f"height={key * HEIGHT_SPAN}-{(key + 1) * HEIGHT_SPAN - 1}"
        yield name, rows if len(distinct) == 1 else rows.filter(pc.equal(keys, key))


def _is_whole(path: Path) -> bool:
    """Whether a file is there with every page as it was written; one that is damaged is moved aside."""
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for _ in file.iter_batches():
                pass
    except FileNotFoundError:
        return False
    except UNREADABLE as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        log.warning("dataset.damaged", path=str(aside), reason=str(error).splitlines()[0])
        return False
    return True


def _write_file(path: Path, table: Table, rows: pa.Table, *, is_sorted: bool) -> None:
    content = rows if is_sorted else rows.sort_by([(name, "ascending") for name in table.sort])

    def write(sink: BinaryIO) -> None:
        pq.write_table(content, sink, row_group_size=ROW_GROUP_ROWS, **parquet_options(table))

    _place(path, write)


def parquet_options(table: Table) -> dict[str, Any]:
    """Return how the files of a table are written."""
    ascending = [(name, "ascending") for name in table.sort]
    return {
        "compression": COMPRESSION,
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": _dictionary_columns(table),
        "sorting_columns": pq.SortingColumn.from_ordering(table.arrow, ascending),
        "write_statistics": _pruning_columns(table),
        "write_page_checksum": True,
    }


def _place(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Let write fill a file that gets its name when it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        with os.fdopen(handle, "wb") as sink:
            write(sink)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _dictionary_columns(table: Table) -> list[str]:
    """Text repeats and is worth a dictionary; for hashes and numbers zstd alone is smaller and faster."""
    names = []
    for column in table.columns:
        if column.type == pa.string():
            names.append(column.name)
        elif column.type == pa.list_(pa.string()):
            names.append(f"{column.name}.list.element")
    return names


def _pruning_columns(table: Table) -> list[str]:
    """Hashes lie anywhere: their least and greatest value would let no reader leave a row group out."""
    return [column.name for column in table.columns if column.type != HASH]


def _read_file(path: Path, names: Sequence[str] | None = None) -> pa.Table:
    """Read a file, or those of these columns that it has."""
    try:
        with pq.ParquetFile(path) as file:
            return file.read(names and [name for name in names if name in file.schema_arrow.names])
    except PermissionError:
        raise DatasetError(f"cannot read {path}; give this user the right to") from None
    except UNREADABLE as error:
        reason = str(error).splitlines()[0]
        raise DatasetError(f"cannot read {path}: {reason}; move it away to go on without it") from None
