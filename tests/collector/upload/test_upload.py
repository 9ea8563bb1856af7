"""Test that a copy in a store has every row once, at every moment and after every fault."""

import datetime as dt
import io
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from collector.compaction.run import compact
from collector.dataset.file_list import FileList, list_path
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS, TABLES
from collector.errors import DatasetError, StoreChanged, StoreError, StoreUnavailable
from collector.upload.run import Upload, Uploaded, upload_lock
from tests.collector.compaction.made_files import event, write_events
from tests.collector.upload.gate import Fault, Handler, Place, answer_lost, busy, cut, flipped

LIST = "copy/chain=regtest/files.json"
TODAY = dt.date(2024, 10, 6)  # the two days of the dataset are over


def upload(dataset: Dataset, place: Place) -> Uploaded:
    """Upload once."""
    return Upload.begin(dataset, place.store()).bring_up_to_date()


def local(dataset: Dataset) -> dict[str, bytes]:
    """Return every file of the tables, and the marker, by its path in the dataset."""
    paths = [path for table in TABLES.values() for path in dataset.paths(table)]
    paths.append(dataset.root / "dataset.json")
    return {path.relative_to(dataset.root).as_posix(): path.read_bytes() for path in paths}


def copied(place: Place) -> dict[str, bytes]:
    """Return what the store has, without the list."""
    contents = place.contents()
    del contents[list_path("regtest")]
    return contents


def events(contents: list[bytes]) -> Counter[tuple[str, int]]:
    """Count the events in files: each is named by its time and number."""
    tables = [pq.read_table(io.BytesIO(content), columns=["received_at", "sequence"]) for content in contents]
    rows = [row for table in tables for row in table.to_pylist()]
    return Counter((str(row["received_at"]), row["sequence"]) for row in rows)


def events_by_list(place: Place) -> Counter[tuple[str, int]]:
    """Count the events that a reader sees who follows the list, and checks what it gets."""
    files = FileList.read(place.read(LIST), place.address).files
    names = [name for name in files if name.startswith("mempool_events/")]
    contents = [place.read(f"copy/chain=regtest/{name}") for name in names]
    assert [len(content) for content in contents] == [files[name].size_bytes for name in names]
    return events(contents)


def events_by_pattern(place: Place) -> Counter[tuple[str, int]]:
    """Count the events that a reader sees who takes every file."""
    return events([content for path, content in place.contents().items() if "/mempool_events/" in path])


def once(dataset: Dataset) -> Counter[tuple[str, int]]:
    """Count the events of the dataset on disk."""
    return events([path.read_bytes() for path in dataset.paths(MEMPOOL_EVENTS)])


def test_the_copy_has_the_files_of_the_dataset(dataset: Dataset, place: Place) -> None:
    """Byte for byte, under the same paths; the list describes them. A second call puts nothing."""
    done = upload(dataset, place)

    assert copied(place) == local(dataset)
    assert (done.n_put, done.n_files) == (7, 7)
    assert events_by_list(place) == once(dataset)
    again = upload(dataset, place)
    assert not again.has_changed
    assert place.gate.n_puts() == 7


def test_a_new_file_alone_is_put(dataset: Dataset, place: Place) -> None:
    """What the store has stays as it is."""
    upload(dataset, place)
    write_events(dataset, 1, 2, day=2, stem="later")

    done = upload(dataset, place)

    assert (done.n_put, done.n_removed, done.n_files) == (1, 0, 8)
    assert copied(place) == local(dataset)


def test_a_file_that_is_written_again_as_it_was_is_not_put(dataset: Dataset, place: Place) -> None:
    """Another time of change alone is no other content."""
    upload(dataset, place)
    for path in dataset.paths(MEMPOOL_EVENTS):
        os.utime(path, ns=(1, 1))

    assert upload(dataset, place).n_put == 0
    assert place.gate.n_puts() == 7


def test_compaction_is_one_step_for_who_follows_the_list(dataset: Dataset, place: Place) -> None:
    """After every single request each row is there once by the list, and at least once by a pattern."""
    upload(dataset, place)
    expected = once(dataset)
    seen_by_list, seen_by_pattern = [], []

    def look(method: str, _path: str) -> None:
        if method in {"PUT", "DELETE"}:
            seen_by_list.append(events_by_list(place))
            seen_by_pattern.append(events_by_pattern(place))

    place.gate.passed = look
    list(compact(dataset, today=TODAY))
    done = upload(dataset, place)

    assert (done.n_put, done.n_removed) == (2, 5)
    assert all(seen == expected for seen in seen_by_list)
    assert all(seen >= expected for seen in seen_by_pattern)
    assert any(seen != expected for seen in seen_by_pattern)  # what the list is for
    assert events_by_pattern(place) == expected
    assert copied(place) == local(dataset)


