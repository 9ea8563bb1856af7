"""Check each file by itself: that it is whole and has the contract's columns, order, folder and values.

Every page of every file is read, a row group at a time, and compared with its checksum where it has one. The
checks of tables leave out a file that cannot be read.
"""

import datetime as dt
import operator
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.check.dataset_view import DatasetFiles
from collector.check.model import CheckResult
from collector.dataset.footer import UNREADABLE, ColumnChunk, read_footer, read_through
from collector.dataset.open import what_it_is
from collector.dataset.parquet_files import COMPRESSION, ROW_GROUP_ROWS, check_values, span_folders
from collector.dataset.schema import TABLES, Table
from collector.errors import DatasetError
from collector.log import counted

RESTORE: Final = "restore it from a copy, or move it out of the dataset and fetch what was in it again"
MOVE: Final = "move it out of the dataset"
REWRITE: Final = "move it out of the dataset and write its rows again with this software"
_DAY_FOLDER: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)")


class FileChecks:
    """Checks Parquet files of the dataset, and collects the faults in six results, one per rule."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.readable = CheckResult("files", "every file is whole and can be read")
        self.schema = CheckResult("schema", "columns and metadata are the contract's")
        self.footers = CheckResult("footers", "footers, by which readers skip rows, agree with the rows")
        self.sorted = CheckResult("order", "files are sorted by the table's key")
        self.folders = CheckResult("folders", "rows are in the folder of their day or heights")
        self.values = CheckResult("values", "no null where none may be, no value outside its set")

    @property
    def results(self) -> list[CheckResult]:
        """Return the results of the six checks of files, in the order in which they are printed."""
        return [self.readable, self.schema, self.footers, self.sorted, self.folders, self.values]

    def check_file(self, table: Table, path: Path) -> bool:
        """Check the Parquet file at `path` and return whether its rows can be used.

        Add faults to the results.

        Raises FileNotFoundError when the file has gone, PermissionError when this user may not read it.
        """
        self.readable.n_rows += 1
        self.schema.n_rows += 1
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                n_rows, n_bytes = file.metadata.num_rows, path.stat().st_size
                if n_rows > n_bytes:  # each row of ours has a hash or a moment of its own
                    self.readable.breach(
                        f"{path}: more rows ({n_rows:,}) than bytes ({n_bytes:,}), so it is no file of ours",
                        MOVE,
                    )
                    return False
                wrong = _wrong_schema(table, file.schema_arrow)
                if wrong:
                    self.schema.breach(f"{path}: {wrong}", REWRITE)
                    return False
                self._check_rows(table, path, file)
            read_through(self._connection, path)
        except (FileNotFoundError, PermissionError):  # no fault of the file
            raise
        except (*UNREADABLE, DatasetError, OverflowError) as error:  # a moment in no year of Python's
            self.readable.breach(f"{path}: {str(error).splitlines()[0]}", RESTORE)
            return False
        return True

    def _check_rows(self, table: Table, path: Path, file: pq.ParquetFile) -> None:
        last: pa.Table | None = None
        is_sorted = is_placed = is_allowed = True
        footer = read_footer(self._connection, path)
        lie = other_form = ""
        n_rows = 0
        for group, rows in enumerate(_groups(table, file)):
            if not len(rows):
                continue
            chunks = [chunk for chunk in footer if chunk.group == group]
            lie = lie or _false_statement(chunks, rows)
            other_form = other_form or _other_form(chunks)
            n_rows += len(rows)
            self.sorted.n_rows += len(rows)
            self.folders.n_rows += len(rows)
            self.values.n_rows += len(rows)
            keys = rows.select(list(table.sort))
            is_sorted = is_sorted and _is_sorted(keys if last is None else pa.concat_tables([last, keys]))
            last = keys.slice(len(keys) - 1)
            is_placed = is_placed and _is_placed(table, path.parent.name, rows)
            if is_allowed:
                try:
                    check_values(table, rows)
                except DatasetError as error:
                    is_allowed = False
                    self.values.breach(f"{path}: {error}", REWRITE)
        self.footers.n_rows += n_rows
        if n_rows != file.metadata.num_rows:
            lie = f"its footer says {file.metadata.num_rows} rows in all, there are {n_rows}"
        if lie:
            self.footers.breach(f"{path}: {lie}", REWRITE)
        elif other_form:
            self.footers.note(f"{path}: {other_form}", "nothing to do: it is larger or slower to read")
        if not is_sorted:
            self.sorted.breach(f"{path} is not sorted by {', '.join(table.sort)}", REWRITE)
        if not is_placed:
            self.folders.breach(f"{path} has rows of another folder than {path.parent.name}", REWRITE)


def _wrong_schema(table: Table, found: pa.Schema) -> str:
    """Return a text on what is wrong with a file's columns or metadata; an empty text if nothing is.

    An older file may lack nullable columns.
    """
    metadata = {key.decode(): value.decode() for key, value in (found.metadata or {}).items()}
    for key, value in (table.arrow.metadata or {}).items():
        if metadata.get(key.decode()) != value.decode():
            return f"{key.decode()} is {metadata.get(key.decode())!r}, must be {value.decode()!r}"
    expected_names = set(table.arrow.names)
    strange = [name for name in found.names if name not in expected_names]
    if strange:
        return f"column {strange[0]} is none of {table.name}: a later version wrote it; use that one"
    for column in table.columns:
        if column.name not in found.names:
            if not column.nullable:
                return f"column {column.name} is missing"
            continue
        field = found.field(column.name)
        expected = _stored_schema(table).field(column.name).type
        if field.type != expected:
            return f"column {column.name} is {field.type}, must be {expected}"
        if field.nullable and not column.nullable:
            return f"column {column.name} may be null in it, and must not"
    order = [name for name in table.arrow.names if name in found.names]
    return "" if order == found.names else "its columns are in another order"


@cache
def _stored_schema(table: Table) -> pa.Schema:
    """Return the schema of `table` as pyarrow reads it back from a Parquet file.

    Parquet changes two things: times in seconds become milliseconds, and the items of lists get a name.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(table.arrow.empty_table(), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema_arrow


def _groups(table: Table, file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Yield the rows of each row group of a file as a table; columns that an older file lacks are null."""
    for number in range(file.num_row_groups):
        rows = file.read_row_group(number)
        columns: list[Any] = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in table.arrow
        ]
        yield pa.Table.from_arrays(columns, schema=table.arrow)


def _false_statement(chunks: Sequence[ColumnChunk], rows: pa.Table) -> str:
    """Return a text on where a file's footer (`chunks`) and the rows of a row group contradict each other.

    The text is empty when they agree.
    """
    for chunk in chunks:
        if chunk.n_rows != len(rows):
            return f"its footer says {counted(chunk.n_rows, 'row')}, its data have {len(rows):,}"
        if chunk.column not in rows.column_names:  # for a list the footer describes the items
            continue
        values = rows.column(chunk.column)
        for noun, said, found in (
            ("value", chunk.n_values, len(rows)),
            ("null", chunk.n_null, values.null_count),
        ):
            if said not in (None, found):
                return f"its footer says {counted(said, noun)} of {chunk.column}, its data have {found:,}"
        if not _are_bounds(chunk, values):
            return f"the bounds of {chunk.column} in its footer are not those of its rows"
    return ""


def _are_bounds(chunk: ColumnChunk, values: pa.ChunkedArray) -> bool:
    """Return whether the least and greatest value in a file's footer are those of a column's `values`.

    A footer may shorten long text or bytes.
    """
    is_cut = pa.types.is_string(values.type) or pa.types.is_binary(values.type)
    found = pc.min_max(values).as_py()
    for text, bound, beyond in (
        (chunk.least, found["min"], operator.lt),
        (chunk.greatest, found["max"], operator.gt),
    ):
        if text is None or bound is None:
            continue
        try:
            stated = _value(text, values.type)
        except ValueError:
            return False
        if stated != bound and not (is_cut and len(stated) < len(bound) and beyond(stated, bound)):
            return False
    return True


def _value(text: str, of_type: pa.DataType) -> Any:
    """Parse a value from `text`, as DuckDB writes it; raise ValueError if it is no value of `of_type`."""
    if pa.types.is_binary(of_type) or pa.types.is_fixed_size_binary(of_type):
        return pa.scalar(text.encode().decode("unicode_escape").encode("latin-1"), of_type).as_py()
    return pa.scalar(text).cast(of_type).as_py()


def _other_form(chunks: Sequence[ColumnChunk]) -> str:
    """Return a text on how a row group differs in size or compression from those that this software writes.

    The text is empty when it does not differ.
    """
    for chunk in chunks:
        if chunk.n_rows > ROW_GROUP_ROWS:
            return f"{chunk.n_rows:,} rows in a row group, more than {ROW_GROUP_ROWS:,}"
        if chunk.compression != COMPRESSION.upper():
            return f"{chunk.column} is compressed by {chunk.compression}, not by {COMPRESSION.upper()}"
    return ""


def _is_sorted(keys: pa.Table) -> bool:
    """Return whether the rows of sort keys are sorted: a stable sort would move none of them."""
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return bool(np.array_equal(order.to_numpy(), np.arange(len(keys))))


def _is_placed(table: Table, folder: str, rows: pa.Table) -> bool:
    column = rows.column(table.day_column or "height")
    first, last = (pc.min(column).as_py(), pc.max(column).as_py())
    if table.day_column is not None:
        match = _DAY_FOLDER.fullmatch(folder)
        return match is not None and {_day(first), _day(last)} == {match[1]}
    return folder in span_folders(first) and folder in span_folders(last)


def _day(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).date().isoformat()


def check_files(
    files: DatasetFiles, checks: FileChecks, progress: Callable[[str], None]
) -> dict[str, list[Path]]:
    """Check every listed file; return for each table the paths of the files whose rows can be used.

    `progress` gets a line before each file. Raises FileNotFoundError when a file has gone meanwhile.
    """
    for path in files.strange:
        checks.readable.n_rows += 1
        checks.readable.breach(f"{path} is {what_it_is(path)}", RESTORE)
    n_files = sum(map(len, files.by_table.values()))
    number = 0
    usable: dict[str, list[Path]] = {}
    for name, paths in files.by_table.items():
        usable[name] = []
        for path in paths:
            number += 1
            progress(f"file {number:,} of {n_files:,}: {path.name} of {name}")
            if checks.check_file(TABLES[name], path):
                usable[name].append(path)
    return usable
