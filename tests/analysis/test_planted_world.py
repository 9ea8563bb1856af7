"""Test that the marts give the planted answers in one simulated world of 300 blocks."""

import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from analysis.database import open_database
from analysis.engine import build
from tests.bench.planted_files import FIRST_HEIGHT, write_world
from tests.bench.planted_world import POOLS, Size, simulate

SIZE = Size(n_blocks=300, entering=64, taken=48, seed=7)
ACCEPTED = ("n_top", "n_top_taken", "n_outside", "n_outside_taken")
Built = tuple[duckdb.DuckDBPyConnection, dict[str, Any]]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Build a simulated world; give a connection to the database, and the planted truth."""
    folder = tmp_path_factory.mktemp("planted")
    dataset = write_world(simulate(SIZE), folder)
    result = build(dataset, folder / "pools", folder / "a.duckdb")
    assert [check.name for check in result.checks if check.n_offending] == []
    with open_database(result.database) as connection:
        yield connection, json.loads((folder / "truth.json").read_text())


def rows(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple[Any, ...]]:
    """Return all rows of a query."""
    return connection.execute(query).fetchall()


def test_the_world_has_everything_that_is_planted(built: Built) -> None:
    """The world has empty and stale blocks, replaced and expired transactions, children, and unseen ones."""
    _, truth = built

    assert truth["stale"] > 0
    assert truth["unseen_txs"] > 0
    assert min(truth["outcomes"].values()) > 0
    assert sum(pool["empty"] for pool in truth["pools"].values()) > 1
    assert truth["pools"]["cedar"]["n_outside_taken"] > 0
    assert truth["children"] > 500


def test_shares_and_empty_blocks_are_counted(built: Built) -> None:
    """Blocks and empty blocks of every pool, and the medians of block intervals, equal the planted ones."""
    connection, truth = built
    planted = {slug: (pool["blocks"], pool["empty"]) for slug, pool in truth["pools"].items()}

    found = rows(connection, "SELECT pool, n_blocks, n_empty FROM empty_intervals WHERE pool != 'all'")
    assert {pool: tuple(counts) for pool, *counts in found} == planted
    shares = dict(rows(connection, "SELECT pool, block_count FROM pool_share"))
    assert shares == {slug: blocks for slug, (blocks, _) in planted.items()}
    medians = rows(
        connection, "SELECT empty_median_s, nonempty_median_s FROM empty_intervals WHERE pool = 'all'"
    )
    assert medians[0] == pytest.approx((truth["empty_median_s"], truth["nonempty_median_s"]))


def test_intervals_of_shares_hold_the_policy(built: Built) -> None:
    """The planted share of at least five of the six pools lies in its 95 % interval."""
    connection, _ = built
    bounds = {
        pool: (low, high)
        for pool, low, high in rows(
            connection, "SELECT pool, share_low_ratio, share_high_ratio FROM pool_share"
        )
    }

    held = [bounds[policy.slug][0] <= policy.share <= bounds[policy.slug][1] for policy in POOLS]
    assert sum(held) >= len(POOLS) - 1


@pytest.mark.parametrize("policy", POOLS, ids=lambda policy: policy.slug)
def test_acceptance_is_that_of_the_policy(built: Built, policy: Any) -> None:
    """At the age of its template, a pool took as much of the top X and outside 2 X as was planted."""
    connection, truth = built
    planted = tuple(truth["pools"][policy.slug][name] for name in ACCEPTED)

    columns, parameters = ", ".join(ACCEPTED), [policy.slug, policy.age_s]
    where = "pool = ? AND feerate_kind = 'package'"
    by_age = f"SELECT {columns} FROM feerate_age WHERE {where} AND age_s = ?"  # noqa: S608 - names above
    assert connection.execute(by_age, parameters).fetchall() == [planted]
    if policy.age_s == 0:
        at_block = f"SELECT {columns} FROM feerate_strategy WHERE {where}"  # noqa: S608 - the same
        assert connection.execute(at_block, parameters[:1]).fetchall() == [planted]


def test_the_curve_is_highest_at_the_planted_age(built: Built) -> None:
    """A pool with templates 30 s old took most of the top X of the mempool 30 s before its blocks."""
    connection, _ = built

    best = rows(
        connection,
        "SELECT arg_max(age_s, top_x_ratio) FROM feerate_age"
        " WHERE pool = 'birch' AND feerate_kind = 'package'",
    )
    assert best == [(30.0,)]


def test_every_stay_ends_as_planted(built: Built) -> None:
    """Counts of outcomes equal the planted ones; the mean delay of mined transactions is right to 1 µs."""
    connection, truth = built

    outcomes = dict(rows(connection, "SELECT outcome, count(*) FROM confirmation_spells GROUP BY ALL"))
    assert outcomes == truth["outcomes"]
    mean = rows(connection, "SELECT avg(delay_s) FROM confirmation_spells WHERE outcome = 'mined'")
    assert mean[0][0] == pytest.approx(truth["mined_delay_mean_s"], abs=1e-6)
    users = rows(connection, "SELECT sum(n_entered), sum(n_replaced), sum(n_children) FROM user_day")
    assert users == [(truth["mempool_txs"], truth["outcomes"]["replaced"], truth["children"])]


def test_stale_blocks_are_counted_and_never_ranked(built: Built) -> None:
    """The planted rivals of active blocks are stale, and the active chain has a block at every height."""
    connection, truth = built

    counts = rows(
        connection,
        "SELECT count(*) FILTER (WHERE is_active), count(*) FILTER (WHERE NOT is_active) FROM chain_blocks",
    )
    assert counts == [(truth["blocks"], truth["stale"])]
    heights = rows(connection, "SELECT min(height), max(height) FROM chain_blocks WHERE is_active")
    assert heights == [(FIRST_HEIGHT, FIRST_HEIGHT + truth["blocks"] - 1)]
