"""Store imported rows in their tables, with a row in `external_sources` that says where they are from."""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from collector.dataset.open import Dataset
from collector.dataset.parquet_files import to_batch
from collector.dataset.rows import ExternalSourceRow
from collector.dataset.schema import Table, hash_hex
from collector.dataset.schema.external import EXTERNAL_SOURCES
from collector.errors import DatasetError, DecodeError, RowRefused, WrongUsage
from collector.external import fields
from collector.external.kinds import KINDS, Value, Values
from collector.external.readers import NO_NAMES, read_rows
from collector.log import excerpt, printable

STEM_DIGITS: Final = 16
HASH_BYTES: Final = 32
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://\S+")
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_OURS = {"observed", "backfilled", "own"}  # marts name with these what our own nodes told, and our own clock


class Origin(NamedTuple):
    """Says who published a file, under which licence, and at which address."""

    source: str  # short name of who says so
    licence: str
    url: str


class Imported(NamedTuple):
    """Says how many rows an imported file has, how many of them were new and stored, and in which table."""

    table: str
    n_rows: int  # in the file
    n_new: int


class ImportFile(NamedTuple):
    """Holds the rows of a file that was read and checked, and the row of `external_sources` about it."""

    kind: str
    table: Table
    origin: Origin
    rows: list[Values]
    batch: pa.RecordBatch  # the same rows with the types of the table
    numbers: list[int]  # which row of the file each of them is, from 1
    about: ExternalSourceRow


def read_import(
    kind: str,
    path: Path,
    origin: Origin,
    *,
    currency: str = "USD",
    theirs: Mapping[str, str] = NO_NAMES,
    read: Callable[[Path], Iterable[Values]] | None = None,
) -> ImportFile:
    """Read and check a file of kind `kind` and return its rows with their origin; nothing is stored.

    `theirs` and `read` are those of `read_rows`. Raises DecodeError when the file cannot be read or has two
    rows for the same thing, WrongUsage for an incomplete origin.
    """
    _check_origin(origin, currency)
    table = KINDS[kind].table
    now_us = time.time_ns() // 1000
    added: Values = {"source": origin.source}
    if kind == "prices":
        added["currency"] = currency
    if table.day_column == "imported_at":
        added["imported_at"] = now_us
    rows = [added | row for row in read_rows(kind, path, theirs=theirs, read=read)]
    kept = _earliest(rows) if kind == "arrivals" else range(len(rows))
    rows, numbers = [rows[at] for at in kept], [at + 1 for at in kept]
    _refuse_repetitions(path, table, rows)
    try:
        batch = to_batch(table, rows)
    except RowRefused as error:
        raise DecodeError(f"{path}: {error}") from None
    about: ExternalSourceRow = {
        "source": origin.source,
        "kind": kind,
        "licence": origin.licence,
        "url": origin.url,
        # A name on disk is bytes, and need not be text.
        "file_name": os.fsencode(path.name).decode(errors="replace"),
        "file_sha256": _digest(path),
        "imported_at": now_us,
        "n_rows": 0,
    }
    return ImportFile(kind, table, origin, rows, batch, numbers, about)


def store_import(dataset: Dataset, file: ImportFile) -> Imported:
    """Store the rows of a file that the dataset lacks, and return the counts; store no file twice.

    Raises DatasetError when a row contradicts one that the same source gave before, or when the file was
    imported before and other rows were read from it. Nothing of the file is stored when it raises anything,
    as at Ctrl-C. What a kill leaves is removed by the next call.
    """
    key = (file.origin.source, file.kind, file.about["file_sha256"])
    with dataset.backfill_lock():
        dataset.remove_unfinished_files()
        sources = dataset.read(EXTERNAL_SOURCES).to_pylist()
        if any((row["source"], row["kind"], row["file_sha256"]) == key for row in sources):
            _refuse_other_reading(file, _new_rows(dataset, file))
            return Imported(file.table.name, len(file.rows), 0)
        stem = f"import-{file.origin.source}-{file.about['file_sha256'].hex()[:STEM_DIGITS]}"
        _remove(dataset, file, stem)
        new = _new_rows(dataset, file)
        about: ExternalSourceRow = {**file.about, "n_rows": len(new)}
        try:
            if new:
                dataset.write(file.table, new, stem=stem)
            dataset.write(EXTERNAL_SOURCES, [about], stem=f"{stem}-{file.kind}")
        except BaseException:
            _remove(dataset, file, stem)
            raise
    return Imported(file.table.name, len(file.rows), len(new))


def _remove(dataset: Dataset, file: ImportFile, stem: str) -> None:
    """Remove the Parquet files of an import that was broken off, while nobody reads the dataset."""
    with dataset.replace_lock():
        for table, name in ((EXTERNAL_SOURCES, f"{stem}-{file.kind}"), (file.table, stem)):
            for path in (dataset.folder / table.name).glob(f"*/{name}.parquet"):
                path.unlink()


