"""Describe how one range of a mart is made, so that another process or machine can make it.

A worker opens a DuckDB of its own. There it creates the raw and staging views of the dataset, the tables that
no SQL makes, and a view on the parts of each mart that is done. Then it makes the range with the query of a
build, in a file of the same name, and returns the description of the part. The build alone keeps parts.json.

Workers need the dataset and the folder of parts at the same paths, and the same version of this software.
"""

import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from analysis.catalog import Catalog, load_catalog
from analysis.database import connect
from analysis.errors import DatabaseError
from analysis.incremental import create_input, create_model, create_staging, set_parameters
from analysis.late import stand_ins
from analysis.manifest import sources_hash
from analysis.parts import Inputs, Part, write_part
from analysis.ranges import RANGE, set_range
from analysis.raw_views import create_views
from collector.dataset.open import Dataset


@dataclass(frozen=True, slots=True, kw_only=True)
class Workplace:
    """Holds what all tasks of one build have in common.

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
    """Says which range of a mart to make: the name and the inputs of its part, which name the range.

    `parts` maps each stored mart that the query reads, directly or through a view, to the query that reads
    its parts.
    """

    mart: str
    name: str
    inputs: Inputs
    parts: Mapping[str, str]


class Workers(Protocol):
    """Makes tasks at other places, several at once."""

    def make(self, workplace: Workplace, tasks: list[Task]) -> Iterator[tuple[int, Part]]:
        """Yield the number of each task and the part that it made, in the order in which they end.

        Raises duckdb.Error where a query fails, and AnalysisError where the workers cannot be used.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOut:
    """Has the ranges of one build made by workers; it is the RangeMaker of `analysis.incremental`."""

    catalog: Catalog
    workplace: Workplace
    workers: Workers

    def make(
        self, mart: str, name: str, missing: list[Inputs], rows: Mapping[str, str]
    ) -> Iterator[tuple[int, Part]]:
        """Make the ranges with these inputs of a mart, in parts called `name`, as `Workers.make` does.

        `rows` maps each stored mart that is done to the query that reads its parts.
        """
        read = {each: rows[each] for each in stored_below(self.catalog, mart) if each in rows}
        tasks = [Task(mart=mart, name=name, inputs=dict(inputs), parts=read) for inputs in missing]
        return self.workers.make(self.workplace, tasks)


def arrow_stream(table: pa.Table) -> bytes:
    """Return an Arrow table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    stream: bytes = sink.getvalue().to_pybytes()
    return stream


def stored_below(catalog: Catalog, mart: str) -> list[str]:
    """Return the stored relations that a mart reads, directly or through views, each once."""
    found: dict[str, None] = {}
    names = list(catalog.by_name[mart].references)
    while names:
        name = names.pop()
        model = catalog.by_name.get(name)
        if model is not None and model.is_view:
            names += model.references
        else:
            found[name] = None
    return list(found)


def make_range(workplace: Workplace, task: Task) -> Part:
    """Make one range in this process, and return its part. The process keeps its DuckDB for the next range.

    Raises DatabaseError where this process runs another version than the build, duckdb.Error where the query
    fails.
    """
    if _kept and _kept[0].workplace != workplace:
        _kept.pop().close()
    if not _kept:
        _kept.append(_Worker(workplace))
    return _kept[0].make(task)


class _Worker:
    """Holds the DuckDB of one process, in which it makes the ranges of one build."""

    def __init__(self, workplace: Workplace) -> None:
        if workplace.sources != sources_hash():
            raise DatabaseError(
                "a worker has another version of this software than the build; install the same one"
            )
        self.workplace = workplace
        self._catalog = load_catalog()
        self._dataset = Dataset(workplace.dataset, workplace.chain)
        self._parts: dict[str, str] = {}  # the query behind each view on parts
        self._views: set[str] = set()
        stack = ExitStack()
        self._close = weakref.finalize(self, stack.close)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pool-analysis-")))
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
        """Make one range, while compaction moves no file of the dataset."""
        model = self._catalog.by_name[task.mart]
        if model.ranges is None:
            raise DatabaseError(f"{task.mart} is not made in ranges")
        connection = self._connection
        with self._dataset.read_lock():
            for name, query in task.parts.items():
                if self._parts.get(name) != query:
                    connection.execute(f"CREATE OR REPLACE VIEW {name} AS {query}")
                    self._parts[name] = query
            self._create_views(model.references)
            set_parameters(connection, model)
            set_range(connection, model.ranges, int(task.inputs[RANGE]))
            types = {column.name: column.type for column in model.columns}
            with stand_ins(connection, self._catalog, model, model.ranges.reads):
                folder = self.workplace.folder
                return write_part(connection, folder, task.name, task.inputs, model.ordered_sql, types)

    def _create_views(self, names: Iterable[str]) -> None:
        """Create the marts among these relations that are views, each after those that it reads."""
        for name in names:
            model = self._catalog.by_name.get(name)
            if model is None or model.layer != "marts" or not model.is_view or name in self._views:
                continue
            self._create_views(model.references)
            create_model(self._connection, model)
            self._views.add(name)


_kept: list[_Worker] = []
