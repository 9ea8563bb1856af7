"""Test the daily compaction in the background of a running collector."""

import datetime as dt
import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from collector.compaction.daily import Compactor, seconds_to_midnight
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_BODIES, MEMPOOL_EVENTS
from tests.collector.compaction.made_files import DAY_US, MIDNIGHT_US, event, seen, write_events

DEADLINE_S = 60.0
# Compacts with so many more open files as its arguments say, first by a soft limit and then by a hard one.
# At the end of its input it has collected one more file, and ends.
FEW_FILES = """
import os, resource, sys
from pathlib import Path
from collector.compaction.daily import Compactor
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.log import configure_logging
from tests.collector.compaction.made_files import event

configure_logging("json", "info")
dataset = Dataset.open(Path(sys.argv[1]), "regtest")
n_free, is_hard = int(sys.argv[2]), sys.argv[3] == "hard"
lowest = os.open(os.devnull, os.O_RDONLY)
os.close(lowest)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + n_free, lowest + n_free if is_hard else most))
compactor = Compactor(dataset, delay_s=0)
sys.stdin.read()
compactor.close()
dataset.write(MEMPOOL_EVENTS, [event(1, 1)], stem="later")
"""


def test_closed_days_are_compacted_in_the_background(tmp_path: Path) -> None:
    """The files of a past day become one file while the collector runs."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(dataset, 5, 10)
    before = seen(dataset, MEMPOOL_EVENTS)
    compactor = Compactor(dataset, delay_s=0)
    until_s = time.monotonic() + DEADLINE_S
    while len(dataset.paths(MEMPOOL_EVENTS)) > 1 and time.monotonic() < until_s:
        time.sleep(0.05)
    compactor.close()
    assert len(dataset.paths(MEMPOOL_EVENTS)) == 1
    assert seen(dataset, MEMPOOL_EVENTS) == before


def test_a_stop_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    """Closing kills a compaction that has just begun, and no row is lost."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    n_rows = write_events(dataset, 20, 10)
    compactor = Compactor(dataset, delay_s=0)
    time.sleep(0.5)
    compactor.close()
    assert len(seen(dataset, MEMPOOL_EVENTS)) == n_rows


@pytest.mark.parametrize(
    ("n_free", "kind", "said"),
    [
        (2, "soft", "no process can be started: Too many open files"),
        (9, "hard", "raise the limit of open files (ulimit -n, or LimitNOFILE= of the service)"),
    ],
)
def test_without_free_files_collecting_goes_on(n_free: int, kind: str, said: str, tmp_path: Path) -> None:
    """The log has one sentence on what is missing; the collector goes on, and a later compaction succeeds."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(dataset, 12, 2)
    before = seen(dataset, MEMPOOL_EVENTS)
    command = [sys.executable, "-c", FEW_FILES, str(dataset.root), str(n_free), kind]

    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as collector:
        assert collector.stderr is not None
        logged = json.loads(collector.stderr.readline())
        collector.communicate()

    assert collector.returncode == 0
    assert logged["reason"].endswith(said)
    assert "after the next midnight UTC" in logged["next_try"]
    assert len(dataset.paths(MEMPOOL_EVENTS)) == 13
    subprocess.run([sys.executable, "-m", "collector", "compact", str(dataset.root)], check=True)
    assert len(dataset.paths(MEMPOOL_EVENTS)) == 2
    assert len(seen(dataset, MEMPOOL_EVENTS)) == len(before) + 1


def test_a_removed_day_is_no_partition_that_is_left(tmp_path: Path) -> None:
    """Raw bytes of an old day are removed and another day cannot be merged: the log names only that one."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    body = {"node": "n", "session": "s", "txid": bytes(32), "kept_at": 0, "kept_because": "left"}
    dataset.write(MEMPOOL_BODIES, [body | {"raw": bytes(60)}], stem="made")
    write_events(dataset, 2, 10)
    today = (time.time_ns() // 1000 - MIDNIGHT_US) // DAY_US
    recent = [event(0, today - age) for age in range(4)]  # the collector runs, so the clock is trusted
    dataset.write(MEMPOOL_EVENTS, recent, stem="recent")
    dataset.paths(MEMPOOL_EVENTS)[0].write_bytes(b"PAR1")
    with capture_logs() as logged:
        compactor = Compactor(dataset, keep_bodies_days=1, delay_s=0)
        until_s = time.monotonic() + DEADLINE_S
        while not logged and time.monotonic() < until_s:
            time.sleep(0.05)
        compactor.close()
    assert [each["event"] for each in logged] == ["compaction.incomplete"]
    assert logged[0]["n_left"] == 1
    assert logged[0]["reason"].startswith(f"cannot read {dataset.paths(MEMPOOL_EVENTS)[0]}: ")
    assert not dataset.paths(MEMPOOL_BODIES)


def test_what_is_said_besides_is_no_partition(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log counts the partitions that were merged, and no line that the process wrote to stderr."""
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")  # a line for each import
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(dataset, 2, 10)
    with capture_logs() as logged:
        compactor = Compactor(dataset, delay_s=0)
        until_s = time.monotonic() + DEADLINE_S
        while not logged and time.monotonic() < until_s:
            time.sleep(0.05)
        compactor.close()
    assert [(each["event"], each["n_partitions"]) for each in logged] == [("compaction.done", 1)]


def test_the_next_look_is_behind_midnight_utc() -> None:
    """One second before midnight UTC there is 1 s left, at midnight a whole day."""
    last = dt.datetime(2024, 10, 4, 23, 59, 59, tzinfo=dt.UTC)
    assert seconds_to_midnight(last) == 1
    assert seconds_to_midnight(last + dt.timedelta(seconds=1)) == 86_400
