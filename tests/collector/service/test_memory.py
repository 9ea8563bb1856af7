"""What is done so that the collector takes little memory."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from collector.service.memory import is_compiled

LOAD = """
import sys
from collector.service.memory import spare_compiler, spare_pandas
from gpuhash import cpu_sha256

spare_pandas()
spare_compiler()
print(sum(cpu_sha256.hash_groups.stats.cache_misses.values()))
print([name for name in ("pandas", "scipy.linalg") if name in sys.modules])
"""


def test_the_collector_has_neither_a_compiler_nor_pandas_nor_scipy_in_memory() -> None:
    """It finds the compiled code on disk, whoever compiled it, and takes it as it is."""
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
    """What another loop, or another Python has left there does not count."""
    loop = SimpleNamespace(__name__="gather", stats=SimpleNamespace(cache_path=str(tmp_path)))
    (tmp_path / name.format(f"{sys.version_info.major}{sys.version_info.minor}")).touch()
    assert is_compiled(loop) is expected


def test_a_loop_that_nothing_keeps_is_not_compiled_for_others() -> None:
    """No other process could help where there is no folder to write to."""
    assert is_compiled(SimpleNamespace(__name__="gather", stats=SimpleNamespace(cache_path=None)))
