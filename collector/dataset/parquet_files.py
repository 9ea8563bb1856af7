"""Write rows of the contract as Parquet files, and read such files.

Rows are checked against their table, split by partition and sorted before they are written. A file appears
under its name only when it is complete (`collector.dataset.files`). The caller chooses the name (`stem`):
writing the same rows under the same stem again changes nothing.

A table's rows lie in folders, one for each UTC day (`date=…`) or for 1,000 heights (`heights=…`).
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.dataset.files import WRITE_LOCK, lock_held_for_writing, make_folder, write_atomically
from collector.dataset.footer import UNREADABLE
from collector.dataset.rows import Row
from collector.dataset.schema import HEIGHT_SPAN, Table
from collector.dataset.schema.model import HASH, Column
from collector.errors import NOT_WRITABLE, DatasetError, NotWritable, RowRefused

# Few enough rows that statistics exclude most of a large file, enough that they compress well.
ROW_GROUP_ROWS: Final = 65_536
COMPRESSION: Final = "zstd"
COMPRESSION_LEVEL: Final = 3
NOT_CONVERTED: Final = (pa.ArrowException, TypeError, ValueError, OverflowError)
FEW_ROWS: Final = 64  # so many rows are checked faster in Python than by Arrow's functions

_CALENDAR_S: Final = (-62_135_596_800, 253_402_300_800)  # the years 1 to 9999, in seconds since 1970 UTC
_PER_SECOND: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_TEXTS: Final = pa.list_(pa.string())
_CODED_TEXTS: Final = pa.list_(pa.dictionary(pa.int8(), pa.string()))
_STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The folder of a table's rows by height is `heights=<first>-<last>`. The word is not `height`, because
# readers that know Hive partitioning make a column of it, and `height` is a column of the rows. Earlier
# versions wrote `height=<first>-<last>`; such folders are read like the others, and `pool-collector compact`
# moves their files.
SPAN_KEY: Final = "heights"
OLD_SPAN_KEY: Final = "height"
SPAN_FOLDER: Final = re.compile(rf"(?:{SPAN_KEY}|{OLD_SPAN_KEY})=(\d+)-(\d+)")
Rows = TypeVar("Rows", Sequence[Row], pa.RecordBatch, pa.Table, Sequence[Row] | pa.RecordBatch)
Made = TypeVar("Made")


def write_rows(
    chain_folder: Path,
    table: Table,
    rows: pa.Table | Sequence[Mapping[str, Any]],
    *,
    stem: str,
    is_sorted: bool = False,
) -> list[Path]:
    """Write rows into a table of a chain, one file `<stem>.parquet` per partition; return their paths.

    A file of that name that is already there is complete, and stays as it is. If it cannot be read, it was
    damaged later: it gets the ending `.damaged`, and is written again. Set `is_sorted` if the rows are sorted
    by `table.sort` already. Raises DatasetError when a row does not fit the contract (then nothing is
    written) or the file cannot be written, NotWritable when it may be written later.
    """
    if not _STEM.fullmatch(stem):
        raise DatasetError(f"{stem!r} cannot name a file: use letters, digits, dot, dash and underscore")
    content = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([to_batch(table, rows)])
    _refuse_unknown(table, content.column_names)
    content = conform(table, content)
    written = []
    for partition, part in _partitions(table, content):
        path = chain_folder / table.name / partition / f"{stem}.parquet"
        try:
            make_folder(chain_folder)
            with lock_held_for_writing(chain_folder / WRITE_LOCK, exclusive=False):
                path = path_of_file(chain_folder / table.name, partition, path.name)
                if not _is_whole(path):
                    make_folder(path.parent)
                    _write_file(path, table, part, is_sorted=is_sorted)
        except OSError as error:
            raised = NotWritable if error.errno in NOT_WRITABLE else DatasetError
            raise raised(f"cannot write {path}: {error.strerror or error}; free space or rights") from None
        written.append(path)
    return written


def to_batch(table: Table, rows: Sequence[Mapping[str, Any]] | pa.RecordBatch) -> pa.RecordBatch:
    """Return `rows` as an Arrow batch with the contract's columns; an Arrow batch is only checked.

    Each row is a mapping from column name to value. A nullable column may be left out of it. Times are
    datetimes, or integers in the column's own unit since 1970 UTC. Raises RowRefused for a missing or unknown
    column, a value of the wrong type, a null where the contract has none and a value outside a closed set.
    """
    if isinstance(rows, pa.RecordBatch):
        if rows.schema != table.arrow:
            raise RowRefused(f"a batch for {table.name} has other columns than the contract: {rows.schema}")
        check_values(table, rows)
        return rows
    named = set().union(*rows)
    _refuse_unknown(table, named)
    for column in table.columns:
        if rows and not column.nullable and column.name not in named:
            raise RowRefused(f"a row of {table.name} has no {column.name}")
    try:
        # One call for all columns: a call for each would take most of the time when there are few rows.
        arrays = pa.array(rows, table.row_type).flatten()
    except NOT_CONVERTED:
        arrays = _arrays(table, rows)
    batch = pa.RecordBatch.from_arrays(arrays, schema=table.arrow)
    check_values(table, batch)
    return batch


def _arrays(table: Table, rows: Sequence[Mapping[str, Any]]) -> list[pa.Array]:
    """Return an Arrow array per column, made one by one; raise RowRefused that names the column at fault."""
    arrays = []
    for column in table.columns:
        try:
            arrays.append(pa.array([row.get(column.name) for row in rows], column.type))
        except NOT_CONVERTED as error:
            raise RowRefused(f"{table.name}.{column.name}: {error}") from None
    return arrays


def _refuse_unknown(table: Table, names: Iterable[str]) -> None:
    unknown = set(names).difference(column.name for column in table.columns)
    if unknown:
        raise RowRefused(f"{table.name} has no column {', '.join(sorted(unknown))}")


def coded_schema(table: Table) -> pa.Schema:
    """Return the table's schema, with Arrow dictionaries in the columns that hold lists of closed-set texts.

    Rows in this schema are checked and written faster; the files have the contract's schema.
    """
    schema = table.arrow
    for column in table.columns:
        if column.values and column.type == _TEXTS:
            at = schema.get_field_index(column.name)
            schema = schema.set(at, schema.field(at).with_type(_CODED_TEXTS))
    return schema


def check_values(table: Table, rows: pa.Table | pa.RecordBatch) -> None:
    """Raise RowRefused if a value is null where the contract forbids it, or not in its column's closed set.

    It is also raised for a time outside the years 1 to 9999. The rows have the contract's columns in order.
    """
    for column, values in zip(table.columns, rows.columns, strict=True):
        if pa.types.is_timestamp(column.type):
            _check_times(table, column, values)
        if values.null_count and not column.nullable:
            raise RowRefused(f"{table.name}.{column.name} is null in a row, and must not be")
        if column.values:
            strange = _distinct_texts(values).difference(column.values)
            if strange:
                raise RowRefused(
                    f"{table.name}.{column.name} is {', '.join(map(repr, sorted(strange)))}: "
                    f"not one of {', '.join(column.values)}"
                )


def _distinct_texts(values: pa.Array | pa.ChunkedArray) -> set[str]:
    """Return the distinct texts in a column of texts or of lists of texts.

    For few rows this is done in Python: Arrow's functions take some microseconds to begin.
    """
    is_list = pa.types.is_list(values.type)
    if len(values) <= FEW_ROWS:
        texts = values.to_pylist()
        if is_list:
            texts = chain.from_iterable(filter(None, texts))
        return {text for text in texts if text is not None}
    if is_list:
        values = pc.list_flatten(values)
    if pa.types.is_dictionary(values.type):
        values = pa.chunked_array([part.dictionary for part in values.chunks], pa.string())
    return {text for text in pc.unique(values).to_pylist() if text is not None}


def _check_times(table: Table, column: Column, values: pa.Array | pa.ChunkedArray) -> None:
    """Raise RowRefused for a time outside the years 1 to 9999: Parquet or its readers cannot hold it."""
    numbers = values.view(pa.int64()) if isinstance(values, pa.Array) else values.cast(pa.int64())
    if len(numbers) == numbers.null_count:
        return
    if len(numbers) <= FEW_ROWS:
        known = [number for number in numbers.to_pylist() if number is not None]
        least, most = min(known), max(known)
    else:
        least, most = pc.min_max(numbers).as_py().values()
    first, last = (second * _PER_SECOND[column.type.unit] for second in _CALENDAR_S)
    if not first <= least <= most < last:
        raise RowRefused(
            f"{table.name}.{column.name} is {least} to {most} {column.type.unit} since "
            "1970: outside the years 1 to 9999"
        )


class RefusedRow(NamedTuple):
    """Holds a row that does not fit its table, and the reason."""

    table: str
    row: Row
    reason: str


def split_refused(
    table: Table, rows: Rows, make: Callable[[Table, Rows], Made]
) -> tuple[list[Made], list[RefusedRow]]:
    """Call `make` on the rows that fit the table; return its results, in order, and the refused rows.

    `make` raises RowRefused when one of its rows does not fit. It is then called on ever smaller parts, until
    the rows that do not fit are alone.
    """
    try:
        return [make(table, rows)], []
    except RowRefused as error:
        if len(rows) == 1:
            return [], [RefusedRow(table.name, _as_mapping(rows), str(error))]
    middle = len(rows) // 2
    made, refused = [], []
    for part in (_part(rows, 0, middle), _part(rows, middle, len(rows))):
        part_made, part_refused = split_refused(table, part, make)
        made += part_made
        refused += part_refused
    return made, refused


def _part(rows: Rows, begin: int, end: int) -> Rows:
    if isinstance(rows, pa.RecordBatch | pa.Table):
        part: Rows = rows.slice(begin, end - begin)
        return part
    return rows[begin:end]


def _as_mapping(rows: Sequence[Row] | pa.RecordBatch | pa.Table) -> Row:
    """Return the only row in `rows` as a mapping; a value that Python cannot represent becomes text."""
    if not isinstance(rows, pa.RecordBatch | pa.Table):
        return rows[0]
    return {name: _scalar_value(rows.column(name)[0]) for name in rows.schema.names}


def _scalar_value(value: pa.Scalar) -> object:
    try:
        return value.as_py()
    except (ValueError, OverflowError):
        return str(value.cast(pa.int64())) if pa.types.is_timestamp(value.type) else repr(value)


def conform(table: Table, rows: pa.Table) -> pa.Table:
    """Return `rows` with the contract's columns, order, types and metadata; columns that they lack are null.

    Rows in the form of `coded_schema` keep it. Raises RowRefused for a value that does not fit its column.
    """
    coded = coded_schema(table)
    schema = coded if rows.schema.equals(coded) else table.arrow
    columns = []
    for field in schema:
        if field.name in rows.column_names:
            values = rows.column(field.name)
        else:
            values = pa.nulls(len(rows), field.type)
        try:
            columns.append(values if values.type == field.type else values.cast(field.type))
        except pa.ArrowException as error:
            raise RowRefused(f"{table.name}.{field.name}: {error}") from None
    conformed = pa.Table.from_arrays(columns, schema=schema)
    check_values(table, conformed)
    return conformed


def span_folder(height: int) -> str:
    """Return the name of the folder for the rows of a height, such as `heights=840000-840999`."""
    first = height // HEIGHT_SPAN * HEIGHT_SPAN
    return f"{SPAN_KEY}={first}-{first + HEIGHT_SPAN - 1}"


def span_folders(height: int) -> tuple[str, str]:
    """Return both names that the folder of a height may have: the present one and that of older versions."""
    name = span_folder(height)
    return name, f"{OLD_SPAN_KEY}{name.removeprefix(SPAN_KEY)}"


def has_old_name(folder: Path) -> bool:
    """Return whether a folder of a span of heights has its name of older versions, `height=…`."""
    return SPAN_FOLDER.fullmatch(folder.name) is not None and folder.name.startswith(f"{OLD_SPAN_KEY}=")


def new_name(folder: Path) -> Path:
    """Return the present path for a folder of heights that has a name of older versions."""
    return folder.with_name(f"{SPAN_KEY}={folder.name.removeprefix(f'{OLD_SPAN_KEY}=')}")


def path_of_file(table_folder: Path, partition: str, name: str) -> Path:
    """Return the path of the file `name` of a partition, in its folder.

    If the file is in the folder that older versions named, that path is returned.
    """
    if partition.startswith(f"{SPAN_KEY}="):
        old = table_folder / f"{OLD_SPAN_KEY}{partition.removeprefix(SPAN_KEY)}" / name
        if old.exists():
            return old
    return table_folder / partition / name


def _partitions(table: Table, rows: pa.Table) -> Iterator[tuple[str, pa.Table]]:
    """Split rows by UTC day or span of heights; yield the name of each folder and its rows."""
    if table.day_column is not None:
        keys = pc.cast(rows.column(table.day_column), pa.date32(), safe=False)
    else:
        keys = pc.divide(rows.column("height"), HEIGHT_SPAN)
    distinct = sorted(pc.unique(keys).to_pylist())
    for key in distinct:
        is_of_days = table.day_column is not None
        name = f"date={key.isoformat()}" if is_of_days else span_folder(key * HEIGHT_SPAN)
        yield name, rows if len(distinct) == 1 else rows.filter(pc.equal(keys, key))


def _is_whole(path: Path) -> bool:
    """Return whether `path` is a Parquet file without damage; False if there is no file.

    A damaged file is renamed to `<name>.damaged`.
    """
    try:
        _verify_pages(path)
    except FileNotFoundError:
        return False
    except UNREADABLE as error:
        aside = path.with_name(f"{path.name}.damaged")
        path.replace(aside)
        import structlog  # noqa: PLC0415 - loads slowly, and hardly any file is damaged

        log = structlog.get_logger(__name__)
        log.warning("dataset.damaged", path=str(aside), reason=str(error).splitlines()[0])
        return False
    return True


def _write_file(path: Path, table: Table, rows: pa.Table, *, is_sorted: bool) -> None:
    content = rows if is_sorted else _sorted(table, rows)
    options = parquet_options(table)
    is_coded = content.schema != table.arrow

    def write(sink: BinaryIO) -> None:
        with pq.ParquetWriter(sink, content.schema, store_schema=not is_coded, **options) as writer:
            writer.write_table(content, row_group_size=ROW_GROUP_ROWS)
            if is_coded:  # readers take the types from this entry
                schema = b64encode(table.arrow.serialize())
                writer.add_key_value_metadata({**(table.arrow.metadata or {}), b"ARROW:schema": schema})

    write_atomically(path, write)


def _sorted(table: Table, rows: pa.Table) -> pa.Table:
    """Return the rows in the order of `table.sort`; rows that are in that order already are not copied."""
    order = pc.sort_indices(rows, [(name, "ascending") for name in table.sort])
    is_in_order = np.array_equal(order.to_numpy(), np.arange(len(rows)))
    return rows if is_in_order else rows.take(order)


def parquet_options(table: Table) -> dict[str, Any]:
    """Return the options for pyarrow's ParquetWriter with which files of `table` are written."""
    ascending = [(name, "ascending") for name in table.sort]
    return {
        "compression": COMPRESSION,
        "compression_level": COMPRESSION_LEVEL,
        "use_dictionary": _dictionary_columns(table),
        "sorting_columns": pq.SortingColumn.from_ordering(table.arrow, ascending),
        "write_statistics": _pruning_columns(table),
        "write_page_checksum": True,
    }


