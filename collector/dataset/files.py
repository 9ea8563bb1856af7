"""Write files that appear only when they are complete, and lock files that several processes use.

The content of a file goes to a hidden file in the same folder, is forced to disk, and is renamed; then the
folder is forced to disk. A reader sees the whole file or none, also after SIGKILL or a power cut.

A lock keeps other processes off what one process works on. The operating system releases it when that process
ends, however it ends.
"""

import errno
import fcntl
import os
import resource
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from collector.dataset.temporary_folders import temporary_folder
from collector.errors import DatasetError

FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750
USER_FILE_MODE: Final = 0o666  # of files for people: the user's umask decides

RETRY_WAITS_S: Final = (0.01, 0.1)  # `is_lock_held` takes a lock for a moment: that holder is waited for
LOCK_HELD: Final = (BlockingIOError, PermissionError)  # by another process; the second on network disks
FOLDER_LOCK: Final = "lock"  # in a folder that one process at a time works on, such as a journal
# In the folder of a chain. Readers and writers of files share it; compaction takes it alone.
WRITE_LOCK: Final = ".write.lock"
BACKFILL_LOCK: Final = ".backfill.lock"  # in the folder of a chain: one backfill or import at a time


def write_atomically(
    path: Path, write: Callable[[BinaryIO], object], *, mode: int = FILE_MODE, is_durable: bool = True
) -> None:
    """Write a file at `path` by calling `write` with an open file; an existing file there is replaced.

    When `write` fails, nothing is left behind. A kill may leave `.<name>.tmp`, which the next call replaces.
    Unless `is_durable`, the bytes are not forced to disk: a power cut may then leave an empty file.

    Raises OSError where the system does, and for a pipe or a device, which a file must not replace.
    """
    refuse_device(path)
    temporary = temporary_path(path)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as sink:
            write(sink)
            if is_durable:
                sink.flush()
                os.fsync(sink.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if is_durable:
        sync_folder(path.parent)


@contextmanager
def replaced_atomically(path: Path) -> Iterator[Path]:
    """Yield a temporary path at which the `with` block makes a file; then move that file to `path`.

    This is for programs, such as DuckDB, that make files of their own beside it. If the block fails,
    everything that was made is removed. What a kill leaves is removed by the next call in the same folder.
    Raises OSError as `write_atomically` does.
    """
    refuse_device(path)
    with temporary_folder(".building-", path.parent) as folder:
        temporary = folder / path.name
        yield temporary
        sync_file(temporary)
        temporary.replace(path)
        sync_folder(path.parent)


def refuse_device(path: Path) -> None:
    """Raise OSError where `path` names a folder, or a pipe or device such as /dev/null, and not a file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is a pipe or a device, which a file must not replace", str(path))


def allow_many_open_files() -> None:
    """Raise this process's limit of open files as far as it may: one query opens every file of a table."""
    least, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if least != most:
        with suppress(ValueError, OSError):  # where the system allows less than it says
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def temporary_path(path: Path) -> Path:
    """Return the path at which a file is written before it is complete: `.<name>.tmp` beside `path`.

    Readers' `*.parquet` does not match it.
    """
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether `path` has the name of a file that is not complete yet."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, and force them to disk so that they survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def why_unwritable(error: OSError) -> str:
    """Return why a path cannot be written: in the system's words, or that a folder in it is a file."""
    if isinstance(error, FileExistsError | NotADirectoryError):
        return "a part of this path is a file, not a folder"
    return error.strerror or str(error)


def sync_file(path: Path) -> None:
    """Force the bytes of a file to disk, so that they survive a power cut."""
    _sync(path, os.O_RDONLY)


def sync_folder(folder: Path) -> None:
    """Force the list of files in `folder` to disk, so that new names survive a power cut."""
    _sync(folder, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path, flags: int) -> None:
    handle = os.open(path, flags)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def take_lock(lock: Path, refusal: str) -> int:
    """Lock the file `lock` for this process alone and return its handle; closing the handle releases it.

    Makes the file if it is missing. Raises DatasetError with the text `refusal` when another process holds
    the lock, DatasetError for a file system without locks, and OSError when the file cannot be opened.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        for wait_s in (*RETRY_WAITS_S, None):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except LOCK_HELD:
                if wait_s is not None:
                    time.sleep(wait_s)
            else:
                return handle
    except BaseException as error:
        os.close(handle)
        if isinstance(error, OSError):
            raise DatasetError(
                f"the file {lock} cannot be locked ({error.strerror}); use a file system that has locks, or"
                " mount this one with them"
            ) from None
        raise
    os.close(handle)
    raise DatasetError(refusal)


@contextmanager
def lock_taken(lock: Path, refusal: str) -> Iterator[None]:
    """Hold an exclusive lock on the file `lock` during the `with` block; raise as `take_lock` does."""
    handle = take_lock(lock, refusal)
    try:
        yield
    finally:
        os.close(handle)


@contextmanager
def lock_shared_for_reading(lock: Path) -> Iterator[None]:
    """Hold a shared lock on the file `lock` during the `with` block; wait while a process holds it alone.

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
def lock_held_for_writing(lock: Path, *, exclusive: bool) -> Iterator[None]:
    """Hold a lock during the `with` block: together with other writers, or with `exclusive` alone.

    Makes the file if it is missing, and waits until the lock is free.
    """
    handle = os.open(lock, os.O_RDWR | os.O_CREAT, FILE_MODE)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH)
        yield
    finally:
        os.close(handle)


@contextmanager
def lock_tried_alone(lock: Path) -> Iterator[bool]:
    """Try to hold a lock alone during the `with` block, without waiting; yield whether it is held.

    Where the lock file is missing or cannot be opened, the lock is not held.
    """
    try:
        handle = os.open(lock, os.O_RDWR)
    except OSError:
        yield False
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_held = True
    except OSError:
        is_held = False
    try:
        yield is_held
    finally:
        os.close(handle)


def is_lock_held(lock: Path) -> bool:
    """Return whether a process holds the lock file `lock` alone; False if it cannot be opened or locked."""
    try:
        handle = os.open(lock, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except LOCK_HELD:
        return True
    except OSError:  # a file system without locks
        return False
    else:
        return False
    finally:
        os.close(handle)