def _digest(path: Path) -> bytes:
    """Return the SHA-256 of a file; raise DecodeError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").digest()
    except OSError as error:
        raise DecodeError(f"cannot read {path}: {error.strerror}") from None


def _earliest(arrivals: Sequence[Values]) -> list[int]:
    """Return the positions of only the earliest arrival of each block, sorted by time.

    A node connects a block again after a reorganisation, so a file may have several.
    """
    times = list(map(itemgetter("arrived_at"), arrivals))
    first: dict[Value, int] = {}
    for at in sorted(range(len(times)), key=times.__getitem__):
        first.setdefault(arrivals[at]["block_hash"], at)
    return list(first.values())


def _check_origin(origin: Origin, currency: str) -> None:
    if not _NAME.fullmatch(origin.source):
        raise WrongUsage(
            f"--source {origin.source!r} is no short name: use lower case letters, digits, dot and dash"
        )
    if origin.source in _OURS:
        raise WrongUsage(f"--source {origin.source!r} stands for our own nodes; name who published the file")
    for name, value in (("--licence", origin.licence), ("--url", origin.url), ("--currency", currency)):
        if not fields.is_text(value):
            raise WrongUsage(f"{name} {value!r} is not text in UTF-8")
    for name, value in (("--licence", origin.licence), ("--url", origin.url)):
        if not value.strip():
            raise WrongUsage(
                f"{name} is empty; say under which terms the file is given, and where it is from"
            )
    if not _ADDRESS.fullmatch(origin.url):
        raise WrongUsage(f"--url {origin.url!r} is no address; write one like https://example.org/file")


def _refuse_repetitions(path: Path, table: Table, rows: Sequence[Values]) -> None:
    """Raise DecodeError if two rows of a file have the same key (grain), such as the same block."""
    seen = set()
    for number, row in enumerate(rows, start=1):
        key = _key(table, row)
        if key in seen:
            raise DecodeError(f"{path}: row {number} is about {_named(table, row)}, as an earlier one is")
        seen.add(key)


def _new_rows(dataset: Dataset, file: ImportFile) -> list[Values]:
    """Return the rows of a file that the dataset lacks; DatasetError if one contradicts a stored row."""
    table, rows = file.table, file.rows
    given = file.batch.to_pylist()
    earlier_rows = dataset.read(table)
    for name in table.grain:  # few rows become Python objects, however many the table has
        is_named = pc.is_in(earlier_rows[name], value_set=file.batch[name].unique())
        earlier_rows = earlier_rows.filter(is_named)
    stored = {_key(table, row): row for row in earlier_rows.to_pylist()}
    new = []
    for number, row, typed in zip(file.numbers, rows, given, strict=True):
        earlier = stored.get(_key(table, typed))
        if earlier is None:
            new.append(row)
        elif _without_import_time(earlier) != _without_import_time(typed):
            raise DatasetError(
                f"{printable(file.about['file_name'])}, row {number}: {typed['source']} said otherwise about "
                f"{_named(table, typed)} before ({_changes(earlier, typed)}), and a source keeps its first "
                f"word; import a newer edition as a source of its own: --source {typed['source']}-2"
            )
    return new


def _refuse_other_reading(file: ImportFile, new: Sequence[Values]) -> None:
    """Raise DatasetError if `new` has rows, which the dataset lacks although the file was imported before."""
    if new:
        raise DatasetError(
            f"{printable(file.about['file_name'])}: This file was imported before with other options or "
            f"another version, and {len(new):,} of its rows differ now. Those stored first stay. To keep "
            f"both, import it again with --source {file.origin.source}-2."
        )


def _key(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values that identify a row of `table` (its grain) as a tuple."""
    return tuple(row[name] for name in table.grain)


def _changes(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return a text on each value that differs between a stored row and one of a file, such as a label."""
    names = [name for name in _without_import_time(now) if earlier[name] != now[name]]
    return ", ".join(f"{name} was {_shown(earlier[name])}, is now {_shown(now[name])}" for name in names)


def _shown(value: object) -> str:
    """Return a value of a row as text for a terminal; a hash is in display order."""
    if isinstance(value, bytes):
        return excerpt(hash_hex(value) if len(value) == HASH_BYTES else value.hex())
    return "nothing" if value is None else excerpt(str(value))


def _without_import_time(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "imported_at"}


def _named(table: Table, row: Mapping[str, Any]) -> str:
    """Return the values that identify a row, except the source, as text; hashes are in display order."""
    values = (row[name] for name in table.grain if name != "source")
    return ", ".join(value[::-1].hex() if isinstance(value, bytes) else str(value) for value in values)