def test_compaction_within_an_upload_is_noticed(dataset: Dataset, place: Place) -> None:
    """Files that go while others travel do not stop the upload, and leave nothing in the store."""

    def compacting(_: Handler) -> bool:
        list(compact(dataset, today=TODAY))
        return False

    place.gate.at("PUT", "/mempool_events/", compacting)
    upload(dataset, place)

    assert copied(place) == local(dataset)
    assert events_by_list(place) == events_by_pattern(place) == once(dataset)


@pytest.mark.parametrize("fault", [busy, cut, answer_lost, flipped])
def test_what_passes_is_waited_for(dataset: Dataset, place: Place, fault: Fault) -> None:
    """A busy store, a broken connection, a lost answer, a damaged put: each request is tried again."""
    place.gate.at("PUT", "dataset.json", fault)
    place.gate.at("PUT", "/mempool_events/", *[fault] * 3)
    if fault is not flipped:  # a list is not verified when it is put, but by every reader
        place.gate.at("PUT", "files.json", *[fault] * 3)

    upload(dataset, place)

    assert place.gate.faults == []
    assert copied(place) == local(dataset)
    assert events_by_list(place) == once(dataset)


def test_a_silent_store_is_asked_again(dataset: Dataset, place: Place) -> None:
    """A store that does not answer within the bound has stalled."""

    def silent(handler: Handler) -> bool:
        handler.body()
        handler.rfile.read(1)  # until the client gives up
        handler.hang_up()
        return True

    place.gate.at("PUT", "/mempool_events/", silent)
    Upload.begin(dataset, place.store(answer_s=0.3)).bring_up_to_date()

    assert place.gate.faults == []
    assert copied(place) == local(dataset)


def test_an_upload_goes_on_when_the_store_is_back(dataset: Dataset, place: Place) -> None:
    """A round that failed in the list is finished by the next round of the same upload."""
    begun = Upload.begin(dataset, place.store(patience_s=0.0))
    place.gate.at("PUT", "files.json", busy)
    with pytest.raises(StoreUnavailable, match=r"SlowDown.*try again later"):
        begun.bring_up_to_date()

    begun.bring_up_to_date()

    assert events_by_list(place) == once(dataset)
    assert place.gate.n_puts() == 7


KILLED = """
import sys
from pathlib import Path
from collector.dataset.object_store import ObjectStore
from collector.dataset.open import open_existing
from collector.dataset.store_address import StoreAddress
from collector.upload.run import Upload
store = ObjectStore(StoreAddress.parse(sys.argv[2]), sys.argv[3])
Upload.begin(open_existing(Path(sys.argv[1]), None), store).bring_up_to_date()
"""


@pytest.mark.parametrize(
    ("method", "part", "is_done"),
    [
        ("PUT", "/mempool_events/", True),
        ("PUT", "files.json", False),
        ("PUT", "files.json", True),
        ("DELETE", "/mempool_events/", True),
    ],
)
def test_a_kill_leaves_the_copy_readable(
    dataset: Dataset, place: Place, method: str, part: str, *, is_done: bool
) -> None:
    """SIGKILL after the second put, removal or list of a compacted dataset, or before that list."""
    upload(dataset, place)
    expected = once(dataset)
    list(compact(dataset, today=TODAY))
    killed: list[subprocess.Popen[bytes]] = []

    def kill(handler: Handler) -> bool:
        body = handler.body()
        if is_done:
            handler.asked(body)
        killed[0].send_signal(signal.SIGKILL)
        killed[0].wait()
        handler.hang_up()
        return True

    place.gate.at(method, part, lambda _: False, kill)
    command = [sys.executable, "-c", KILLED, str(dataset.root), str(place.address), place.gate.url]
    with subprocess.Popen(command) as process:
        killed.append(process)
    assert process.returncode == -signal.SIGKILL

    assert events_by_list(place) == expected
    assert events_by_pattern(place) >= expected
    upload(dataset, place)
    assert copied(place) == local(dataset)
    assert events_by_list(place) == expected
    n_compacted = 2
    assert (
        place.gate.n_puts("/mempool_events/") <= 5 + n_compacted + 1
    )  # only what was under way is put twice


