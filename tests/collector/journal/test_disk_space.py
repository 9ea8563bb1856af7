"""Test a disk that is full and then has space again: nothing flushed is lost, nothing half written counts.

One test limits the size of files (RLIMIT_FSIZE) in a process of its own, as any user; the others fill a small
file system in memory, which only root can mount.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.errors import NotWritable
from collector.journal.journal import Journal
from tests.collector.journal.journal_files import message, recovered, row, sealed

TIMEOUT_S = 20.0

# Writes numbered events. The first limit on the size of files is so wide that a new segment helps; the second
# is so tight that nothing can be written. Prints the number of segments and the names of the logged events.
LIMITED = """
import resource, sys, threading, time
from pathlib import Path
from structlog.testing import capture_logs
from collector.journal.journal import Journal
from collector.dataset.open import Dataset
from tests.collector.journal.journal_files import message, recovered, row, sealed

folder = Path(sys.argv[1])
dataset = Dataset.open(folder / "dataset", "regtest", create=True)
stop = threading.Event()
free, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
journal = Journal(folder / "journal", stop=stop)
journal.recover(dataset)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

def lift_when_blocked():
    while "cannot use the journal" not in journal.blocked:
        time.sleep(0.01)
    limit(free)

def write(numbers):
    messages = [message(number) for number in numbers]
    journal.append_messages(messages)
    journal.append("mempool_events", [row(each) for each in messages])
    journal.mark_consumed(len(messages))
    journal.flush()

with capture_logs() as logs:
    limit(40_000)
    for first in range(0, 300, 100):
        write(range(first, first + 100))
    segments = len(list((folder / "journal").glob("*.journal")))
    limit(2_000)
    assert journal.seal(dataset) == []
    assert "dataset" in journal.blocked or "parquet" in journal.blocked, journal.blocked
    lifting = threading.Thread(target=lift_when_blocked, daemon=True)
    lifting.start()
    write(range(300, 400))
    lifting.join(20)
    assert "cannot use the journal" not in journal.blocked, journal.blocked
    journal.seal(dataset)
    assert journal.blocked == ""
said = [entry["event"] for entry in logs]
assert sealed(dataset) == list(range(400)), len(sealed(dataset))
assert not list((folder / "journal").glob("*.journal"))
print(segments, *said)
"""


def test_a_limit_on_the_size_of_files_loses_no_row(tmp_path: Path) -> None:
    """At a file size limit a new segment helps first (EFBIG), then writes wait; each row is there once."""
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S * 3,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    segments, *said = done.stdout.split()
    assert int(segments) > 1
    assert said.count("disk.full") == said.count("disk.goes_on") == 2


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Fill the file system with one file; return its path."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            return path


def test_a_full_disk_is_waited_out(small: Path) -> None:
    """Journal and seal report that they are blocked, go on when there is space, and write every row once."""
    dataset = Dataset.open(small / "dataset", "regtest", create=True)
    stop = threading.Event()
    with Journal(small / "journal", stop=stop) as journal, capture_logs() as logs:
        journal.recover(dataset)
        ring = journal.make_ring("n", "s", ("sequence",))
        messages = [message(number) for number in range(3000)]
        journal.append_messages(messages[:1000])
        journal.append("mempool_events", [row(each) for each in messages[:1000]])
        journal.mark_consumed(1000)
        journal.flush()
        filler = fill(small)
        assert ring.put("sequence", 7, 7, bytes(3000)), "what is received still finds its room"
        journal.append_messages(messages[1000:])
        flushing = threading.Thread(target=journal.flush, daemon=True)
        flushing.start()
        wait_until(lambda: "No space left" in journal.blocked)
        filler.unlink()
        flushing.join(TIMEOUT_S)
        assert journal.blocked == ""
        filler = fill(small)
        assert journal.seal(dataset) == []
        assert "No space left" in journal.blocked
        filler.unlink()
        assert journal.seal(dataset)
        assert journal.blocked == ""
        journal.remove_ring()
    assert [entry["event"] for entry in logs] == ["disk.full", "disk.goes_on"] * 2
    assert sealed(dataset) == list(range(1000))
    with Journal(small / "journal") as journal:
        assert journal.recover(dataset) == messages[1000:]
    assert not list(small.rglob("*.tmp"))


def test_a_stop_ends_the_wait_for_space_and_loses_nothing(small: Path) -> None:
    """A stop while the disk is full raises an error that says what to do; the next run finds everything."""
    dataset = Dataset.open(small / "dataset", "regtest", create=True)
    stop = threading.Event()
    journal = Journal(small / "journal", stop=stop)
    journal.recover(dataset)
    ring = journal.make_ring("n", "s", ("sequence",))
    ring.put("sequence", 0, 0, message(0).body)
    journal.append_messages([each for each in ring.take(10) if not isinstance(each, str)])  # type: ignore[misc]
    filler = fill(small)
    journal.append_messages([message(number) for number in range(1, 20_000)])
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(NotWritable, match=r"No space left.*give it space"):
        journal.flush()
    journal.close()
    filler.unlink()
    with Journal(small / "journal") as journal:
        assert [each.sequence for each in recovered(journal, dataset, "s")] == [0]


def test_without_a_stop_flag_a_full_disk_is_an_error(small: Path) -> None:
    """A dataset that is written without a journal, as the backfill does, raises NotWritable at once."""
    dataset = Dataset.open(small / "dataset", "regtest", create=True)
    fill(small)
    with pytest.raises(NotWritable, match=r"mempool_events.*No space left"):
        dataset.write(MEMPOOL_EVENTS, [row(message(number)) for number in range(1000)], stem="x")
    assert dataset.paths(MEMPOOL_EVENTS) == []


def wait_until(is_so: object) -> None:
    """Wait until a condition is true."""
    assert callable(is_so)
    deadline_s = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