def _dictionary_columns(table: Table) -> list[str]:
    """Return the columns of a table that get Parquet's dictionary encoding: those of text.

    Text repeats and is worth a dictionary; for hashes and numbers zstd alone is smaller and faster.
    """
    names = []
    for column in table.columns:
        if column.type == pa.string():
            names.append(column.name)
        elif column.type == pa.list_(pa.string()):
            names.append(f"{column.name}.list.element")
    return names


def _pruning_columns(table: Table) -> list[str]:
    """Return the columns of a table that get statistics (least and greatest value): all but hashes.

    Hashes are random, so no reader could skip a row group because of their bounds.
    """
    return [column.name for column in table.columns if column.type != HASH]


def read_file(path: Path, names: Sequence[str] | None = None, *, verify: bool = False) -> pa.Table:
    """Return the rows of a Parquet file as a table; with `names`, only those of these columns that it has.

    Raises DatasetError if the file cannot be read; with `verify`, also if a page that is read has another
    checksum than it says. Verify if the rows are written into another file, where wrong values would get
    checksums that are right. Other readers do not: a changed bit must not keep a collector from its work.
    """
    with _unreadable_named(path), pq.ParquetFile(path, page_checksum_verification=verify) as file:
        return file.read(_columns(file, names))


def refuse_damaged(path: Path, names: Sequence[str] | None = None) -> None:
    """Raise DatasetError if a Parquet file cannot be read, or a page has another checksum than it says.

    With `names`, only these columns are read. DuckDB compares no checksums. So this is called for each file
    whose rows DuckDB writes into another file, where wrong values would get new checksums that are right.
    """
    with _unreadable_named(path):
        _verify_pages(path, names)


def _verify_pages(path: Path, names: Sequence[str] | None = None) -> None:
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        for _ in file.iter_batches(columns=_columns(file, names)):
            pass


def _columns(file: pq.ParquetFile, names: Sequence[str] | None) -> list[str] | None:
    """Return those of the columns `names` that a file has; None, which means all, if no names are given."""
    return None if names is None else [name for name in names if name in file.schema_arrow.names]


@contextmanager
def _unreadable_named(path: Path) -> Iterator[None]:
    """Turn an error of reading the file at `path` in the `with` block into a DatasetError that names it."""
    try:
        yield
    except PermissionError:
        raise DatasetError(f"cannot read {path}; give this user the right to") from None
    except UnicodeEncodeError:  # Arrow opens no such path
        raise DatasetError(f"cannot read {str(path)!r}: its name is not UTF-8; rename the file") from None
    except UNREADABLE as error:
        reason = str(error).splitlines()[0]
        raise DatasetError(f"cannot read {path}: {reason}; move it away to go on without it") from None
