"""Open a dataset: choose its chain, list the files of its tables, read and write them under its locks.

A folder with a marker file (`dataset.json`) is a dataset. Each chain has a folder of its own in it, so that
the rows of two chains never mix.

A process that writes a file holds the dataset's write lock together with other writers; compaction, which
puts whole folders in the place of others, holds the lock alone for that moment.

This module loads no large library: a command that is given a wrong folder says so at once.
"""

import glob
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from collector.dataset.chains import CHAINS
from collector.dataset.files import (
    BACKFILL_LOCK,
    WRITE_LOCK,
    is_lock_held,
    lock_held_for_writing,
    lock_shared_for_reading,
    lock_taken,
    lock_tried_alone,
    make_folder,
)
from collector.dataset.marker import check_marker, has_marker, make_marker
from collector.dataset.store_address import StoreAddress, names_store
from collector.errors import DatasetError, NoSuchChain, SettingsError, StoreError

if TYPE_CHECKING:
    import pyarrow as pa

    from collector.dataset.schema import Table

CHAIN_PREFIX: Final = "chain="


class Dataset:
    """Gives access to the tables of one chain in a dataset folder. Make one with `Dataset.open`."""

    def __init__(self, root: Path, chain: str) -> None:
        self.root = root
        self.chain = chain
        self.folder = root / f"{CHAIN_PREFIX}{chain}"

    @classmethod
    def open(cls, root: Path, chain: str, *, create: bool = False) -> Self:
        """Return the dataset in folder `root`; with `create`, make one if the folder is missing or empty.

        Raises DatasetError when `root` is not a dataset of ours, has another version, or cannot be made.
        """
        if chain not in CHAINS:
            raise DatasetError(f"no chain {chain!r}; the node's names are {', '.join(CHAINS)}")
        if names_store(root):
            raise DatasetError(
                "this command needs the folder of a dataset; in an object store `pool-analysis` and"
                " `pool-collector check` and `status` read one, `run`, `backfill` and `compact` write one"
            )
        if not is_utf8(root.absolute()):
            raise DatasetError(
                f"the path {root.absolute()} is not UTF-8, which the libraries for Parquet need; rename it"
            )
        if create:
            make_marker(root)
        check_marker(root)
        return cls(root, chain)

    @property
    def is_there(self) -> bool:
        """Return whether the dataset still has its marker; without it somebody has removed or moved it."""
        return has_marker(self.root)

    def refuse_if_gone(self) -> None:
        """Raise DatasetError if somebody has removed the dataset since it was opened.

        A file that is written then would make a folder without a marker, which no command takes for one.
        """
        if not self.is_there:
            raise DatasetError(
                f"the dataset {self.root} was removed or moved while it was in use; put it back, and start "
                "again"
            )

    def write(
        self,
        table: "Table",
        rows: "pa.Table | Sequence[Mapping[str, Any]]",
        *,
        stem: str,
        is_sorted: bool = False,
    ) -> list[Path]:
        """Write rows into the table, one file `<stem>.parquet` per partition; return their paths.

        Raises what `write_rows` raises, and DatasetError when somebody has removed the dataset.
        """
        from collector.dataset.parquet_files import write_rows  # noqa: PLC0415 - loads slowly

        self.refuse_if_gone()
        return write_rows(self.folder, table, rows, stem=stem, is_sorted=is_sorted)

    def read_lock(self) -> AbstractContextManager[None]:
        """Keep compaction from moving files during the `with` block; files may still be added."""
        return lock_shared_for_reading(self.folder / WRITE_LOCK)

    @contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the lock that writers of files share during the `with` block, so that no folder is replaced.

        Raises OSError when the lock file cannot be made.
        """
        self._make_folder()
        with lock_held_for_writing(self.folder / WRITE_LOCK, exclusive=False):
            yield

    @contextmanager
    def replace_lock(self) -> Iterator[None]:
        """Hold the lock for replacing folders in the `with` block; first wait until nobody uses the files.

        Raises OSError when the lock file cannot be made.
        """
        self._make_folder()
        with lock_held_for_writing(self.folder / WRITE_LOCK, exclusive=True):
            yield

    @contextmanager
    def backfill_lock(self) -> Iterator[None]:
        """Hold the lock of backfills and imports during the `with` block.

        Raises DatasetError when another process holds it.
        """
        self._make_folder()
        with lock_taken(
            self.folder / BACKFILL_LOCK,
            f"another backfill or import is writing to {self.root}; wait until it has ended",
        ):
            yield

    def _make_folder(self) -> None:
        self.refuse_if_gone()
        make_folder(self.folder)

    @property
    def is_being_backfilled(self) -> bool:
        """Return whether a backfill or an import is writing to the dataset now."""
        return is_lock_held(self.folder / BACKFILL_LOCK)

    def paths(self, table: "Table") -> list[Path]:
        """Return the path of every complete file of the table, sorted by name.

        Raises DatasetError where files would pass for removed ones: for a folder that this user may not list,
        for a link to a folder that is not there, and when somebody has removed the dataset.
        """
        return sorted(path for path, is_file in self._named_like_files(table) if is_file)

    def strange_paths(self, table: "Table") -> list[Path]:
        """Return the paths named like files of the table that are no files, such as pipes and broken links.

        Paths that are not UTF-8 count too. Do not open them: a pipe keeps its reader waiting for ever.
        """
        return sorted(path for path, is_file in self._named_like_files(table) if not is_file)

    def refuse_strange_paths(self, table: "Table") -> None:
        """Raise DatasetError if a path is named like a file of the table and is no file, such as a pipe."""
        for path in self.strange_paths(table):
            raise DatasetError(f"{path} is {what_it_is(path)}; move it out of the dataset")

    def _named_like_files(self, table: "Table") -> Iterator[tuple[Path, bool]]:
        """Yield each path named `*.parquet` in the table's partitions, and whether it is a file."""
        for path in _paths_two_below(self.folder / table.name):
            if not path.name.endswith(".parquet"):
                continue
            try:
                mode = path.stat().st_mode
            except PermissionError:  # only opening it tells what it is
                yield path, True
            except OSError:
                # A link to nothing or to itself; what is no link has been moved by a compaction since.
                if path.is_symlink():
                    yield path, False
            else:
                yield path, stat.S_ISREG(mode) and is_utf8(path)
        self.refuse_if_gone()  # last: it may go while it is listed

    def refuse_empty_folder(self, table: "Table") -> None:
        """Raise DatasetError if the folder of a table is there and empty, as where a disk is not mounted.

        Call it where the table should have files: who writes one makes the folder and at once fills it.
        """
        folder = self.folder / table.name
        if folder.is_dir() and not listed(folder):
            raise DatasetError(
                f"{folder} is empty and had files; mount the disk that has them, or remove the folder if they"
                " were removed"
            )

    def remove_unfinished_files(self) -> None:
        """Remove the temporary files that killed writers of tables left behind.

        Nothing is removed while a process reads or writes: every writer holds the lock that is needed here,
        and a later call removes the files.
        """
        with lock_tried_alone(self.folder / WRITE_LOCK) as is_held, suppress(OSError):  # they do no harm
            for path in self.folder.glob("*/*/.*.tmp") if is_held else ():
                path.unlink(missing_ok=True)

    def pattern(self, table: "Table") -> str:
        """Return the glob pattern, as DuckDB reads it, that matches every file of the table."""
        return f"{glob.escape(str(self.folder / table.name))}/*/*.parquet"

    def read(self, table: "Table") -> "pa.Table":
        """Read the whole table with the contract's columns; columns that older files lack are null.

        Raises DatasetError that names a file that cannot be read. Everything is in memory: use it in tests
        and for small tables.
        """
        import pyarrow as pa  # noqa: PLC0415 - loads slowly

        from collector.dataset.parquet_files import conform, read_file  # noqa: PLC0415 - the same

        with self.read_lock():
            self.refuse_strange_paths(table)
            parts = [conform(table, read_file(path)) for path in self.paths(table)]
        return pa.concat_tables(parts) if parts else table.arrow.empty_table()

    def read_columns(self, table: "Table", *names: str) -> "Iterator[pa.Table]":
        """Yield the columns `names`, which must never be null, one Arrow table per file.

        Raises DatasetError that names a file that cannot be read or that is not a file of this table.
        """
        from collector.dataset.parquet_files import read_file  # noqa: PLC0415 - loads slowly

        with self.read_lock():
            self.refuse_strange_paths(table)
            for path in self.paths(table):
                rows = read_file(path, names)
                for name in names:
                    expected = table.arrow.field(name).type
                    found = rows.schema.field(name).type if name in rows.column_names else None
                    if found != expected:
                        raise DatasetError(
                            f"{path} is no file of {table.name}: column {name} is {found or 'missing'}, must "
                            f"be {expected}; move it out of the dataset"
                        )
                yield rows.select(names)


