"""Open a dataset: choose its chain, check its marker, list, read and write the files of its tables.

A folder with a marker file (`dataset.json`) is a dataset. Each chain has a folder of its own in it, so that
the rows of two chains never mix. Commands take the dataset and the chain by the options that stand here.
"""

import glob
import json
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, Self

import pyarrow as pa
import typer

from collector.dataset import locks
from collector.dataset.atomic_write import make_folder, temporary_path, write_atomically
from collector.dataset.schema import CHAINS, DATASET_FORMAT, DATASET_MARKER, DATASET_VERSION, Table
from collector.dataset.writer import conform, read_file, write_rows
from collector.errors import DatasetError

CHAIN_PREFIX: Final = "chain="

DatasetArgument = Annotated[
    Path, typer.Argument(envvar="POOL_COLLECTOR_DATASET", help="Folder of the dataset.", show_default=True)
]
ChainOption = Annotated[
    str | None,
    typer.Option(help=f"One of {', '.join(CHAINS)}; needed only where the dataset has several."),
]


class Dataset:
    """The tables of one chain in a dataset folder. Use `Dataset.open`."""

    def __init__(self, root: Path, chain: str) -> None:
        self.root = root
        self.chain = chain
        self.folder = root / f"{CHAIN_PREFIX}{chain}"

    @classmethod
    def open(cls, root: Path, chain: str, *, create: bool = False) -> Self:
        """Open the dataset at root; with create, make one of a folder that is missing or empty.

        Raises DatasetError when root is no dataset of ours, is one of another version, or cannot be made.
        """
        if chain not in CHAINS:
            raise DatasetError(f"no chain {chain!r}; the node's names are {', '.join(CHAINS)}")
        if create:
            _create(root)
        check_marker(root)
        return cls(root, chain)

    def write(
        self,
        table: Table,
        rows: pa.Table | Sequence[Mapping[str, Any]],
        *,
        stem: str,
        is_sorted: bool = False,
    ) -> list[Path]:
        """Write rows into the table, one file `<stem>.parquet` per partition; returns their paths.

        See `collector.dataset.writer.write_rows`, whose errors it raises.
        """
        return write_rows(self.folder, table, rows, stem=stem, is_sorted=is_sorted)

    def read_lock(self) -> AbstractContextManager[None]:
        """Keep compaction from moving files that were listed; files may be added meanwhile."""
        return locks.shared_for_reading(self.folder / locks.WRITE_LOCK)

    @contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the right to add files, together with others; OSError when the lock file cannot be made."""
        make_folder(self.folder)
        with locks.held_for_writing(self.folder / locks.WRITE_LOCK, exclusive=False):
            yield

    @contextmanager
    def replace_lock(self) -> Iterator[None]:
        """Hold the right to put folders in the place of others; waits until nobody reads or writes files.

        OSError when the lock file cannot be made.
        """
        make_folder(self.folder)
        with locks.held_for_writing(self.folder / locks.WRITE_LOCK, exclusive=True):
            yield

    @contextmanager
    def backfill_lock(self) -> Iterator[None]:
        """Hold the right to backfill or import. Raises DatasetError when another process holds it."""
        make_folder(self.folder)
        with locks.taken(
            self.folder / locks.BACKFILL_LOCK,
            f"another backfill or import is writing to {self.root}; wait until it has ended",
        ):
            yield

    @property
    def is_being_backfilled(self) -> bool:
        """Whether a backfill or an import is writing to it."""
        return locks.is_held(self.folder / locks.BACKFILL_LOCK)

    def paths(self, table: Table) -> list[Path]:
        """Every complete file of the table, in order of name."""
        return sorted(path for path, is_file in self._named_like_files(table) if is_file)

    def strange_paths(self, table: Table) -> list[Path]:
        """List what is named like a file of the table and is none: a pipe, a device, or a link to nothing.

        Nobody may open it: a pipe keeps its reader waiting for ever.
        """
        return sorted(path for path, is_file in self._named_like_files(table) if not is_file)

    def refuse_strange_paths(self, table: Table) -> None:
        """Raise DatasetError that names the first of `strange_paths`, if there is one."""
        for path in self.strange_paths(table):
            raise DatasetError(f"{path} is {what_it_is(path)}; move it out of the dataset")

    def _named_like_files(self, table: Table) -> Iterator[tuple[Path, bool]]:
        """Yield what is named `*.parquet` in the table's partitions, and whether it is a file."""
        for path in (self.folder / table.name).glob("*/*.parquet"):
            try:
                mode = path.stat().st_mode
            except PermissionError:  # only opening it tells what it is
                yield path, True
            except OSError:
                # A link to nothing or to itself; what is no link has been moved by a compaction since.
                if path.is_symlink():
                    yield path, False
            else:
                yield path, stat.S_ISREG(mode)

    def pattern(self, table: Table) -> str:
        """Return the glob pattern that matches the paths of `paths`, as DuckDB reads it."""
        return f"{glob.escape(str(self.folder / table.name))}/*/*.parquet"

    def read(self, table: Table) -> pa.Table:
        """Read the whole table as the contract has it; columns that older files lack are null.

        Raises DatasetError naming the file that cannot be read. For tests and for small tables.
        """
        with self.read_lock():
            self.refuse_strange_paths(table)
            parts = [conform(table, read_file(path)) for path in self.paths(table)]
        return pa.concat_tables(parts) if parts else table.arrow.empty_table()

    def read_columns(self, table: Table, *names: str) -> Iterator[pa.Table]:
        """Read some columns that are never null, file by file.

        Raises DatasetError naming the file that cannot be read or is not one of this table.
        """
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
    """Open a dataset that is there, and choose its chain where none is named.

    Raises DatasetError when root is no dataset, lacks that chain, or has several of which none is named.
    """
    found = [name for name in CHAINS if (root / f"{CHAIN_PREFIX}{name}").is_dir()]
    if chain is None:  # a collector that has just begun makes a folder, and no file in it yet
        found = [name for name in found if _has_files(root / f"{CHAIN_PREFIX}{name}")] or found
    if chain is None and len(found) > 1:
        raise DatasetError(f"{root} has the chains {', '.join(found)}; choose one with --chain")
    if chain is not None and found and chain not in found:
        raise DatasetError(f"{root} has no chain {chain!r}, only {', '.join(found)}; choose one with --chain")
    return Dataset.open(root, chain or (found[0] if found else CHAINS[0]))


