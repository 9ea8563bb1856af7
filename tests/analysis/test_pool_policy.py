"""Judge kinds of transactions that lie where blocks take less of everything, or that no template promises.

The seeds of the worlds of six pools are drawn anew in each run; a failure names its seed.
"""

import random
from pathlib import Path
from typing import Any

import pytest

from analysis.database import open_database
from analysis.engine import build
from tests.analysis.world import write_world
from tests.bench.ordering_world import POOLS, SCENARIOS, Scenario, simulate, write_rules

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


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_who_refuses_is_found_without_any_template(scenario: Scenario, tmp_path: Path) -> None:
    """Of six pools with full blocks, only the one that censors a kind refuses it; first come gives no trial.

    It is told by what paid more than the margin of its blocks.
    """
    seed = random.SystemRandom().randrange(1_000_000)
    world = simulate(scenario, seed)

    found = _truc(world.tables | {"templates": [], "template_txs": []}, tmp_path)

    _only_the_censor_refuses(found, seed)
    assert found["first-come"][1:4] == (0, 0, 0), f"seed {seed}"


def test_who_refuses_is_found_where_our_templates_lack_the_kind(tmp_path: Path) -> None:
    """A node that does not put a kind into its templates tells as much as one without templates."""
    seed = random.SystemRandom().randrange(1_000_000)
    world = simulate(SCENARIOS[0], seed)
    kind = {row["txid"] for row in world.tables["mempool_txs"] if row["version"] == 3}
    kept = [row for row in world.tables["template_txs"] if row["txid"] not in kind]
    assert 0 < len(kept) < len(world.tables["template_txs"])

    found = _truc(world.tables | {"template_txs": kept}, tmp_path)

    _only_the_censor_refuses(found, seed)


def _truc(tables: dict[str, list[dict[str, Any]]], folder: Path) -> dict[str, tuple[Any, ...]]:
    """Build a world of six pools; return what is said of each on transactions of version 3."""
    dataset, rules = write_world(folder / "dataset", tables), write_rules(folder / "pools")
    built = build(dataset, rules, folder / "analysis.duckdb", marts=("pool_policy",))
    query = (
        "SELECT pool, n_mined, n_trials, n_passed_over_promised, n_passed_over_paid, verdict FROM pool_policy"
        " WHERE feature = 'truc'"
    )
    with open_database(built.database) as connection:
        return {pool: tuple(rest) for pool, *rest in connection.execute(query).fetchall()}


def _only_the_censor_refuses(found: dict[str, tuple[Any, ...]], seed: int) -> None:
    """Fail unless one pool refuses, by what was paid alone, and all others mine."""
    assert found.keys() == POOLS.keys(), f"seed {seed}"
    n_mined, n_trials, n_promised, n_paid, verdict = found["censor"]
    assert (n_mined, n_promised, verdict) == (0, 0, "refuses"), f"seed {seed}"
    assert n_paid == n_trials > 0, f"seed {seed}"
    for pool in POOLS.keys() - {"censor"}:
        assert found[pool][0] > 0, f"seed {seed}: {pool}"
        assert found[pool][-1] != "refuses", f"seed {seed}: {pool}"


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
