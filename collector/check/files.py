"""Checks of each file by itself: whole, of its contract, in its order, in its folder, with allowed values.

Every page of every file is read, a row group at a time; pages that were written with a checksum are compared
with it. A file that fails takes no part in the checks of tables.
"""

import datetime as dt
import operator
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.check.model import Outcome
from collector.dataset.footer import UNREADABLE, Chunk, read_footer, read_through
from collector.dataset.schema import HEIGHT_SPAN, TABLES, Table
from collector.dataset.writer import COMPRESSION, ROW_GROUP_ROWS, check_values
from collector.errors import DatasetError

RESTORE: Final = "restore it from a copy, or move it out of the dataset and fetch what was in it again"
REWRITE: Final = "move it out of the dataset and write its rows again with this software"
_FOLDER: Final = re.compile(r"date=(\d{4}-\d\d-\d\d)|height=(\d+)-(\d+)")


class FileChecks:
    """The outcomes of the checks of files, filled file by file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection
        self.readable = Outcome("files", "every file is whole and can be read")
        self.schema = Outcome("schema", "columns and metadata are the contract's")
        self.footers = Outcome("footers", "footers are true: readers leave rows out by them")
        self.sorted = Outcome("order", "files are sorted by the table's key")
        self.folders = Outcome("folders", "rows are in the folder of their day or heights")
        self.values = Outcome("values", "no null where none may be, no value outside its set")

    @property
    def outcomes(self) -> list[Outcome]:
        """All of them."""
        return [self.readable, self.schema, self.footers, self.sorted, self.folders, self.values]

    def look_at(self, table: Table, path: Path) -> bool:
        """Check a file; returns whether its rows can be used.

        FileNotFoundError when it has gone, PermissionError when we may not read it.
        """
        self.readable.n_rows += 1
        self.schema.n_rows += 1
        try:
            with pq.ParquetFile(path, page_checksum_verification=True) as file:
                wrong = _wrong_schema(table, file.schema_arrow)
                if wrong:
                    self.schema.breach(f"{path}: {wrong}", REWRITE)
                    return False
                self._look_into(table, path, file)
            read_through(self._connection, path)
        except FileNotFoundError:
            if not path.is_symlink():  # else it leads nowhere, and no compaction took it away
                raise
            self.readable.breach(f"{path} is a link to a file that is not there", RESTORE)
            return False
        except PermissionError:  # the file may be as it should: who checks is not who may
            raise
        except (*UNREADABLE, DatasetError, OverflowError) as error:  # a moment in no year of Python's
            self.readable.breach(f"{path}: {str(error).splitlines()[0]}", RESTORE)
            return False
        return True

    def _look_into(self, table: Table, path: Path, file: pq.ParquetFile) -> None:
        last: pa.Table | None = None
        is_sorted = is_placed = is_allowed = True
        footer = read_footer(self._connection, path)
        lie = other_form = ""
        n_rows = 0
        for group, rows in enumerate(_groups(table, file)):
            if not len(rows):
                continue
            chunks = [chunk for chunk in footer if chunk.group == group]
            lie = lie or _lie(chunks, rows)
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
    """Say what is wrong with a file's columns or metadata; nothing for an older form, which may lack some."""
    metadata = {key.decode(): value.decode() for key, value in (found.metadata or {}).items()}
    for key, value in (table.arrow.metadata or {}).items():
        if metadata.get(key.decode()) != value.decode():
            return f"{key.decode()} is {metadata.get(key.decode())!r}, must be {value.decode()!r}"
    known = set(table.arrow.names)
    strange = [name for name in found.names if name not in known]
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
    """Return the contract as a file gives it back: Parquet has no seconds, and names the items of lists."""
    sink = pa.BufferOutputStream()
    pq.write_table(table.arrow.empty_table(), sink)
    return pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema_arrow


def _groups(table: Table, file: pq.ParquetFile) -> Iterator[pa.Table]:
    """Read row group after row group, with nulls for the columns that an older file lacks."""
    for number in range(file.num_row_groups):
        rows = file.read_row_group(number)
        columns: list[Any] = [
            rows.column(field.name).cast(field.type)
            if field.name in rows.column_names
            else pa.nulls(len(rows), field.type)
            for field in table.arrow
        ]
        yield pa.Table.from_arrays(columns, schema=table.arrow)


def _lie(chunks: Sequence[Chunk], rows: pa.Table) -> str:
    """Say what a footer tells of a row group that is not so."""
    for chunk in chunks:
        if chunk.n_rows != len(rows):
            return f"its footer says {chunk.n_rows} rows, there are {len(rows)}"
        if chunk.column not in rows.column_names:  # what it says of a list is of its items
            continue
        values = rows.column(chunk.column)
        if chunk.n_values != len(rows):
            return f"its footer says {chunk.n_values} values of {chunk.column}, there are {len(rows)}"
        if chunk.n_null not in (None, values.null_count):
            return f"its footer says {chunk.n_null} nulls in {chunk.column}, there are {values.null_count}"
        if not _are_bounds(chunk, values):
            return f"the bounds of {chunk.column} in its footer are not those of its rows"
    return ""


def _are_bounds(chunk: Chunk, values: pa.ChunkedArray) -> bool:
    """Whether a footer's bounds are those of the values; long text or bytes may be cut in them, outwards."""
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
    """Return the value of a text of DuckDB's. ValueError when it is none of this type."""
    if pa.types.is_binary(of_type) or pa.types.is_fixed_size_binary(of_type):
        return pa.scalar(text.encode().decode("unicode_escape").encode("latin-1"), of_type).as_py()
    return pa.scalar(text).cast(of_type).as_py()


def _other_form(chunks: Sequence[Chunk]) -> str:
    """Say in what a row group is not as we write it."""
    for chunk in chunks:
        if chunk.n_rows > ROW_GROUP_ROWS:
            return f"{chunk.n_rows:,} rows in a row group, more than {ROW_GROUP_ROWS:,}"
        if chunk.compression != COMPRESSION.upper():
            return f"{chunk.column} is compressed by {chunk.compression}, not by {COMPRESSION.upper()}"
    return ""


def _is_sorted(keys: pa.Table) -> bool:
    """Whether a stable sort would move no row."""
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return bool(np.array_equal(order.to_numpy(), np.arange(len(keys))))


def _is_placed(table: Table, folder: str, rows: pa.Table) -> bool:
    match = _FOLDER.fullmatch(folder)
    if match is None:
        return False
    column = rows.column(table.day_column or "height")
    first, last = (pc.min(column).as_py(), pc.max(column).as_py())
    if table.day_column is not None:
        return match[1] is not None and {_day(first), _day(last)} == {match[1]}
    begin = first // HEIGHT_SPAN * HEIGHT_SPAN
    return folder == f"height={begin}-{begin + HEIGHT_SPAN - 1}" and last < begin + HEIGHT_SPAN


def _day(moment: dt.datetime) -> str:
    return moment.astimezone(dt.UTC).date().isoformat()


def check_files(by_table: dict[str, list[Path]], checks: FileChecks) -> dict[str, list[Path]]:
    """Check every file; returns those whose rows can be used. FileNotFoundError when one has gone."""
    return {
        name: [path for path in paths if checks.look_at(TABLES[name], path)]
        for name, paths in by_table.items()
    }