@pytest.mark.parametrize("is_lost", [False, True], ids=["changed", "lost"])
def test_what_the_store_changed_or_lost_is_put_again(
    dataset: Dataset, place: Place, *, is_lost: bool
) -> None:
    """A later upload compares what the store has with what was put."""
    upload(dataset, place)
    victim = dataset.paths(MEMPOOL_EVENTS)[0]
    key = f"copy/{victim.relative_to(dataset.root).as_posix()}"
    if is_lost:
        place.client.delete_object(Bucket=place.bucket, Key=key)
    else:
        place.put(key, b"x" * victim.stat().st_size)

    done = upload(dataset, place)

    assert (done.n_put, done.n_repaired) == (1, 1)
    assert copied(place) == local(dataset)


@pytest.mark.parametrize("lost", [("files.json",), ("dataset.json",), ("files.json", "dataset.json")])
def test_a_lost_list_or_marker_is_made_again(dataset: Dataset, place: Place, lost: tuple[str, ...]) -> None:
    """What the store has of the dataset is not put again."""
    upload(dataset, place)
    write_events(dataset, 1, 2, day=2, stem="later")
    for path in [path for path in place.contents() if path.endswith(lost)]:
        place.client.delete_object(Bucket=place.bucket, Key=f"copy/{path}")

    done = upload(dataset, place)

    assert (done.n_put, done.n_removed, done.n_files) == (1, 0, 8)
    assert copied(place) == local(dataset)
    assert events_by_list(place) == once(dataset)


def test_a_lost_list_is_made_again_after_a_compaction(dataset: Dataset, place: Place) -> None:
    """A name that no other dataset has tells whose files these are, and replaced ones are removed."""
    dataset.write(MEMPOOL_EVENTS, [event(1, day=2)], stem="00000001-0123456789abcdef")
    upload(dataset, place)
    place.client.delete_object(Bucket=place.bucket, Key=LIST)
    list(compact(dataset, today=TODAY))

    done = upload(dataset, place)

    assert (done.n_put, done.n_removed) == (2, 5)
    assert copied(place) == local(dataset)
    assert events_by_list(place) == once(dataset)


def test_files_without_a_list_that_may_be_of_another_dataset_stay(dataset: Dataset, place: Place) -> None:
    """Two datasets may have imported the same data: one file that is alike tells nothing."""
    upload(dataset, place)
    place.client.delete_object(Bucket=place.bucket, Key=LIST)
    place.put("copy/chain=regtest/blocks/heights=0-999/of-another.parquet", b"x")
    before = place.contents()

    with pytest.raises(StoreError, match="has files of the chain regtest that no upload of"):
        upload(dataset, place)
    assert place.contents() == before


def test_a_running_upload_says_that_the_list_is_lost(dataset: Dataset, place: Place) -> None:
    """The address is right, and the next call makes the list again."""
    running = Upload.begin(dataset, place.store())
    running.bring_up_to_date()
    place.client.delete_object(Bucket=place.bucket, Key=LIST)
    write_events(dataset, 1, 2, day=2, stem="later")

    with pytest.raises(StoreError, match=r"has lost s3://.*/files\.json; call `pool-collector upload` again"):
        running.bring_up_to_date()
    upload(dataset, place)
    assert events_by_list(place) == once(dataset)


def test_an_object_that_stands_for_a_folder_is_no_content(dataset: Dataset, place: Place) -> None:
    """The console of S3 makes such objects; they stay."""
    place.put("copy/", b"")
    place.put("copy/chain=regtest/", b"")

    upload(dataset, place)

    assert copied(place) == {"": b"", "chain=regtest/": b"", **local(dataset)}


@pytest.mark.parametrize(
    ("part", "left"),
    [
        (".", "nothing"),
        (".", "an empty folder"),
        (".", "a link to nothing"),
        ("chain=regtest", "nothing"),
        ("chain=regtest", "an empty folder"),
        ("chain=regtest", "a link to nothing"),
        ("chain=regtest/mempool_events", "an empty folder"),
        ("chain=regtest/mempool_events", "a link to nothing"),
    ],
)
def test_what_is_away_is_not_removed_from_the_copy(
    dataset: Dataset, place: Place, tmp_path: Path, part: str, left: str
) -> None:
    """A folder that was moved, or is on a disk that is not mounted, costs no copy, and its return no put."""
    running = Upload.begin(dataset, place.store())
    running.bring_up_to_date()
    before = copied(place)
    folder, elsewhere = dataset.root / part, tmp_path / "elsewhere"
    folder.rename(elsewhere)
    if left == "an empty folder":
        folder.mkdir()
    if left == "a link to nothing":
        folder.symlink_to(tmp_path / "no-disk")

    for another_round in (running.bring_up_to_date, lambda: upload(dataset, place)):
        with pytest.raises(DatasetError):
            another_round()
        assert copied(place) == before

    if left == "a link to nothing":
        folder.unlink()
    elsewhere.rename(folder)
    assert not upload(dataset, place).has_changed
    assert copied(place) == local(dataset)


