"""Put one folder in the place of another in one step, so that no reader finds neither or both.

Linux does it by renameat2 with RENAME_EXCHANGE, macOS by renamex_np with RENAME_SWAP. Two renames, one after
the other, would leave a moment without the folder: where the system or the file system lacks the single step,
that is an error.
"""

import ctypes
import os
import sys
from pathlib import Path
from typing import Final

from collector.errors import DatasetError

AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2  # linux/fs.h
RENAME_SWAP: Final = 2  # macOS sys/stdio.h


def exchange(one: Path, other: Path) -> None:
    """Let two folders of one file system change places. OSError, and nothing done, when that fails."""
    libc = ctypes.CDLL(None, use_errno=True)
    names = os.fsencode(one), os.fsencode(other)
    try:
        if sys.platform == "darwin":
            status = libc.renamex_np(*names, ctypes.c_uint(RENAME_SWAP))
        else:
            status = libc.renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], ctypes.c_uint(RENAME_EXCHANGE))
    except AttributeError:
        raise OSError(0, "this C library has no renameat2") from None
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def require_exchange(folder: Path) -> None:
    """Try it in a folder of ours. Raises DatasetError when two folders there cannot change places."""
    one, other = folder / "swap-a", folder / "swap-b"
    for each in (one, other):
        each.mkdir(exist_ok=True)
    try:
        exchange(one, other)
    except OSError as error:
        raise DatasetError(
            f"{folder}: two folders cannot change places here in one step ({error.strerror}), so "
            "readers would miss rows for a moment; nothing is compacted; ext4, XFS, Btrfs, tmpfs and "
            "APFS can do it"
        ) from None
    finally:
        for each in (one, other):
            each.rmdir()
