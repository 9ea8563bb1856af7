"""Fixtures that every test folder shares."""

import os
import signal
import subprocess
import sys
import tracemalloc  # noqa: F401 - pytest imports it in any thread, and two at once fail
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

ROOT = Path(__file__).resolve().parent.parent
# A shell starts what it runs in the background with Ctrl-C ignored, and so would be the programs under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# How long an example takes says something of the machine, not of the code.
hypothesis.settings.register_profile("house", deadline=None)
hypothesis.settings.load_profile("house")
# Files that take longest, each run by one process: what begins last decides when the suite ends.
FIRST = (
    *("test_cases.py", "test_on_spark.py", "test_demo.py", "test_benchmarks.py", "test_workers.py"),
    *("test_history_path.py", "test_losses.py", "test_chaos_node.py", "test_chaos.py"),
    *("test_current_folder.py", "test_reading_results.py", "test_out_of_band.py", "test_incremental.py"),
    *("test_planted_world.py", "test_kill_steps.py"),
)
# Files whose tests run in one process, so that it starts one session of Spark for all of them.
ON_SPARK = ("test_cases.py", "test_on_spark.py")
# Folders whose tests run in one process each, so that it makes their reports, or their site, once for all.
IN_ONE_PROCESS = ("tests/analysis/report/", "tests/analysis/serve/")

# Programs that compile the loops of the collector, and those of gpuhash that the collector does not call.
WARM_UPS = (
    "from collector.codec.rows import warm_up; warm_up()",
    """
from gpuhash.backend import prove
from gpuhash.cpu import CpuBackend
from gpuhash.reference import Algorithm
prove(CpuBackend(), Algorithm.KECCAK256)
CpuBackend().search(bytes(80), 0, 0, 1)
""",
)


_compiling: list[subprocess.Popen[bytes]] = []


def pytest_sessionstart(session: pytest.Session) -> None:
    """Begin to compile once what several processes would else compile at the same time."""
    if getattr(session.config.option, "numprocesses", None):
        _compiling.extend(subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for code in WARM_UPS)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished() -> None:
    """Hand out no test before all is compiled; the processes collect their tests meanwhile."""
    for process in _compiling:
        process.wait()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest and mostly wait: those of a real node, longest files first."""

    def rank(item: pytest.Item) -> int:
        if item.path.name in FIRST:
            return FIRST.index(item.path.name)
        return len(FIRST) + ("functional" not in item.path.parts)

    items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Give each file to one process, and what shares costly fixtures to the same one.

    The package is imported here, because a machine that only tests a GPU may lack it.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            if Path(file).name in ON_SPARK:
                return "on Spark"
            return next((folder for folder in IN_ONE_PROCESS if file.startswith(folder)), file)

    return Scheduling(config, log)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real blocks, labels and vectors: $POOL_TEST_DATA, else ../shared/data."""
    for folder in (os.environ.get("POOL_TEST_DATA"), ROOT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("no real data: set POOL_TEST_DATA to a folder of real blocks")


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """Undo what a command that ran inside the test has set up for the log.

    Else a later test of the same process waits in vain for a message that is below the level it left.
    A machine that only tests a GPU may lack the package.
    """
    yield
    if structlog := sys.modules.get("structlog"):
        structlog.reset_defaults()


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """Top folder of the checkout."""
    return ROOT
