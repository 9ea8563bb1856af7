"""Compare out-of-band candidates with planted ones, for three pools.

One pool runs stock software, one takes transactions that somebody paid it for, one ignores fees.
"""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from analysis.database import open_database
from analysis.engine import build
from collector.regtest.selection import (
    Candidate,
    feerate_order,
    fill,
    first_come_order,
    out_of_band_order,
)
from tests.analysis.world import label_of, write_world

RULES = Path(__file__).parent / "cases" / "pools"
BLOCK_WU = 24_000
INTERVAL_S = 600
TEMPLATE_AGE_S = 40
POOLS = (
    ("alpha", "/Alpha/", feerate_order),
    ("beta", "/Beta/", out_of_band_order),
    ("gamma", "/Gamma/", first_come_order),
)
Tables = dict[str, list[dict[str, Any]]]


def name(entry: Candidate) -> str:
    """Return the label of a transaction in the world's tables."""
    return f"t{int(entry.txid, 16)}"


def new_entry(draw: random.Random, number: int, waiting: list[str]) -> Candidate:
    """Draw a payment, a child of a waiting payment, or a cheap payment that somebody pays a pool for."""
    is_planted = draw.random() < 0.05
    vsize_vb = draw.randrange(110, 300)
    feerate = draw.uniform(1.0, 2.0) if is_planted else 3 + draw.lognormvariate(2.3, 0.9)
    parents = [draw.choice(waiting)] if waiting and not is_planted and draw.random() < 0.1 else []
    return Candidate(
        txid=f"{number:064x}",
        raw=b"",
        fee_sat=round(feerate * vsize_vb),
        vsize_vb=vsize_vb,
        weight_wu=4 * vsize_vb,
        parents=frozenset(parents),
        arrival=number,
        is_planted=is_planted,
    )


def play(seed: int, n_blocks: int) -> tuple[Tables, set[str], set[str]]:
    """Play a world of blocks; return its tables and the names of the planted transactions.

    The first set has cheap payments that the paid pool took from the mempool, the second those given to it
    alone.
    """
    draw = random.Random(seed)  # noqa: S311 - a scenario wants repeatable chance
    tables: Tables = {
        table: [] for table in ("blocks", "transactions", "mempool_txs", "templates", "template_txs")
    }
    view: dict[str, Candidate] = {}
    favoured: set[str] = set()
    given: set[str] = set()
    for height in range(1, n_blocks + 1):
        n_new = 70 if height > 1 else 200
        old: dict[str, Candidate] = {}
        for i in range(n_new):
            after_s = 1 + i * (INTERVAL_S - 2) / n_new
            if after_s > INTERVAL_S - TEMPLATE_AGE_S and not old:
                old = dict(view)
            waiting = [txid for txid, entry in view.items() if not entry.is_planted]
            entry = new_entry(draw, 1000 * height + i, waiting)
            view[entry.txid] = entry
            write_entry(tables, entry, INTERVAL_S * (height - 1) + after_s, view)
        write_template(tables, old, height)
        slug, tag, order = POOLS[height % 3]
        private = [new_private(draw, 500_000 + height)] if slug == "beta" else []
        room_wu = BLOCK_WU - sum(entry.weight_wu for entry in private)
        chosen = fill(view, order(view), weight_wu=room_wu)
        write_block(tables, [*chosen, *private], height, tag)
        given |= {name(entry) for entry in private}
        favoured |= {name(entry) for entry in chosen if slug == "beta" and entry.is_planted}
        for entry in chosen:
            del view[entry.txid]
    return tables, favoured, given


def new_private(draw: random.Random, number: int) -> Candidate:
    """Draw a cheap payment that only one pool is given and that is in no mempool."""
    vsize_vb = draw.randrange(110, 300)
    return Candidate(
        txid=f"{number:064x}",
        raw=b"",
        fee_sat=round(draw.uniform(0.0, 1.0) * vsize_vb),
        vsize_vb=vsize_vb,
        weight_wu=4 * vsize_vb,
        parents=frozenset(),
        arrival=number,
        is_planted=True,
    )


