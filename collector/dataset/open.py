"""Open a dataset: choose its chain, check its marker, list, read and write the files of its tables.

A folder with a marker file (`dataset.json`) is a dataset. Each chain has a folder of its own in it, so that
the rows of two chains never mix. Commands take the dataset and the chain through the options
`DatasetArgument` and `ChainOption`.
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
    """Gives access to the tables of one chain in a dataset folder. Make one with `Dataset.open`."""

    def __init__(self, root: Path, chain: str) -> None:
        self.root = root
        self.chain = chain
        self.folder = root / f"{CHAIN_PREFIX}{chain}"

    @classmethod
    def open(cls, root: Path, chain: str, *, create: bool = False) -> Self:
        """Open the dataset in folder `root`; with `create`, make one if the folder is missing or empty.

        Raises DatasetError when `root` is not a dataset of ours, has another version, or cannot be made.
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
        """Write rows into the table, one file `<stem>.parquet` per partition; return their paths.

        Raises what `collector.dataset.writer.write_rows` raises.
        """
        return write_rows(self.folder, table, rows, stem=stem, is_sorted=is_sorted)

    def read_lock(self) -> AbstractContextManager[None]:
        """Keep compaction from moving files during the `with` block; files may still be added."""
        return locks.shared_for_reading(self.folder / locks.WRITE_LOCK)

    @contextmanager
    def write_lock(self) -> Iterator[None]:
        """Hold the lock that writers of files share during the `with` block, so that no folder is replaced.

        Raises OSError when the lock file cannot be made.
        """
        make_folder(self.folder)
        with locks.held_for_writing(self.folder / locks.WRITE_LOCK, exclusive=False):
            yield

    @contextmanager
    def replace_lock(self) -> Iterator[None]:
        """Hold the lock for replacing folders in the `with` block; first wait until nobody uses the files.

        Raises OSError when the lock file cannot be made.
        """
        make_folder(self.folder)
        with locks.held_for_writing(self.folder / locks.WRITE_LOCK, exclusive=True):
            yield

    @contextmanager
    def backfill_lock(self) -> Iterator[None]:
        """Hold the lock of backfills and imports during the `with` block.

        Raises DatasetError when another process holds it.
        """
        make_folder(self.folder)
        with locks.taken(
            self.folder / locks.BACKFILL_LOCK,
            f"another backfill or import is writing to {self.root}; wait until it has ended",
        ):
            yield

    @property
    def is_being_backfilled(self) -> bool:
        """Return whether a backfill or an import is writing to the dataset now."""
        return locks.is_held(self.folder / locks.BACKFILL_LOCK)

    def paths(self, table: Table) -> list[Path]:
        """Return the path of every complete file of the table, sorted by name."""
        return sorted(path for path, is_file in self._named_like_files(table) if is_file)

    def strange_paths(self, table: Table) -> list[Path]:
        """Return paths named like files of the table that are no files: pipes, devices, links to nothing.

        Do not open them: a pipe keeps its reader waiting for ever.
        """
        return sorted(path for path, is_file in self._named_like_files(table) if not is_file)

    def refuse_strange_paths(self, table: Table) -> None:
        """Raise DatasetError if the table has `strange_paths`; its text names the first one."""
        for path in self.strange_paths(table):
            raise DatasetError(f"{path} is {what_it_is(path)}; move it out of the dataset")

    def _named_like_files(self, table: Table) -> Iterator[tuple[Path, bool]]:
        """Yield each path named `*.parquet` in the table's partitions, and whether it is a file."""
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
        """Return the glob pattern, as DuckDB reads it, that matches every file of the table."""
        return f"{glob.escape(str(self.folder / table.name))}/*/*.parquet"

    def read(self, table: Table) -> pa.Table:
        """Read the whole table with the contract's columns; columns that older files lack are null.

        Raises DatasetError that names a file that cannot be read. Everything is in memory: use it in tests
        and for small tables.
        """
        with self.read_lock():
            self.refuse_strange_paths(table)
            parts = [conform(table, read_file(path)) for path in self.paths(table)]
        return pa.concat_tables(parts) if parts else table.arrow.empty_table()

    def read_columns(self, table: Table, *names: str) -> Iterator[pa.Table]:
        """Yield the columns `names`, which must never be null, one Arrow table per file.

        Raises DatasetError that names a file that cannot be read or that is not a file of this table.
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
    """Open the dataset in folder `root`; without a `chain`, choose the only chain that it has.

    Raises DatasetError when `root` is no dataset, lacks that chain, or has several chains and none is chosen.
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
    """Say in words why `path` cannot be read as a file: it is a broken link, pipe, device or folder."""
    return (
        "a link to a file that is not there" if path.is_symlink() else "no file but a pipe, device or folder"
    )


def _has_files(chain_folder: Path) -> bool:
    """Return whether any table in the folder of a chain has a file."""
    return next(chain_folder.glob("*/*/*.parquet"), None) is not None


def check_marker(root: Path) -> None:
    """Raise DatasetError unless `root` is a dataset of ours, in a version that this software reads."""
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
    """Make a dataset in the missing or empty folder `root`; leave an existing dataset as it is.

    Raises DatasetError if the folder holds other files or cannot be written.
    """
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
