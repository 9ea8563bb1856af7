"""Memory: loading only what is needed, collecting garbage seldom, keeping little that is free."""

import ctypes
import gc
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector.codec.decode_many import copy_outpoints
from collector.codec.feerates import rate_blocks
from collector.codec.rows import warm_up
from gpuhash.cpu_sha256 import hash_groups

# Parameters of glibc's mallopt (malloc.h), and what they are set to.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
LEAST_MAPPED_BYTES = 1 << 18  # what is larger goes back to the system when it is freed
MOST_ARENAS = 2  # of the C library; by default eight for each processor, each with its own remains


def keep_little() -> None:
    """Have the C library keep less of what is freed; before the first threads begin."""
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)  # glibc has it
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LEAST_MAPPED_BYTES)
        set_option(_M_ARENA_MAX, MOST_ARENAS)


class _Missing(MetaPathFinder):
    """Says that a package is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == self._name:
            raise ModuleNotFoundError(fullname)


@contextmanager
def _without(name: str) -> Iterator[None]:
    finder = _Missing(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def spare_pandas() -> None:
    """Let Arrow do without pandas, which it would load, 60 MB, to ask whether a list is a column of that.

    It tries once in a process, at the first array that it makes of a list.
    """
    with _without("pandas"):
        pa.array([])


def spare_compiler() -> None:
    """Load the compiled loops; where they are not compiled, have a process of its own do it before.

    A compiler that has worked keeps 50 MB for good. And numba would load SciPy's linear algebra, 50 MB, for
    loops that might need it; it tries once in a process.
    """
    if not all(map(is_compiled, (hash_groups, copy_outpoints, rate_blocks))):
        code = "from collector.codec.rows import warm_up; warm_up()"
        subprocess.run([sys.executable, "-P", "-c", code], check=False)  # noqa: S603 - our own words, no shell
    with _without("scipy.linalg"):
        warm_up()


def is_compiled(loop: Any) -> bool:
    """Whether an earlier process has kept the machine code of a loop (of numba), or none could."""
    folder = loop.stats.cache_path
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return folder is None or any(Path(folder).glob(f"*.{loop.__name__}-*.{version}*.nbi"))


def spare_collections() -> None:
    """Let Python look for cycles of garbage seldom: rows are many, and have none; a start has some."""
    gc.collect()
    gc.set_threshold(100_000, 50, 100)


def give_back() -> None:
    """Give the operating system what Arrow and the C library keep of memory that was freed."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
