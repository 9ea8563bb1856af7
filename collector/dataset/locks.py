"""Lock files: who works on a folder keeps others off it, and the system gives it back at its end."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

from collector.dataset.writer import FILE_MODE
from collector.errors import DatasetError

LOOKED_AT_S: Final = (0.01, 0.1)  # waits for one that only looks who holds it, as `is_held` does
NAME: Final = "lock"  # of the file, in a folder that is worked on by one process at a time


def take(lock: Path, refusal: str) -> int:
    """Lock a file, which is made if need be; returns the handle that holds it, to be closed.

    Raises DatasetError with `refusal` when another process holds it, OSError when it cannot be opened.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, FILE_MODE)
    for wait_s in (*LOOKED_AT_S, None):
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


def is_held(lock: Path) -> bool:
    """Whether a process holds a lock file."""
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
