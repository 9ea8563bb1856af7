"""Test what a running collector does with its store: every seal is copied, and no failure costs a file."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collector.cli import app
from collector.compaction.run import compact
from collector.dataset.open import Dataset
from collector.errors import StoreError
from collector.journal.journal import Journal
from collector.monitor.health import Health
from collector.monitor.http import MonitorServer
from collector.monitor.metrics import Metrics
from collector.upload import follow
from collector.upload.follow import Uploader
from collector.upload.run import Upload, upload_lock
from tests.collector.check.made_dataset import make_rows, write
from tests.collector.compaction.made_files import write_events
from tests.collector.upload.gate import Handler, Place, busy
from tests.collector.upload.test_upload import TODAY, copied, events_by_list, local, once

PATIENCE_S = 60.0
Start = Callable[[], Uploader]


@pytest.fixture
def uploading(
    dataset: Dataset, place: Place, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], Uploader]]:
    """Return a function that starts an uploader of the dataset; each is closed at the end."""
    monkeypatch.setattr(follow, "LOOK_S", 0.05)
    with ExitStack() as at_end:

        def start() -> Uploader:
            made = Uploader(dataset, str(place.address), endpoint=place.gate.url)
            at_end.callback(made.close)
            return made

        yield start


def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a function returns True."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_what_is_sealed_is_copied_and_nothing_waits(dataset: Dataset, place: Place, uploading: Start) -> None:
    """New files and a compaction reach the store without a call."""
    uploader = uploading()
    wait_until(lambda: uploader.waiting() == (0, 0) and uploader.last_at_s is not None)
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: uploader.waiting() == (0, 0) and copied(place) == local(dataset))
    list(compact(dataset, today=TODAY))
    wait_until(lambda: copied(place) == local(dataset))

    assert events_by_list(place) == once(dataset)
    assert uploader.blocked == ""
    assert uploader.done.n_put == 7 + 1 + 2


def test_a_store_that_is_away_keeps_nobody_from_sealing(
    dataset: Dataset, place: Place, uploading: Start
) -> None:
    """What waits is counted, why is said, and it is copied when the store is back."""
    place.gate.default = busy
    uploader = uploading()
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: "SlowDown" in uploader.blocked)
    n_files, n_bytes = uploader.waiting()
    assert n_files == 8
    assert n_bytes == sum(len(content) for path, content in local(dataset).items() if ".parquet" in path)

    place.gate.default = None
    wait_until(lambda: uploader.waiting() == (0, 0))
    wait_until(lambda: uploader.blocked == "")
    assert copied(place) == local(dataset)


def test_a_folder_that_cannot_be_listed_costs_no_copy(
    dataset: Dataset, place: Place, uploading: Start
) -> None:
    """Its files do not pass for removed ones: the copy keeps them, and readiness and metrics say why."""
    uploader = uploading()
    wait_until(lambda: uploader.last_at_s is not None)
    before = copied(place)
    metrics = Metrics(["n"])
    metrics.report_store(uploader)
    folder = dataset.folder / "mempool_events"
    folder.rename(dataset.root / "aside")
    folder.symlink_to(folder)  # what nobody can list, root neither
    wait_until(lambda: uploader.blocked != "")
    assert uploader.blocked.startswith(f"cannot list {folder}: Too many levels of symbolic links; its files")
    assert uploader.blocked in metrics.store_blocked()
    assert metrics.registry.get_sample_value("pool_collector_store_blocked") == 1.0
    assert copied(place) == before

    folder.unlink()
    (dataset.root / "aside").rename(folder)
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: copied(place) == local(dataset))


def test_a_dataset_that_is_away_costs_no_copy(
    dataset: Dataset, place: Place, uploading: Start, tmp_path: Path
) -> None:
    """Readiness says why nothing is copied; when the dataset is back, uploads go on."""
    uploader = uploading()
    wait_until(lambda: uploader.last_at_s is not None)
    before = copied(place)
    dataset.root.rename(tmp_path / "moved")
    wait_until(lambda: uploader.blocked != "")
    assert uploader.blocked.startswith(f"the dataset {dataset.root} was removed or moved")
    assert copied(place) == before
    assert not dataset.root.exists()

    (tmp_path / "moved").rename(dataset.root)
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: copied(place) == local(dataset))


def test_a_lost_list_is_made_again(dataset: Dataset, place: Place, uploading: Start) -> None:
    """The store is looked through again, and uploads go on."""
    uploader = uploading()
    wait_until(lambda: uploader.last_at_s is not None)
    place.client.delete_object(Bucket=place.bucket, Key="copy/chain=regtest/files.json")
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: uploader.waiting() == (0, 0))
    wait_until(lambda: uploader.blocked == "")

    assert events_by_list(place) == once(dataset)
    assert copied(place) == local(dataset)


def test_what_is_sealed_last_is_copied_at_the_stop(
    dataset: Dataset, place: Place, uploading: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last seal of a collector is followed by the last round of its uploader."""
    monkeypatch.setattr(follow, "LOOK_S", 3600.0)
    uploader = uploading()
    wait_until(lambda: uploader.last_at_s is not None)
    write_events(dataset, 1, 2, day=2, stem="last")
    uploader.close()
    assert copied(place) == local(dataset)


