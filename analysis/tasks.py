"""Describe how one part of a mart is made, so that another process or machine can make it.

A worker opens a DuckDB of its own. There it creates the raw and staging views of the dataset, the tables that
no SQL makes, and a view on the parts of each mart that is done. Then it makes the part with the query of a
build, in a file of the same name, and returns its description. The build alone keeps parts.json.

Workers need the dataset and the folder of parts at the same paths, and the same version of this software.
"""

import weakref
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from analysis.catalog import Model, load_catalog
from analysis.database import connect
from analysis.errors import DatabaseError
from analysis.incremental import create_input, create_model, create_staging, set_parameters
from analysis.late import early_name, filling, stand_ins
from analysis.manifest import sources_hash
from analysis.parts import Inputs, Part, Rows, write_part
from analysis.ranges import Piece
from analysis.raw_views import create_views
from collector.dataset.open import Dataset
from collector.dataset.temporary_folders import temporary_folder

WORKER_FOLDER: Final = "pool-analysis-worker-"  # what its name begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Holds the settings that all tasks of one build share: dataset, chain, folder of parts, memory.

    `inputs` has the tables that no SQL makes, by name, as Arrow streams. `memory_gb` (10^9 bytes) limits the
    DuckDB of one worker, which has one thread. `sources` is the hash of our code.
    """

    dataset: Path
    chain: str
    folder: Path
    inputs: Mapping[str, bytes]
    memory_gb: float | None
    sources: str = field(default_factory=sources_hash)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Describes one part of a mart to be made: mart, name and inputs; they name its range, if it is one.

    `rows` has each stored mart that the query reads, directly or through a view, as the build has it: DuckDB
    plans a query on tables otherwise than one on files. With `early`, the query that reads the early parts of
    the mart, its late columns are filled in. `piece` describes the range.
    """

    mart: str
    name: str
    inputs: Inputs
    rows: Mapping[str, Rows]
    early: str | None = None
    piece: Piece | None = None


class Workers(Protocol):
    """Declares how tasks, each a part of a mart, are done by other processes, `n_at_once` at a time."""

    n_at_once: int

    def make(self, workplace: Workplace, task: Task) -> Part:
        """Have one part of a mart made by a worker; return the part when it is made.

        Several threads may call this at once. Raises duckdb.Error where a query fails, and AnalysisError
        where the workers cannot be used.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """Has workers make the parts of one build; it implements `analysis.schedule.Hands`."""

    workplace: Workplace
    workers: Workers

    @property
    def n_at_once(self) -> int:
        """Return how many parts of marts the workers make at the same time."""
        return self.workers.n_at_once

    def made(  # noqa: PLR0917 - see `Hands.made`
        self,
        mart: str,
        name: str,
        inputs: Inputs,
        rows: Mapping[str, Rows],
        early: str | None,
        piece: Piece | None,
    ) -> Part:
        """Have a worker make one part of a mart, and return it; the arguments are those of `Hands.made`."""
        task = Task(mart=mart, name=name, inputs=inputs, rows=rows, early=early, piece=piece)
        return self.workers.make(self.workplace, task)


def arrow_stream(table: pa.Table) -> bytes:
    """Return an Arrow table serialised as the bytes of an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def make_part(workplace: Workplace, task: Task) -> Part:
    """Make one part of a mart in this process, and return it. The process keeps its DuckDB for the next part.

    Raises DatabaseError where this process runs another version than the build, duckdb.Error where the query
    fails.
    """
    if _kept and _kept[0].workplace != workplace:
        _kept.pop().close()
    if not _kept:
        _kept.append(_Worker(workplace))
    return _kept[0].make(task)


class _Worker:
    """Holds the DuckDB of a worker process, with which it makes parts of one build."""

    def __init__(self, workplace: Workplace) -> None:
        if workplace.sources != sources_hash():
            raise DatabaseError(
                "a worker has another version of this software than the build; install the same one"
            )
        self.workplace = workplace
        self._catalog = load_catalog()
        self._dataset = Dataset(workplace.dataset, workplace.chain)
        self._shown: dict[str, Rows] = {}
        self._views: set[str] = set()
        stack = ExitStack()
        self._close = weakref.finalize(self, stack.close)
        folder = stack.enter_context(temporary_folder(WORKER_FOLDER))
        self._connection = stack.enter_context(
            connect(folder / "worker.duckdb", memory_gb=workplace.memory_gb, threads=1)
        )
        create_views(self._connection, self._dataset)
        create_staging(self._connection, self._catalog)
        for name, stream in workplace.inputs.items():
            create_input(self._connection, name, pa.ipc.open_stream(stream).read_all())

    def close(self) -> None:
        """Close the database and remove its folder."""
        self._close()

    def make(self, task: Task) -> Part:
        """Make one part of a mart and return it; meanwhile compaction moves no file of the dataset."""
        model = self._catalog.by_name[task.mart]
        types = {column.name: column.type for column in model.columns}
        with self._dataset.read_lock(), ExitStack() as stack:
            self._show(task.rows)
            query = model.ordered_sql
            if task.early is not None and model.late is not None:
                self._create_views([model.late.relation])
                query = filling(model.late, task.early)
            else:
                self._create_views(model.references)
                stack.enter_context(self._narrowed(model, task))
            bounded = self._catalog.bounded_columns(model.name)
            return write_part(
                self._connection, self.workplace.folder, task.name, task.inputs, query, types, bounded
            )

    def _narrowed(self, model: Model, task: Task) -> AbstractContextManager[None]:
        """Return a context in which the query of a mart sees only what its part reads.

        That is the rows of one range, if the part is one, and nulls in the late columns, if it is an early
        part.
        """
        set_parameters(self._connection, model)
        if task.name != early_name(model.name):
            model = replace(model, late=None)
        if task.piece is None:
            return stand_ins(self._connection, self._catalog, model, None)
        return task.piece.narrowing(self._connection, self._catalog, model)

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
