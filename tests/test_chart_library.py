"""Test that the chart library in the package is the one that npm gives for its lock."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.chart_library import LIBRARY, fetch


def test_the_library_is_what_the_lock_pins(tmp_path: Path) -> None:
    """Each file equals that of the package whose hash stands in the lock, byte for byte."""
    if shutil.which("npm") is None:
        pytest.skip("no npm: install npm")
    try:
        fetched = fetch(tmp_path)
    except subprocess.CalledProcessError as error:
        if any(fault in error.stderr for fault in ("EINTEGRITY", "EUSAGE", "E404")):
            raise
        pytest.skip(f"npm gets nothing from its registry: {error.stderr[-300:]}")

    assert {path.name: path.read_bytes() for path in fetched} == {
        path.name: (LIBRARY / path.name).read_bytes() for path in fetched
    }
