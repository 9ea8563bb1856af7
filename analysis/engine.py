"""Build the staging views and the marts of one dataset: a DuckDB file, and Parquet files beside it.

The DuckDB file is also called the catalogue of the build. It appears by rename, complete and checked, or not
at all. Staging models are views on the Parquet files of the dataset, because they only rename, cast and
remove duplicates: a copy of the data would gain nothing. A small mart is a table, a large one a view on its
part (parts.py), so marts can be read without the dataset. Only what changed is made.
"""

import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import duckdb

from analysis.attribution.rules import RuleSet, load_rules
from analysis.catalog import Catalog, load_catalog
from analysis.checks import CheckResult, EarlierChecks, run_checks
from analysis.database import connect, default_memory_gb, duckdb_gb, open_cursors, refuse_other_file
from analysis.descriptions import write_comments
from analysis.errors import DatabaseError, NoRoomError
from analysis.fingerprints import table_content, versions_hash
from analysis.incremental import (
    IncrementalMarts,
    Step,
    create_input,
    create_staging,
    input_tables,
)
from analysis.manifest import build_log, commit, sources_hash
from analysis.parts import PartsFolder, digest, open_parts, parts_folder
from analysis.plan import PLAN_COLUMNS, PlannedMart
from analysis.raw_contents import FileFacts, NewFile, file_stamps, raw_contents, read_files
from analysis.raw_views import (
    Listing,
    create_views,
    find_later_files,
    listed_files,
    open_dataset,
    refuse_strange_paths,
    unreadable_file,
    unreadable_named,
)
from analysis.tasks import HandedOut, Workers, Workplace, arrow_stream, read_elsewhere
from collector.dataset.chains import Chain
from collector.dataset.files import replaced_atomically, why_unwritable
from collector.dataset.open import Dataset

__all__ = ["PLAN_COLUMNS", "BuildResult", "PlannedMart", "Progress", "Step", "build", "plan"]

# A mart of at most this size is stored in the database file, which any client reads alone.
INSIDE_BYTES: Final = 8 << 20
# So much memory is enough for each of several marts that are made at the same time.
MART_GB: Final = 2

