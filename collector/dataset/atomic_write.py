"""Write files that appear only when they are complete.

The content goes to a hidden file beside the place, is forced to disk, and is renamed; then the folder is
forced to disk. A reader sees the whole file or none, also after SIGKILL or a power cut.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

FILE_MODE: Final = 0o640
FOLDER_MODE: Final = 0o750
USER_FILE_MODE: Final = 0o666  # of files for people: the user's umask decides


def write_atomically(path: Path, write: Callable[[BinaryIO], object], *, mode: int = FILE_MODE) -> None:
    """Let `write` fill a new file, then give the file its name, in place of one that had it.

    When `write` fails, nothing is left behind. A kill may leave `.<name>.tmp`, which the next call replaces.
    """
    temporary = temporary_path(path)
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as sink:
            write(sink)
            sink.flush()
            os.fsync(sink.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def replaced_atomically(path: Path) -> Iterator[Path]:
    """Give a path to make a file at, for a program that makes files of its own beside it, as DuckDB does.

    When the block ends well, the file takes the place of `path`; otherwise all that was made is removed.
    """
    with tempfile.TemporaryDirectory(prefix=".building-", dir=path.parent) as folder:
        temporary = Path(folder) / path.name
        yield temporary
        handle = os.open(temporary, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        temporary.replace(path)
        sync_folder(path.parent)


def temporary_path(path: Path) -> Path:
    """Return the name that a file has until it is complete; no reader's `*.parquet` matches it."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path) -> bool:
    """Whether a path has the name of a file that is not complete."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, so that they survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
