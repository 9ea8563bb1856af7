"""List the kinds of files that can be imported: the table of their rows, and how each column is read."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from collector.dataset.schema import (
    EXTERNAL_ACCELERATED,
    EXTERNAL_ARRIVALS,
    EXTERNAL_BLOCK_SIZES,
    EXTERNAL_BLOCKS,
    EXTERNAL_HEADERS,
    EXTERNAL_POOL_HASHRATE,
    EXTERNAL_POOL_LABELS,
    EXTERNAL_PRICES,
    EXTERNAL_STALE_BLOCKS,
    Table,
)
from collector.errors import DecodeError, WrongUsage
from collector.external import fields

Value = bytes | str | int | float | None
Values = dict[str, Value]  # of a row, by column
Read = Callable[[str], Value]

I32: Final = (1 << 31) - 1
U32: Final = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class Field:
    """Describes a column to look for in a file: the names it may have, and the function that reads its text.

    `may_lack` allows files without the column, and empty values in it.
    """

    names: tuple[str, ...]
    read: Read
    may_lack: bool = False


@dataclass(frozen=True, slots=True)
class Kind:
    """Describes a kind of file to import: the table of its rows, and its columns by their name there.

    A first line that matches `first_row` is a row already: the file has no line of names, and its columns are
    `unnamed`.
    """

    table: Table
    columns: Mapping[str, Field]
    first_row: re.Pattern[str] | None = None
    unnamed: tuple[str, ...] = ()


def u32(text: str) -> int:
    """Return the whole number in `text`, from 0 to 2^32 - 1; raise ValueError otherwise."""
    return fields.whole(text, high=U32)


def count(text: str) -> int:
    """Return the whole number in `text`, from 0 to 2^31 - 1; raise ValueError otherwise."""
    return fields.whole(text, high=I32)


def version(text: str) -> int:
    """Return the block version in `text` as a signed 32-bit number; some publishers write it unsigned.

    Raises ValueError for another text.
    """
    value = fields.whole(text, low=-I32 - 1, high=U32)
    return value - (1 << 32) if value > I32 else value


KINDS: Final[dict[str, Kind]] = {
    "arrivals": Kind(
        EXTERNAL_ARRIVALS,
        {
            "block_hash": Field(("hash", "block_hash", "header_hash"), fields.block_hash),
            "height": Field(("height",), fields.height),
            "arrived_at": Field(("timestamp_ms", "timestamp"), fields.time_us),
        },
        # bitcoin-data/block-arrival-times has no line of names: height, hash, milliseconds since 1970.
        re.compile(r"\d+,[0-9a-f]{64},\d+"),
        ("height", "hash", "timestamp_ms"),
    ),
    "blocks": Kind(
        EXTERNAL_BLOCKS,
        {
            "block_hash": Field(("hash", "block_hash"), fields.block_hash),
            "height": Field(("id", "height"), fields.height),
            "header_time": Field(("time", "header_time"), fields.time_s, may_lack=True),
            "version": Field(("version",), version, may_lack=True),
            "merkle_root": Field(("merkle_root",), fields.block_hash, may_lack=True),
            "bits": Field(("bits",), u32, may_lack=True),
            "nonce": Field(("nonce",), u32, may_lack=True),
            "size_bytes": Field(("size", "size_bytes"), count, may_lack=True),
            "stripped_bytes": Field(("stripped_size", "stripped_bytes"), count, may_lack=True),
            "weight_wu": Field(("weight", "weight_wu"), count, may_lack=True),
            "n_tx": Field(("transaction_count", "n_tx"), count, may_lack=True),
            "n_segwit_tx": Field(("witness_count", "n_segwit_tx"), count, may_lack=True),
            "n_inputs": Field(("input_count", "n_inputs"), count, may_lack=True),
            "n_outputs": Field(("output_count", "n_outputs"), count, may_lack=True),
            "fees_sat": Field(("fee_total", "fees_sat"), fields.whole, may_lack=True),
            "subsidy_sat": Field(("generation", "subsidy_sat"), fields.whole, may_lack=True),
            "coinbase_script": Field(("coinbase_data_hex", "coinbase_script"), fields.script, may_lack=True),
            "pool_label": Field(("guessed_miner", "pool_label"), fields.label, may_lack=True),
        },
    ),
    "labels": Kind(
        EXTERNAL_POOL_LABELS,
        {
            "height": Field(("height", "blockid", "block_height", "id"), fields.height),
            "label": Field(("label", "pool", "pool_slug", "miningpool", "guessed_miner"), fields.label),
            "header_time": Field(("date", "time", "block_time", "header_time"), fields.time_s, may_lack=True),
        },
    ),
    "prices": Kind(
        EXTERNAL_PRICES,
        {
            "day_at": Field(("day", "date", "date_UTC"), fields.day_s),
            "open": Field(("open",), fields.price, may_lack=True),
            "high": Field(("high",), fields.price, may_lack=True),
            "low": Field(("low",), fields.price, may_lack=True),
            "close": Field(("close", "price", "price_USD"), fields.price),
        },
    ),
    "sizes": Kind(
        EXTERNAL_BLOCK_SIZES,
        {
            "height": Field(("height",), fields.height),
            "size_bytes": Field(("size", "size_bytes"), count),
            "n_tx": Field(("n_tx", "transaction_count"), count),
            "label": Field(("label", "pool"), fields.label, may_lack=True),
        },
    ),
    "hashrate": Kind(
        EXTERNAL_POOL_HASHRATE,
        {
            "day_at": Field(("day", "date"), fields.day_s),
            "label": Field(("label", "pool"), fields.label),
            "hashrate_hashes_per_s": Field(("hashrate", "hashrate_hashes_per_s"), fields.price),
        },
    ),
    # Both are read from the bytes of headers (header_files.py), not column by column.
    "headers": Kind(EXTERNAL_HEADERS, {}),
    "stale-blocks": Kind(EXTERNAL_STALE_BLOCKS, {}),
    "accelerated": Kind(
        EXTERNAL_ACCELERATED,
        {
            "txid": Field(("txid",), fields.block_hash),
            "seller": Field(("seller", "pool"), fields.label),
        },
    ),
}


def row_of(where: str, texts: Mapping[str, str], kind: str) -> Values:
    """Return one row of kind `kind` by column, parsed from `texts`; `where` names the row in an error.

    Raises DecodeError if a text is no value of its column, or prices contradict each other.
    """
    columns = KINDS[kind].columns
    row: Values = {}
    for name, given in texts.items():
        field, text = columns[name], given.strip()
        try:
            row[name] = None if field.may_lack and not text else field.read(text)
        except ValueError as error:
            raise DecodeError(f"{where}: {name}: {error}") from None
    if "close" in row:
        _check_prices(where, {name: value for name, value in row.items() if isinstance(value, float)})
    return row


def column_names(kind: str, text: str) -> dict[str, str]:
    """Parse the text `ours=theirs,...`; return a mapping of our column names to those of a file.

    `ours` is any name that we know for a column of `kind`. Raises WrongUsage for a text that is no such
    mapping, or names a column that the kind does not have.
    """
    columns = KINDS[kind].columns
    ours = {name: column for column, field in columns.items() for name in (column, *field.names)}
    found: dict[str, str] = {}
    for part in text.split(","):
        name, equals, theirs = (word.strip() for word in part.partition("="))
        if not (equals and name and theirs):
            raise WrongUsage(f"--columns: {part!r} is not OURS=THEIRS, such as height=block_height")
        if name not in ours:
            raise WrongUsage(f"--columns: {kind} have no column {name!r}, only {', '.join(columns)}")
        found[ours[name]] = theirs
    return found


def _check_prices(where: str, row: Mapping[str, float]) -> None:
    """Raise DecodeError if open or close of a day is not between its low and its high."""
    inner = [row[name] for name in ("open", "close") if name in row]
    low, high = row.get("low", min(inner)), row.get("high", max(inner))
    if not low <= min(inner) <= max(inner) <= high:
        prices = ", ".join(
            f"{name} {row[name]:g}" for name in ("open", "high", "low", "close") if name in row
        )
        raise DecodeError(f"{where}: {prices}: first and last must lie between lowest and highest")