def open_existing(root: Path, chain: str | None) -> Dataset:
    """Return the dataset in folder `root`; without a `chain`, that of the only chain in it.

    Raises DatasetError when `root` is no dataset, or has several chains and none is chosen; NoSuchChain when
    it lacks that chain.
    """
    if chain is None:
        return Dataset.open(root, only_chain(root) or CHAINS[0])
    found = _chains_in(root)
    if found and chain not in found:
        raise NoSuchChain(f"{root} has no chain {chain!r}, only {', '.join(found)}; choose one with --chain")
    return Dataset.open(root, chain)


def only_chain(root: Path) -> str | None:
    """Return the only chain of the dataset in folder `root`; None if it has none yet, or there is no dataset.

    Raises DatasetError when it has several.
    """
    found = _chains_in(root)
    # A collector that has just begun makes a folder, and no file in it yet.
    found = [name for name in found if _has_files(root / f"{CHAIN_PREFIX}{name}")] or found
    if len(found) > 1:
        raise DatasetError(f"{root} has the chains {', '.join(found)}; choose one with --chain")
    return found[0] if found else None


def open_to_read(root: Path, chain: str | None) -> Dataset:
    """Open a dataset for reading only: in a folder, as `open_existing` does, or in an object store.

    A dataset in a store (`s3://bucket/prefix`) is first copied into the cache of `collector.dataset.mirror`.
    Raises DatasetError as `open_existing` does, and where the store cannot be read.
    """
    from collector.dataset.mirror import open_mirror  # noqa: PLC0415 - it opens datasets itself

    try:
        address = StoreAddress.in_path(root)
        return open_existing(root, chain) if address is None else open_mirror(address, chain)
    except (SettingsError, StoreError) as error:
        raise DatasetError(str(error)) from None


