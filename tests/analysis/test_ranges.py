"""Test that a mart made in ranges has the rows of the whole mart, and that a new day costs its ranges."""

import gc
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from analysis import engine, incremental, ranges
from analysis.catalog import Catalog, InRanges, load_catalog
from analysis.engine import build
from analysis.errors import DatabaseError
from analysis.extents import bounds_of
from analysis.incremental import set_parameters
from analysis.late import StandIns, early_name
from analysis.parts import Part, PartsFolder, parts_folder
from collector.dataset.schema import TABLES
from tests.analysis.days import PlantedDays
from tests.analysis.shared_build import RULES, SharedBuild
from tests.analysis.test_cases import CASES
from tests.analysis.test_same_build import Contents, contents
from tests.analysis.world import read_csv, write_world
from tests.bench.planted_world import Size

RANGED = [model.name for model in load_catalog().layer("marts") if model.ranges is not None]
# Planted worlds have none: nobody is paid, and the one mempool leaves no block and lists nothing again.
EMPTY = {
    *("accelerated_transactions", "overlapping_stays", "returned_stays", "stale_confirmations"),
    *("stale_transactions", "transaction_lags"),
}
# They have conditions of every form, and clips.
LOOKED_AT = ("feerate_age_block", "low_paying", "template_audit_block", "user_day")
# In planted worlds, no day is without a block.
LOOK_BACK_OVER_DAYS = {"template_audit_block", "user_day"}


class Planted(NamedTuple):
    """Is a world of three days or more, where transactions wait over midnight, and its marts as a whole."""

    world: PlantedDays
    whole: Path
    expected: Contents


def planted(folder: Path, seed: int) -> Planted:
    """Plant a world, and make its marts as a whole."""
    world = PlantedDays(folder, Size(n_blocks=300, entering=12, taken=9, seed=seed))
    assert len(world.days) > 2
    made = build(world.whole, world.pools, folder / "whole.duckdb", marts=RANGED, is_cut=False)
    return Planted(world, made.database, contents(made.database))


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Plant a world of one seed."""
    return planted(tmp_path_factory.mktemp("first"), 1)


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """Plant a world of another seed."""
    return planted(tmp_path_factory.mktemp("second"), 2)


@pytest.fixture(scope="module")
def without_last_day(second: Planted, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build all days of a world but the last; return the folder with dataset and database."""
    folder = tmp_path_factory.mktemp("earlier")
    second.world.add(folder / "dataset", second.world.days[:-1])
    build(folder / "dataset", second.world.pools, folder / "a.duckdb", marts=RANGED)
    return folder


@pytest.fixture
def earlier(without_last_day: Path, tmp_path: Path) -> Path:
    """Copy that build, so that a test can go on with it."""
    return shutil.copytree(without_last_day, tmp_path / "earlier")


def ranges_of(database: Path, name: str) -> list[Path]:
    """Return the files of the ranges of a mart."""
    return list((parts_folder(database) / parts_name(name)).iterdir())


def parts_name(name: str) -> str:
    """Return the name of the parts of a mart that are made in ranges."""
    return name if load_catalog().by_name[name].late is None else early_name(name)


def named_files(database: Path) -> dict[str, list[str]]:
    """Return the parts that a database names of each mart in ranges, in the order of their ranges."""
    made = PartsFolder(parts_folder(database)).state.in_ranges
    return {name: made[parts_name(name)].files for name in RANGED if parts_name(name) in made}


