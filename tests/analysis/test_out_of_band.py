"""Compare out-of-band candidates with planted sales, over pools that choose and order in six ways.

The seeds are drawn anew in each run, so no threshold can be fitted to them; a failure names its seed.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest

from analysis.database import open_database
from tests.analysis.world import label_of
from tests.bench.ordering_world import ROUNDS, SCENARIOS, Scenario, World, simulate
from tests.bench.score_candidates import FOUND, build_world, found_by_pool, score

ORDERINGS = {
    "stock": "feerate",
    "seller": "feerate",
    "old-template": "feerate",
    "censor": "feerate",
    "first-come": "first_come",
    "sorted-first-come": "other",
}


@dataclass(frozen=True)
class Built:
    """A world, its seed, and its database."""

    scenario: Scenario
    seed: int
    world: World
    connection: duckdb.DuckDBPyConnection

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.connection.execute(query).fetchall()

    def found(self, what: str) -> dict[str, set[str]]:
        """Return the names of the transactions found in one way, by pool."""
        pools = found_by_pool(self.connection, what)
        return {pool: {label_of(txid) for txid in txids} for pool, txids in pools.items()}


@pytest.fixture(scope="module", params=SCENARIOS, ids=lambda scenario: scenario.name)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Play a scenario from a seed that is drawn now, and build it."""
    seed = random.SystemRandom().randrange(1_000_000)
    world = simulate(request.param, seed)
    assert len(world.sold) >= 3 * ROUNDS, f"seed {seed}"
    database = build_world(world, tmp_path_factory.mktemp(request.param.name))
    with open_database(database) as connection:
        yield Built(request.param, seed, world, connection)


def test_candidates_are_what_was_sold(built: Built) -> None:
    """Over all pools together, precision is at least 0.9 and recall at least 0.8, however places are sold."""
    found = built.found("found")
    result = score(set().union(*found.values()), built.world.sold)

    wrong = {pool: len(names - built.world.sold) for pool, names in found.items()}
    assert result.precision >= 0.9, f"seed {built.seed}: {result}, wrong: {wrong}"
    assert result.recall >= 0.8, f"seed {built.seed}: {result}"


def test_an_imported_list_scores_the_candidates(built: Built) -> None:
    """A list of what was sold gives the same precision and recall as the planted truth, over all pools."""
    result = score(set().union(*built.found("found").values()), built.world.sold)

    query = "SELECT n_listed, n_candidates, n_both, precision_ratio, recall_ratio FROM out_of_band_score"
    rows = built.rows(f"{query} WHERE source = 'truth' AND pool = 'all'")
    counts = (result.n_sold, result.n_found, result.n_both)
    assert rows == [(*counts, result.precision, result.recall)], f"seed {built.seed}"


def test_what_stands_ahead_was_sold(built: Built) -> None:
    """From blocks alone, precision is at least 0.9 too; the recall is that of what was put first."""
    result = score(set().union(*built.found("ahead").values()), built.world.sold)

    least = {"first": 0.8, "raised": 0.3, "last": 0}[built.scenario.sale]
    assert result.precision >= 0.9, f"seed {built.seed}: {result}"
    assert result.recall >= least, f"seed {built.seed}: {result}"


def test_the_order_of_each_pool_is_found(built: Built) -> None:
    """The verdict on each pool is the order in which it chooses."""
    verdicts = dict(built.rows("SELECT pool, verdict FROM pool_ordering"))

    assert verdicts == ORDERINGS, f"seed {built.seed}"


def test_a_pool_that_does_not_choose_by_feerate_has_no_candidates(built: Built) -> None:
    """Such a pool has the finding in place of a share, and no transaction of it is listed."""
    shares = {
        pool: rest for pool, *rest in built.rows("SELECT pool, ordering, candidate_ratio FROM out_of_band")
    }

    for pool, ordering in ORDERINGS.items():
        assert shares[pool][0] == ordering, f"seed {built.seed}"
        if ordering != "feerate":
            assert shares[pool][1] is None
            assert all(pool not in built.found(what) for what in FOUND)


def test_the_pool_that_sells_has_the_highest_share(built: Built) -> None:
    """The interval of the pool that sells lies above the shares of all others."""
    rows = built.rows("SELECT pool, candidate_ratio, candidate_low_ratio FROM out_of_band WHERE n_judged > 0")
    ratios = {pool: (ratio, low) for pool, ratio, low in rows if pool != "all"}

    seller = ratios.pop("seller")
    assert seller[1] > max(ratio for ratio, _ in ratios.values()), f"seed {built.seed}: {ratios}"


def test_the_pool_that_censors_a_kind_is_the_only_one_that_refuses_it(built: Built) -> None:
    """Every pool had transactions of version 3 promised; one took none of them, and all others mine them."""
    rows = built.rows("SELECT pool, n_mined, verdict FROM pool_policy WHERE feature = 'truc'")
    policies = {pool: (n_mined, verdict) for pool, n_mined, verdict in rows}

    assert policies.pop("censor") == (0, "refuses"), f"seed {built.seed}"
    assert policies.keys() == ORDERINGS.keys() - {"censor"}
    assert all(n_mined > 0 and verdict != "refuses" for n_mined, verdict in policies.values()), (
        f"seed {built.seed}"
    )