def what_it_is(path: Path) -> str:
    """Return a text on why `path` cannot be read as a file: its name, or it is a broken link or a pipe."""
    if not is_utf8(path):
        return "not named in UTF-8"
    return (
        "a link to a file that is not there" if path.is_symlink() else "no file but a pipe, device or folder"
    )


def is_utf8(named: Path | str) -> bool:
    """Return whether a path or another word of the command line is UTF-8.

    Neither DuckDB nor Arrow can open any other path, and no file can hold any other text.
    """
    try:
        str(named).encode()
    except UnicodeEncodeError:
        return False
    return True


def _paths_two_below(folder: Path) -> Iterator[Path]:
    """Yield what lies in the folders in `folder`. A folder that vanishes meanwhile counts as empty.

    Raises DatasetError for a folder that cannot be listed; `Path.glob` would take it for an empty one.
    """
    for within in listed(folder):
        yield from listed(within)


def listed(folder: Path) -> list[Path]:
    """Return the paths in a folder; none if there is no such folder.

    Raises DatasetError where the paths would pass for removed ones: for a folder that cannot be listed, and
    where it, or the folder around it, is a link to a folder that is not there.
    """
    try:
        return [folder / name for name in os.listdir(folder)]  # noqa: PTH208 - iterdir is slower
    except FileNotFoundError:
        for each in (folder, folder.parent):
            if each.is_symlink() and not each.exists():
                raise DatasetError(
                    f"{each} is a link to a folder that is not there; its files would pass for removed ones,"
                    " so put that folder back, or remove the link"
                ) from None
        return []
    except NotADirectoryError:
        return []
    except OSError as error:
        raise DatasetError(
            f"cannot list {folder}: {error.strerror}; its files would pass for removed ones, so make it "
            "readable for this user"
        ) from None


def _chains_in(root: Path) -> list[str]:
    """Return the chains that have a folder in the dataset in folder `root`."""
    return [name for name in CHAINS if (root / f"{CHAIN_PREFIX}{name}").is_dir()]


def _has_files(chain_folder: Path) -> bool:
    """Return whether any table in the folder of a chain has a file."""
    return next(chain_folder.glob("*/*/*.parquet"), None) is not None