def test_ranges_together_are_the_whole_mart(
    first: Planted, second: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every mart that is made in ranges equals the mart made as a whole, bit for bit.

    So it is for two seeds. One reads the rows of a range as tables where they are few, and tries a table that
    it gives up where they are more than those of the range before. The other reads views alone.
    """
    tried: list[bool] = []
    has_table = StandIns._has_table

    def noted(*arguments: Any) -> bool:
        tried.append(has_table(*arguments))
        return tried[-1]

    monkeypatch.setattr(StandIns, "_has_table", noted)
    for one, table_rows in ((first, 300), (second, -1)):
        monkeypatch.setattr(ranges, "TABLE_ROWS", table_rows)
        cut = build(one.world.whole, one.world.pools, tmp_path / f"{table_rows}.duckdb", marts=RANGED)
        for name in RANGED:
            assert name in EMPTY or len(ranges_of(cut.database, name)) > 1
            assert len(list((parts_folder(one.whole) / name).iterdir())) == 1

        found, expected = contents(cut.database), one.expected

        assert {name for name in RANGED if not expected[name].num_rows} == EMPTY
        assert [name for name in RANGED if not found[name].equals(expected[name])] == []
    assert set(tried) == {True, False}


@pytest.mark.parametrize("name", sorted(EMPTY | LOOK_BACK_OVER_DAYS))
def test_ranges_of_what_planted_worlds_lack_are_the_whole_mart(
    name: str, tmp_path: Path, shared: SharedBuild
) -> None:
    """In the worlds of its cases, which have rows of it, such a mart in ranges equals the whole mart."""
    has_rows = False
    for folder in (CASES / name).iterdir():
        tables = {path.stem: read_csv(path) for path in folder.glob("*.csv") if path.stem in TABLES}
        dataset = write_world(tmp_path / folder.name, tables)
        cut = build(dataset, RULES, tmp_path / f"{folder.name}.duckdb", marts=[name])
        with shared.built(tables, [name]) as connection:
            expected = connection.sql(f"FROM {name}").to_arrow_table()

        assert contents(cut.database)[name].equals(expected)
        has_rows |= expected.num_rows > 0
    assert has_rows


def test_a_range_that_reads_too_little_is_noticed(
    first: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the stays that began on an earlier day the ranges differ from the whole."""
    catalog = load_catalog()
    name = "fee_capture_block"
    cut = catalog.by_name[name].ranges
    assert cut is not None
    reads = {**cut.reads, "mempool_residence": "first_cut_no >= getvariable('range_from')"}
    wrong = replace(catalog.by_name[name], ranges=InRanges(by=cut.by, reads=reads))
    models = tuple(wrong if model.name == name else model for model in catalog.models)
    monkeypatch.setattr(engine, "load_catalog", lambda: Catalog(models=models, macros=catalog.macros))

    found = build(first.world.whole, first.world.pools, tmp_path / "wrong.duckdb", marts=[name])

    assert not contents(found.database)[name].equals(first.expected[name])


def test_a_new_day_makes_its_ranges_and_keeps_older_ones(second: Planted, earlier: Path) -> None:
    """The database goes on with the part of each mart's first range; a repeated build makes nothing."""
    world, dataset, database = second.world, earlier / "dataset", earlier / "a.duckdb"
    before = named_files(database)

    world.add(dataset, world.days[-1:])
    made = build(dataset, world.pools, database, marts=RANGED).made

    assert set(RANGED) <= set(made)
    after = named_files(database)
    with_rows = set(RANGED) - EMPTY  # one without rows has a single part, made of everything
    assert [name for name in sorted(with_rows) if after[name][0] != before[name][0]] == []
    for name in RANGED:
        assert len(ranges_of(database, name)) < 2 * len(world.days) - 1
    assert build(dataset, world.pools, database, marts=RANGED).made == ()


def test_rows_looked_at_together_are_those_looked_at_alone(
    second: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look at the rows of all ranges finds the same as one look per range, so parts have the same names."""
    found = []
    for folder, small_rows in (("together", ranges.SMALL_ROWS), ("alone", 0)):
        monkeypatch.setattr(incremental, "SMALL_ROWS", small_rows)
        database = tmp_path / folder / "a.duckdb"
        database.parent.mkdir()
        build(second.world.whole, second.world.pools, database, marts=LOOKED_AT)
        found.append(named_files(database))

    together, alone = found
    assert set(LOOKED_AT) <= together.keys()
    assert together == alone


def test_rows_of_older_ranges_are_not_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new day has the rows queried of the last two days and of the last two ranges of heights alone.

    Many marts read relations that have one file, which any new day changes.
    """
    world = PlantedDays(tmp_path, Size(n_blocks=900, entering=3, taken=2, seed=2))
    assert len(world.days) > 5
    dataset, database, asked = tmp_path / "dataset", tmp_path / "a.duckdb", set()
    world.add(dataset, world.days[:-1])
    build(dataset, world.pools, database, marts=RANGED)
    world.add(dataset, world.days[-1:])
    put = ranges.OneRange._put

    def noting(one: ranges.OneRange, until: str | None = None) -> None:
        if until is not None:  # it puts views there for a look
            asked.add(one.rows.first_key)
        put(one, until)

    monkeypatch.setattr(ranges.OneRange, "_put", noting)
    build(dataset, world.pools, database, marts=RANGED)

    days, heights = ({key for key in asked if (key >= ranges.DAY_KEYS) is is_day} for is_day in (True, False))
    last_day = max(days)
    assert days == {last_day - ranges.DAY_KEYS, last_day}
    assert heights == {max(heights) - 200, max(heights)}


def test_a_clock_far_off_makes_no_range_of_the_days_between(tmp_path: Path) -> None:
    """An entry of 1970 beside one of 2026 makes two ranges, which together are the whole mart."""
    since_1970_s = 20_454 * 86_400
    entries = [
        {"txid": "old", "entered_at": -since_1970_s, "mempool_sequence": 1},
        {"txid": "new", "entered_at": 100, "mempool_sequence": 2},
    ]
    dataset = write_world(tmp_path / "dataset", {"mempool_txs": entries})

    cut = build(dataset, RULES, tmp_path / "cut.duckdb", marts=["mempool_entries"])
    whole = build(dataset, RULES, tmp_path / "whole.duckdb", marts=["mempool_entries"], is_cut=False)

    assert len(ranges_of(cut.database, "mempool_entries")) == 2
    assert contents(cut.database)["mempool_entries"].equals(contents(whole.database)["mempool_entries"])


def test_each_condition_bounds_a_column() -> None:
    """Of a relation without a bound a range reads every file, and is made again when one is added."""
    unbounded = [
        (model.name, relation)
        for model in load_catalog().layer("marts")
        if model.ranges is not None
        for relation, condition in model.ranges.reads.items()
        if not bounds_of(condition)
    ]
    # What others list is fetched as a whole, and of the verdicts on pools there is one row per pool.
    assert sorted(unbounded) == [
        ("accelerated_transactions", "stg_external_accelerated"),
        ("ahead_of_feerate", "pool_ordering"),
        ("out_of_band_candidates", "pool_ordering"),
    ]


def test_a_range_without_what_it_needs_would_have_no_row(second: Planted, tmp_path: Path) -> None:
    """Each mart whose head names a needed relation has no row where that relation has none."""
    database = shutil.copyfile(second.whole, tmp_path / "w.duckdb")
    models = [model for model in load_catalog().layer("marts") if model.ranges and model.ranges.needs]

    for model in models:
        assert model.ranges is not None
        needed = model.ranges.needs
        with duckdb.connect(str(database)) as connection:
            set_parameters(connection, model)
            before = connection.execute(model.sql).fetchall()
            connection.execute(f"CREATE TEMP VIEW {needed} AS SELECT * FROM w.main.{needed} WHERE false")  # noqa: S608 - our own heads
            assert (model.name in EMPTY) == (not before)
            assert connection.execute(model.sql).fetchall() == [], model.name
    assert len(models) >= 4


def test_a_changed_condition_makes_the_ranges_again(
    first: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a condition that reads too little is mended, the next build has the right rows."""
    catalog, name = load_catalog(), "fee_capture_block"
    model = catalog.by_name[name]
    assert model.ranges is not None
    reads = {**model.ranges.reads, "mempool_residence": "first_cut_no >= getvariable('range_from')"}
    wrong = replace(model, ranges=InRanges(by=model.ranges.by, reads=reads))
    models = tuple(wrong if each.name == name else each for each in catalog.models)
    world, database = first.world, tmp_path / "a.duckdb"
    with monkeypatch.context() as before:
        before.setattr(engine, "load_catalog", lambda: Catalog(models=models, macros=catalog.macros))
        before.setattr(engine, "sources_hash", lambda: "those of the wrong condition")
        build(world.whole, world.pools, database, marts=[name])

    found = build(world.whole, world.pools, database, marts=[name])

    assert contents(found.database)[name].equals(first.expected[name])


def test_a_range_that_fails_leaves_no_view_in_front_of_a_relation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The views of the range are removed while the connection is open, and the error alone is told."""
    world = PlantedDays(tmp_path, Size(n_blocks=60, entering=6, taken=4))
    later: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: later.append(hook.exc_value))
    make = PartsFolder.make

    def failing(self: PartsFolder, connection: duckdb.DuckDBPyConnection, name: str, *rest: Any) -> Part:
        if name == "mempool_residence":
            raise duckdb.OutOfMemoryException("no memory is left")
        return make(self, connection, name, *rest)

    monkeypatch.setattr(PartsFolder, "make", failing)
    with pytest.raises(DatabaseError, match="no memory is left"):
        build(world.whole, world.pools, tmp_path / "a.duckdb", marts=["mempool_residence"])
    gc.collect()

    assert later == []
