"""Test that a dataset of version 0.1.0 is read, and upgraded by `compact`.

`tests/vectors/dataset-0.1.0.tar.xz` was made by that version: `pool-collector demo --scenario smoke`.
"""

import datetime as dt
import tarfile
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from collector.check.model import BREACH
from collector.check.run import check
from collector.cli import app
from collector.compaction.run import compact
from collector.dataset.open import Dataset, open_existing
from collector.dataset.schema import TABLES

TOMORROW = dt.date(2040, 1, 1)


@pytest.fixture
def old(tmp_path: Path, repo_root: Path) -> Dataset:
    """Unpack the dataset of version 0.1.0."""
    with tarfile.open(repo_root / "tests" / "vectors" / "dataset-0.1.0.tar.xz") as packed:
        packed.extractall(tmp_path, filter="data")
    return open_existing(tmp_path / "dataset", None)


def rows(dataset: Dataset) -> dict[str, pa.Table]:
    """Read every table, in the order of its grain."""
    read = {name: dataset.read(table) for name, table in TABLES.items()}
    orders = {name: [(column, "ascending") for column in table.grain] for name, table in TABLES.items()}
    return {name: table.sort_by(orders[name]).combine_chunks() for name, table in read.items()}


def breaches(dataset: Dataset) -> dict[str, str]:
    """Check a dataset; return what breaks its contract."""
    return {each.name: each.findings[0].what for each in check(dataset) if each.status == BREACH}


def test_a_dataset_of_the_first_release_keeps_the_contract(old: Dataset) -> None:
    """Its rows are read with null for what it lacks, it passes the check, and its status is told."""
    read = rows(old)
    assert {name for name in ("blocks", "transactions", "mempool_txs", "coverage") if len(read[name])} == {
        *("blocks", "transactions", "mempool_txs", "coverage")
    }
    assert read["transactions"]["spent_types"].null_count == len(read["transactions"])
    assert breaches(old) == {}
    told = CliRunner().invoke(app, ["status", str(old.root)])
    assert told.exit_code == 0, told.output
    assert "first" in told.stdout


def test_compact_upgrades_it_without_losing_a_row(old: Dataset) -> None:
    """Folders get their present names, each partition has one file with every column, no row changes."""
    before = rows(old)
    assert list(old.folder.glob("*/height=*"))

    failed = [result for result in compact(old, today=TOMORROW) if result.error]
    assert failed == []
    assert [result for result in compact(old, today=TOMORROW) if result.error] == []

    assert list(old.folder.glob("*/height=*")) == []
    assert rows(old) == before
    assert breaches(old) == {}
    days = [path for table in TABLES.values() for path in old.paths(table) if table.day_column is not None]
    assert len({path.parent for path in days}) == len(days)
