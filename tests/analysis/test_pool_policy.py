"""Judge kinds of transactions that lie where blocks take less of everything.

Those that no template promises are judged in the worlds of test_out_of_band.py.
"""

from pathlib import Path
from typing import Any

from analysis.database import open_database
from analysis.engine import build
from tests.analysis.world import write_world

BLOCKS = 12
PROMISED = 20
KIND = (
    1,
    16,
    17,
    18,
    19,
)  # places in the template of what is of version 3: one in the first fifth, four in the last
PASSED_OVER = (18, 19, 20)
RULE = 'name = "Alpha"\n\n[[rules]]\ntag = "/Alpha/"\nsource = "made up"\n'


def test_a_kind_is_compared_within_groups_and_not_over_all(tmp_path: Path) -> None:
    """A pool takes more of a kind than of others in the last fifth, where most of the kind is promised.

    In the first fifth everything is taken, so over all groups together it takes fewer of the kind: 3 of 5
    against 2 of 3.
    """
    rules = tmp_path / "pools"
    rules.mkdir()
    (rules / "alpha.toml").write_text(RULE)
    dataset = write_world(tmp_path / "dataset", _world())

    built = build(dataset, rules, tmp_path / "analysis.duckdb", marts=("pool_policy",))

    query = (
        "SELECT n_trials, n_taken, n_ordinary, n_ordinary_taken, verdict FROM pool_policy WHERE n_trials > 0"
    )
    with open_database(built.database) as connection:
        found = connection.execute(query).fetchall()
    assert found == [(5 * BLOCKS, 3 * BLOCKS, 3 * BLOCKS, 2 * BLOCKS, "favours")]


def _world() -> dict[str, list[dict[str, Any]]]:
    """Make blocks a thousand seconds apart, each with a template of its own, of which it lacks three."""
    names = ("blocks", "transactions", "mempool_txs", "templates", "template_txs")
    tables: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for height in range(1, BLOCKS + 2):
        block, arrived_at = f"b{height}", 1000 * height
        parent = {"prev_hash": f"b{height - 1}"} if height > 1 else {}
        row = {"block_hash": block, "height": height, "coinbase_script": "/Alpha/", "arrived_at": arrived_at}
        tables["blocks"].append(row | parent)
        if height == 1:  # a template needs a block before it
            continue
        taken_at = arrived_at - 5
        promise = {"taken_at": taken_at, "height": height, "n_tx": PROMISED, "trigger": "timer", **parent}
        tables["templates"].append(promise)
        for place in range(1, PROMISED + 1):
            txid = f"t{height}-{place}"
            version = 3 if place in KIND else 2
            size = {"fee_sat": 3000 - place, "vsize_vb": 100, "version": version}
            tables["mempool_txs"].append({"txid": txid, "entered_at": arrived_at - 500 + place, **size})
            tables["template_txs"].append(
                {"taken_at": taken_at, "tx_index": place, "txid": txid}
                | {"fee_sat": 3000 - place, "weight_wu": 400}
            )
            mined = f"private{height}-{place}" if place in PASSED_OVER else txid
            mined_size = size | ({"version": 2} if place in PASSED_OVER else {})
            tables["transactions"].append(
                {"block_hash": block, "txid": mined, "weight_wu": 400, **mined_size}
            )
    return tables
