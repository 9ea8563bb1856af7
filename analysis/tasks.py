"""Let other processes or machines read new files of raw tables, make parts of marts, and run checks.

A worker opens a DuckDB of its own. There it creates the raw and staging views of the dataset, the tables that
no SQL makes, and a view on the parts of each mart that is done. Then it makes a part with the query of a
build, in a file of the same name, and returns its description. The build alone keeps parts.json.

Workers need the dataset and the folder of parts at the same paths, and the same version of this software.
"""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol, TypeVar

import pyarrow as pa

from analysis.catalog import Model, load_catalog
from analysis.checks import n_rows_of
from analysis.database import connect, duckdb_gb
from analysis.errors import DatabaseError
from analysis.fingerprints import versions_hash
from analysis.incremental import create_input, create_model, create_staging, set_parameters
from analysis.late import early_name, filling, stand_ins
from analysis.manifest import sources_hash
from analysis.parts import Inputs, Part, Rows, digest, file_of, write_part
from analysis.ranges import OneRange, RangeRows, make_range
from analysis.raw_contents import FileFacts, NewFile, read_files
from analysis.raw_views import Listing, create_views
from analysis.schedule import Made, Task
from collector.dataset.open import Dataset
from collector.dataset.temporary_folders import temporary_folder

WORKER_FOLDER: Final = "pool-analysis-worker-"  # what its name begins with
BATCH_BYTES: Final = 16_000_000  # of files of raw tables that a worker reads at one go
FILE_BYTES: Final = 250_000  # a file takes as long as so many bytes, however small it is

Result = TypeVar("Result")


def version_hash() -> str:
    """Return a hash of our code and of the versions of Python and the libraries that compute results."""
    return digest([sources_hash(), versions_hash()])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Holds the settings that all tasks of one build share: dataset, its files, folder of parts, memory.

    `inputs` has the tables that no SQL makes, by name, as Arrow streams. `memory_gb` (10^9 bytes) limits one
    worker, whose DuckDB has one thread. `version` is a hash of our code and of the libraries.
    """

    dataset: Path
    chain: str
    files: Listing
    folder: Path
    inputs: Mapping[str, bytes]
    memory_gb: float | None
    version: str = field(default_factory=version_hash)


class Workers(Protocol):
    """Declares how work is done by other processes, `n_at_once` pieces at a time."""

    n_at_once: int

    def call(self, what: str, work: Callable[[], Result]) -> Result:
        """Have a worker call `work`, which can be pickled; return what it returns.

        `what` names the work in messages.

        Several threads may call this at once. Raises duckdb.Error where a query fails, and AnalysisError
        where the workers cannot be used.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """Has workers make the parts and run the checks of one build; it implements `analysis.schedule.Hands`."""

    workplace: Workplace
    workers: Workers

    @property
    def n_at_once(self) -> int:
        """Return how many parts of marts the workers make at the same time."""
        return self.workers.n_at_once

    def made(self, task: Task) -> Made:
        """Have a worker make one part of a mart; return it when it is made."""
        return self.workers.call(f"a part of {task.mart}", partial(make_part, self.workplace, task))

    def counted(self, check: str, reads: frozenset[str], rows: Mapping[str, Rows], query: str) -> int:
        """Have a worker count the rows of a query of a check, and return the number."""
        work = partial(count_rows, self.workplace, reads, rows, query)
        return self.workers.call(f"the check {check}", work)


def read_elsewhere(
    workers: Workers, dataset: Dataset, memory_gb: float | None, files: Sequence[NewFile]
) -> list[FileFacts]:
    """Have workers read new files of raw tables; return what they found, in order."""

    def read(batch: Sequence[NewFile]) -> list[FileFacts]:
        work = partial(_read_batch, version_hash(), dataset, memory_gb, batch)
        return workers.call(f"the content of {batch[0].path} and the files after it", work)

    with ThreadPoolExecutor(workers.n_at_once) as threads:
        return [facts for found in threads.map(read, _batches(files)) for facts in found]


