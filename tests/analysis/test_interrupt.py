"""Test that Ctrl-C ends every verb with status 130 and one line, at whatever moment it comes."""

import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.dataset.schema import DATASET_MARKER
from tests.analysis.world import write_world

LINE = "pool-analysis: stopped by Ctrl-C\n"
COMMAND = [sys.executable, "-m", "analysis"]
# Presses Ctrl-C itself, once, when a module is imported or a file of this name is opened.
AT_A_MOMENT = """
import os, signal, sys, weakref
moment = sys.argv.pop(1)
class Gone:
    pass
def press(*_):
    os.kill(os.getpid(), signal.SIGINT)
def look(event, arguments):
    global moment
    if moment and event in ("import", "open") and str(arguments[0]).rpartition("/")[2] == moment:
        moment = None
        press()
sys.addaudithook(look)
from analysis.__main__ import main
main()
"""
# The same in a callback of Python, which drops what a handler of signals raises there.
IN_A_CALLBACK = AT_A_MOMENT.replace(
    "        press()", "        gone = Gone(); reference = weakref.ref(gone, press); del gone"
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a dataset of one block."""
    folder = tmp_path_factory.mktemp("interrupt")
    return write_world(folder / "dataset", {"blocks": [{"block_hash": "a1", "height": 1}]})


@pytest.fixture(scope="module")
def database(dataset: Path) -> Path:
    """Build the dataset with the real command."""
    path = dataset.parent / "a.duckdb"
    subprocess.run(
        [*COMMAND, "build", "--dataset", dataset, "--database", path], check=True, capture_output=True
    )
    return path


def interrupted(
    arguments: list[str | Path], is_ready: Callable[[int], bool], n_signals: int = 1
) -> tuple[int, str]:
    """Start the command, press Ctrl-C when it is ready, and return its status and its standard error."""
    with subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        while not is_ready(process.pid):
            assert process.poll() is None, "it ended by itself"
            time.sleep(0.001)
        for _ in range(n_signals):
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    return process.returncode, errors


def is_loading(pid: int) -> bool:
    """Tell whether the thread that waits for Ctrl-C runs, which is before the libraries are loaded."""
    return len(os.listdir(f"/proc/{pid}/task")) > 1  # noqa: PTH208 - a listing of the kernel


@pytest.mark.parametrize(
    "verb",
    [
        ["list"],
        ["build"],
        ["report"],
        ["check"],
        ["show", "pool_share"],
        ["sql", "FROM pool_share"],
        ["--help"],
    ],
    ids=" ".join,
)
def test_ctrl_c_while_the_libraries_load(verb: list[str]) -> None:
    """No verb prints a library's traceback or ends with status 1, which would mean a failed check."""
    assert interrupted([*verb], is_loading) == (130, LINE)


def test_the_command_begins_where_ctrl_c_is_handled() -> None:
    """The installed program starts in analysis.__main__, as `python -m analysis` in the other tests does."""
    root = Path(__file__).resolve().parents[2]
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["pool-analysis"] == "analysis.__main__:main"


@pytest.mark.parametrize("module", ["_duckdb", "pyarrow.lib"])
@pytest.mark.parametrize("program", [AT_A_MOMENT, IN_A_CALLBACK], ids=["at an import", "in a callback"])
def test_ctrl_c_in_the_middle_of_loading(program: str, module: str) -> None:
    """Ctrl-C ends the program with one line also when only some of the libraries are loaded."""
    command = [sys.executable, "-c", program, module, "build"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)

    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", LINE)


@pytest.mark.parametrize("program", [AT_A_MOMENT, IN_A_CALLBACK], ids=["at an open", "in a callback"])
def test_ctrl_c_at_work(program: str, dataset: Path, tmp_path: Path) -> None:
    """Ctrl-C ends a build that has begun, also when Python drops what the signal raises in a callback."""
    options = ["--dataset", str(dataset), "--database", str(tmp_path / "a.duckdb")]
    command = [sys.executable, "-c", program, DATASET_MARKER, "build", *options]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", LINE)
    assert not (tmp_path / "a.duckdb").exists()


def test_ctrl_c_while_a_database_is_built(dataset: Path, tmp_path: Path) -> None:
    """Ctrl-C during a build leaves no database, only the folder of finished marts."""
    folder = tmp_path / "build"
    arguments: list[str | Path] = ["build", "--dataset", dataset, "--database", folder / "a.duckdb"]

    assert interrupted(arguments, lambda _pid: folder.is_dir() and any(folder.iterdir())) == (130, LINE)
    assert [path.name for path in folder.iterdir()] == ["a.duckdb.marts"]


def test_what_a_killed_build_leaves_is_removed_by_the_next(dataset: Path, tmp_path: Path) -> None:
    """SIGKILL leaves a folder with half a database; the next build in that place removes it."""
    folder = tmp_path / "build"
    command = [*COMMAND, "build", "--dataset", dataset, "--database", folder / "a.duckdb"]
    with subprocess.Popen(command) as process:
        while not any(folder.glob(".building-*/a.duckdb")):
            assert process.poll() is None, "it ended by itself"
        process.kill()
    assert len(list(folder.glob(".building-*"))) == 1

    subprocess.run(command, check=True, capture_output=True)

    assert sorted(path.name for path in folder.iterdir()) == ["a.duckdb", "a.duckdb.marts"]


@pytest.mark.parametrize("n_signals", [1, 2])
def test_ctrl_c_stops_a_query_that_would_run_for_hours(database: Path, n_signals: int) -> None:
    """The first Ctrl-C stops a running query; a second one ends the process at once."""
    query = "SELECT count(*) FROM range(1000000000000) AS a(n) WHERE hash(n) % 7 = 1"

    def is_at_work(pid: int) -> bool:
        ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11]
        return int(ticks) > os.sysconf("SC_CLK_TCK") * 3  # more than loading takes: the query runs

    status, errors = interrupted(["sql", query, "--database", database], is_at_work, n_signals)

    assert status == 130
    assert errors in {LINE, ""} if n_signals == 2 else errors == LINE
