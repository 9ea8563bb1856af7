"""Write files whole or not at all: an error or Ctrl-C leaves what was there before."""

import os
from pathlib import Path

from gpuhash.errors import GpuhashError


def require(path: Path) -> None:
    """Raise GpuhashError if a file could not be written at `path`; leave no trace of the attempt."""
    new = not path.exists()
    try:
        path.open("a").close()
        if new:
            path.unlink()
    except OSError as error:
        raise GpuhashError(f"cannot write {path}: {error.strerror}") from error


def is_replaced(path: Path) -> bool:
    """Return whether `write` replaces what `path` names; a pipe or a device takes one text after another."""
    return path.is_file() or not path.exists()


def write(path: Path, text: str) -> None:
    """Write a text file; a file of this name is replaced only when the new one is complete.

    Raises GpuhashError if that fails.
    """
    try:
        if not is_replaced(path):
            path.write_text(text)
            return
        part = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            part.write_text(text)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise GpuhashError(f"cannot write {path}: {error.strerror}") from error
