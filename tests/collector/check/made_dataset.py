"""Make a small dataset without a fault: three blocks, seven messages, one template."""

import struct
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bitcoin.core import COutPoint, CScript, CTransaction, CTxIn, CTxOut

import gpuhash
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES

Rows = dict[str, list[dict[str, Any]]]

START_US = 20_000 * 86_400_000_000  # 2024-10-04
ORIGIN = {"node": "n", "session": "s"}
FIRST_HEIGHT = 100
BITS = 0x207FFFFF  # half of all hashes meet this target
COINS_SAT = 5_000_000_000
BEFORE = b"\x02" * 32  # parent of the first block


def name(text: str) -> bytes:
    """Return a made-up hash that starts with `text`."""
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
MINED: dict[int, tuple[str, ...]] = {100: (), 101: ("t0", "t1"), 102: ("t3",)}


class Header(NamedTuple):
    """Holds the parts of a header that vary, and its hash."""

    prev_hash: bytes
    merkle_root: bytes
    nonce: int
    block_hash: bytes


@cache
def header(height: int) -> Header:
    """Mine the header of the block at `height`, on the header below it."""
    prev_hash = header(height - 1).block_hash if height > FIRST_HEIGHT else BEFORE
    txids = coinbase(height).GetTxid() + b"".join(map(name, MINED.get(height, ())))
    root = gpuhash.merkle_root(np.frombuffer(txids, np.uint8).reshape(-1, 32)).root
    target = gpuhash.target_from_bits(BITS)
    nonce = 0
    while True:
        packed = struct.pack("<i32s32sIII", 4, prev_hash, root, time_s(height), BITS, nonce)
        block_hash = gpuhash.sha256d_headers(np.frombuffer(packed, np.uint8).reshape(1, -1)).tobytes()
        if int.from_bytes(block_hash, "little") <= target:
            return Header(prev_hash, root, nonce, block_hash)
        nonce += 1


@cache
def coinbase(height: int) -> CTransaction:
    """Make the coinbase of the block at `height`."""
    spends_nothing = CTxIn(COutPoint(bytes(32), 0xFFFFFFFF), CScript([height, 7]), 0xFFFFFFFE)
    return CTransaction([spends_nothing], [CTxOut(50, CScript(b"\x51"))], height - 1, 2)


def time_s(height: int) -> int:
    """Return the header time of the block at `height`."""
    return 1_728_000_000 + height


def hash_of(text: str) -> bytes:
    """Return the hash of a block (`b` and its height) or of a transaction."""
    return header(int(text[1:])).block_hash if text.startswith("b") else name(text)


def at_us(sequence: int) -> int:
    """Return the time at which the message with this counter came, in microseconds."""
    return START_US + (sequence + 1) * 1_000_000


def make_rows() -> Rows:
    """Make the rows of a session, without rows from snapshots and imports."""
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
        | {
            "prev_hash": header(100).block_hash,
            "node_time": 1_728_000_000,
            "n_tx": 2,
            "weight_wu": 800,
            "n_sigops": 8,
        }
        | {"fees_sat": 20, "coinbase_value_sat": 50}
    ]
    rows["template_txs"] = [
        {**ORIGIN, "taken_at": START_US + 5, "tx_index": index, "txid": name(f"t{index}"), "fee_sat": 10}
        | {"weight_wu": 400, "n_sigops": 4, "parents": [1] if index == 2 else []}
        for index in (1, 2)
    ]
    return rows


def make_all_rows() -> Rows:
    """Make the rows of `make_rows`, rows that come from a snapshot, and imported rows."""
    rows = make_rows()
    found = {**ORIGIN, "txid": name("t5"), "entered_at": START_US + 2, "first_seen_kind": "pulled"}
    event = {**ORIGIN, "sequence": -1, "kind": "pulled", "received_at": START_US + 2, "event": "A"}
    tip = {**_arrival(0, 100), "event_at": START_US, "kind": "at_start"}
    rows["block_arrivals"] += [tip, {**_arrival(5, 102), "event": "seen"}]
    rows["chain_tips"] = [
        {**ORIGIN, "taken_at": at_us(6), "block_hash": header(102).block_hash, "height": 102}
        | {"branch_length": 0, "status": "active"}
    ]
    rows["coverage"].append(_interval("rawblock", 0, 0, "shutdown"))
    rows["mempool_txs"].append(found)
    rows["mempool_events"].append({**event, "hash": name("t5")})
    kept = coinbase(FIRST_HEIGHT)
    body = {**ORIGIN, "txid": kept.GetTxid(), "kept_at": at_us(3), "kept_because": "left"}
    rows["mempool_bodies"] = [body | {"raw": kept.serialize()}]
    rows["external_sources"] = [
        {"source": "x", "kind": "labels", "licence": "none", "url": "file", "file_name": "x.csv"}
        | {"file_sha256": name("x"), "imported_at": START_US, "n_rows": 1}
    ]
    rows["external_pool_labels"] = [{"source": "x", "height": FIRST_HEIGHT, "label": "y"}]
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
    row |= {"hash": hash_of(hash_), "mempool_sequence": mempool_sequence}
    if letter == "R":
        row |= {"removal_reason": "replaced", "replaced_by": name("t4")}
    return row


