"""Test that a changed pool rule fills in pools anew, and makes nothing of transactions again."""

import re
import shutil
from pathlib import Path

import pytest

from analysis import incremental
from analysis.catalog import load_catalog
from analysis.engine import build
from analysis.late import early_name
from analysis.parts import PartsFolder, parts_folder
from tests.analysis.days import PlantedDays
from tests.analysis.test_same_build import Contents, contents
from tests.bench.planted_world import Size

LATE = [model for model in load_catalog().layer("marts") if model.late is not None]
NAMES = [model.name for model in LATE]
POOL = "cedar"
FEW = ("feerate_age_block", "far_ahead")
FEATURES = {"block_features", "policy_trials"}  # no transaction of a planted world has a feature


def changed_rules(pools: Path, folder: Path) -> Path:
    """Copy pool rules; one of them then matches no block, so its pool's blocks become unknown."""
    shutil.copytree(pools, folder)
    rules = folder / f"{POOL}.toml"
    rules.write_text(rules.read_text().replace(f"/{POOL}/", f"/{POOL}s/"))
    return folder


def test_a_changed_rule_makes_no_early_part_and_every_row_right(tmp_path: Path) -> None:
    """The parts without pools stay, and the marts equal those made as a whole, bit for bit."""
    world = PlantedDays(tmp_path, Size(n_blocks=200, entering=12, taken=9))
    rules, database = changed_rules(world.pools, tmp_path / "changed"), tmp_path / "a.duckdb"
    first = contents(build(world.whole, world.pools, database, marts=NAMES).database)
    early = {
        path: path.stat().st_mtime_ns
        for name in NAMES
        for path in (parts_folder(database) / early_name(name)).iterdir()
    }
    assert early

    build(world.whole, rules, database, marts=NAMES)

    found = contents(database)
    whole = build(world.whole, rules, tmp_path / "whole.duckdb", marts=NAMES, is_cut=False)
    expected = contents(whole.database)
    assert [name for name in NAMES if not found[name].equals(expected[name])] == []
    moved = {name for name in NAMES if POOL in first[name]["pool"].to_pylist()}
    assert moved == {name for name in NAMES if not found[name].equals(first[name])}
    assert moved >= set(NAMES) - FEATURES
    assert {path: path.stat().st_mtime_ns for path in early} == early


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> PlantedDays:
    """Plant a world of three days."""
    return PlantedDays(tmp_path_factory.mktemp("days"), Size(n_blocks=300, entering=12, taken=9))


@pytest.fixture(scope="module")
def changed_whole(world: PlantedDays, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """Make marts of the world as a whole, with a changed rule."""
    folder = tmp_path_factory.mktemp("whole")
    rules = changed_rules(world.pools, folder / "changed")
    return contents(build(world.whole, rules, folder / "a.duckdb", marts=FEW, is_cut=False).database)


@pytest.mark.parametrize("rows", [1, 300])
def test_a_new_day_fills_in_the_last_parts_alone(
    world: PlantedDays, changed_whole: Contents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    """The first part of a mart of many rows stays until a rule changes; no row differs from a whole mart."""
    monkeypatch.setattr(incremental, "GROUP_ROWS", rows)
    dataset, database = tmp_path / "dataset", tmp_path / "a.duckdb"

    def files_after(days: list[str], rules: Path) -> list[str]:
        world.add(dataset, days)
        build(dataset, rules, database, marts=FEW)
        return PartsFolder(parts_folder(database)).state.in_ranges["feerate_age_block"].files

    first, *others = files_after(world.days[:-1], world.pools)
    assert others
    path = parts_folder(database) / first
    made_ns = path.stat().st_mtime_ns
    assert files_after(world.days[-1:], world.pools)[0] == first
    assert path.stat().st_mtime_ns == made_ns

    rules = changed_rules(world.pools, tmp_path / "changed")
    assert first not in files_after([], rules)
    found = contents(database)
    assert [name for name in FEW if not found[name].equals(changed_whole[name])] == []


def test_what_reads_no_pool_is_kept_when_a_rule_changes(tmp_path: Path) -> None:
    """A mart that reads other columns of a mart whose pools changed is not made again."""
    world = PlantedDays(tmp_path, Size(n_blocks=150, entering=12, taken=9))
    database = tmp_path / "a.duckdb"
    marts = ["block_order", "chain_blocks", "template_audit"]
    build(world.whole, world.pools, database, marts=marts)

    made = build(world.whole, changed_rules(world.pools, tmp_path / "changed"), database, marts=marts).made

    assert {"block_pool", "template_audit_block", "template_audit", "block_order"} <= set(made)
    assert not {"chain_blocks", "mempool_residence", "mempool_links"} & set(made)
    assert len(list((parts_folder(database) / early_name("block_order")).iterdir())) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_late_column_is_only_passed_on(name: str) -> None:
    """The query names a late column once, so no condition and no sum can rest on its value."""
    model = load_catalog().by_name[name]
    assert model.late is not None
    for column in model.late.columns:
        named = re.findall(rf"[\w.]*\b{column}\b", re.sub(r"--.*", "", model.sql))
        assert named == [f"{model.late.relation}.{column}"]
