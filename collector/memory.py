"""Memory: collecting garbage seldom, doing without pandas, and giving back what is free."""

import ctypes
import gc
import sys
from importlib.abc import MetaPathFinder

import pyarrow as pa


def spare_collections() -> None:
    """Let Python look for cycles of garbage seldom: rows are many, and have none; a start has some."""
    gc.collect()
    gc.set_threshold(100_000, 50, 100)


class _WithoutPandas(MetaPathFinder):
    """Says that pandas is not installed."""

    def find_spec(self, fullname: str, *_: object) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def spare_pandas() -> None:
    """Let Arrow do without pandas, which it would load, 60 MB, to ask whether a list is a column of that.

    It tries once in a process, at the first array that it makes of a list.
    """
    finder = _WithoutPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(finder)


def give_back() -> None:
    """Give the operating system what Arrow and the C library keep of memory that was freed."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
