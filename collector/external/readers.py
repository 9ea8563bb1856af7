"""Read files of other publishers into rows of the contract, or refuse them with file, line and reason.

A file is read whole or not at all. Columns are found by the names that the publishers give them. A file may
hold anything: limits on its bytes, lines and rows bound the time and the memory that reading takes.
"""

import csv
import itertools
import json
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.dataset.schema import Table
from collector.dataset.schema.external import (
    EXTERNAL_ARRIVALS,
    EXTERNAL_BLOCKS,
    EXTERNAL_POOL_LABELS,
    EXTERNAL_PRICES,
)
from collector.errors import DecodeError
from collector.external import fields

Value = bytes | str | int | float | None
Values = dict[str, Value]  # of a row, by column
Read = Callable[[str], Value]

MAX_FILE_BYTES: Final = 1 << 30
MAX_JSON_BYTES: Final = 1 << 24
MAX_ROWS: Final = 2_000_000  # twice the blocks of the main chain
MAX_TEXT_CHARACTERS: Final = csv.field_size_limit()  # of a value
MAX_LINE_CHARACTERS: Final = 1 << 20
BATCH_ROWS: Final = 10_000

DAY_S: Final = 86_400
# bitcoinresearchkit/brk: index 0 is 2009-01-03, index i from 1 on is 2009-01-08 + i days.
OHLC_FIRST_S: Final = fields.FIRST_DAY_S
OHLC_SECOND_S: Final = OHLC_FIRST_S + 5 * DAY_S
I32: Final = (1 << 31) - 1
U32: Final = (1 << 32) - 1
# bitcoin-data/block-arrival-times has no line of names: height, hash, milliseconds since 1970.
HEADLESS_ARRIVAL: Final = re.compile(r"\d+,[0-9a-f]{64},\d+")


@dataclass(frozen=True, slots=True)
class Field:
    """Describes a column to look for in a file: the names it may have and how its text is read.

    `may_lack` allows files without the column.
    """

    names: tuple[str, ...]
    read: Read
    may_lack: bool = False


def u32(text: str) -> int:
    """Return the whole number in `text`, from 0 to 2^32 - 1; raise ValueError otherwise."""
    return fields.whole(text, high=U32)


def count(text: str) -> int:
    """Return the whole number in `text`, from 0 to 2^31 - 1; raise ValueError otherwise."""
    return fields.whole(text, high=I32)


def version(text: str) -> int:
    """Return a block version as a signed 32-bit number; some publishers write it unsigned."""
    value = fields.whole(text, low=-I32 - 1, high=U32)
    return value - (1 << 32) if value > I32 else value


ARRIVALS: Final = {
    "block_hash": Field(("hash", "block_hash", "header_hash"), fields.block_hash),
    "height": Field(("height",), fields.height),
    "arrived_at": Field(("timestamp_ms", "timestamp"), fields.time_us),
}
LABELS: Final = {
    "height": Field(("height", "blockid", "block_height", "id"), fields.height),
    "label": Field(("label", "pool", "pool_slug", "miningpool", "guessed_miner"), fields.label),
    "header_time": Field(("date", "time", "block_time", "header_time"), fields.time_s_or_none, may_lack=True),
}
PRICES: Final = {
    "day_at": Field(("day", "date", "date_UTC"), fields.day_s),
    "open": Field(("open",), fields.price, may_lack=True),
    "high": Field(("high",), fields.price, may_lack=True),
    "low": Field(("low",), fields.price, may_lack=True),
    "close": Field(("close", "price", "price_USD"), fields.price),
}
BLOCKCHAIR: Final = {
    "block_hash": Field(("hash",), fields.block_hash),
    "height": Field(("id",), fields.height),
    "header_time": Field(("time",), fields.time_s),
    "version": Field(("version",), version),
    "merkle_root": Field(("merkle_root",), fields.block_hash),
    "bits": Field(("bits",), u32),
    "nonce": Field(("nonce",), u32),
    "size_bytes": Field(("size",), count),
    "stripped_bytes": Field(("stripped_size",), count),
    "weight_wu": Field(("weight",), count),
    "n_tx": Field(("transaction_count",), count),
    "n_segwit_tx": Field(("witness_count",), count),
    "n_inputs": Field(("input_count",), count),
    "n_outputs": Field(("output_count",), count),
    "fees_sat": Field(("fee_total",), fields.whole),
    "subsidy_sat": Field(("generation",), fields.whole),
    "coinbase_script": Field(("coinbase_data_hex",), fields.script),
    "pool_label": Field(("guessed_miner",), fields.label),
}
# By kind: the table, and the columns of a file.
KINDS: Final[dict[str, tuple[Table, Mapping[str, Field]]]] = {
    "arrivals": (EXTERNAL_ARRIVALS, ARRIVALS),
    "blocks": (EXTERNAL_BLOCKS, BLOCKCHAIR),
    "labels": (EXTERNAL_POOL_LABELS, LABELS),
    "prices": (EXTERNAL_PRICES, PRICES),
}


