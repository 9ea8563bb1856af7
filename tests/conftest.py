"""Fixtures that every test folder shares."""

import os
import signal
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
FIRST = ("test_demo.py", "test_benchmarks.py", "test_losses.py", "test_kill_steps.py")


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