def write_entry(tables: Tables, entry: Candidate, entered_at: float, view: Mapping[str, Candidate]) -> None:
    """Write the row of a transaction that enters the mempool."""
    parents = [name(view[parent]) for parent in entry.parents]
    row = {"txid": name(entry), "entered_at": entered_at, "parents": parents}
    tables["mempool_txs"].append(row | {"fee_sat": entry.fee_sat, "vsize_vb": entry.vsize_vb})


def write_template(tables: Tables, view: Mapping[str, Candidate], height: int) -> None:
    """Write a template of all waiting transactions, in the order of a stock node."""
    taken_at = INTERVAL_S * height - TEMPLATE_AGE_S
    ordered = [view[txid] for package in feerate_order(view) for txid in package]
    parent = f"b{height - 1}" if height > 1 else ""
    row = {"taken_at": taken_at, "prev_hash": parent, "height": height, "trigger": "timer"}
    tables["templates"].append(row | {"n_tx": len(ordered)})
    tables["template_txs"] += [
        {"taken_at": taken_at, "tx_index": i, "txid": name(entry)}
        | {"fee_sat": entry.fee_sat, "weight_wu": entry.weight_wu}
        for i, entry in enumerate(ordered, start=1)
    ]


def write_block(tables: Tables, chosen: list[Candidate], height: int, tag: str) -> None:
    """Write the rows of a block that a pool mines from the chosen transactions."""
    block = {"block_hash": f"b{height}", "height": height, "coinbase_script": tag}
    parent = {"prev_hash": f"b{height - 1}"} if height > 1 else {}
    tables["blocks"].append(block | parent | {"arrived_at": INTERVAL_S * height})
    tables["transactions"] += [
        {"block_hash": f"b{height}", "txid": name(entry), "fee_sat": entry.fee_sat}
        | {"vsize_vb": entry.vsize_vb, "weight_wu": entry.weight_wu}
        for entry in chosen
    ]


def test_candidates_are_scored_against_planted_truth(tmp_path: Path) -> None:
    """Precision and recall of the paid pool's candidates are above 0.9, and the stock pool has almost none.

    A pool that takes transactions by arrival has many candidates and the lowest template score.
    """
    tables, favoured, given = play(seed=11, n_blocks=39)
    dataset = write_world(tmp_path / "dataset", tables)
    marts = ("out_of_band", "template_audit")
    result = build(dataset, RULES, tmp_path / "analysis.duckdb", marts=marts)

    with open_database(result.database) as connection:
        rows = connection.execute("SELECT pool, kind, txid FROM out_of_band_candidates").fetchall()
        n_unseen = dict(connection.execute("SELECT pool, n_unseen_candidates FROM out_of_band").fetchall())
        extra = "SELECT pool, sum(n_extra_prioritised), sum(n_block) FROM template_audit_block GROUP BY pool"
        n_extra = {pool: (float(n), float(of)) for pool, n, of in connection.execute(extra).fetchall()}
        candidate_ratio = dict(connection.execute("SELECT pool, candidate_ratio FROM out_of_band").fetchall())
        score = dict(connection.execute("SELECT pool, score_ratio FROM template_audit").fetchall())
    for kind, planted, least in (("prioritised", favoured, 40), ("unseen", given, 12)):
        found = {label_of(txid) for pool, each, txid in rows if pool == "beta" and each == kind}
        assert len(planted) > least
        assert len(found & planted) / len(found) > 0.9, f"precision of {kind}"
        assert len(found & planted) / len(planted) > 0.9, f"recall of {kind}"
    assert n_unseen == {"all": len(given), "alpha": 0, "beta": len(given), "gamma": 0}
    assert n_extra["alpha"][0] < 0.03 * n_extra["alpha"][1]
    assert n_extra["beta"][0] == pytest.approx(len(favoured), rel=0.15)
    assert candidate_ratio["alpha"] == pytest.approx(0, abs=0.005)
    assert candidate_ratio["gamma"] > 1.5 * candidate_ratio["beta"]
    assert score["gamma"] < 0.5 < score["beta"] < score["alpha"]
    assert score["alpha"] > 0.95
