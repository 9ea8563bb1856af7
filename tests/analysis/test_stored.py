"""Test that a grain is checked file by file where no key can be in two files, and together elsewhere."""

import datetime as dt
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from analysis.engine import build
from analysis.extents import to_extent
from analysis.parts import STATE
from analysis.raw_contents import File
from analysis.stored import Stored
from collector.dataset.schema import TABLES
from tests.analysis.world import write_table, write_world

RULES = Path(__file__).parent / "cases" / "pools"
MARTS = ("mempool_cuts",)
TRANSACTION_MARTS = ("recorded_transactions",)
CHECK = "stg_mempool_events_grain"
VALUES = st.lists(st.lists(st.integers(0, 30), min_size=1), min_size=1)


@given(VALUES, VALUES)
def test_no_value_is_in_two_groups(first: list[list[int]], second: list[list[int]]) -> None:
    """The groups hold each file once, and share no value of the column that tells them apart."""
    both = list(zip(first, second, strict=False))
    files = tuple(
        File(str(number), "", {"a": [min(a), max(a)], "b": [min(b), max(b)]}, len(a))
        for number, (a, b) in enumerate(both)
    )

    groups = Stored(files, "", lambda _files: "").apart(["a", "b"])

    names = [[int(file.path) for file in group] for group in groups]
    assert sorted(number for group in names for number in group) == list(range(len(both)))
    sets = [[{value for number in group for value in both[number][c]} for group in names] for c in (0, 1)]
    assert any(len(set().union(*each)) == sum(map(len, each)) for each in sets)


def test_a_column_of_which_a_file_tells_nothing_puts_none_apart() -> None:
    """A file with only nulls, or without an extent, could hold any key."""
    known, empty, unknown = (
        File("k", "", {"a": [1, 2]}, 1),
        File("e", "", {"a": None}, 1),
        File("u", "", {}, 1),
    )

    assert len(Stored((known, empty), "", lambda _files: "").apart(["a"])) == 1
    assert len(Stored((known, unknown), "", lambda _files: "").apart(["a"])) == 1


def test_a_file_without_rows_is_in_no_group() -> None:
    """It holds no key, so it does not keep the others together."""
    low, high = File("l", "", {"a": [1, 2]}, 2), File("h", "", {"a": [3, 4]}, 2)
    empty = File("e", "", {"a": None}, 0)

    assert Stored((low, empty, high), "", lambda _files: "").apart(["a"]) == [[low], [high]]


def test_transactions_are_checked_by_heights(tmp_path: Path) -> None:
    """The key of a transaction determines its height, so a new file of heights is checked alone."""
    dataset = write_world(tmp_path / "dataset", {})
    groups = []
    for height in (1, 2, 3):
        path = dataset / "chain=regtest" / "transactions" / f"part={height}" / "a.parquet"
        write_table(path, TABLES["transactions"], transactions(height))
        build(dataset, RULES, tmp_path / "a.duckdb", marts=TRANSACTION_MARTS)
        state = json.loads((tmp_path / "a.duckdb.marts" / STATE).read_text())
        groups.append(set(state["checks"]["stg_transactions_grain"][3]))

    assert [len(each) for each in groups] == [0, 2, 3]  # a single file is checked as a whole
    assert groups[1] < groups[2]


def test_the_extent_of_days_is_known() -> None:
    """Days become numbers, so that marts by day are checked day by day."""
    days = [dt.date(1970, 1, 2), dt.date(1970, 1, 31)]

    assert to_extent(["day"], [days]) == {"day": [1, 30]}


def test_a_key_that_comes_twice_is_found_in_one_file_and_in_two(tmp_path: Path) -> None:
    """Each build counts the keys of all files, whether they were checked before or not."""
    dataset = write_world(tmp_path / "dataset", {"mempool_events": events(1, 2)})
    counts = [offending(dataset)]

    for number, sequences in enumerate([(5, 5), (7, 8), (8, 9)]):
        path = dataset / "chain=regtest" / "mempool_events" / f"part={number}" / "b.parquet"
        write_table(path, TABLES["mempool_events"], events(*sequences))
        counts.append(offending(dataset))

    assert counts == [0, 1, 1, 2]


def events(*sequences: int) -> list[dict[str, object]]:
    """Return messages with these counters."""
    return [{"event": "A", "hash": "b", "received_at": 60, "sequence": number} for number in sequences]


def transactions(height: int) -> list[dict[str, object]]:
    """Return two transactions of the block of a height, which names the block."""
    return [{"block_hash": f"b{height}", "height": height, "tx_index": index} for index in (0, 1)]


def offending(dataset: Path) -> int:
    """Build, and return how many keys of events come twice."""
    result = build(dataset, RULES, dataset.parent / "a.duckdb", marts=MARTS)
    return next(check.n_offending for check in result.checks if check.name == CHECK)