Progress = Callable[[Step], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """Describes a finished build: the database, its chain, the rows per mart, the results of checks.

    `made` names the marts that this build made; the others had been made before.
    """

    database: Path
    chain: str
    rules_hash: str
    n_rows: dict[str, int]
    checks: tuple[CheckResult, ...]
    made: tuple[str, ...]
    wall_s: float

    @property
    def failed_checks(self) -> tuple[CheckResult, ...]:
        """Return the checks of severity `fail` that found rows which break their rule."""
        return tuple(check for check in self.checks if check.is_failure)

    @property
    def is_without_rules(self) -> bool:
        """Return whether there are blocks, of another chain than the main one, and no rule names any."""
        has_blocks = self.n_rows.get("block_pool", 0) > 0
        return self.chain != Chain.MAIN and has_blocks and not self.n_rows.get("attribution_rule")


def build(
    dataset: Path,
    rules: Path,
    database: Path,
    chain: str | None = None,
    *,
    marts: Collection[str] | None = None,
    memory_gb: float | None = None,
    temp_gb: float | None = None,
    threads: int | None = None,
    inside_bytes: int = INSIDE_BYTES,
    is_cut: bool = True,
    workers: Workers | None = None,
    progress: Progress = lambda _step: None,
) -> BuildResult:
    """Bring every mart up to date in a new database, and run every check whose inputs have changed.

    The result is that of a build from nothing, digit for digit. `progress` is called before each step, by one
    thread at a time. With `marts`, only these and the models that they read are built, and only checks that
    read nothing else run. This process takes at most `memory_gb` (by default DuckDB takes four fifths of the
    machine's); what does not fit goes beside the database, at most `temp_gb` (by default half of the free
    disk). `threads` changes the time, not a digit. A mart of at most `inside_bytes` of Parquet becomes a
    table. Without `is_cut` every mart is made as a whole. `workers` take as much memory each.

    Raises DatasetError, RulesError or DatabaseError, and then leaves an older database as it was. Marts that
    were made before the error are kept, and the next build uses them.
    """
    start_s = time.monotonic()
    rule_set = load_rules(rules)
    opened = open_dataset(dataset, chain)
    refuse_other_file(database)
    with ExitStack() as stack:
        stack.enter_context(opened.read_lock())
        refuse_strange_paths(opened)
        parts = stack.enter_context(open_parts(database))
        options = [None if marts is None else sorted(set(marts)), inside_bytes, is_cut]
        stamp = _stamp(opened, rule_set, parts.folder, options)
        if _is_finished(parts, database, stamp):
            return _finished(parts, database, time.monotonic() - start_s)
        catalog = load_catalog() if marts is None else load_catalog().restricted_to(marts)
        work = _Build(catalog, opened, rule_set, parts, is_cut, workers, memory_gb)
        with _appearing(database) as path:
            most_gb = _half_of_free_gb(path.parent) if temp_gb is None else temp_gb
            with (
                _errors_explained(database, opened, most_gb, memory_gb),
                connect(path, memory_gb=duckdb_gb(memory_gb), temp_gb=most_gb, threads=threads) as connection,
            ):
                work.run(connection, inside_bytes, progress)
        work.finish(database, stamp)
        return _finished(parts, database, time.monotonic() - start_s, tuple(work.marts.made))


def plan(dataset: Path, rules: Path, database: Path, chain: str | None = None) -> list[PlannedMart]:
    """Return what a build would do with each stored mart, and why; nothing is built.

    Raises what `build` raises.
    """
    rule_set = load_rules(rules)
    opened = open_dataset(dataset, chain)
    parts = PartsFolder(parts_folder(database))
    with opened.read_lock(), _errors_explained(database, opened, 0, None), connect() as connection:
        read = partial(read_files, connection, opened, 1)
        files = listed_files(opened)
        return _marts(connection, load_catalog(), opened, files, rule_set, parts, read).plan()


@dataclass
class _Build:
    """Makes the database and the parts of marts of one build; the fields are arguments of `build`."""

    catalog: Catalog
    dataset: Dataset
    rules: RuleSet
    parts: PartsFolder
    is_cut: bool
    workers: Workers | None
    memory_gb: float | None

    def __post_init__(self) -> None:
        self._facts: dict[str, Any] = {"chain": self.dataset.chain, "rules_hash": self.rules.hash}
        self._files = listed_files(self.dataset)  # what is sealed later is for the next build

    def run(self, connection: duckdb.DuckDBPyConnection, inside_bytes: int, progress: Progress) -> None:
        """Create raw views, staging, input tables and marts; run the checks; force the parts to disk."""
        n_at_once = _queries_at_once(connection, self.memory_gb)
        if self.workers is None:
            read = partial(read_files, connection, self.dataset, n_at_once)
        else:
            read = partial(read_elsewhere, self.workers, self.dataset, self.memory_gb)
        self.marts = _marts(connection, self.catalog, self.dataset, self._files, self.rules, self.parts, read)
        self.marts.is_cut, self.marts.n_at_once = self.is_cut, n_at_once
        if self.workers is not None:
            self.marts.hands = self._handed_out(self.workers)
            self.marts.n_at_once += self.workers.n_at_once  # each of so many may wait for a worker
        create_staging(connection, self.catalog)
        for name, table in self.marts.inputs.items():
            create_input(connection, name, table)
        fingerprints = self.marts.make(connection, inside_bytes, progress)
        n_steps = len(self.marts.made)
        progress(Step(name="checks", number=n_steps, n_steps=n_steps, left_s=None))
        earlier = EarlierChecks(fingerprints, self.parts.state.checks, self.marts.stored)
        with open_cursors(connection, 1) as cursors, cursors.lent() as cursor, ThreadPoolExecutor(1) as aside:
            models = [model.name for model in self.catalog.models if model.layer != "checks"]
            commented = aside.submit(write_comments, cursor, models)
            with self.marts.counting() as others:
                n_at_once = self.marts.n_at_once
                checks = run_checks(connection, self.catalog, earlier, n_at_once=n_at_once, others=others)
            commented.result()
        self._facts["checks"] = [asdict(check) for check in checks]
        known = self.marts.rows_of_stored
        self._facts["n_rows"] = {
            model.name: known[model.name]
            if model.name in known
            else connection.execute(f"SELECT count(*) FROM {model.name}").fetchall()[0][0]  # noqa: S608 - a file name of ours
            for model in self.catalog.layer("marts")
        }
        find_later_files(connection, self.dataset, self._files)
        write_comments(connection, self._files)
        connection.execute("CHECKPOINT")
        self.parts.sync(self.marts.used)
        self.parts.announce(self.marts.used)

    def _handed_out(self, workers: Workers) -> HandedOut:
        """Return a new HandedOut, which has workers make the parts and run the checks of this build."""
        workplace = Workplace(
            dataset=self.dataset.root,
            chain=self.dataset.chain,
            files=self._files,
            folder=self.parts.folder,
            inputs={name: arrow_stream(table) for name, table in self.marts.inputs.items()},
            memory_gb=self.memory_gb,
        )
        return HandedOut(workplace=workplace, workers=workers)

    def finish(self, database: Path, stamp: str) -> None:
        """Record that the database of this build is in place, and remove parts that are no longer needed."""
        facts = self._facts | {"stamp": stamp, "file": _identity(database)}
        try:
            self.parts.finish(self.marts.used, facts)
        except OSError as error:
            raise DatabaseError(
                f"{self.parts.folder} cannot be written ({error.strerror or error}); {database} is complete"
            ) from None


def _queries_at_once(connection: duckdb.DuckDBPyConnection, memory_gb: float | None) -> int:
    """Return how many marts or checks run at the same time: one per thread and per MART_GB of memory."""
    ((n_threads,),) = connection.execute("SELECT current_setting('threads')").fetchall()
    most_gb = default_memory_gb() if memory_gb is None else memory_gb
    return max(1, min(int(n_threads), int(most_gb // MART_GB)))


def _marts(  # noqa: PLR0917 - what a build has at hand
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    dataset: Dataset,
    files: Listing,
    rules: RuleSet,
    parts: PartsFolder,
    read: Callable[[Sequence[NewFile]], list[FileFacts]],
) -> IncrementalMarts:
    """Create the views of raw tables, hash the rows of new files, and return the marts to be made."""
    create_views(connection, dataset, files)
    columns = {
        name: catalog.bounded_columns(model.name)
        for model in catalog.layer("staging")
        for name in model.references
    }
    raw = raw_contents(
        dataset, files, parts.state.raw_files, columns=columns, versions=versions_hash(), read=read
    )
    inputs = input_tables(rules, dataset, raw, build_log(dataset, parts.folder))
    return IncrementalMarts(
        catalog=catalog, rules=rules, parts=parts, dataset=dataset, raw=raw, inputs=inputs
    )


def _stamp(dataset: Dataset, rules: RuleSet, folder: Path, options: list[Any]) -> str:
    """Return a hash of all that a build depends on, found without opening a file of the dataset.

    For the dataset's files it takes their paths, sizes and times.
    """
    of_rules = [rules.hash, *map(table_content, rules.tables().values())]
    sources = [sources_hash(), commit(), versions_hash(), of_rules]
    return digest([sources, str(dataset.root), dataset.chain, file_stamps(dataset), str(folder), options])


def _is_finished(parts: PartsFolder, database: Path, stamp: str) -> bool:
    """Return whether the last build had the same inputs (`stamp`), and its files are there, unchanged."""
    facts = parts.state.finished
    return (
        facts.get("stamp") == stamp
        and database.is_file()
        and facts["file"] == _identity(database)
        and parts.are_whole(parts.state.named)
    )


def _finished(parts: PartsFolder, database: Path, wall_s: float, made: tuple[str, ...] = ()) -> BuildResult:
    """Return the recorded result of the last build, with the time and the marts made by this call."""
    facts = parts.state.finished
    return BuildResult(
        database=database,
        chain=facts["chain"],
        rules_hash=facts["rules_hash"],
        n_rows=facts["n_rows"],
        checks=tuple(CheckResult(**check) for check in facts["checks"]),
        made=made,
        wall_s=wall_s,
    )


def _identity(database: Path) -> list[int]:
    """Return inode, size (bytes) and time of last change (ns) of a file; one that replaces it has others."""
    status = database.stat()
    return [status.st_ino, status.st_size, status.st_mtime_ns]


@contextmanager
def _errors_explained(
    database: Path, dataset: Dataset, temp_gb: float, memory_gb: float | None
) -> Iterator[None]:
    """Turn DuckDB's errors in the `with` block into a DatasetError or DatabaseError of one sentence.

    The DatasetError names the file of the dataset that cannot be read; an OSError on such a file becomes one.
    """
    try:
        with unreadable_named(dataset):
            yield
    except duckdb.OutOfMemoryException as error:
        raise _too_large(database, error, temp_gb, memory_gb) from None
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        raise unreadable_file(dataset) or DatabaseError(f"DuckDB cannot build {database}: {reason}") from None


def _half_of_free_gb(folder: Path) -> float:
    """Return half of the free space of the disk that holds a folder, in GB."""
    return shutil.disk_usage(folder).free / 2 / 1e9


def _too_large(
    database: Path, error: duckdb.OutOfMemoryException, temp_gb: float, memory_gb: float | None
) -> NoRoomError:
    """Return the error for a build that does not fit in memory and in `temp_gb` of temporary files."""
    reason = str(error).splitlines()[0]
    memory = "its memory" if memory_gb is None else f"its {memory_gb:.3g} GB of memory"
    first = "" if memory_gb is None else "give more with --memory (each of --workers has its part of it), "
    return NoRoomError(
        f"DuckDB cannot build {database}: it needs more than {memory} and {temp_gb:.3g} GB of temporary"
        f" files in {database.parent.absolute()} ({reason})",
        f"{first}free disk space there, choose another --database, or a machine with more memory",
    )


@contextmanager
def _appearing(database: Path) -> Iterator[Path]:
    """Yield a temporary path to build a database in; at the end rename it to `database`.

    After an error the temporary file is deleted. Raises DatabaseError where the folder cannot be written.
    """
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with replaced_atomically(database) as path:
            yield path
    except OSError as error:
        fault = f"{database} cannot be written ({why_unwritable(error)})"
        raise NoRoomError(fault, "choose another --database") from None
