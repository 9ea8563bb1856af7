"""Test that days can come in any order: results are those of one build, and keys of other days stay."""

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import pytest

from analysis.database import open_database
from analysis.engine import build
from collector.dataset.schema import TABLES
from tests.analysis.days import PlantedDays
from tests.analysis.shared_build import RULES
from tests.analysis.test_ranges import ranges_of
from tests.analysis.test_same_build import Contents, contents
from tests.analysis.world import EVERYTHING, world_rows, write_table, write_world
from tests.bench.planted_world import Size

SIZE = Size(n_blocks=300, entering=12, taken=9)
MARTS = ("confirmation_delay", "fee_capture", "feerate_age", "inclusion_sample", "user_day")
KEYED = ("mempool_residence", "mempool_moments")
STAYS = ("mempool_entries", "mempool_exits", "mempool_residence")
MIDNIGHT_S = 86_400
OVER_MIDNIGHT: Mapping[str, list[dict[str, Any]]] = {
    "blocks": [
        {"block_hash": "a1", "height": 1, "arrived_at": 80_000},
        {"block_hash": "a2", "prev_hash": "a1", "height": 2, "arrived_at": MIDNIGHT_S + 0.5},
    ],
    "transactions": [{"block_hash": "a2", "txid": "mined", "fee_sat": 500, "vsize_vb": 100}],
    "mempool_txs": [
        {"txid": "conflict", "entered_at": 70_000, "mempool_sequence": 1},
        {"txid": "mined", "entered_at": 86_399.9, "mempool_sequence": 2},
        {"txid": "brief", "entered_at": 86_400.1, "mempool_sequence": 3},
        {"txid": "next", "entered_at": 86_500, "mempool_sequence": 5},
    ],
    "mempool_events": [
        {"event": "A", "hash": "conflict", "received_at": 70_000, "mempool_sequence": 1},
        {"event": "A", "hash": "brief", "received_at": 86_399.8, "mempool_sequence": 3},
        {"event": "R", "hash": "brief", "received_at": 86_399.95, "removal_reason": "replaced"},
        {"event": "R", "hash": "conflict", "received_at": 86_399.99, "removal_reason": "conflict"},
        {"event": "A", "hash": "mined", "received_at": MIDNIGHT_S + 0.2, "mempool_sequence": 2},
        {"event": "A", "hash": "next", "received_at": 86_500, "mempool_sequence": 5},
    ],
}


def connected(n_days: int, second_s: int) -> list[dict[str, Any]]:
    """Return the C of a block a day at node `a`, at a second of the day, and at node `b` 20 s later."""
    return [
        {"node": node, "event": "C", "hash": f"a{day}", "received_at": day * MIDNIGHT_S + second_s + lag_s}
        for day in range(n_days)
        for node, lag_s in (("a", 0), ("b", 20))
    ]