def what_it_is(path: Path) -> str:
    """Say in words why a path is no file that can be read."""
    return (
        "a link to a file that is not there" if path.is_symlink() else "no file but a pipe, device or folder"
    )


def _has_files(chain_folder: Path) -> bool:
    """Whether any table of a chain has a file."""
    return next(chain_folder.glob("*/*/*.parquet"), None) is not None


def check_marker(root: Path) -> None:
    """Raise DatasetError unless the folder is a dataset of ours, in a version that this software reads."""
    marker = root / DATASET_MARKER
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; name the dataset that pool-collector writes")
    try:
        found = json.loads(marker.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(
            f"{root} is not a dataset: it has no {DATASET_MARKER}; choose another folder"
        ) from None
    except (ValueError, RecursionError):
        raise DatasetError(
            f"{marker} cannot be read as the marker of a dataset; restore it, or choose another folder"
        ) from None
    except OSError as error:
        raise DatasetError(
            f"cannot read {marker}: {error.strerror or error}; check its rights, or choose another folder"
        ) from None
    if not isinstance(found, dict) or found.get("format") != DATASET_FORMAT:
        raise DatasetError(f"{marker} marks the data of another program; choose another folder")
    if found.get("version") != DATASET_VERSION:
        raise DatasetError(
            f"{root} has version {found.get('version')!r}, this software reads {DATASET_VERSION}; "
            "use the release that wrote it"
        )


def _create(root: Path) -> None:
    """Make a dataset of a folder that is missing or empty; leave one that is there as it is."""
    marker = root / DATASET_MARKER
    text = json.dumps({"format": DATASET_FORMAT, "version": DATASET_VERSION}) + "\n"
    try:
        if marker.exists():
            return
        left_by_a_kill = temporary_path(marker)
        if root.is_dir() and any(path != left_by_a_kill for path in root.iterdir()):
            raise DatasetError(f"{root} is neither empty nor a dataset; choose another folder")
        make_folder(root)
        write_atomically(marker, lambda sink: sink.write(text.encode()))
    except FileExistsError as error:
        raise DatasetError(f"{error.filename} is no folder; choose another for the dataset") from None
    except OSError as error:
        raise DatasetError(
            f"cannot make the dataset {root}: {error.strerror or error}; choose a folder that can be written"
        ) from None
