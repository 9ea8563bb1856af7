"""Put imported rows into their tables, and say where they are from."""

import hashlib
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from collector.dataset.open import Dataset
from collector.dataset.schema import Table
from collector.dataset.schema.external import EXTERNAL_SOURCES
from collector.dataset.writer import to_batch
from collector.errors import DatasetError, SettingsError
from collector.external.readers import KINDS, Row, read_rows

STEM_DIGITS: Final = 16
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


class Origin(NamedTuple):
    """Where a file is from."""

    source: str  # short name of who says so
    licence: str
    url: str


class Imported(NamedTuple):
    """What came of an import."""

    table: str
    n_rows: int  # in the file
    n_new: int


def import_file(
    dataset: Dataset, kind: str, path: Path, origin: Origin, *, currency: str = "USD"
) -> Imported:
    """Import a file; rows that are there already are left alone, and so is a file that is.

    Raises DecodeError when the file is not what it should be, SettingsError for an incomplete origin, and
    DatasetError when the source says something else than it said before.
    """
    _check_origin(origin)
    table = KINDS[kind][0]
    now_us = time.time_ns() // 1000
    rows = [{"source": origin.source, **row} for row in read_rows(kind, path)]
    if kind == "arrivals":
        rows = _earliest(rows)
    if kind == "prices":
        rows = [{"currency": currency, "imported_at": now_us, **row} for row in rows]
    digest = hashlib.sha256(path.read_bytes()).digest()
    with dataset.backfill_lock():
        known = dataset.read(EXTERNAL_SOURCES).to_pylist()
        if any(
            (row["source"], row["kind"], row["file_sha256"]) == (origin.source, kind, digest) for row in known
        ):
            return Imported(table.name, len(rows), 0)
        new = _new_rows(dataset, table, rows)
        stem = f"import-{origin.source}-{digest.hex()[:STEM_DIGITS]}"
        if new:
            dataset.write(table, new, stem=stem)
        about = {**origin._asdict(), "kind": kind, "file_name": path.name, "file_sha256": digest}
        dataset.write(
            EXTERNAL_SOURCES, [{**about, "imported_at": now_us, "n_rows": len(new)}], stem=f"{stem}-{kind}"
        )
    return Imported(table.name, len(rows), len(new))


def _earliest(arrivals: Sequence[Row]) -> list[Row]:
    """Keep the first arrival of each block: a node connects a block again after a reorganisation."""
    first: dict[bytes, Row] = {}
    for row in arrivals:
        kept = first.setdefault(row["block_hash"], row)
        if row["arrived_at"] < kept["arrived_at"]:
            first[row["block_hash"]] = row
    return list(first.values())


def _check_origin(origin: Origin) -> None:
    if not _NAME.fullmatch(origin.source):
        raise SettingsError(
            f"--source {origin.source!r} is no short name: use lower case letters, digits, dot and dash"
        )
    for name, value in (("--licence", origin.licence), ("--url", origin.url)):
        if not value.strip():
            raise SettingsError(
                f"{name} is empty; say under which terms the file is given, and where it is from"
            )


def _new_rows(dataset: Dataset, table: Table, rows: Sequence[Row]) -> list[Row]:
    """Leave out what is there; refuse what contradicts it, and what a file says twice."""
    # Through Arrow, so that what is compared has the same types on both sides.
    stored = dataset.read(table).to_pylist()
    given = to_batch(table, rows).to_pylist()
    known = {_key(table, row): row for row in stored}
    new = []
    seen = set()
    for number, (row, typed) in enumerate(zip(rows, given, strict=True), start=1):
        key = _key(table, typed)
        if key in seen:
            raise DatasetError(
                f"row {number} of the file is about {_named(table, typed)}, as an earlier one is"
            )
        seen.add(key)
        if key not in known:
            new.append(row)
        elif _said(known[key]) != _said(typed):
            raise DatasetError(
                f"{typed['source']} said otherwise about {_named(table, typed)} before; "
                "import what is new under another --source"
            )
    return new


def _key(table: Table, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in table.grain)


def _said(row: Mapping[str, Any]) -> Row:
    return {name: value for name, value in row.items() if name != "imported_at"}


def _named(table: Table, row: Mapping[str, Any]) -> str:
    values = (row[name] for name in table.grain if name != "source")
    return ", ".join(value[::-1].hex() if isinstance(value, bytes) else str(value) for value in values)