TWO_NODES = [{"node": "a", "started_at": 0}, {"node": "b", "started_at": 0}]
# On the second day node `b` has a conflict after the last block of `a`, and a block after it.
OF_TWO_NODES: Mapping[str, list[dict[str, Any]]] = {
    "nodes": TWO_NODES,
    "coverage": [EVERYTHING | {"node": node} for node in "ab"],
    "blocks": [{"block_hash": f"a{height}", "height": height} for height in range(3)],
    "mempool_txs": [
        {"node": "b", "txid": "leaves", "entered_at": MIDNIGHT_S + 10, "mempool_sequence": 1},
        {"node": "a", "txid": "goes", "entered_at": MIDNIGHT_S + 20, "mempool_sequence": 1},
        {"node": "a", "txid": "next", "entered_at": 2 * MIDNIGHT_S + 10_000, "mempool_sequence": 2},
    ],
    "mempool_events": [
        *connected(3, 70_000),
        {
            "node": "b",
            "event": "R",
            "hash": "leaves",
            "received_at": MIDNIGHT_S + 70_010,
            "removal_reason": "conflict",
        },
        {
            "node": "a",
            "event": "R",
            "hash": "goes",
            "received_at": MIDNIGHT_S + 70_030,
            "removal_reason": "replaced",
        },
    ],
}
# Node `b` sees both transactions first, the second one while our copy of its mempool is out of step.
SEEN_AT_TWO_NODES: Mapping[str, list[dict[str, Any]]] = {
    "nodes": TWO_NODES,
    "coverage": [
        EVERYTHING | {"node": "a"},
        {"node": "b", "from_at": 0, "to_at": 80_000},
        {"node": "b", "from_at": MIDNIGHT_S + 50_000, "to_at": 1e7},
    ],
    "blocks": [{"block_hash": f"a{height}", "height": height} for height in range(2)],
    "mempool_txs": [
        {"node": "b", "txid": "known", "entered_at": 70_000, "mempool_sequence": 1},
        {"node": "b", "txid": "missed", "entered_at": 85_000, "mempool_sequence": 2},
        {"node": "a", "txid": "known", "entered_at": MIDNIGHT_S + 100, "mempool_sequence": 1},
        {"node": "a", "txid": "missed", "entered_at": MIDNIGHT_S + 200, "mempool_sequence": 2},
    ],
    "mempool_events": connected(2, 60_000),
}
# A newer session has seen no mempool yet; of the older one's stays, one began after its observation ended.
SESSION_WITHOUT_MEMPOOL: Mapping[str, list[dict[str, Any]]] = {
    "nodes": [{"started_at": 0}, {"session": "t", "started_at": 1000}],
    "coverage": [{"from_at": 0, "to_at": 900}],
    "blocks": [{"block_hash": "a1", "height": 1, "arrived_at": 500}],
    "mempool_txs": [
        {"txid": "waits", "entered_at": 100, "mempool_sequence": 1, "fee_sat": 100},
        {"txid": "after", "entered_at": 950, "mempool_sequence": 2, "fee_sat": 100},
    ],
}
# A parent leaves between the last block of a day and midnight, before its child comes.
GONE_BEFORE_MIDNIGHT: Mapping[str, list[dict[str, Any]]] = {
    "blocks": [
        {"block_hash": "a1", "height": 1, "arrived_at": 500},
        {"block_hash": "a2", "prev_hash": "a1", "height": 2, "arrived_at": MIDNIGHT_S + 100},
    ],
    "mempool_txs": [
        {"txid": "parent", "entered_at": 1000, "mempool_sequence": 1, "fee_sat": 100},
        {"txid": "child", "entered_at": 60_000, "mempool_sequence": 3, "fee_sat": 900, "parents": "parent"},
    ],
    "mempool_events": [
        {
            "event": "R",
            "hash": "parent",
            "received_at": 50_000,
            "mempool_sequence": 2,
            "removal_reason": "conflict",
        },
    ],
}
TIMES = {"mempool_txs": "entered_at", "mempool_events": "received_at", "block_arrivals": "event_at"}


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


def test_what_is_near_midnight_has_the_same_rows_day_by_day(tmp_path: Path) -> None:
    """A body and its A are on opposite sides of midnight; so are a conflict and its block."""
    dataset = write_world(tmp_path / "dataset", {})
    _add(dataset, OVER_MIDNIGHT, "first", lambda seconds: seconds < MIDNIGHT_S)
    build(dataset, RULES, tmp_path / "a.duckdb", marts=STAYS)
    _add(dataset, OVER_MIDNIGHT, "second", lambda seconds: seconds >= MIDNIGHT_S)
    found = contents(build(dataset, RULES, tmp_path / "a.duckdb", marts=STAYS).database)

    expected = contents(build(dataset, RULES, tmp_path / "b.duckdb", marts=STAYS, is_cut=False).database)

    assert [name for name in STAYS if not found[name].equals(expected[name])] == []
    stays = found["mempool_residence"]
    next_cut_no = found["mempool_cuts"]["cut_no"][1].as_py()
    assert stays["left_reason"].to_pylist() == ["conflict", "mined", "replaced", None]
    assert stays["last_cut_no"].to_pylist()[:2] == [next_cut_no, next_cut_no]


