"""Lock files, so that a process that works on a folder keeps other processes off it.

The operating system releases a lock when its process ends, however it ends.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from collector.dataset.atomic_write import FILE_MODE
from collector.errors import DatasetError

RETRY_WAITS_S: Final = (0.01, 0.1)  # `is_held` takes a lock for a moment: that holder is waited for
FOLDER_LOCK: Final = "lock"  # in a folder that one process at a time works on, such as a journal
# In the folder of a chain. Readers and writers of files share it; compaction takes it alone.
WRITE_LOCK: Final = ".write.lock"
BACKFILL_LOCK: Final = ".backfill.lock"  # in the folder of a chain: one backfill or import at a time


def take(lock: Path, refusal: str) -> int:
    """Lock the file `lock` for this process alone and return its handle; closing the handle releases it.

    Makes the file if it is missing. Raises DatasetError with the text `refusal` when another process holds
    the lock, OSError when the file cannot be opened.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, FILE_MODE)
    for wait_s in (*RETRY_WAITS_S, None):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if wait_s is None:
                break
            time.sleep(wait_s)
        else:
            return handle
    os.close(handle)
    raise DatasetError(refusal)


@contextmanager
def taken(lock: Path, refusal: str) -> Iterator[None]:
    """Hold the lock file `lock` alone during the `with` block; raise as `take` does."""
    handle = take(lock, refusal)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def shared_for_reading(lock: Path) -> Iterator[None]:
    """Hold a lock together with other readers during the `with` block; wait while a process holds it alone.

    Where the lock file is missing or cannot be opened, as in a read-only copy, this holds nothing: nobody
    moves files there.
    """
    try:
        handle = os.open(lock, os.O_RDONLY)
    except OSError:
        yield
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


@contextmanager
def held_for_writing(lock: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold a lock during the `with` block: together with other writers, or with `exclusive` alone.

    Makes the file if it is missing, and waits until the lock is free.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


def is_held(lock: Path) -> bool:
    """Return whether a process holds the lock file `lock` alone; False if it cannot be opened."""
    try:
        handle = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
