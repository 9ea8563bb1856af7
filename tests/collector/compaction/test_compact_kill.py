"""Test compaction that is killed at every step while others read and write: no row is lost or doubled."""

import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from tests.collector.compaction.made_files import event, files, seen, write_events

DAY = "date=2024-10-04"

# Works in a fork, and kills it just before the n-th step that changes the file system, for every n until the
# work ends by itself; prints what the exit was. Steps are what Python audits, and the exchange of folders.
CHANGES_AND_KILL = """
import os, signal, sys
from pathlib import Path
from collector.compaction import replacement
from collector.dataset.open import Dataset

CHANGES = {"os.mkdir", "os.link", "os.remove", "os.rmdir", "os.rename", "shutil.rmtree", "shutil.copymode"}
replacement.GRACE_S = 0.0
exchange = replacement.exchange

def work_until(last_step):
    step = 0
    def count(name, arguments):
        nonlocal step
        writes = name == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if name in CHANGES or writes:
            step += 1
            if step == last_step:
                os.kill(os.getpid(), signal.SIGKILL)
    def counted(one, other):
        count("os.rename", ())
        exchange(one, other)
        count("os.rename", ())
    replacement.exchange = counted
    sys.addaudithook(count)
    for result in work(Dataset.open(Path(sys.argv[1]), "regtest")):
        assert not result.error, result

for step in range(1, 200):
    child = os.fork()
    if child == 0:
        try:
            work_until(step)
        except BaseException as error:
            print(error, flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    print(status, flush=True)
    input()  # the test looks at what is left
    if status != signal.SIGKILL:
        break
"""

COMPACT = """
import datetime as dt
from collector.compaction import run

def work(dataset):
    return run.compact(dataset, today=dt.date(2024, 10, 5))
"""


def test_a_kill_before_any_step_leaves_every_row_once(tmp_path: Path) -> None:
    """A reader finds the same rows whichever step of a compaction the kill precedes."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(dataset, 4, 5)
    folder = dataset.folder / "mempool_events" / DAY
    steps = []
    with subprocess.Popen(
        [sys.executable, "-c", COMPACT + CHANGES_AND_KILL, dataset.root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as killer:
        assert killer.stdin is not None
        assert killer.stdout is not None
        for line in killer.stdout:
            rows = seen(dataset, MEMPOOL_EVENTS)
            assert len(rows) == len({row["sequence"] for row in rows}) == 20 + len(steps)
            steps.append(line.strip())
            # One more file each time, so that there is something to merge again.
            dataset.write(MEMPOOL_EVENTS, [event(100 + len(steps))], stem=f"late-{len(steps)}")
            killer.stdin.write("\n")
            killer.stdin.flush()
    assert steps[-1] == "0"
    assert steps[:-1] == ["9"] * (len(steps) - 1)
    assert len(steps) > 10
    assert len(files(folder)) == 2  # the merged one, and the last late one
    assert files(dataset.root / ".compaction" / "regtest") == ["lock"]


WRITER = """
import itertools, sys
from pathlib import Path
from collector.journal.journal import Journal
from collector.dataset.open import Dataset
from tests.collector.compaction.made_files import event

dataset = Dataset.open(Path(sys.argv[1]), "regtest")
with Journal(dataset.root / "journal" / "regtest" / "n") as journal:
    journal.recover(dataset)
    for number in itertools.count(1_000_000):
        journal.append("mempool_events", [event(number)])
        journal.seal(dataset)
        print(number, flush=True)
"""

COMPACTOR = """
import datetime as dt, sys
from pathlib import Path
from collector.compaction import replacement, run
from collector.dataset.open import Dataset

replacement.GRACE_S = 0.2
n_done = 0
while n_done < 5:
    for outcome in run.compact(Dataset.open(Path(sys.argv[1]), "regtest"), today=dt.date(2024, 10, 5)):
        assert not outcome.error, outcome
        n_done += 1
"""


def test_readers_and_writers_go_on_while_compaction_runs_again_and_again(tmp_path: Path) -> None:
    """Row counts never fall and no row is there twice while compaction runs; at the end all are there."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    n_planted = write_events(dataset, 6, 50)
    processes = [
        subprocess.Popen([sys.executable, "-c", code, dataset.root], stdout=subprocess.PIPE, text=True)
        for code in (WRITER, COMPACTOR)
    ]
    pattern = f"{dataset.folder}/mempool_events/**/*.parquet"
    n_seen = n_counts = n_retries = 0
    writer, compactor = processes
    try:
        with duckdb.connect() as connection:
            while compactor.poll() is None:
                try:
                    ((n_rows, n_distinct),) = connection.execute(
                        f"SELECT count(*), count(DISTINCT sequence) FROM read_parquet('{pattern}')"  # noqa: S608 - a path of ours
                    ).fetchall()
                except duckdb.IOException:
                    n_retries += 1  # a file that was listed was merged before it was opened
                    continue
                assert n_rows == n_distinct
                assert n_rows >= max(n_seen, n_planted)
                n_seen = n_rows
                n_counts += 1
    finally:
        is_writing = writer.poll() is None
        for process in processes:
            process.kill()
    written = [int(number) for number in writer.communicate()[0].split()]
    compactor.communicate()
    assert (is_writing, compactor.returncode) == (True, 0)
    numbers = sorted(row["sequence"] for row in seen(dataset, MEMPOOL_EVENTS))
    assert numbers[n_planted:][: len(written)] == written
    assert len(numbers) - n_planted - len(written) in {0, 1}
    assert n_counts > 3


@pytest.mark.parametrize("wait_s", [0.0, 0.02, 0.05, 0.08, 0.12, 0.2])
def test_a_kill_at_any_moment_costs_nothing(tmp_path: Path, wait_s: float) -> None:
    """A kill inside DuckDB or Arrow loses no row either, and the next run finishes the work."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    n_rows = write_events(dataset, 30, 40)
    with subprocess.Popen(
        [sys.executable, "-c", STARTER + COMPACTOR, dataset.root], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(wait_s)
        process.kill()
    rows = seen(dataset, MEMPOOL_EVENTS)
    assert len(rows) == len({row["sequence"] for row in rows}) == n_rows


STARTER = "import collector.compaction.run; print('ready', flush=True)\n"
