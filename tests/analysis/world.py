"""Write small worlds, which tests describe row by row, as datasets of the contract.

A row gives the columns that matter, as text or as Python values; the others are null or zero. Hashes and
txids are labels of at most 32 characters, times are seconds after `START`, lists are separated by spaces;
`-` is an empty list.

Shortcuts, so that a case can be read:
- a block's `arrived_at` makes it seen and connected at that time at node `n`, with its C in the stream;
- transactions are listed without the coinbase; a block without listed ones gets `n_tx - 1` of its own;
- a block whose `rows` are `-` has no rows in `transactions`, not even of its coinbase;
- without rows of `coverage`, everything is observed.
"""

import csv
import datetime as dt
import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from collector.dataset.schema import DATASET_FORMAT, DATASET_MARKER, DATASET_VERSION, TABLES, Table

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "": {"node": "n", "session": "s", "chain": "regtest"},
    "blocks": {"verdict": "valid", "source": "zmq", "n_tx": 1},
    "mempool_txs": {"first_seen_kind": "pushed", "vsize_vb": 100},
    "mempool_events": {"kind": "pushed"},
    "block_arrivals": {"kind": "pushed"},
    "coverage": {"topic": "mempool", "end_reason": "shutdown"},
}
NO_ITEMS = "-"
EVERYTHING = {"from_at": -1e6, "to_at": 1e7}

Rows = Iterable[Mapping[str, Any]]


def label_bytes(label: str) -> bytes:
    """Turn a label into the 32 bytes of a hash that stands for it."""
    return label.encode().ljust(32, b"\0")


def label_of(value: bytes) -> str:
    """Turn the bytes of a hash from `label_bytes` back into the label."""
    return value.rstrip(b"\0").decode()


def at(seconds: float) -> dt.datetime:
    """Return the UTC time that is `seconds` after the start of the world."""
    return START + dt.timedelta(seconds=seconds)


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read the rows of a CSV file; empty fields are left out, so that they take their default."""
    with path.open(newline="") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [{key.strip(): value.strip() for key, value in row.items() if value.strip()} for row in rows]


def write_world(root: Path, tables: Mapping[str, Rows], *, chain: str = "regtest") -> Path:
    """Write a dataset of these rows, with the shortcuts above applied; return its folder."""
    root.mkdir(parents=True, exist_ok=True)
    marker = {"format": DATASET_FORMAT, "version": DATASET_VERSION}
    (root / DATASET_MARKER).write_text(json.dumps(marker))
    for name, rows in world_rows(tables).items():
        write_table(root / f"chain={chain}" / name / "part=0" / "a.parquet", TABLES[name], rows)
    return root


def world_rows(tables: Mapping[str, Rows]) -> dict[str, list[dict[str, Any]]]:
    """Apply the shortcuts above; return the rows of each table that has any."""
    filled: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, rows in tables.items():
        filled[name] = [dict(row) for row in rows]
    filled["nodes"] = filled["nodes"] or [{"started_at": 0}]
    _arrive(filled)
    _fill_transactions(filled)
    if "coverage" not in tables:
        topics = ("sequence", "rawtx", "rawblock", "mempool")
        filled["coverage"] = [EVERYTHING | {"topic": topic} for topic in topics]
    return {name: rows for name, rows in filled.items() if rows}


def write_table(path: Path, table: Table, rows: Rows) -> None:
    """Write rows of one table as one Parquet file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow_table(table, rows), path)


def arrow_table(table: Table, rows: Rows) -> pa.Table:
    """Return rows of one table with all its columns."""
    return pa.Table.from_pylist([contract_row(table, row) for row in rows], schema=table.arrow)


def contract_row(table: Table, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row with all columns of its table, each of the contract's type."""
    given = {**DEFAULTS[""], **DEFAULTS.get(table.name, {}), **row}
    names = {column.name for column in table.columns}
    unknown = row.keys() - names
    assert not unknown, f"{table.name} has no column {unknown}"
    values = {}
    for column in table.columns:
        if column.name in given:
            values[column.name] = _value(column.type, given[column.name])
        else:
            values[column.name] = None if column.nullable else _zero(column.type)
    return values


def _value(type_: pa.DataType, value: Any) -> Any:
    """Convert a text or a Python value into a value of an Arrow type."""
    if pa.types.is_list(type_):
        items = value.split() if isinstance(value, str) else value
        return [] if value == NO_ITEMS else [_value(type_.value_type, item) for item in items]
    if pa.types.is_struct(type_):
        value_sat, _, script = value.partition(":")
        return {"value_sat": int(value_sat), "script": bytes.fromhex(script)}
    return CONVERTERS.get(str(type_), str)(value)


CONVERTERS: Mapping[str, Callable[[Any], Any]] = {
    "fixed_size_binary[32]": label_bytes,
    "binary": str.encode,
    "timestamp[us, tz=UTC]": lambda value: at(float(value)),
    "timestamp[s, tz=UTC]": lambda value: at(float(value)),
    "int32": int,
    "int64": int,
    "double": float,
    "bool": lambda value: str(value).lower() == "true",
}


def _zero(type_: pa.DataType) -> Any:
    if pa.types.is_timestamp(type_):
        return START
    if pa.types.is_fixed_size_binary(type_):
        return bytes(type_.byte_width)
    if pa.types.is_list(type_):
        return []
    zeros = {"string": "", "binary": b"", "bool": False}
    return zeros.get(str(type_), 0)


def _arrive(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Turn `arrived_at` of blocks into rows of arrivals and C events, then number the stream."""
    for block in tables["blocks"]:
        time = block.pop("arrived_at", None)
        if time is None:
            continue
        arrival = {"block_hash": block["block_hash"], "height": block["height"], "event_at": time}
        tables["block_arrivals"] += [arrival | {"event": "seen"}, arrival | {"event": "connected"}]
        tables["mempool_events"].append({"event": "C", "hash": block["block_hash"], "received_at": time})
    events = tables["mempool_events"]
    events.sort(key=lambda event: (float(event["received_at"]), int(event.get("sequence", 0))))
    for number, event in enumerate(events):
        event.setdefault("sequence", number)


def _fill_transactions(tables: dict[str, list[dict[str, Any]]]) -> None:
    """Give every block a coinbase and its listed transactions, or as many as its `n_tx` says."""
    listed: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in tables["transactions"]:
        listed[row["block_hash"]].append(row)
    tables["transactions"] = []
    for block in tables["blocks"]:
        name = block["block_hash"]
        if block.pop("rows", None) == NO_ITEMS:
            continue
        rows = listed[name] or [{"txid": f"{name}/{i}"} for i in range(1, int(block.get("n_tx", 1)))]
        block["n_tx"] = len(rows) + 1
        coinbase = {"txid": f"{name}/0", "is_coinbase": True}
        for tx_index, row in enumerate([coinbase, *rows]):
            place = {"block_hash": name, "height": block["height"], "tx_index": tx_index}
            tables["transactions"].append(place | row)