def read_rows(kind: str, path: Path) -> list[Values]:
    """Return the rows of a file of kind `kind` (arrivals, blocks, labels or prices).

    Raises only DecodeError, whatever the file holds; its text names the file and, for a bad value, the line.
    """
    wanted = KINDS[kind][1]
    try:
        _check_size(path, MAX_JSON_BYTES if path.suffix == ".json" else MAX_FILE_BYTES)
        if path.suffix == ".parquet":
            return _limited(path, _from_parquet(path, wanted))
        if path.suffix == ".json":
            if kind != "prices":
                raise DecodeError(f"{path}: JSON is read for prices only; convert it to CSV")
            return _limited(path, _from_ohlc(path))
        with path.open(encoding="utf-8-sig", newline="") as lines:
            return _limited(path, _from_text(path, lines, wanted))
    except UnicodeDecodeError:
        raise DecodeError(f"{path} is not text in UTF-8") from None
    except (csv.Error, RecursionError) as error:
        raise DecodeError(f"{path} is no table: {error}") from None
    except OSError as error:
        raise DecodeError(f"cannot read {path}: {error.strerror}") from None


def _check_size(path: Path, max_bytes: int) -> None:
    """Raise DecodeError if `path` is no regular file, such as a device, or has more than `max_bytes`."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise DecodeError(f"{path} is no file that can be read to its end; copy its content into one")
    if about.st_size > max_bytes:
        raise DecodeError(f"{path} has {about.st_size:,} bytes, more than {max_bytes:,}; split it")


def _limited(path: Path, rows: Iterator[Values]) -> list[Values]:
    """Return `rows` as a list; raise DecodeError if there are more than MAX_ROWS."""
    found: list[Values] = []
    for row in rows:
        if len(found) == MAX_ROWS:
            raise DecodeError(f"{path} has more than {MAX_ROWS:,} rows; split it")
        found.append(row)
    return found


def _lines(path: Path, lines: TextIO) -> Iterator[str]:
    """Yield the lines of a text file; raise DecodeError at a line too long to be a row."""
    while line := lines.readline(MAX_LINE_CHARACTERS):
        if len(line) == MAX_LINE_CHARACTERS:
            raise DecodeError(
                f"{path} has a line of {MAX_LINE_CHARACTERS:,} characters or more: it is no table"
            )
        yield line


def _from_text(path: Path, file: TextIO, wanted: Mapping[str, Field]) -> Iterator[Values]:
    """Yield the rows of a CSV or TSV file whose first line names the columns."""
    lines = _lines(path, file)
    first = next(lines, "")
    if not first.strip():
        raise DecodeError(f"{path} is empty")
    delimiter = "\t" if "\t" in first else ","
    header = next(csv.reader([first], delimiter=delimiter))
    n_header_lines = 1
    if wanted is ARRIVALS and HEADLESS_ARRIVAL.fullmatch(first.strip()):
        header, n_header_lines = ["height", "hash", "timestamp_ms"], 0
        lines = itertools.chain([first], lines)
    places = _places(path, header, wanted)
    rows = csv.reader(lines, delimiter=delimiter)
    for values in rows:
        line = rows.line_num + n_header_lines
        if len(values) != len(header):
            raise DecodeError(f"{path}:{line} has {len(values)} fields, the header {len(header)}")
        yield _row(f"{path}:{line}", {name: values[at] for name, at in places.items()}, wanted)


def _from_parquet(path: Path, wanted: Mapping[str, Field]) -> Iterator[Values]:
    """Yield the rows of a Parquet file.

    It is read batch by batch, because a small file may unfold to more than fits into memory.
    """
    n_read = 0
    try:
        with pq.ParquetFile(path) as whole:
            places = _places(path, whole.schema_arrow.names, wanted)
            names = {name: whole.schema_arrow.names[at] for name, at in places.items()}
            _check_unfolded(path, whole, names.values())
        # A text that repeats stays in memory once.
        with pq.ParquetFile(path, read_dictionary=list(names.values())) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=list(names.values())):
                columns = {name: _texts(path, batch.column(theirs)) for name, theirs in names.items()}
                for number in range(len(batch)):
                    texts = {name: values[number] for name, values in columns.items()}
                    yield _row(f"{path}, row {n_read + number + 1}", texts, wanted)
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


def _texts(path: Path, column: pa.Array) -> list[str]:
    """Return the values of a Parquet column as texts; a null is an empty text, as in a CSV file.

    Raises DecodeError for a value that is too long.
    """
    if isinstance(column, pa.DictionaryArray):
        lengths = pc.binary_length(column.dictionary)
        if len(lengths) and (pc.max(lengths).as_py() or 0) > MAX_TEXT_CHARACTERS:
            raise DecodeError(f"{path} has a value of more than {MAX_TEXT_CHARACTERS:,} bytes")
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _from_ohlc(path: Path) -> Iterator[Values]:
    """Yield daily prices from a JSON list of [open, high, low, close]; days of zeros are left out."""
    try:
        days = json.loads(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise
    except ValueError as error:  # also for a number of thousands of digits
        raise DecodeError(f"{path} is no JSON: {error}") from None
    if not isinstance(days, list):
        raise DecodeError(f"{path} is no list of [open, high, low, close] by day")
    for index, prices in enumerate(days):
        if not isinstance(prices, list) or len(prices) != 4:  # noqa: PLR2004 - open, high, low, close
            raise DecodeError(f"{path}, day {index}: {prices!r:.60} is not [open, high, low, close]")
        if any(prices):
            texts = dict(zip(("open", "high", "low", "close"), map(str, prices), strict=True))
            row = _row(f"{path}, day {index}", texts, {name: PRICES[name] for name in texts})
            day_s = OHLC_FIRST_S if index == 0 else OHLC_SECOND_S + index * DAY_S
            try:
                fields.check_time(day_s)
            except ValueError as error:
                raise DecodeError(f"{path}, day {index}: {error}") from None
            yield row | {"day_at": day_s}


def _places(path: Path, header: Sequence[str], wanted: Mapping[str, Field]) -> dict[str, int]:
    """Return the position in `header` of each wanted column that the file has.

    Raises DecodeError if a column is missing that must not be.
    """
    names = [name.strip() for name in header]
    places = {}
    for column, field in wanted.items():
        found = [name for name in field.names if name in names]
        if found:
            places[column] = names.index(found[0])
        elif not field.may_lack:
            raise DecodeError(
                f"{path} has no column {' or '.join(field.names)}; its first line names {', '.join(names)}"
            )
    return places


def _row(where: str, texts: Mapping[str, str], wanted: Mapping[str, Field]) -> Values:
    """Return the values of one row, read from its `texts`; `where` names the row in an error.

    Raises DecodeError if a text is no value of its column, or prices contradict each other.
    """
    row: Values = {}
    for name, text in texts.items():
        try:
            row[name] = wanted[name].read(text.strip())
        except ValueError as error:
            raise DecodeError(f"{where}: {name}: {error}") from None
    if "close" in row:
        _check_prices(where, {name: value for name, value in row.items() if isinstance(value, float)})
    return row


def _check_prices(where: str, row: Mapping[str, float]) -> None:
    """Raise DecodeError if open or close of a day is not between its low and its high."""
    inner = [row[name] for name in ("open", "close") if name in row]
    low, high = row.get("low", min(inner)), row.get("high", max(inner))
    if not low <= min(inner) <= max(inner) <= high:
        prices = ", ".join(
            f"{name} {row[name]:g}" for name in ("open", "high", "low", "close") if name in row
        )
        raise DecodeError(f"{where}: {prices}: first and last must lie between lowest and highest")
