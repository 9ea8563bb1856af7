"""Test that the chart library in the package is the one that npm gives for its lock."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import chart_library
from tests.chart_library import LIBRARY, fetch

# What npm answers where no registry can be reached or lets us in, which says nothing about the library.
UNREACHABLE = re.compile(
    r"code (?:EAI_AGAIN|ENOTFOUND|ECONN[A-Z]+|ETIMEDOUT|ERR_SOCKET_TIMEOUT|EHOSTUNREACH|ENETUNREACH|EPROTO"
    r"|E5\d\d|E40[137]|[A-Z_]*CERT[A-Z_]*)\b"
)
needs_npm = pytest.mark.skipif(shutil.which("npm") is None, reason="no npm: install npm")


@needs_npm
def test_the_library_is_what_the_lock_pins(tmp_path: Path) -> None:
    """Each file equals that of the package whose hash stands in the lock, byte for byte."""
    try:
        fetched = fetch(tmp_path)
    except subprocess.CalledProcessError as error:
        if not UNREACHABLE.search(error.stderr):
            raise
        pytest.skip(f"npm gets nothing from its registry: {error.stderr[-300:]}")

    assert {path.name: path.read_bytes() for path in fetched} == {
        path.name: (LIBRARY / path.name).read_bytes() for path in fetched
    }


@needs_npm
def test_only_a_registry_out_of_reach_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison is skipped where npm reaches no registry, and not where the lock is none."""
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:1/")
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "cache"))
    for name in ("first", "second", "library"):
        (tmp_path / name).mkdir()

    with pytest.raises(subprocess.CalledProcessError) as found:
        fetch(tmp_path / "first")
    assert UNREACHABLE.search(found.value.stderr)

    shutil.copy(LIBRARY / "package.json", tmp_path / "library")
    (tmp_path / "library" / "package-lock.json").write_text("{")
    monkeypatch.setattr(chart_library, "LIBRARY", tmp_path / "library")
    with pytest.raises(subprocess.CalledProcessError) as found:
        fetch(tmp_path / "second")
    assert not UNREACHABLE.search(found.value.stderr)
