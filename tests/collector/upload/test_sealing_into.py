"""Test commands that change a dataset in an object store: they work in its local part and upload."""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collector.cli import app
from collector.dataset.local_part import local_part
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TABLES
from collector.errors import DatasetError, SettingsError, StoreUnavailable
from collector.regtest import RegtestNode, find_bitcoind
from collector.upload import follow
from collector.upload.follow import sealing_into
from collector.upload.run import upload_lock
from tests.collector.compaction.made_files import write_events
from tests.collector.upload.gate import Fault, Handler, Place, busy
from tests.collector.upload.test_upload import copied, events_by_list, local, once, upload

N_BLOCKS = 5


@pytest.fixture
def part(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Make the local part of the store's dataset, below the present folder, and upload it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.gate.url)
    monkeypatch.setattr(follow, "LOOK_S", 0.05)
    monkeypatch.setattr(follow, "FINISH_S", 0.0)
    made = Dataset.open(local_part(place.address).absolute(), "regtest", create=True)
    write_events(made, 3, 4)
    upload(made, place)
    return made


def test_compact_merges_the_files_of_the_store(part: Dataset, place: Place) -> None:
    """The command takes the address; afterwards the store has what is on disk, each row once."""
    before = once(part)
    said = CliRunner().invoke(app, ["compact", str(place.address)])

    assert said.exit_code == 0, said.output
    assert "3 files are now one" in said.stdout
    assert len(copied(place)) == 1 + 1  # the marker
    assert copied(place) == local(part)
    assert events_by_list(place) == before


def test_a_store_without_its_local_part_is_not_changed(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message says where the part would be."""
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["compact", str(place.address)])
    assert isinstance(result.exception, DatasetError)
    assert str(local_part(place.address)) in str(result.exception)


def test_two_stores_in_the_settings_are_refused(tmp_path: Path) -> None:
    """An address as the dataset does not silently take the place of another store."""
    config = tmp_path / "collector.toml"
    config.write_text('store = "s3://bucket/other"')
    result = CliRunner().invoke(app, ["run", "--config", str(config), "--dataset", "s3://bucket/one"])
    assert isinstance(result.exception, SettingsError)
    assert "dataset is s3://bucket/one and store is s3://bucket/other" in str(result.exception)


def sealing(part: Dataset, place: Place, fault: Fault | None = None, *, fails: bool = False) -> None:
    """Seal one file into the store, which then has a fault; with `fails`, raise ZeroDivisionError."""
    with sealing_into(part, str(place.address)):
        place.gate.default = fault
        write_events(part, 1, 2, day=1, stem="later")
        if fails:
            raise ZeroDivisionError


def removing(part: Dataset, place: Place) -> None:
    """Remove one file while the store is away."""
    with sealing_into(part, str(place.address)):
        place.gate.default = busy
        part.paths(TABLES["mempool_events"])[0].unlink()


def test_what_the_store_does_not_take_stays_and_is_told(part: Dataset, place: Place) -> None:
    """The error counts the files; the next call brings them."""
    with pytest.raises(StoreUnavailable, match=r"1 file of it not in s3://.*SlowDown"):
        sealing(part, place, busy)
    place.gate.default = None
    sealing(part, place)
    assert copied(place) == local(part)


def test_an_error_of_the_work_is_the_one_that_is_told(part: Dataset, place: Place) -> None:
    """What was sealed before it is uploaded all the same."""
    with pytest.raises(ZeroDivisionError):
        sealing(part, place, fails=True)
    assert copied(place) == local(part)


def test_while_a_collector_uploads_nobody_else_does(part: Dataset, place: Place) -> None:
    """Its uploader takes the files of others too."""
    n_before = place.gate.n_puts()
    with upload_lock(part), sealing_into(part, str(place.address)):
        write_events(part, 1, 2, day=1, stem="later")
    assert place.gate.n_puts() == n_before


def test_what_an_upload_missed_that_has_ended_is_copied(part: Dataset, place: Place) -> None:
    """An upload that ran at the start may have listed the files before the last of them."""
    with ExitStack() as other:
        other.enter_context(upload_lock(part))
        with sealing_into(part, str(place.address)):
            write_events(part, 1, 2, day=1, stem="later")
            other.close()
    assert copied(place) == local(part)


def test_what_was_removed_here_and_not_in_the_store_is_told(part: Dataset, place: Place) -> None:
    """The store is lost before it is told of a removal; the next call brings it."""
    sealing(part, place)
    with pytest.raises(StoreUnavailable, match=r"files that are gone here still in s3://.*SlowDown"):
        removing(part, place)
    place.gate.default = None
    with sealing_into(part, str(place.address)):
        pass
    assert copied(place) == local(part)


@pytest.mark.bitcoind
def test_a_backfill_goes_into_the_store(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in a put of its file of blocks, and called again, it brings every block once."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", place.gate.url)
    command = [sys.executable, "-P", "-m", "collector", "backfill", "--dataset", str(place.address)]
    killed: list[subprocess.Popen[bytes]] = []

    def kill(handler: Handler) -> bool:
        handler.asked(handler.body())
        killed[0].kill()
        handler.hang_up()
        return True

    place.gate.at("PUT", "/blocks/", kill)
    with RegtestNode(find_bitcoind()) as node:
        node.client().call("generatetodescriptor", N_BLOCKS, "raw(51)")
        command += ["--blocks-dir", str(node.datadir / "regtest" / "blocks"), "--workers", "1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            killed.append(process)
        done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert process.returncode == -signal.SIGKILL
    assert done.returncode == 0, done.stderr
    dataset = Dataset.open(local_part(place.address), "regtest")
    assert dataset.read(BLOCKS)["height"].to_pylist() == list(range(N_BLOCKS + 1))
    assert copied(place) == local(dataset)
