"""Test that the collector loads no pandas, no SciPy and no compiler, so that it takes little memory."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from collector.service.memory import is_compiled

LOAD = """
import sys
import threading
from collector.service.memory import load_compiled_loops
from collector.unneeded import hide_unneeded
from gpuhash.cpu import sha256_loops

hide_unneeded()
load_compiled_loops(threading.Event())
loops = (sha256_loops.hash_groups, sha256_loops.hash_whole_blocks)
print(sum(sum(loop.stats.cache_misses.values()) for loop in loops))
print([name for name in ("pandas", "scipy.linalg") if name in sys.modules])
"""


def test_the_collector_has_neither_a_compiler_nor_pandas_nor_scipy_in_memory() -> None:
    """The collector loads its compiled loops from disk and compiles none itself."""
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["0", "[]"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("loops.gather-12.py{}.nbi", True),
        ("loops.gather-12.py{}.1.nbc", False),
        ("loops.gather_all-12.py{}.nbi", False),
        ("loops.gather-12.py1{}.nbi", False),
    ],
)
def test_a_loop_is_compiled_when_this_python_finds_it_on_disk(
    tmp_path: Path, name: str, *, expected: bool
) -> None:
    """A loop counts as compiled only if the file on disk is of this loop and this Python version."""
    loop = SimpleNamespace(__name__="gather", stats=SimpleNamespace(cache_path=str(tmp_path)))
    (tmp_path / name.format(f"{sys.version_info.major}{sys.version_info.minor}")).touch()
    assert is_compiled(loop) is expected


def test_a_loop_without_a_cache_folder_needs_no_other_process() -> None:
    """A loop without a cache folder counts as compiled, because no other process could compile it for us."""
    assert is_compiled(SimpleNamespace(__name__="gather", stats=SimpleNamespace(cache_path=None)))
