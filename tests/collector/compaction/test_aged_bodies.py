"""Test that raw bytes of transactions are removed by age, and nothing else is."""

import datetime as dt
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from collector.cli import app
from collector.compaction import replacement
from collector.compaction.aged_bodies import remove_bodies
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_BODIES, MEMPOOL_EVENTS
from collector.errors import DatasetError
from tests.collector.compaction.made_files import write_events

DAY_US = 86_400_000_000


def test_old_bodies_go_and_younger_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `mempool_bodies` whole days go that are older than asked for; other tables keep theirs."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(dataset, 1, 3)
    today_us = round(dt.datetime.now(dt.UTC).timestamp() * 1e6)
    for age in (0, 1, 2, 5):  # midnight may pass before the command asks for the day
        at_us = today_us - age * DAY_US
        row = {"node": "n", "session": "s", "txid": bytes(32), "kept_at": at_us, "kept_because": "left"}
        dataset.write(MEMPOOL_BODIES, [row | {"raw": bytes(60)}], stem=f"made-{age}")

    done = CliRunner().invoke(app, ["compact", str(dataset.root), "--keep-bodies-days", "3"])

    ages = [
        (today_us - row["kept_at"].timestamp() * 1e6) / DAY_US
        for row in dataset.read(MEMPOOL_BODIES).to_pylist()
    ]
    assert done.exit_code == 0
    assert sorted(map(round, ages)) == [0, 1, 2]
    assert "mempool_bodies/date=" in done.output
    assert len(dataset.read(MEMPOOL_EVENTS)) == 3


def test_a_clock_that_may_be_ahead_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Days long ago may be old, or the clock is wrong and has written a day or two: both are told."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    today_us = round(dt.datetime.now(dt.UTC).timestamp() * 1e6)
    row = {"node": "n", "session": "s", "txid": bytes(32), "kept_because": "left", "raw": bytes(60)}
    for age in (400, 401, 402, 0, 1):
        dataset.write(MEMPOOL_BODIES, [row | {"kept_at": today_us - age * DAY_US}], stem=f"made-{age}")

    done = CliRunner().invoke(app, ["compact", str(dataset.root), "--keep-bodies-days", "9"])

    assert done.exit_code == 1
    assert "mempool_bodies: left as it is: no raw bytes were removed: the clock says" in done.output
    assert len(dataset.read(MEMPOOL_BODIES)) == 5

    dataset.write(MEMPOOL_BODIES, [row | {"kept_at": today_us - 2 * DAY_US}], stem="made-2")
    done = CliRunner().invoke(app, ["compact", str(dataset.root), "--keep-bodies-days", "9"])

    assert done.exit_code == 0
    assert len(dataset.read(MEMPOOL_BODIES)) == 3


def test_the_last_day_takes_the_folder_of_the_table_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty one would look like a disk that is not mounted."""
    monkeypatch.setattr(replacement, "GRACE_S", 0.0)
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    row = {"node": "n", "session": "s", "txid": bytes(32), "kept_at": 0, "kept_because": "left"}
    dataset.write(MEMPOOL_BODIES, [row | {"raw": bytes(60)}], stem="made")

    assert list(remove_bodies(dataset, dt.date(2024, 1, 1))) == ["mempool_bodies/date=1970-01-01"]
    assert not (dataset.folder / MEMPOOL_BODIES.name).exists()


def test_a_day_on_another_disk_is_named(tmp_path: Path) -> None:
    """A table that was moved to another file system loses no day, and one sentence says why."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of a random name in it
    if not memory.is_dir() or memory.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system")
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    row = {"node": "n", "session": "s", "txid": bytes(32), "kept_at": DAY_US, "kept_because": "left"}
    dataset.write(MEMPOOL_BODIES, [row | {"raw": bytes(60)}], stem="made")
    table = dataset.folder / MEMPOOL_BODIES.name
    with TemporaryDirectory(dir=memory) as elsewhere:
        shutil.copytree(table, elsewhere, dirs_exist_ok=True)
        shutil.rmtree(table)
        table.symlink_to(elsewhere)
        with pytest.raises(DatasetError, match=r"1970-01-02: Invalid cross-device link"):
            list(remove_bodies(dataset, dt.date(2000, 1, 1)))
        assert len(dataset.read(MEMPOOL_BODIES)) == 1
