"""Write files that appear only when they are complete.

The content goes to a hidden file in the same folder, is forced to disk, and is renamed; then the folder is
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
    """Write a file at `path` by calling `write` with an open file; an existing file there is replaced.

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
    """Yield a temporary path at which the `with` block makes a file; then move that file to `path`.

    This is for programs, such as DuckDB, that make files of their own beside it. If the block fails,
    everything that was made is removed.
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
    """Return the name that `path` has while it is written; readers' `*.parquet` does not match it."""
    return path.with_name(f".{path.name}.tmp")


def is_temporary(path: Path) -> bool:
    """Return whether `path` has the name of a file that is not complete yet."""
    return path.name.startswith(".") and path.name.endswith(".tmp")


def make_folder(folder: Path) -> None:
    """Make a folder and its missing parents, and force them to disk to survive a power cut."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Force the list of files in `folder` to disk, so that new names survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
