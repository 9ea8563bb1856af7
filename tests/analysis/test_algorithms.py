"""Compare the algorithms that the marts name with those that built the blocks of a planted world.

The seeds are drawn anew in each run, so no threshold can be fitted to them; a failure names its seed.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import duckdb
import pytest

from analysis.database import open_database
from analysis.engine import build
from tests.analysis.world import write_world
from tests.bench.algorithm_world import CHANGES_IN, World, simulate, write_rules

ONE_ALGORITHM = ("ancestor-sets", "chunks", "data-cost", "plain", "first-come", "own")


@dataclass(frozen=True)
class Built:
    """A world, its seed, and its database."""

    seed: int
    world: World
    connection: duckdb.DuckDBPyConnection

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return all rows of a query."""
        return self.connection.execute(query).fetchall()


@pytest.fixture(scope="module", params=range(3))
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    """Play a world from a seed that is drawn now, and build it."""
    seed = random.SystemRandom().randrange(1_000_000)
    world, folder = simulate(seed), tmp_path_factory.mktemp("algorithms")
    dataset = write_world(folder / "dataset", world.tables)
    rules = write_rules(folder / "pools")
    result = build(dataset, rules, folder / "analysis.duckdb", marts=["pool_algorithm"])
    with open_database(result.database) as connection:
        yield Built(seed, world, connection)


def test_each_pool_has_the_algorithm_that_built_its_blocks(built: Built) -> None:
    """A pool with one algorithm has one segment, and nothing else is left open."""
    found: dict[str, list[str]] = {}
    for pool, algorithm in built.rows("SELECT pool, algorithm FROM pool_algorithm ORDER BY pool, segment"):
        found.setdefault(pool, []).append(algorithm)

    planted = {pool: [pool.replace("-", "_")] for pool in ONE_ALGORITHM}
    assert {pool: found[pool] for pool in ONE_ALGORITHM} == planted, f"seed {built.seed}"


def test_a_change_is_found_where_it_was(built: Built) -> None:
    """The pool that goes over to chunks has two segments, and the change lies in its interval."""
    rows = built.rows(
        "SELECT algorithm, first_height_low, first_height_high FROM pool_algorithm "
        "WHERE pool = 'changer' ORDER BY segment"
    )
    heights = [height for height, pool in built.world.pool_at.items() if pool == "changer"]

    assert [algorithm for algorithm, _, _ in rows] == ["ancestor_sets", "chunks"], f"seed {built.seed}"
    _, low, high = rows[1]
    assert low <= heights[CHANGES_IN] <= high, f"seed {built.seed}"


def test_a_pool_with_two_makers_has_no_one_algorithm(built: Built) -> None:
    """Where every second block is of another make, no algorithm is named for the pool."""
    (row,) = built.rows("SELECT algorithm FROM pool_algorithm WHERE pool = 'two-makers'")

    assert row == ("mixed",), f"seed {built.seed}"


def test_small_blocks_leave_several_open(built: Built) -> None:
    """Of blocks with some transactions, the algorithm that built them stays open, but never alone."""
    rows = built.rows("SELECT left_open FROM block_algorithm WHERE pool = 'small'")

    assert rows
    assert all("ancestor_sets" in left_open and len(left_open) > 1 for (left_open,) in rows), (
        f"seed {built.seed}: {rows}"
    )


def test_of_blocks_that_name_one_algorithm_few_are_wrong(built: Built) -> None:
    """What has 95 % before is wrong in at most 5 % of the blocks for which one algorithm is left open."""
    pools = ", ".join(f"'{pool}'" for pool in ONE_ALGORITHM)
    ((n_named, n_wrong),) = built.rows(
        "SELECT count(*), count(*) FILTER (WHERE algorithm != replace(pool, '-', '_')) FROM block_algorithm "  # noqa: S608 - names above
        f"WHERE algorithm != 'cannot_tell' AND pool IN ({pools})"
    )

    assert n_named > 40, f"seed {built.seed}"
    assert n_wrong <= 0.05 * n_named, f"seed {built.seed}"
