"""Replace the folder of a partition, so that readers see either the whole old one or the whole new one.

The new folder is built where no reader looks, in `.compaction` beside the chains, and changes places with the
old one in a single step. A kill before that step may lose the new folder, a kill after it the old one:
nothing in `.compaction` is ever needed, and the next run removes it.

Two rules keep every row. A file whose journal segment is still there is left alone: after a kill the journal
seals the segment again, under the same name. And a folder changes places only while no file is being added to
it; files that were added since its content was read are linked into the new folder first.
"""

import ctypes
import os
import secrets
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

from collector.dataset.files import FOLDER_LOCK, is_temporary, make_folder, sync_folder, take_lock
from collector.dataset.open import Dataset
from collector.errors import DatasetError
from collector.journal.segment import unsealed_segments

WORK: Final = ".compaction"
# A reader that has opened the old folder, and not yet read the names in it, must not find it empty.
GRACE_S: Final = 1.0

AT_FDCWD: Final = -100
RENAME_EXCHANGE: Final = 2  # linux/fs.h
RENAME_SWAP: Final = 2  # macOS sys/stdio.h

T = TypeVar("T")


class Replacements:
    """Replaces folders of one dataset's partitions by new ones. Make one with `open_replacements`."""

    def __init__(self, dataset: Dataset, work: Path) -> None:
        self._dataset = dataset
        self._work = work
        self._retired: deque[tuple[float, Path]] = deque()  # old folders, and when they left their place

    @property
    def work(self) -> Path:
        """Return the folder in which new partition folders are built; the next run removes the leftovers."""
        return self._work

    @property
    def spill(self) -> Path:
        """Return the folder where DuckDB may write what a query cannot keep in memory."""
        return self._work / "spill"

    def replace(self, folder: Path, sources: Iterable[Path], prefix: str, make: Callable[[Path], T]) -> T:
        """Replace the files `sources` of `folder` by one new file; the other files there stay.

        `make` gets the path of the new file, writes it and forces it to disk; its result is returned. If
        `make` raises, or DatasetError is raised, nothing has changed. OSError means that the disk may not
        have taken the change.
        """
        token = secrets.token_hex(8)  # a name that no earlier file had: a reader may still look for that one
        staged = self._work / f"{folder.parent.name}-{folder.name}-{token}"
        try:
            _make_staged(staged, folder)
            made = make(staged / f"{prefix}-{token}.parquet")
            self._swap(folder, staged, set(sources))
        except DatasetError:
            shutil.rmtree(staged, ignore_errors=True)
            raise
        self._retired.append((time.monotonic(), staged))
        return made

    def _swap(self, folder: Path, staged: Path, sources: set[Path]) -> None:
        """Link the files of `folder` that are not in `sources` into `staged`, then exchange the two folders.

        Raises DatasetError, with nothing changed, when a source has gone or the folders cannot be exchanged.
        """
        with self._dataset.replace_lock():
            try:
                present = set(folder.iterdir())
                gone = sources - present
                if gone:
                    raise DatasetError(f"{min(gone)} has gone while it was read; nothing was changed")
                for path in present - sources:
                    if not is_temporary(path):  # a killed writer left it: nobody is writing now
                        os.link(path, staged / path.name)
                sync_folder(staged)
                exchange(staged, folder)
            except OSError as error:
                raise DatasetError(
                    f"cannot replace {folder}: {error.strerror or error}; nothing was changed"
                ) from None
            # On disk before the next file is added here, and before the old files go.
            sync_folder(folder.parent)
            sync_folder(staged.parent)

    def remove_retired(self, *, wait: bool = False) -> None:
        """Remove the old folders that were replaced more than a second ago: no reader still lists them.

        With `wait`, wait for a second after the last replacement, and remove all.
        """
        while self._retired:
            rest_s = self._retired[0][0] + GRACE_S - time.monotonic()
            if rest_s > 0:
                if not wait:
                    return
                time.sleep(rest_s)
            shutil.rmtree(self._retired.popleft()[1], ignore_errors=True)


@contextmanager
def open_replacements(dataset: Dataset) -> Iterator[Replacements]:
    """Lock `.compaction` of a dataset during the `with` block, so that its folders can be replaced.

    First it removes what killed runs left there and in the folders of tables, at the end the old folders.
    Raises DatasetError while another `pool-collector compact` or `mend` is running, or when the file system
    cannot exchange two folders in one step.
    """
    work = dataset.root / WORK / dataset.chain
    refusal = f"another compaction or mend of {dataset.root} is running; wait until it has ended"
    try:
        make_folder(work)
        handle = take_lock(work / FOLDER_LOCK, refusal)
    except OSError as error:
        raise DatasetError(f"cannot use {work}: {error.strerror or error}; free space or rights") from None
    try:
        _remove_left_folders(work)
        dataset.remove_unfinished_files()
        require_exchange(work)
        replacements = Replacements(dataset, work)
        yield replacements
        replacements.remove_retired(wait=True)
    finally:
        os.close(handle)


def sealed_files(dataset: Dataset, folder: Path) -> list[Path]:
    """Return the Parquet files of `folder` that no journal will write again.

    The files are listed before the journal's: a journal's file is there before the Parquet made of it, so
    none is missed.
    """
    files = sorted(path for path in folder.glob("*.parquet") if path.is_file())
    unsealed = {segment.stem for segment in unsealed_segments(dataset.root, dataset.chain)}
    return [path for path in files if path.stem not in unsealed]


def exchange(one: Path, other: Path) -> None:
    """Exchange the places of two folders of one file system in one step.

    Linux does it by renameat2 with RENAME_EXCHANGE, macOS by renamex_np with RENAME_SWAP. Two renames, one
    after the other, would leave a moment without the folder. Raises OSError, with nothing changed, when the
    system or the file system cannot do it.
    """
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
    """Try an exchange of two empty folders in `folder`; raise DatasetError if it cannot be done."""
    one, other = folder / "swap-a", folder / "swap-b"
    for each in (one, other):
        each.mkdir(exist_ok=True)
    try:
        exchange(one, other)
    except OSError as error:
        raise DatasetError(
            f"{folder}: two folders cannot change places here in one step ({error.strerror}), so "
            "readers would miss rows for a moment; nothing is changed; ext4, XFS, Btrfs, tmpfs and "
            "APFS can do it"
        ) from None
    finally:
        for each in (one, other):
            each.rmdir()


def _make_staged(staged: Path, folder: Path) -> None:
    """Make the folder `staged` with the permissions of `folder`; raise DatasetError if that fails."""
    try:
        staged.mkdir()
        shutil.copymode(folder, staged)
    except OSError as error:
        raise DatasetError(f"cannot make {staged}: {error.strerror or error}; free space or rights") from None


def _remove_left_folders(work: Path) -> None:
    """Remove the folders that a killed run left in `work`, a second after they are found."""
    left = [path for path in work.iterdir() if path.is_dir()]
    if left:
        time.sleep(GRACE_S)
    for path in left:
        shutil.rmtree(path, ignore_errors=True)
