"""Test that Ctrl-C while `compact` and `import` are at work leaves nothing half-written."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import EXTERNAL_ARRIVALS, EXTERNAL_SOURCES, MEMPOOL_STATS, Table

TIMEOUT_S = 120.0
N_FILES = 3
DAY_US = 86_400_000_000
SPAN = 1000  # heights of a folder
# Sends SIGINT to itself once, when an operation on a file of a name begins.
SIGNALLED = """
import os, re, signal, sys
moment, name = sys.argv[1:3]
del sys.argv[1:3]
def look(event, arguments):
    global moment
    path = arguments[0] if arguments and isinstance(arguments[0], (str, os.PathLike)) else ""
    if event == moment and re.search(name, os.fspath(path)):
        moment = None
        os.kill(os.getpid(), signal.SIGINT)
sys.addaudithook(look)
from collector.__main__ import main
main()
"""


def interrupted(moment: str, name: str, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command that gets Ctrl-C when the audit event `moment` tells of a path that `name` matches."""
    return subprocess.run(
        [sys.executable, "-c", SIGNALLED, moment, name, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )


def rows(dataset: Dataset, table: Table) -> list[str]:
    """Return the rows of a table as texts, in an order of their own."""
    return sorted(map(str, dataset.read(table).to_pylist()))


def files_of(dataset: Dataset) -> list[str]:
    """Return the paths of all files in the dataset except locks, relative to it."""
    paths = (path.relative_to(dataset.root) for path in dataset.root.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if "lock" not in path.name)


def stats_row(number: int) -> dict[str, Any]:
    """Return a row of `mempool_stats` on the second of January 1970."""
    sizes = ("n_tx", "vsize_vb", "usage_bytes", "max_usage_bytes", "fees_sat", "min_feerate_sat_vb")
    text = {"node": "alpha", "session": "s", "taken_at": DAY_US + number, "histogram": []}
    return text | dict.fromkeys(sizes, number)


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ("os.mkdir", "mempool_stats-date="),
        ("open", r"\.compaction/.*\.parquet$"),
        ("open", r"chain=regtest/mempool_stats$"),
        ("os.rmdir", "mempool_stats-date="),
    ],
    ids=["before the new file", "at the new file", "after the exchange", "at the end"],
)
def test_ctrl_c_while_files_are_merged(tmp_path: Path, moment: str, name: str) -> None:
    """The day has the old files or the new one, each row once; the next run completes the work."""
    dataset = Dataset.open(tmp_path, "regtest", create=True)
    for number in range(N_FILES):
        dataset.write(MEMPOOL_STATS, [stats_row(number)], stem=f"part-{number}")
    before = rows(dataset, MEMPOOL_STATS)
    outcome = interrupted(moment, name, "compact", tmp_path)
    assert (outcome.returncode, outcome.stderr) == (130, "stopped by Ctrl-C\n")
    assert rows(dataset, MEMPOOL_STATS) == before
    assert len(dataset.paths(MEMPOOL_STATS)) in (1, N_FILES)
    subprocess.run([sys.executable, "-m", "collector", "compact", tmp_path], check=True, capture_output=True)
    assert rows(dataset, MEMPOOL_STATS) == before
    assert len(files_of(dataset)) == 2  # the marker and one file


@pytest.fixture
def arrivals(tmp_path: Path) -> Path:
    """Write a file of arrivals that goes into several folders."""
    lines = [f"{SPAN * number},{number + 1:064x},{1_600_000_000_000 + number}" for number in range(N_FILES)]
    path = tmp_path / "arrivals.csv"
    path.write_text("\n".join(["height,hash,timestamp_ms", *lines]) + "\n")
    return path


@pytest.mark.parametrize(
    ("moment", "name"),
    [
        ("open", r"arrivals\.csv$"),
        ("open", r"heights=0-999/\..*\.tmp$"),
        ("os.rename", r"heights=1000-1999/\..*\.tmp$"),
        ("os.mkdir", r"external_sources$"),
        ("open", r"external_sources/.*\.tmp$"),
    ],
    ids=["reading", "first file", "between two files", "all rows", "their source"],
)
def test_ctrl_c_while_a_file_is_imported(tmp_path: Path, arrivals: Path, moment: str, name: str) -> None:
    """The dataset has nothing of the file, and the next run imports all of it."""
    dataset = Dataset.open(tmp_path / "dataset", "main", create=True)
    command = ["import", "arrivals", str(arrivals), "--dataset", str(dataset.root)]
    command += ["--source", "someone", "--licence", "CC0", "--url", "https://example.org"]
    outcome = interrupted(moment, name, *command)
    assert (outcome.returncode, outcome.stderr) == (130, "stopped by Ctrl-C\n")
    assert files_of(dataset) == ["dataset.json"]
    subprocess.run([sys.executable, "-m", "collector", *command], check=True, capture_output=True)
    assert len(rows(dataset, EXTERNAL_ARRIVALS)) == N_FILES
    assert [row["n_rows"] for row in dataset.read(EXTERNAL_SOURCES).to_pylist()] == [N_FILES]


def test_an_import_begins_anew_after_a_kill(tmp_path: Path, arrivals: Path) -> None:
    """SIGKILL leaves a part of a file; the next run replaces it, so that the source tells of all its rows."""
    dataset = Dataset.open(tmp_path / "dataset", "main", create=True)
    command = ["import", "arrivals", str(arrivals), "--dataset", str(dataset.root)]
    command += ["--source", "someone", "--licence", "CC0", "--url", "https://example.org"]
    killed = SIGNALLED.replace("signal.SIGINT", "signal.SIGKILL")
    run = [sys.executable, "-c", killed, "os.mkdir", "external_sources$", *command]
    subprocess.run(run, check=False, capture_output=True, timeout=TIMEOUT_S)
    assert len(rows(dataset, EXTERNAL_ARRIVALS)) == N_FILES
    assert not dataset.paths(EXTERNAL_SOURCES)
    subprocess.run([sys.executable, "-m", "collector", *command], check=True, capture_output=True)
    assert len(rows(dataset, EXTERNAL_ARRIVALS)) == N_FILES
    assert [row["n_rows"] for row in dataset.read(EXTERNAL_SOURCES).to_pylist()] == [N_FILES]
