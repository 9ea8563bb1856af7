"""Keep the process small: compile elsewhere, collect garbage seldom, return freed memory to the system."""

import ctypes
import gc
import subprocess
import sys
import threading
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog

from collector.codec.feerates import rate_blocks
from collector.codec.rows import warm_up
from collector.codec.transaction import copy_outpoints
from gpuhash.cpu import sha256_loops

# Options of glibc's mallopt (malloc.h), and the values that we give them.
_M_MMAP_THRESHOLD, _M_ARENA_MAX = -3, -8
LEAST_MAPPED_BYTES = 1 << 18  # a freed block that is larger goes back to the system at once
POLL_S = 0.05
MOST_ARENAS = 2  # of the C library; by default it has eight per processor, and each keeps freed memory
log = structlog.get_logger(__name__)


@cache
def _c_library() -> ctypes.CDLL:
    """Return the C library of this process; loaded once, because every load leaves a class as garbage."""
    return ctypes.CDLL(None)


def limit_freed_memory() -> None:
    """Limit how much freed memory the C library keeps; call this before the first thread begins."""
    set_option = getattr(_c_library(), "mallopt", None)  # glibc has it
    if set_option is not None:
        set_option(_M_MMAP_THRESHOLD, LEAST_MAPPED_BYTES)
        set_option(_M_ARENA_MAX, MOST_ARENAS)


def load_compiled_loops(stop: threading.Event) -> None:
    """Load the machine code of our numba loops; return early, without it, when `stop` is set.

    If it is not on disk, a child process compiles the loops first. A compiler that has run in this process
    would keep 50 MB until the end.
    """
    loops = (sha256_loops.hash_groups, sha256_loops.hash_whole_blocks, copy_outpoints, rate_blocks)
    if not all(map(is_compiled, loops)):
        log.info("loops.compiling", advice="the first start of a version takes up to a minute longer")
        code = "from collector.codec.rows import warm_up; warm_up()"
        # In a session of its own, so that Ctrl-C in a terminal reaches us alone.
        command = [sys.executable, "-P", "-c", code]
        with subprocess.Popen(command, start_new_session=True) as compiling:  # noqa: S603 - our own words
            while compiling.poll() is None:
                if stop.wait(POLL_S):
                    compiling.kill()
                    return
    warm_up()


def is_compiled(loop: Any) -> bool:
    """Return whether the machine code of a numba loop is on disk for this Python version.

    A loop for which numba has no cache folder counts as compiled: no other process could compile it for us.
    """
    folder = loop.stats.cache_path
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return folder is None or any(Path(folder).glob(f"*.{loop.__name__}-*.{version}*.nbi"))


def collect_garbage_seldom() -> None:
    """Make Python search for reference cycles seldom: we make many rows, and they form no cycles."""
    gc.collect()
    gc.set_threshold(100_000, 50, 100)


def return_freed_memory() -> None:
    """Return to the operating system the freed memory that Arrow and the C library still keep."""
    pa.default_memory_pool().release_unused()
    trim = getattr(_c_library(), "malloc_trim", None)  # glibc has it
    if trim is not None:
        trim(0)
