"""Build all marts in worlds where analyses break: no block, one block, and many faults at once."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from analysis.catalog import Model, load_catalog
from analysis.database import open_database
from analysis.engine import build
from tests.analysis.world import write_world

RULES = Path(__file__).parent / "cases" / "pools"
MARTS = load_catalog().layer("marts")
DAY = 86_400
Tables = dict[str, list[dict[str, Any]]]


def two_mempools() -> Tables:
    """Return a world of two nodes: a stale block that one of them followed, and a race at the tip."""
    pools = {"a1": "", "s2": "/Beta/", "b2": "/Alpha/", "b3": "/Alpha/", "c3": "/Beta/"}
    parents = {"s2": "a1", "b2": "a1", "b3": "b2", "c3": "b2"}
    stream = {
        "m": [("C", "a1", 10), ("C", "s2", 20), ("D", "s2", 30), ("C", "b2", 31), ("C", "b3", 40)],
        "n": [("C", "a1", 11), ("C", "b2", 29), ("C", "b3", 41)],
    }
    events = [
        {"node": node, "event": event, "hash": block, "received_at": time}
        for node, those in stream.items()
        for event, block, time in those
    ]
    seen = [
        {"node": row["node"], "block_hash": row["hash"], "event": "seen", "event_at": row["received_at"]}
        for row in (*events, {"node": "n", "event": "C", "hash": "c3", "received_at": 42})
        if row["event"] == "C"
    ]
    txs = [
        {"node": node, "txid": txid, "entered_at": time + lag, "fee_sat": 100 * time}
        for node, lag in (("m", 0), ("n", 0.5))
        for txid, time in (("both", 2), ("again", 3), ("never", 4))
    ]
    templates = [{"node": node, "taken_at": 25} for node in "mn"]
    taken = [("s2", "both"), ("s2", "again"), ("b2", "both"), ("b3", "again")]
    return {
        "nodes": [{"node": node, "started_at": 0} for node in "mn"],
        "blocks": [
            {"block_hash": name, "height": int(name[1]), "coinbase_script": tag}
            | ({"prev_hash": parents[name]} if name in parents else {})
            for name, tag in pools.items()
        ],
        "mempool_events": events,
        "block_arrivals": seen,
        "mempool_txs": [*txs, {"node": "m", "txid": "again", "entered_at": 30.5, "fee_sat": 300}],
        "transactions": [
            {"block_hash": block, "txid": txid, "fee_sat": 200, "vsize_vb": 100, "weight_wu": 400}
            for block, txid in taken
        ],
        "coverage": [{"node": node, "from_at": 0, "to_at": 60} for node in "mn"],
        "templates": [row | {"prev_hash": "a1", "height": 2, "n_tx": 1} for row in templates],
        "template_txs": [
            row | {"tx_index": 1, "txid": "both", "fee_sat": 200, "weight_wu": 400} for row in templates
        ],
    }


def everything_wrong() -> Tables:
    """Return a world with a reorganisation, a gap, a day without blocks, unknown pools and unknown fees."""
    blocks = [
        {"block_hash": "a1", "height": 1, "coinbase_script": "/Alpha/", "arrived_at": 10, "header_time": 5},
        {"block_hash": "a2", "prev_hash": "a1", "height": 2, "arrived_at": 12, "header_time": 4},
        {"block_hash": "b2", "prev_hash": "a1", "height": 2, "coinbase_script": "/Beta/", "arrived_at": 13},
        {"block_hash": "b3", "prev_hash": "b2", "height": 3, "coinbase_script": "/Beta/", "arrived_at": 14},
        {"block_hash": "b4", "prev_hash": "b3", "height": 4, "arrived_at": 500, "n_tx": 3},
        {"block_hash": "c6", "prev_hash": "c5", "height": 6, "header_time": 2 * DAY, "n_tx": 2},
    ]
    txs: list[dict[str, Any]] = [
        {"txid": "first", "entered_at": 1, "fee_sat": 100},
        {"txid": "child", "entered_at": 2, "fee_sat": 900, "parents": "first"},
        {"txid": "unrated", "entered_at": 3},
        {"txid": "before", "entered_at": 0, "fee_sat": 50, "first_seen_kind": "at_start"},
        {"txid": "late", "entered_at": 400, "fee_sat": 70, "parents": "nowhere"},
    ]
    return {
        "blocks": blocks,
        "mempool_txs": txs,
        "transactions": [{"block_hash": "b3", "txid": "first", "fee_sat": 100, "vsize_vb": 100}],
        "mempool_events": [
            {"event": "D", "hash": "a2", "received_at": 12.5},
            {"event": "R", "hash": "unrated", "received_at": 13.5, "removal_reason": "expired_or_evicted"},
        ],
        "coverage": [
            {"topic": "mempool", "from_at": 0, "to_at": 100, "end_reason": "gap"},
            {"topic": "mempool", "from_at": 450, "to_at": 600},
        ],
        "templates": [{"taken_at": 11, "prev_hash": "a1", "height": 2, "n_tx": 1}],
        "template_txs": [{"taken_at": 11, "tx_index": 1, "txid": "child", "fee_sat": 900, "weight_wu": 400}],
    }


def from_disk_alone() -> Tables:
    """Return a world of 40 days of one pool, read from block files: no arrivals and no mempool.

    Blocks of two days have header times before their parent's, one day has no block, the subsidy halves, two
    coinbases have one txid (what BIP30 forbids since), and half of the days have no price.
    """
    days = [day for day in range(40) if day != 30]
    blocks = []
    for height, day in enumerate(days):
        early_s = 5000 if day in (7, 8) else 0
        row = {"block_hash": f"d{height}", "height": 2010 + height, "header_time": day * DAY - early_s}
        row |= {"prev_hash": f"d{height - 1}"} if height else {}
        row |= {
            "bits": 0x1D00FFFF,
            "subsidy_sat": 50 if day < 20 else 25,
            "fees_sat": day % 3,
            "n_tx": 1 + day % 2,
        }
        blocks.append(row | {"coinbase_script": "/Alpha/", "source": "blk"})
    for height in (3, 5):
        blocks[height]["coinbase_txid"] = "twice"
    twice = [{"block_hash": name, "txid": "also twice"} for name in ("d3", "d5")]
    prices = [
        {"source": "x", "currency": "USD", "day_at": day * DAY, "close": 100 + day} for day in range(0, 40, 2)
    ]
    return {"blocks": blocks, "transactions": twice, "external_prices": prices, "coverage": []}


def two_nodes() -> Tables:
    """Return a world with a fork that two nodes saw in different order; the second one has a gap."""
    blocks = [
        {"block_hash": "a1", "height": 1, "coinbase_script": "/Alpha/"},
        {"block_hash": "a2", "prev_hash": "a1", "height": 2, "coinbase_script": "/Alpha/", "header_time": 50},
        {"block_hash": "b2", "prev_hash": "a1", "height": 2, "coinbase_script": "/Beta/", "header_time": 60},
        {"block_hash": "b3", "prev_hash": "b2", "height": 3, "coinbase_script": "/Beta/", "header_time": 55},
    ]
    seen = [
        ("m", "a1", 1),
        ("n", "a1", 2),
        ("n", "a2", 70),
        ("m", "b2", 71),
        ("m", "a2", 72),
        ("m", "b3", 200),
    ]
    seen += [("n", "b2", 73)]
    arrivals = [
        {"node": node, "block_hash": name, "event_at": time, "event": "seen"} for node, name, time in seen
    ]
    fetched = {"node": "n", "block_hash": "b3", "event_at": 300, "event": "seen", "kind": "pulled"}
    coverage = [
        {"node": node, "topic": topic, "from_at": start, "to_at": end, "end_reason": "gap"}
        for node, start, end in (("m", 0, 400), ("n", 0, 100), ("n", 290, 400))
        for topic in ("rawblock", "mempool")
    ]
    nodes = [{"node": node, "started_at": 0} for node in "mn"]
    return {"nodes": nodes, "blocks": blocks, "block_arrivals": [*arrivals, fetched], "coverage": coverage}


WORLDS = {
    "nothing_at_all": {},
    "one_single_block": {"blocks": [{"block_hash": "a1", "height": 1, "arrived_at": 10}]},
    "two_mempools": two_mempools(),
    "everything_wrong": everything_wrong(),
    "from_disk_alone": from_disk_alone(),
    "two_nodes": two_nodes(),
}


@pytest.fixture(scope="module", params=WORLDS, ids=str)
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Build one world, in which no check fails, and return the rows of every mart."""
    folder = tmp_path_factory.mktemp("ugly")
    dataset = write_world(folder / "dataset", WORLDS[request.param])
    result = build(dataset, RULES, folder / "a.duckdb")
    assert [check.name for check in result.failed_checks] == []
    with open_database(result.database) as connection:
        return {
            model.name: connection.sql(f"FROM {model.name}").to_arrow_table().to_pylist() for model in MARTS
        }