def test_a_stop_does_not_wait_for_a_store_that_is_away(
    dataset: Dataset, place: Place, uploading: Start
) -> None:
    """The files stay, and the next start copies them."""
    place.gate.default = busy
    uploader = uploading()
    wait_until(lambda: uploader.blocked != "")
    uploader.close()
    assert not uploader.is_running
    place.gate.default = None
    again = uploading()
    wait_until(lambda: again.waiting() == (0, 0))
    assert copied(place) == local(dataset)


def test_a_store_that_refuses_us_at_the_first_start_is_an_error(place: Place, uploading: Start) -> None:
    """Nothing has been collected for it yet, so the mistake is told at once; no lock is left."""

    def refused(handler: Handler) -> bool:
        handler.refuse(403, "AccessDenied")
        return True

    place.gate.default = refused
    for _ in range(2):
        with pytest.raises(StoreError, match="has no right to do this"):
            uploading()


def test_a_store_that_refuses_us_later_does_not_end_the_collector(
    dataset: Dataset, place: Place, uploading: Start
) -> None:
    """A key that has expired is told; a restart of the collector collects, too."""

    def refused(handler: Handler) -> bool:
        handler.refuse(403, "ExpiredToken")
        return True

    first = uploading()
    wait_until(lambda: first.waiting() == (0, 0))
    first.close()
    write_events(dataset, 1, 2, day=2, stem="later")
    place.gate.default = refused
    uploader = uploading()
    assert "refuses the key" in uploader.blocked
    place.gate.default = None
    wait_until(lambda: uploader.waiting() == (0, 0))
    assert copied(place) == local(dataset)


def test_what_is_in_a_store_that_refuses_us_does_not_wait(
    dataset: Dataset, place: Place, uploading: Start
) -> None:
    """A key that expires while the collector runs makes only new files wait, round after round."""
    refusals = []

    def refused(handler: Handler) -> bool:
        refusals.append(handler.path)
        handler.refuse(403, "ExpiredToken")
        return True

    uploader = uploading()
    wait_until(lambda: uploader.waiting() == (0, 0))
    place.gate.default = refused
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: len(refusals) > 1)
    assert uploader.waiting().n_files == 1


def test_an_uploader_waits_while_another_upload_runs(
    dataset: Dataset, place: Place, uploading: Start
) -> None:
    """It starts, says why it copies nothing, and goes on when the other upload has ended."""
    with upload_lock(dataset):
        uploader = uploading()
        assert "another upload of" in uploader.blocked
        assert place.gate.n_puts() == 0
    wait_until(lambda: uploader.waiting() == (0, 0) and uploader.last_at_s is not None)
    wait_until(lambda: not uploader.blocked)
    assert copied(place) == local(dataset)


def test_a_clock_that_is_set_back_keeps_no_command_waiting(
    dataset: Dataset, place: Place, uploading: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command ends when the store has every file, also if the clock was set back by an hour meanwhile."""
    uploader = uploading()
    wait_until(lambda: uploader.last_at_s is not None)
    right, n_asked = time.time, 0

    def set_back() -> float:
        nonlocal n_asked
        n_asked += 1
        return right() - (3600 if n_asked > 1 else 0)

    monkeypatch.setattr("collector.upload.follow.time.time", set_back)
    ending = threading.Thread(target=uploader.finish, daemon=True)
    ending.start()
    ending.join(PATIENCE_S / 4)
    assert not ending.is_alive()
    assert copied(place) == local(dataset)


def test_an_upload_elsewhere_ends_this_one(dataset: Dataset, place: Place, uploading: Start) -> None:
    """It says so, and does not undo what the other one writes."""
    uploader = uploading()
    wait_until(lambda: uploader.waiting() == (0, 0))
    Upload.begin(dataset, place.store())
    write_events(dataset, 1, 2, day=2, stem="later")
    wait_until(lambda: not uploader.is_running)
    assert "another upload writes to" in uploader.blocked
    assert uploader.waiting().n_files == 1


@pytest.mark.parametrize("is_away", [False, True])
def test_status_and_readiness_say_what_the_store_lacks(
    place: Place, tmp_path: Path, *, is_away: bool
) -> None:
    """The status of the local part has a line on the store, as the running collector tells it."""
    metrics = Metrics()
    health = Health(metrics, {})
    server = MonitorServer("127.0.0.1:0", metrics, health)
    rows = make_rows()
    settings = {"metrics": f"127.0.0.1:{server.port}", "store": str(place.address)}
    for row in rows["nodes"]:
        row["settings"] = json.dumps(settings)
    dataset = write(tmp_path / "local", rows)
    place.gate.default = busy if is_away else None
    with ExitStack() as at_end, Journal(dataset.root / "journal" / "regtest" / "n"):
        at_end.callback(server.close)
        uploader = Uploader(dataset, str(place.address), endpoint=place.gate.url)
        at_end.callback(uploader.close)
        metrics.report_store(uploader)
        if not is_away:
            wait_until(lambda: uploader.waiting() == (0, 0))
            wait_until(lambda: uploader.last_at_s is not None)
        said = CliRunner().invoke(app, ["status", str(dataset.root)]).stdout.splitlines()[-1]
        reasons = health.unready()
    n_files = len(local(dataset)) - 1
    if is_away:
        assert said.startswith(f"store {place.address}: {n_files} sealed files (")
        assert said.endswith("it takes no files now, /readyz says why")
        assert len(reasons) == 1
        assert reasons[0].startswith(f"{n_files} sealed files (")
        assert "SlowDown" in reasons[0]
    else:
        assert said.startswith(f"store {place.address}: has every sealed file; complete at 20")
        assert reasons == []
