"""Write rows of a relation as a table for people, or as CSV or JSON for programs.

Hashes are shown in display order, as RPC writes them; other bytes in hex, in their own order. The hash of a
block of which only the height is known is null, though the tables hold a key made of the height. Null is an
empty field in CSV and `null` in JSON. Times are ISO 8601 in UTC, intervals are its durations, lists are
JSON, and a map is a list of pairs. Strangers write some of the texts, such as coinbase texts. JSON keeps
them exact, and escapes all that is not ASCII. Tables and CSV show U+FFFD for control and format characters;
CSV puts an apostrophe before a text that begins like a formula.
"""

import csv
import datetime as dt
import itertools
import json
import math
from collections.abc import Collection, Iterable, Iterator, Sequence
from decimal import Decimal
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, TextIO

from rich.console import Console
from rich.text import Text

from analysis.errors import DatabaseError
from collector.terminal import write_cells

if TYPE_CHECKING:
    import pyarrow as pa

HASH_BYTES: Final = 32
HEIGHT_KEY_END: Final = b"\xff" * 28  # of label_block_key in macros.sql; no hash of a block can end so
# Columns and fields whose bytes are no hash of Bitcoin, even where there are 32 of them.
OWN_ORDER: Final = ("body", "coinbase_reserved_value", "coinbase_script", "file_sha256", "raw", "script")
REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
PLAN_COLUMNS: Final = ("explain_key", "explain_value")  # of DuckDB's answer to EXPLAIN
# A spreadsheet takes a text that begins with one of these for a formula; the last four are full-width forms.
FORMULA_BEGINS: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

Row = Sequence[Any]


def inert(text: str) -> str:
    """Return a text with each unprintable character, which could act on a terminal, replaced by U+FFFD."""
    return "".join(character if character.isprintable() else REPLACEMENT for character in text)


def is_height_key(value: bytes) -> bool:
    """Return whether bytes are a key made of a height, which stands for the unknown hash of a block."""
    return len(value) == HASH_BYTES and value.endswith(HEIGHT_KEY_END)


def plain(value: Any, column: str = "") -> Any:
    """Convert a value from DuckDB to one that JSON has: a hash to hex in display order, times to ISO 8601.

    32 bytes are taken for a hash unless `column`, the name of the column or field, is one of OWN_ORDER. The
    key of a block of which only the height is known becomes None: nobody knows its hash.
    """
    match value:
        case bytes():
            from collector.dataset.schema import hash_hex  # noqa: PLC0415 - loads pyarrow; a list needs no hash

            is_hash = len(value) == HASH_BYTES and column not in OWN_ORDER
            shown: Any = value.hex() if not is_hash else None if is_height_key(value) else hash_hex(value)
        case dt.datetime():
            # A time without a zone, as date_trunc makes of a day, is in UTC, as every session is.
            moment = value.replace(tzinfo=dt.UTC) if value.tzinfo is None else value.astimezone(dt.UTC)
            shown = moment.isoformat().replace("+00:00", "Z")
        case dt.date():
            shown = value.isoformat()
        case Decimal():
            shown = int(value) if value == value.to_integral_value() else str(value)
        case float() if not math.isfinite(value):
            shown = str(value)
        case tuple() if hasattr(value, "nanoseconds"):  # Arrow's MonthDayNano
            months, days, nanoseconds = value
            shown = f"P{months}M{days}DT{Decimal(nanoseconds) / 10**9:f}S"
        case list() | tuple():
            shown = [plain(item, column) for item in value]
        case dict():
            shown = {key: plain(item, key) for key, item in value.items()}
        case bool() | int() | float() | str() | None:
            shown = value
        case _:
            shown = str(value)  # a time of day, which no mart has but a query may ask for
    return shown


def rows_of(reader: "pa.RecordBatchReader") -> Iterator[Row]:
    """Yield the rows of an Arrow reader one by one, as tuples, because two columns may have one name.

    Raises DatabaseError for a value that Python has not, such as a time that is infinite.
    """
    for batch in reader:
        try:
            columns = [column.to_pylist() for column in batch.columns]
        except (OverflowError, ValueError) as error:
            raise DatabaseError(f"a value cannot be shown ({error}); cast it to VARCHAR") from None
        yield from zip(*columns, strict=True)


def write_json(columns: Sequence[str], rows: Iterable[Row], out: TextIO) -> None:
    """Write rows to `out` as a JSON array of objects, one per line, in ASCII.

    Raises DatabaseError where two columns have one name, because an object has it once.
    """
    if len(set(columns)) < len(columns):
        twice = next(name for name in columns if columns.count(name) > 1)
        raise DatabaseError(
            f"two columns are called {twice}; name one otherwise with AS, or use --format csv"
        )
    separator = "[\n"
    for row in rows:
        record = {column: plain(value, column) for column, value in zip(columns, row, strict=True)}
        out.write(separator + json.dumps(record, allow_nan=False))
        separator = ",\n"
    out.write("[]\n" if separator == "[\n" else "\n]\n")


def write_csv(columns: Sequence[str], rows: Iterable[Row], out: TextIO) -> None:
    """Write rows to `out` as CSV with a header; of a query's plan, which EXPLAIN returns, a row per line.

    No text can act on a terminal or be a spreadsheet's formula.
    """
    if tuple(columns) == PLAN_COLUMNS:
        rows = _plan_lines(rows)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(inert_field, columns))
    writer.writerows(map(inert_field, row, columns) for row in rows)


def write_table(
    columns: Sequence[str],
    rows: Iterable[Row],
    console: Console,
    *,
    folding: Collection[str] = (),
    spare: Sequence[str] = (),
) -> None:
    """Print rows on a console of any width, as `collector.terminal.write_cells` does.

    The plan of a query, which EXPLAIN returns, is printed line by line.
    """
    if tuple(columns) == PLAN_COLUMNS:
        _print_plan(rows, console)
        return
    cells = [
        [inert(_cell(value, column)) for value, column in zip(row, columns, strict=True)] for row in rows
    ]
    write_cells(columns, cells, console, folding=folding, spare=spare)


def _print_plan(rows: Iterable[Row], console: Console) -> None:
    """Print rows of PLAN_COLUMNS: the name of a plan, then its lines, of which none is wrapped."""
    for name, lines in itertools.groupby(_plan_lines(rows), key=itemgetter(0)):
        for line in (f"{name}:", *map(itemgetter(1), lines)):
            console.print(Text(inert(line)), soft_wrap=True)


def _plan_lines(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield for rows of PLAN_COLUMNS the name of the plan and a line of it, for each line."""
    for name, plan in rows:
        for line in str(plan).rstrip("\n").split("\n"):
            yield name, line


def _field(value: Any, column: str) -> str:
    """Return a value as the text of a CSV field: null is empty; booleans, lists and structs are JSON."""
    value = plain(value, column)
    if value is None:
        return ""
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def inert_field(value: Any, column: str = "") -> str:
    """Return a value of a column as a CSV field that cannot act on a terminal or in a spreadsheet.

    Control and format characters are replaced. A text that a spreadsheet would take for a formula gets an
    apostrophe before it.
    """
    field = _field(value, column)
    is_formula = isinstance(value, str) and field.startswith(FORMULA_BEGINS)
    return f"'{inert(field)}" if is_formula else inert(field)


def _cell(value: Any, column: str) -> str:
    """Return a value as the text of a table cell, with floats rounded to six digits."""
    return f"{value:.6g}" if isinstance(value, float) else _field(value, column)
