"""Test that builds of the same rows are equal, bit for bit, whatever the threads, files and folder."""

import datetime as dt
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from analysis import manifest
from analysis.catalog import load_catalog
from analysis.database import open_database
from analysis.engine import build
from collector.compaction.run import compact
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from tests.bench.planted_files import CHAIN, write_world
from tests.bench.planted_world import Size, simulate

SIZE = Size(n_blocks=80, entering=24, taken=18)
# Where and when a build was made: the one table that differs.
EXEMPT = {"build_log"}
Contents = dict[str, pa.Table]


def contents(database: Path) -> Contents:
    """Read every mart of a database in its stored order; those that are not stored are sorted."""
    with open_database(database) as connection:
        relations = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_name NOT LIKE 'stg_%'"
        ).fetchall()
        models = load_catalog().by_name
        return {
            name: connection.sql(
                f"FROM {name} {'ORDER BY ALL' if name in models and models[name].is_view else ''}"
            ).to_arrow_table()
            for (name,) in relations
            if name not in TABLES and name not in EXEMPT
        }


def scatter(dataset: Path) -> None:
    """Deal the rows of every file out to three files, in another order and in other row groups."""
    rng = np.random.default_rng(1)
    for path in sorted(dataset.rglob("*.parquet")):
        table = pq.read_table(path)
        table = table.take(rng.permutation(len(table)))
        for number in range(3):
            part = table.take(np.arange(number, len(table), 3))
            pq.write_table(part, path.with_name(f"{9 - number}-{path.name}"), row_group_size=1000)
        path.unlink()


def joined(dataset: Path) -> None:
    """Scatter the rows, then compact the files again."""
    scatter(dataset)
    outcomes = list(compact(Dataset(dataset, CHAIN), today=dt.date(2040, 1, 1)))
    assert any(outcome.merged for outcome in outcomes)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a planted world."""
    folder = tmp_path_factory.mktemp("same")
    write_world(simulate(SIZE), folder)
    return folder


@pytest.fixture(scope="module")
def first(folder: Path) -> Contents:
    """Build the world with one thread and give its tables."""
    return contents(build(folder / "dataset", folder / "pools", folder / "first.duckdb", threads=1).database)


@pytest.mark.parametrize(
    ("change", "options"),
    [(scatter, {"threads": 4}), (joined, {"threads": 2, "inside_bytes": 0})],
)
def test_builds_of_the_same_rows_are_equal(
    folder: Path, first: Contents, tmp_path: Path, change: object, options: dict[str, int]
) -> None:
    """Every table, and the run manifest with its hashes too, has the same bytes in the same order.

    It does not matter whether marts are tables of the database or views on their parts.
    """
    shutil.copytree(folder / "dataset", tmp_path / "dataset")
    assert callable(change)
    change(tmp_path / "dataset")

    source, rules = tmp_path / "dataset", folder / "pools"
    database = build(source, rules, tmp_path / "a.duckdb", **options).database  # type: ignore[arg-type]

    again = contents(database)
    assert again.keys() == first.keys() > {"run_manifest", "check_results", "inclusion_sample"}
    assert [name for name, table in again.items() if not table.equals(first[name])] == []


def test_the_hash_of_the_dataset_tells_rows_apart(folder: Path, first: Contents, tmp_path: Path) -> None:
    """One digit that changes in one row changes the hash in the run manifest."""
    shutil.copytree(folder / "dataset", tmp_path / "dataset")
    path = next((tmp_path / "dataset").rglob("coverage/**/*.parquet"))
    table = pq.read_table(path)
    column = table.schema.get_field_index("to_at")
    later = pa.array([moment + dt.timedelta(microseconds=1) for moment in table["to_at"].to_pylist()])
    pq.write_table(
        table.set_column(column, table.schema.field("to_at"), later.cast(table.schema.field("to_at").type)),
        path,
    )

    again = build(tmp_path / "dataset", folder / "pools", tmp_path / "a.duckdb", marts=["run_manifest"])
    changed = {row["key"]: row["value"] for row in contents(again.database)["run_manifest"].to_pylist()}
    before = {row["key"]: row["value"] for row in first["run_manifest"].to_pylist()}
    assert {key for key in before if before[key] != changed[key]} == {"dataset_hash"}


def test_the_manifest_names_commit_and_sources(first: Contents) -> None:
    """The sources have a hash of their own, because not every installation has a git work tree."""
    facts = {row["key"]: row["value"] for row in first["run_manifest"].to_pylist()}

    assert facts["sources_hash"] == manifest.sources_hash()
    assert len(facts["sources_hash"]) == len(facts["dataset_hash"]) == 64
    assert facts["commit"] == manifest.NO_COMMIT or len(facts["commit"].removesuffix("-dirty")) == 40
