"""The cache of machine code: what starts it anew, and what happens where none can be kept."""

import logging
import os
import subprocess
import sys
from pathlib import Path

import numba.core.caching
import pytest

from gpuhash.compiled import cache_folder, compiler

CALLER = """
from gpuhash.compiled import compiler
from loops.inner import step

@compiler(__package__)
def run(number):
    return step(number) + 1
"""
CALLEE = """
from gpuhash.compiled import compiler

@compiler(__package__)
def step(number):
    return {factor} * number
"""
PROGRAM = "from loops.outer import run; print(run(10), sum(run.stats.cache_hits.values()))"


def run_loops(folder: Path, repo_root: Path) -> str:
    """Call the compiled caller in a process of its own; return its result and its cache hits."""
    paths = os.pathsep.join(map(str, (folder, repo_root)))
    environment = os.environ | {
        "PYTHONPATH": paths,
        "NUMBA_CACHE_DIR": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    ).stdout


def test_a_changed_callee_in_another_module_is_compiled_anew(tmp_path: Path, repo_root: Path) -> None:
    """The caller's file stays as it is; its machine code, which contains the callee, must not be reused."""
    package = tmp_path / "loops"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "outer.py").write_text(CALLER)
    (package / "inner.py").write_text(CALLEE.format(factor=2))

    assert run_loops(tmp_path, repo_root) == "21 0\n"
    assert run_loops(tmp_path, repo_root) == "21 1\n"
    (package / "inner.py").write_text(CALLEE.format(factor=3))
    assert run_loops(tmp_path, repo_root) == "31 0\n"


def test_a_function_that_numba_cannot_keep_is_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is in no file, as in an interactive session, has no place in the cache."""
    monkeypatch.setattr(numba.core.caching.CompileResultCacheImpl, "_locator_classes", [])

    @compiler("gpuhash")
    def twice(number: int) -> int:
        return 2 * number

    assert twice(21) == 42


def test_without_a_writable_folder_it_is_compiled_in_each_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """If the cache cannot be written, the log says so once for all packages, and everything works."""
    blocker = tmp_path / "file"
    blocker.touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(blocker))
    cache_folder.cache_clear()
    try:
        with caplog.at_level(logging.WARNING):

            @compiler("gpuhash")
            def twice(number: int) -> int:
                return 2 * number

            @compiler("collector.codec")
            def thrice(number: int) -> int:
                return 3 * number

        assert (twice(21), thrice(14)) == (42, 42)
        assert len(caplog.records) == 1
        assert f"{blocker / 'gpuhash'}: Not a directory" in caplog.text
    finally:
        cache_folder.cache_clear()
