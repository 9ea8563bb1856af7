"""Make folders for temporary files, and remove those that killed processes left.

A process holds a lock on its folder for as long as it uses it. The operating system releases the lock when
the process ends, however it ends. So a folder that nobody has locked is left over, and the next process that
makes one of the same kind removes it.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_folder(prefix: str, parent: Path | None = None) -> Iterator[Path]:
    """Yield a new folder whose name begins with `prefix`, and remove it when the `with` block ends.

    It is made in `parent`, or else in the system's folder for temporary files. First, folders of that prefix
    there are removed if no process uses them.
    """
    place = Path(tempfile.gettempdir()) if parent is None else parent
    _remove_unused(prefix, place)
    folder, lock = _locked_folder(prefix, place)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked_folder(prefix: str, place: Path) -> tuple[Path, int]:
    """Make and lock a folder; return its path and the handle that holds the lock.

    Between the two steps another process may take the folder for a leftover and remove it; another folder is
    made then.
    """
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        lock = _lock_unused(folder)
        if lock is not None and folder.is_dir():
            return folder, lock
        if lock is not None:
            os.close(lock)


def _remove_unused(prefix: str, place: Path) -> None:
    """Remove this user's folders of a prefix that no process has locked."""
    for folder in place.glob(f"{prefix}*"):
        lock = _lock_unused(folder)
        if lock is None:
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(lock)


def _lock_unused(folder: Path) -> int | None:
    """Lock a folder and return the handle that holds the lock.

    The result is None if the folder has gone, is no folder, or is locked already.
    """
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return handle
    os.close(handle)
    return None