def _entry(number: int, _letter: str, txid: str, mempool_sequence: int | None) -> dict[str, Any]:
    sizes = {
        "size_bytes": 100,
        "weight_wu": 400,
        "vsize_vb": 100,
        "fee_sat": 10,
        "fee_source": "mempool_entry",
    }
    row = {
        **ORIGIN,
        "txid": name(txid),
        "wtxid": name(txid),
        "entered_at": at_us(number),
        "first_seen_kind": "pushed",
    }
    return row | sizes | {"mempool_sequence": mempool_sequence, "ancestor_count": 1, "descendant_count": 1}


def _block(height: int) -> dict[str, Any]:
    n_tx = 1 + len(MINED[height])
    size_bytes = 81 + 100 * n_tx
    mined = header(height)
    row = {"block_hash": mined.block_hash, "height": height, "height_source": "rpc", "version": 4}
    row |= {"prev_hash": mined.prev_hash, "merkle_root": mined.merkle_root, "header_time": time_s(height)}
    row |= {"bits": BITS, "nonce": mined.nonce, "size_bytes": size_bytes, "stripped_bytes": size_bytes}
    row |= {"weight_wu": 4 * size_bytes, "n_tx": n_tx, "n_segwit_tx": 0, "n_inputs": n_tx - 1}
    row |= {"n_outputs": n_tx, "output_value_sat": 90 * (n_tx - 1), "fees_sat": 10 * (n_tx - 1)}
    row |= {"subsidy_sat": COINS_SAT, "coinbase_txid": coinbase(height).GetTxid(), "coinbase_value_sat": 50}
    row |= {"coinbase_script": bytes(coinbase(height).vin[0].scriptSig), "coinbase_version": 2}
    row |= {"coinbase_outputs": [{"value_sat": 50, "script": b"\x51"}], "coinbase_sequence": 0xFFFFFFFE}
    row |= {"coinbase_locktime": height - 1}
    return row | {"verdict": "valid", "verified_by": "cpu", "source": "zmq"}


def _transactions(height: int) -> list[dict[str, Any]]:
    rows = []
    for index, txid in enumerate((coinbase(height).GetTxid(), *map(name, MINED[height]))):
        row = {
            "block_hash": header(height).block_hash,
            "height": height,
            "tx_index": index,
            "txid": txid,
        }
        row |= {"wtxid": txid, "version": 2, "locktime": 0, "size_bytes": 100, "weight_wu": 400}
        row |= {"vsize_vb": 100, "n_inputs": 1, "n_outputs": 1, "output_value_sat": 90 if index else 50}
        row |= {"input_value_sat": 100 if index else None, "fee_sat": 10 if index else None}
        row |= {"is_coinbase": not index, "has_witness": False, "signals_rbf": False, "parents": []}
        rows.append(
            row | {"output_types": ["nonstandard"], "effective_feerate_sat_vb": 0.1 if index else None}
        )
    return rows


def _arrival(sequence: int, height: int) -> dict[str, Any]:
    mined = header(height)
    row = {**ORIGIN, "block_hash": mined.block_hash, "event": "connected", "event_at": at_us(sequence)}
    return row | {"kind": "pushed", "height": height, "prev_hash": mined.prev_hash}


def _node() -> dict[str, Any]:
    row = {**ORIGIN, "started_at": START_US, "chain": "regtest", "node_version": 290000, "subversion": "/x/"}
    row |= {
        "tip_height": 100,
        "tip_hash": header(100).block_hash,
        "n_mempool_at_start": 1,
        "policy": "{}",
        "zmq": "{}",
    }
    return row | {"collector_version": "0", "software": "{}", "settings": "{}"}


def write(root: Path, rows: Rows, stem: str = "00000001-0123456789abcdef") -> Dataset:
    """Write rows into a new or existing dataset under one stem, as a seal does."""
    dataset = Dataset.open(root, "regtest", create=True)
    for table_name, each in rows.items():
        if each:
            dataset.write(TABLES[table_name], each, stem=stem)
    return dataset
