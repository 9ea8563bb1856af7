"""Memory: collecting garbage seldom, and giving back what is free."""

import ctypes
import gc

import pyarrow as pa


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
