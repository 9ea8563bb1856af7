"""Test that days can come in any order: results are those of one build, and keys of other days stay."""

from itertools import accumulate, pairwise
from pathlib import Path

import pytest

from analysis.database import open_database
from analysis.engine import build
from tests.analysis.days import PlantedDays
from tests.analysis.test_same_build import Contents, contents
from tests.bench.planted_world import Size

SIZE = Size(n_blocks=300, entering=12, taken=9)
MARTS = ("confirmation_delay", "fee_capture", "feerate_age", "inclusion_sample", "user_day")
KEYED = ("mempool_residence", "mempool_moments")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> PlantedDays:
    """Plant a world of three days."""
    world = PlantedDays(tmp_path_factory.mktemp("days"), SIZE)
    assert len(world.days) == 3
    return world


@pytest.fixture(scope="module")
def at_once(world: PlantedDays, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Build all days at once, each mart as a whole."""
    folder = tmp_path_factory.mktemp("once")
    world.add(folder / "dataset", world.days)
    made = build(folder / "dataset", world.pools, folder / "a.duckdb", marts=MARTS, is_cut=False)
    return contents(made.database)


@pytest.mark.parametrize("order", [[[0, 2], [1]], [[2], [1], [0]]], ids=["late", "backwards"])
def test_the_order_of_days_changes_no_row(
    world: PlantedDays, at_once: Contents, tmp_path: Path, order: list[list[int]]
) -> None:
    """A build after each addition ends with the tables of one build of everything, bit for bit."""
    for added in order:
        world.add(tmp_path / "dataset", [world.days[number] for number in added])
        result = build(tmp_path / "dataset", world.pools, tmp_path / "a.duckdb", marts=MARTS)

    found = contents(result.database)
    assert found.keys() == at_once.keys()
    assert [name for name, table in found.items() if not table.equals(at_once[name])] == []


def test_keys_stay_when_an_older_day_comes(world: PlantedDays, tmp_path: Path) -> None:
    """Stays, cuts and moments of known days have the same keys before and after another day is filled in."""
    queries = {
        "stay_no": "SELECT txid, entered_at, stay_no FROM mempool_residence",
        "cut_no": "SELECT block_hash, connected_at, cut_no FROM mempool_cuts",
        "moment_no": "SELECT block_hash, age_s, moment_no FROM mempool_moments WHERE age_s = 0",
    }
    keys: list[dict[str, set[tuple[object, ...]]]] = []
    for days in accumulate([[0], [2], [1]]):
        world.add(tmp_path / "dataset", [world.days[number] for number in days])
        result = build(tmp_path / "dataset", world.pools, tmp_path / "a.duckdb", marts=KEYED)
        with open_database(result.database) as connection:
            keys.append({name: set(connection.sql(query).fetchall()) for name, query in queries.items()})

    for before, after in pairwise(keys):
        for name in queries:
            assert before[name] < after[name], name