def arrow_stream(table: pa.Table) -> bytes:
    """Return an Arrow table serialised as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def make_part(workplace: Workplace, task: Task) -> Made:
    """Make one part of a mart in this process, and return it.

    Raises DatabaseError where this process runs another version than the build, duckdb.Error where the query
    fails.
    """
    return _worker(workplace).make(task)


def count_rows(workplace: Workplace, reads: frozenset[str], rows: Mapping[str, Rows], query: str) -> int:
    """Return the number of rows of a query, which reads the relations `reads`; raise as `make_part` does.

    `rows` has the stored marts below them.
    """
    return _worker(workplace).count(reads, rows, query)


def _worker(workplace: Workplace) -> "_Worker":
    """Return the worker of this process. It keeps its DuckDB for the next piece of work of the same build."""
    if _kept and _kept[0].workplace != workplace:
        _kept.pop().close()
    if not _kept:
        _kept.append(_Worker(workplace))
    return _kept[0]


def _batches(files: Sequence[NewFile]) -> Iterator[list[NewFile]]:
    """Yield files in groups, of which each takes a worker about as long as one large file."""
    batch: list[NewFile] = []
    for file in files:
        batch.append(file)
        if sum(each.n_bytes + FILE_BYTES for each in batch) >= BATCH_BYTES:
            yield batch
            batch = []
    if batch:
        yield batch


def _read_batch(
    of_build: str, dataset: Dataset, memory_gb: float | None, files: Sequence[NewFile]
) -> list[FileFacts]:
    """Return what is found in files of raw tables; meanwhile compaction moves no file of the dataset."""
    _refuse_other_version(of_build)
    while _kept:  # it would hold as much memory again
        _kept.pop().close()
    with dataset.read_lock(), connect(memory_gb=duckdb_gb(memory_gb), threads=1) as connection:
        return read_files(connection, dataset, 1, files)


def _refuse_other_version(of_build: str) -> None:
    """Raise DatabaseError where this process has another version of the software than the build."""
    if of_build != version_hash():
        raise DatabaseError(
            "a worker has another version of this software, of Python or of a library than the build;"
            " install the same ones"
        )


class _Worker:
    """Holds the DuckDB of a worker process, with which it makes parts and runs checks of one build."""

    def __init__(self, workplace: Workplace) -> None:
        _refuse_other_version(workplace.version)
        self.workplace = workplace
        self._catalog = load_catalog()
        self._dataset = Dataset(workplace.dataset, workplace.chain)
        self._shown: dict[str, Rows] = {}
        self._views: set[str] = set()
        self._few: dict[str, set[str]] = {}  # by mart, the relations of which its last range read few rows
        stack = ExitStack()
        self._close = weakref.finalize(self, stack.close)
        folder = stack.enter_context(temporary_folder(WORKER_FOLDER))
        self._connection = stack.enter_context(
            connect(folder / "worker.duckdb", memory_gb=duckdb_gb(workplace.memory_gb), threads=1)
        )
        create_views(self._connection, self._dataset, workplace.files)
        create_staging(self._connection, self._catalog)
        for name, stream in workplace.inputs.items():
            create_input(self._connection, name, pa.ipc.open_stream(stream).read_all())

    def close(self) -> None:
        """Close the database and remove its folder."""
        self._close()

    def make(self, task: Task) -> Made:
        """Make one part of a mart and return it; meanwhile compaction moves no file of the dataset."""
        model = self._catalog.by_name[task.mart]
        with self._dataset.read_lock():
            self._show(task.rows)
            if task.early is not None and model.late is not None:
                self._create_views([model.late.relation])
                return Made(self._write(task, task.inputs, filling(model.late, task.early)), {})
            self._create_views(model.references)
            set_parameters(self._connection, model)
            if task.name != early_name(model.name):
                model = replace(model, late=None)
            if task.range_rows is not None:
                return self._make_range(model, task, task.range_rows)
            with stand_ins(self._connection, self._catalog, model):
                return Made(self._write(task, task.inputs, model.ordered_sql), {})

    def count(self, reads: frozenset[str], rows: Mapping[str, Rows], query: str) -> int:
        """Return the number of rows of a query; meanwhile compaction moves no file of the dataset."""
        with self._dataset.read_lock():
            self._show(rows)
            self._create_views(reads)
            return n_rows_of(self._connection, query)

    def _make_range(self, model: Model, task: Task, rows: RangeRows) -> Made:
        """Find out which rows a range of a mart reads, and make its part, unless it was made before."""
        before = {part.file: part for part in task.made_before}
        few = self._few.setdefault(task.name, set())
        with closing(OneRange(self._connection, self._catalog, model, rows, few)) as one:
            part = make_range(
                one,
                lambda inputs: before.get(file_of(task.name, inputs)),
                lambda inputs: self._write(task, inputs, model.ordered_sql),
            )
            return Made(part, one.looks)

    def _write(self, task: Task, inputs: Inputs, query: str) -> Part:
        """Write the rows of a query as the part of a task; return the part."""
        model = self._catalog.by_name[task.mart]
        types = {column.name: column.type for column in model.columns}
        bounded = self._catalog.bounded_columns(model.name)
        return write_part(self._connection, self.workplace.folder, task.name, inputs, query, types, bounded)

    def _show(self, marts: Mapping[str, Rows]) -> None:
        """Create in this DuckDB the stored marts that a task reads; replace those whose parts changed."""
        for name, rows in marts.items():
            shown = self._shown.get(name)
            if shown == rows:
                continue
            if shown is not None:
                self._connection.execute(f"DROP {shown.kind} {name}")
            self._connection.execute(f"CREATE {rows.kind} {name} AS {rows.query}")
            self._shown[name] = rows

    def _create_views(self, names: Iterable[str]) -> None:
        """Create in this DuckDB those of the named relations that are marts stored as views.

        Each is created after the views that it reads.
        """
        for name in names:
            model = self._catalog.by_name.get(name)
            if model is None or model.layer != "marts" or not model.is_view or name in self._views:
                continue
            self._create_views(model.references)
            create_model(self._connection, model)
            self._views.add(name)


_kept: list[_Worker] = []