def values(model: Model, rows: dict[str, list[Any]], word: str) -> Iterator[tuple[str, Any]]:
    """Yield values of the columns whose meaning begins with `word`, each after a text that locates it."""
    for column in model.columns:
        if column.doc.startswith(word):
            for row in rows[model.name]:
                if row[column.name] is not None:
                    yield f"{model.name}.{column.name} in {row}", row[column.name]


def test_no_number_is_infinite_or_none(rows: dict[str, list[Any]]) -> None:
    """No mart has NaN or an infinite number; an unknown value is null."""
    found = [
        (name, column, value)
        for name, those in rows.items()
        for row in those
        for column, value in row.items()
        if isinstance(value, float) and not math.isfinite(value)
    ]

    assert found == []


def test_a_part_is_between_0_and_1(rows: dict[str, list[Any]]) -> None:
    """Every column whose meaning begins with 0..1 has values in that range."""
    wrong = [place for model in MARTS for place, value in values(model, rows, "0..1") if not 0 <= value <= 1]

    assert wrong == []


def test_a_number_lies_in_its_interval(rows: dict[str, list[Any]]) -> None:
    """Wherever a value and both its bounds are present, they are in order: low, value, high."""
    wrong = []
    for name, those in rows.items():
        for row in those:
            for low in [column for column in row if "_low" in column]:
                column = low.replace("_low", "")
                if column not in row:  # halving_effect: a range of placebo dates, no interval
                    continue
                values = row[low], row[column], row[low.replace("_low", "_high")]
                if None not in values and list(values) != sorted(values):
                    wrong.append((name, column, row))

    assert wrong == []