def test_a_new_day_leaves_what_came_in_and_went_out_before(world: PlantedDays, tmp_path: Path) -> None:
    """Entries and ends of the day before are not made again, though stays that began then end later."""
    dataset, database = tmp_path / "dataset", tmp_path / "a.duckdb"
    world.add(dataset, world.days[:2])
    build(dataset, world.pools, database, marts=STAYS)
    world.add(dataset, world.days[2:])
    build(dataset, world.pools, database, marts=STAYS)

    n_parts = {name: len(ranges_of(database, name)) for name in STAYS}

    assert n_parts == {"mempool_entries": 3, "mempool_exits": 3, "mempool_residence": 4}


def test_a_conflict_at_one_node_leaves_the_ends_at_another(tmp_path: Path) -> None:
    """A new day leaves the ends of the day before where another node had a conflict after the last block."""
    dataset, database = _watched(tmp_path / "dataset", OF_TWO_NODES), tmp_path / "a.duckdb"
    _add(dataset, OF_TWO_NODES, "first", lambda seconds: seconds < 2 * MIDNIGHT_S)
    build(dataset, RULES, database, marts=STAYS)
    before = set(ranges_of(database, "mempool_exits"))
    _add(dataset, OF_TWO_NODES, "second", lambda seconds: seconds >= 2 * MIDNIGHT_S)
    found = contents(build(dataset, RULES, database, marts=STAYS).database)

    expected = contents(build(dataset, RULES, tmp_path / "b.duckdb", marts=STAYS, is_cut=False).database)

    assert [name for name in STAYS if not found[name].equals(expected[name])] == []
    assert len(before) == 2
    assert len(set(ranges_of(database, "mempool_exits")) - before) == 1


def test_who_saw_a_transaction_first_is_found_across_midnight(tmp_path: Path) -> None:
    """Node `b` is out of step at the end of the first day: what it saw then counts at node `a`."""
    dataset, database = _watched(tmp_path / "dataset", SEEN_AT_TWO_NODES), tmp_path / "a.duckdb"
    _add(dataset, SEEN_AT_TWO_NODES, "first", lambda seconds: seconds < MIDNIGHT_S)
    build(dataset, RULES, database, marts=["confirmation_spells"])
    _add(dataset, SEEN_AT_TWO_NODES, "second", lambda seconds: seconds >= MIDNIGHT_S)
    found = contents(build(dataset, RULES, database, marts=["confirmation_spells"]).database)

    spells = found["confirmation_spells"].select(["node", "is_counted"]).to_pylist()

    assert [(row["node"], row["is_counted"]) for row in spells] == [("b", True), ("a", False), ("a", True)]


@pytest.mark.parametrize(
    ("mart", "world"),
    [("confirmation_spells", SESSION_WITHOUT_MEMPOOL), ("user_day", GONE_BEFORE_MIDNIGHT)],
    ids=["spells", "parents"],
)
def test_ranges_of_rare_ends_are_the_whole_mart(
    tmp_path: Path, mart: str, world: Mapping[str, list[dict[str, Any]]]
) -> None:
    """What nobody watches any more, and a parent that left before midnight, count as in the whole mart."""
    dataset = write_world(tmp_path / "dataset", world)

    cut = build(dataset, RULES, tmp_path / "cut.duckdb", marts=[mart])
    whole = build(dataset, RULES, tmp_path / "whole.duckdb", marts=[mart], is_cut=False)

    found = contents(cut.database)[mart]
    assert found.num_rows
    assert found.equals(contents(whole.database)[mart])


def _watched(dataset: Path, world: Mapping[str, list[dict[str, Any]]]) -> Path:
    """Write the nodes of `world` and what was observed of them; return the dataset's folder."""
    return write_world(dataset, {name: world[name] for name in ("nodes", "coverage")})


def _add(
    dataset: Path, world: Mapping[str, list[dict[str, Any]]], name: str, is_of_it: Callable[[float], bool]
) -> None:
    """Add the rows of a day of `world` to a dataset; blocks are known on each day."""
    for table, rows in world_rows(world).items():
        time = TIMES.get(table)
        ours = [row for row in rows if time is None or is_of_it(float(row[time]))]
        if table not in ("nodes", "coverage"):
            write_table(
                dataset / "chain=regtest" / table / "part=0" / f"{name if time else 'all'}.parquet",
                TABLES[table],
                ours,
            )