def test_what_a_collector_writes_below_a_mount_point_removes_nothing(
    dataset: Dataset, place: Place, tmp_path: Path
) -> None:
    """A table that is away, and has a new file since, costs no copy; an emptied folder of a day does."""
    upload(dataset, place)
    before = copied(place)
    folder, elsewhere = dataset.folder / MEMPOOL_EVENTS.name, tmp_path / "elsewhere"
    first, second = sorted(path.name for path in folder.iterdir())
    folder.rename(elsewhere)
    write_events(dataset, 1, 1, day=9)

    with pytest.raises(DatasetError, match=f"{first} is gone, and its copy in .* is there; mount the disk"):
        upload(dataset, place)
    assert copied(place) == before

    for day in (first, second):
        (folder / day).mkdir()
    assert upload(dataset, place).n_removed == 5
    assert copied(place) == local(dataset)


def test_a_table_that_is_removed_with_its_folder_is_removed_from_the_copy(
    dataset: Dataset, place: Place
) -> None:
    """The other tables stay."""
    upload(dataset, place)
    shutil.rmtree(dataset.folder / MEMPOOL_EVENTS.name)

    assert upload(dataset, place).n_removed == 5
    assert copied(place) == local(dataset)


def test_another_dataset_in_the_same_place_does_not_replace_the_copy(
    dataset: Dataset, place: Place, tmp_path: Path
) -> None:
    """A running upload notices that the folder has been moved and another one begun."""
    running = Upload.begin(dataset, place.store())
    running.bring_up_to_date()
    before = copied(place)
    dataset.root.rename(tmp_path / "elsewhere")
    write_events(Dataset.open(dataset.root, "regtest", create=True), 1, 1)

    with pytest.raises(StoreError, match="is the copy of another dataset"):
        running.bring_up_to_date()
    assert copied(place) == before


def test_a_late_listing_changes_nothing(dataset: Dataset, place: Place) -> None:
    """A listing from before the last upload neither repairs what is whole nor removes what is named."""
    upload(dataset, place)
    earlier: list[tuple[int, dict[str, str], bytes]] = []

    def kept(handler: Handler) -> bool:
        earlier.append(handler.asked(handler.body()))
        handler.answer(*earlier[0])
        return True

    def late(handler: Handler) -> bool:
        handler.answer(*earlier[0])
        return True

    place.gate.at("GET", "list-type=2", kept, late)
    write_events(dataset, 1, 2, day=2, stem="later")
    list(compact(dataset, today=TODAY))
    upload(dataset, place)
    done = upload(dataset, place)

    assert place.gate.faults == []
    assert done.n_put == 0
    assert copied(place) == local(dataset)
    assert events_by_list(place) == once(dataset)


def test_two_uploads_of_one_dataset_are_refused(dataset: Dataset) -> None:
    """The second one names the first."""
    with upload_lock(dataset), pytest.raises(DatasetError, match="another upload of"), upload_lock(dataset):
        pass


def test_an_upload_from_another_machine_ends_the_first(
    dataset: Dataset, place: Place, tmp_path: Path
) -> None:
    """Two copies of one dataset write to one place: the one that began last goes on, the other stops."""
    upload(dataset, place)
    moved = Dataset.open(Path(shutil.copytree(dataset.root, tmp_path / "moved")), "regtest")
    first = Upload.begin(dataset, place.store())
    last = Upload.begin(moved, place.store())
    write_events(dataset, 1, 2, day=2, stem="first")
    write_events(moved, 1, 3, day=3, stem="last")

    with pytest.raises(StoreChanged, match="another upload writes to s3://"):
        first.bring_up_to_date()
    last.bring_up_to_date()

    assert events_by_list(place) == once(moved)
    upload(moved, place)  # removes what the first one left
    assert copied(place) == local(moved)
