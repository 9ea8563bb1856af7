"""Fixtures that every test folder shares."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


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
