"""A small dataset in which everything is as it must be: three blocks, seven messages, one template."""

from pathlib import Path
from typing import Any

from collector.schema import TABLES
from collector.writer import Dataset

Rows = dict[str, list[dict[str, Any]]]

START_US = 20_000 * 86_400_000_000  # 2024-10-04
ORIGIN = {"node": "n", "session": "s"}
FIRST_HEIGHT = 100


def name(text: str) -> bytes:
    """Make a hash that can be told from others."""
    return text.encode().ljust(32, b"\x01")


# What the node sent: letter, hash, mempool sequence. b101 mines what was there at the start, and t1.
MESSAGES: tuple[tuple[str, str, int | None], ...] = (
    ("A", "t1", 10),
    ("A", "t2", 11),
    ("C", "b101", None),
    ("A", "t3", 14),
    ("R", "t2", 15),
    ("C", "b102", None),
    ("A", "t4", 17),
)
MINED = {100: (), 101: ("t0", "t1"), 102: ("t3",)}


def at_us(sequence: int) -> int:
    """Tell when a message came."""
    return START_US + (sequence + 1) * 1_000_000


def make_rows() -> Rows:
    """Make the rows of every table that has some."""
    rows: Rows = {
        "nodes": [_node()],
        "mempool_events": [_event(number, *message) for number, message in enumerate(MESSAGES)],
        "mempool_txs": [
            _entry(number, *message) for number, message in enumerate(MESSAGES) if message[0] == "A"
        ],
        "coverage": [_interval(topic, *part) for topic in ("sequence", "mempool") for part in PARTS],
        "blocks": [_block(height) for height in MINED],
        "transactions": [row for height in MINED for row in _transactions(height)],
        "block_arrivals": [_arrival(2, 101), _arrival(5, 102)],
    }
    told = {**_entry(0, "A", "t0", None), "first_seen_kind": "at_start", "entered_at": START_US}
    rows["mempool_txs"].append(told)
    rows["templates"] = [
        {**ORIGIN, "taken_at": START_US + 5, "request_us": 9, "trigger": "tip", "height": 101}
        | {"prev_hash": name("b100"), "node_time": 1_728_000_000, "n_tx": 2, "weight_wu": 800, "n_sigops": 8}
        | {"fees_sat": 20, "coinbase_value_sat": 50}
    ]
    rows["template_txs"] = [
        {**ORIGIN, "taken_at": START_US + 5, "tx_index": index, "txid": name(f"t{index}"), "fee_sat": 10}
        | {"weight_wu": 400, "n_sigops": 4, "parents": [1] if index == 2 else []}
        for index in (1, 2)
    ]
    return rows


PARTS = ((0, 3, "sealed"), (4, 6, "shutdown"))


def _interval(topic: str, first: int, last: int, reason: str) -> dict[str, Any]:
    begin = START_US if first == 0 else at_us(first - 1)
    counters = {"first_sequence": first, "last_sequence": last, "n_messages": last - first + 1}
    return {
        **ORIGIN,
        "topic": topic,
        "from_at": begin,
        "to_at": at_us(last),
        **counters,
        "end_reason": reason,
    }


def _event(number: int, letter: str, hash_: str, mempool_sequence: int | None) -> dict[str, Any]:
    row = {**ORIGIN, "sequence": number, "kind": "pushed", "received_at": at_us(number), "event": letter}
    row |= {"hash": name(hash_), "mempool_sequence": mempool_sequence}
    if letter == "R":
        row |= {"removal_reason": "replaced", "replaced_by": name("t3")}
    return row


def _entry(number: int, _letter: str, txid: str, mempool_sequence: int | None) -> dict[str, Any]:
    sizes = {
        "size_bytes": 100,
        "weight_wu": 400,
        "vsize_vb": 100,
        "fee_sat": 10,
        "fee_source": "mempool_entry",
    }
    row = {**ORIGIN, "txid": name(txid), "entered_at": at_us(number), "first_seen_kind": "pushed"}
    return row | sizes | {"mempool_sequence": mempool_sequence, "ancestor_count": 1, "descendant_count": 1}


def _block(height: int) -> dict[str, Any]:
    n_tx = 1 + len(MINED[height])
    row = {"block_hash": name(f"b{height}"), "height": height, "height_source": "rpc", "version": 4}
    row |= {
        "prev_hash": name(f"b{height - 1}"),
        "merkle_root": name("m"),
        "header_time": 1_728_000_000 + height,
    }
    row |= {"bits": 0x1D00FFFF, "nonce": height, "size_bytes": 100 * n_tx, "stripped_bytes": 100 * n_tx}
    row |= {"weight_wu": 400 * n_tx, "n_tx": n_tx, "n_segwit_tx": 0, "n_inputs": n_tx - 1, "n_outputs": n_tx}
    row |= {"output_value_sat": 90 * (n_tx - 1), "fees_sat": 10 * (n_tx - 1), "subsidy_sat": 50}
    row |= {"coinbase_txid": name(f"c{height}"), "coinbase_value_sat": 50, "coinbase_script": b"\x01\x64"}
    row |= {"coinbase_outputs": [{"value_sat": 50, "script": b"\x51"}], "verdict": "valid"}
    return row | {"verified_by": "cpu", "source": "zmq"}


def _transactions(height: int) -> list[dict[str, Any]]:
    rows = []
    for index, txid in enumerate((f"c{height}", *MINED[height])):
        row = {"block_hash": name(f"b{height}"), "height": height, "tx_index": index, "txid": name(txid)}
        row |= {"wtxid": name(txid), "version": 2, "locktime": 0, "size_bytes": 100, "weight_wu": 400}
        row |= {"vsize_vb": 100, "n_inputs": 1, "n_outputs": 1, "output_value_sat": 90 if index else 50}
        row |= {"input_value_sat": 100 if index else None, "fee_sat": 10 if index else None}
        row |= {"is_coinbase": not index, "has_witness": False, "signals_rbf": False, "parents": []}
        rows.append(
            row | {"output_types": ["nonstandard"], "effective_feerate_sat_vb": 0.1 if index else None}
        )
    return rows


def _arrival(sequence: int, height: int) -> dict[str, Any]:
    row = {**ORIGIN, "block_hash": name(f"b{height}"), "event": "connected", "event_at": at_us(sequence)}
    return row | {"kind": "pushed", "height": height, "prev_hash": name(f"b{height - 1}")}


def _node() -> dict[str, Any]:
    row = {**ORIGIN, "started_at": START_US, "chain": "regtest", "node_version": 290000, "subversion": "/x/"}
    row |= {"tip_height": 100, "tip_hash": name("b100"), "n_mempool_at_start": 1, "policy": "{}", "zmq": "{}"}
    return row | {"collector_version": "0", "software": "{}", "settings": "{}"}


def write(root: Path, rows: Rows, stem: str = "00000001-0123456789abcdef") -> Dataset:
    """Write rows as one seal does."""
    dataset = Dataset.open(root, "regtest", create=True)
    for table_name, each in rows.items():
        if each:
            dataset.write(TABLES[table_name], each, stem=stem)
    return dataset
