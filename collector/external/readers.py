"""Read files of other publishers into rows of the contract, or refuse them with file, line and reason.

A file is read whole or not at all. Columns are found by the names that the publishers give them. A file may
hold anything: limits on its bytes, lines and rows bound the time and the memory that reading takes.
"""

import csv
import gzip
import itertools
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.errors import DecodeError
from collector.external.json_files import rows_from_json
from collector.external.kinds import KINDS, Kind, Values, row_of
from collector.log import counted

MAX_FILE_BYTES: Final = 1 << 30
MAX_JSON_BYTES: Final = 1 << 24
MAX_ROWS: Final = 2_000_000  # twice the blocks of the main chain
MAX_TEXT_CHARACTERS: Final = csv.field_size_limit()  # of a value
MAX_LINE_CHARACTERS: Final = 1 << 20
BATCH_ROWS: Final = 10_000
NO_NAMES: Final[Mapping[str, str]] = {}


def read_rows(
    kind: str,
    path: Path,
    *,
    theirs: Mapping[str, str] = NO_NAMES,
    read: Callable[[Path], Iterable[Values]] | None = None,
) -> list[Values]:
    """Return the rows of a CSV, TSV, Parquet or JSON file of kind `kind`; text may be packed (.gz).

    `theirs` maps columns of ours to the name that the file has for them; the other columns are found by the
    names that publishers use. `read` reads a file of another form. Raises only DecodeError, whatever the file
    holds; its text names the file and, for a bad value, the line.
    """
    try:
        if read is not None:
            return _limited(path, read(path))
        check_size(path, MAX_JSON_BYTES if path.suffix == ".json" else MAX_FILE_BYTES)
        if path.suffix == ".parquet":
            return _limited(path, _from_parquet(path, kind, theirs))
        if path.suffix == ".json":
            return _limited(path, rows_from_json(kind, path))
        with open_text(path) as lines:
            return _limited(path, _from_text(path, lines, kind, theirs))
    except UnicodeDecodeError:
        raise DecodeError(f"{path} is not text in UTF-8") from None
    except (csv.Error, RecursionError) as error:
        raise DecodeError(f"{path} is no table: {error}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DecodeError(f"{path} cannot be unpacked: {error}; fetch it anew") from None
    except OSError as error:
        raise DecodeError(f"cannot read {path}: {error.strerror or error}") from None


def open_text(path: Path, errors: str = "strict") -> TextIO:
    """Open a text file and return it; a file whose name ends in .gz is unpacked while it is read.

    `errors` says what is done with bytes that are no text, as for Python's `open`.
    """
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", errors=errors, newline="")
    return path.open(encoding="utf-8-sig", errors=errors, newline="")


def check_size(path: Path, max_bytes: int) -> None:
    """Raise DecodeError if `path` is no regular file, such as a device, or has more than `max_bytes`."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise DecodeError(f"{path} is no file that can be read to its end; copy its content into one")
    if about.st_size > max_bytes:
        raise DecodeError(f"{path} has {about.st_size:,} bytes, more than {max_bytes:,}; split it")


def _limited(path: Path, rows: Iterable[Values]) -> list[Values]:
    """Return `rows` as a list; raise DecodeError if there are more than MAX_ROWS."""
    found: list[Values] = []
    for row in rows:
        if len(found) == MAX_ROWS:
            raise DecodeError(f"{path} has more than {MAX_ROWS:,} rows; split it")
        found.append(row)
    return found


def _lines(path: Path, lines: TextIO) -> Iterator[str]:
    """Yield the lines of a text file; raise DecodeError at a line too long to be a row, or after too many."""
    n_characters = 0
    while line := lines.readline(MAX_LINE_CHARACTERS):
        n_characters += len(line)
        if len(line) == MAX_LINE_CHARACTERS:
            raise DecodeError(
                f"{path} has a line of {MAX_LINE_CHARACTERS:,} characters or more: it is no table"
            )
        if n_characters > MAX_FILE_BYTES:
            raise DecodeError(f"{path} unfolds to more than {MAX_FILE_BYTES:,} characters; split it")
        yield line


def _from_text(path: Path, file: TextIO, kind: str, theirs: Mapping[str, str]) -> Iterator[Values]:
    """Yield the rows of a CSV or TSV file of kind `kind`.

    The first line names the columns, unless it is a row already, which some kinds of file allow.
    """
    lines = _lines(path, file)
    first = next(lines, "")
    if not first.strip():
        raise DecodeError(f"{path} is empty")
    delimiter = "\t" if "\t" in first else ","
    header = next(csv.reader([first], delimiter=delimiter, strict=True))
    n_header_lines = 1
    first_row = KINDS[kind].first_row
    if first_row is not None and first_row.fullmatch(first.strip()):
        header, n_header_lines = list(KINDS[kind].unnamed), 0
        lines = itertools.chain([first], lines)
    positions = _positions(path, header, KINDS[kind], theirs)
    rows = csv.reader(lines, delimiter=delimiter, strict=True)
    for values in rows:
        line = rows.line_num + n_header_lines
        if len(values) != len(header):
            raise DecodeError(f"{path}:{line} has {counted(len(values), 'field')}, the header {len(header)}")
        yield row_of(f"{path}:{line}", {name: values[at] for name, at in positions.items()}, kind)


def _from_parquet(path: Path, kind: str, theirs: Mapping[str, str]) -> Iterator[Values]:
    """Yield the rows of a Parquet file of kind `kind`; raise DecodeError if it cannot be read.

    It is read batch by batch, because a small file may unfold to more than fits into memory.
    """
    n_read = 0
    try:
        with pq.ParquetFile(path) as whole:
            positions = _positions(path, whole.schema_arrow.names, KINDS[kind], theirs)
            names = {name: whole.schema_arrow.names[at] for name, at in positions.items()}
            _check_unfolded(path, whole, names.values())
        # A text that repeats stays in memory once.
        with pq.ParquetFile(path, read_dictionary=list(names.values())) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(names.values())):
                columns = {name: _texts(path, theirs, batch.column(theirs)) for name, theirs in names.items()}
                for number in range(len(batch)):
                    texts = {name: values[number] for name, values in columns.items()}
                    yield row_of(f"{path}, row {n_read + number + 1}", texts, kind)
                n_read += len(batch)
    except pa.ArrowException as error:
        raise DecodeError(f"{path} is no Parquet file: {str(error).splitlines()[0]}") from None


def _check_unfolded(path: Path, file: pq.ParquetFile, names: Iterable[str]) -> None:
    """Raise DecodeError if a Parquet file is too large to read, or if a column in `names` holds lists.

    The number of rows and bytes is taken from its footer.
    """
    metadata = file.metadata
    n_bytes = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    if metadata.num_rows > MAX_ROWS:
        raise DecodeError(f"{path} has {metadata.num_rows:,} rows, more than {MAX_ROWS:,}; split it")
    if n_bytes > MAX_FILE_BYTES:
        raise DecodeError(f"{path} unfolds to {n_bytes:,} bytes, more than {MAX_FILE_BYTES:,}; split it")
    for name in names:
        if pa.types.is_nested(file.schema_arrow.field(name).type):
            raise DecodeError(f"{path}: column {name} holds several values in a row; one is needed")


def _texts(path: Path, name: str, column: pa.Array) -> list[str]:
    """Return the values of a Parquet column `name` as texts; a null is an empty text, as in a CSV file.

    Raises DecodeError for a value that is too long, or that Python cannot hold, such as a time after the
    year 9999 or in a zone that nobody knows.
    """
    if isinstance(column, pa.DictionaryArray):
        lengths = pc.binary_length(column.dictionary)
        if len(lengths) and (pc.max(lengths).as_py() or 0) > MAX_TEXT_CHARACTERS:
            raise DecodeError(f"{path}, column {name} has a value of more than {MAX_TEXT_CHARACTERS:,} bytes")
    try:
        return ["" if value is None else str(value) for value in column.to_pylist()]
    except UnicodeDecodeError:
        raise
    except (ArithmeticError, LookupError, ValueError) as error:
        raise DecodeError(
            f"{path}, column {name} has a value of type {column.type} that cannot be read: {error}"
        ) from None


def _positions(path: Path, header: Sequence[str], kind: Kind, theirs: Mapping[str, str]) -> dict[str, int]:
    """Map each column of `kind` that a file has to its position in the file's line of names, `header`.

    `theirs` gives the file's names of some columns. Raises DecodeError if a column is missing that the kind
    needs, or if several columns have the name of one that is read.
    """
    names = [name.strip() for name in header]
    positions = {}
    for column, field in kind.columns.items():
        wanted = (theirs[column],) if column in theirs else field.names
        found = [name for name in wanted if name in names]
        if found and names.count(found[0]) > 1:
            raise DecodeError(f"{path} has several columns {found[0]}; rename those that are not meant")
        if found:
            positions[column] = names.index(found[0])
        elif column in theirs or not field.may_lack:
            raise DecodeError(
                f"{path} has no column {' or '.join(wanted)}; its first line names {', '.join(names)}; "
                "say what it is called with `pool-collector import KIND FILE --columns`"
            )
    return positions
