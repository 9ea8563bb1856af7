"""Fixtures that every test folder shares."""

import os
import signal
import subprocess
import sys
from pathlib import Path

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
    *("test_cases.py", "test_demo.py", "test_on_spark.py", "test_benchmarks.py", "test_current_folder.py"),
    *("test_losses.py", "test_history_path.py", "test_planted_world.py", "test_kill_steps.py"),
)

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


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile once, before several processes would compile the same loops at the same time."""
    if getattr(session.config.option, "numprocesses", None):
        started = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for code in WARM_UPS]
        for process in started:
            process.wait()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest and mostly wait: those of a real node, longest files first."""

    def rank(item: pytest.Item) -> int:
        if item.path.name in FIRST:
            return FIRST.index(item.path.name)
        return len(FIRST) + ("functional" not in item.path.parts)

    items.sort(key=rank)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Folder of real blocks, labels and vectors: $POOL_TEST_DATA, else ../shared/data."""
    for folder in (os.environ.get("POOL_TEST_DATA"), ROOT.parent / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("no real data: set POOL_TEST_DATA to a folder of real blocks")


@pytest.fixture(scope="session")
def repo_root() -> Path:
    """Top folder of the checkout."""
    return ROOT
