"""Measure what each piece of a build costs, in a process of its own with one thread of DuckDB."""

import multiprocessing
import pickle
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from analysis import checks, engine, incremental
from analysis.candidates import CANDIDATES
from analysis.catalog import load_catalog
from analysis.incremental import LEAST_ROWS, IncrementalMarts
from analysis.late import early_name
from analysis.parts import Part, PartsFolder
from analysis.ranges import OneRange
from analysis.raw_contents import FileFacts, NewFile, read_files


@dataclass
class PartTimes:
    """Holds the processor seconds of what workers would do, and those of everything else.

    `parts` has each part by the name of its mart. A mart that is made in ranges has a number per range, with
    the time of looking at its rows and reading them into tables, which whoever makes the range does. `files`
    has each file of a raw table, `checks` the queries of each check that reads enough rows to be handed out.

    The rest is what the process that schedules does: alone before the first part and after the last
    (`alone_s`: staging, small checks), and between parts (`beside_s`: parts that read few rows, which files a
    range reads, the text that describes a range to a worker, the catalogue).
    """

    parts: dict[str, list[float]] = field(default_factory=dict)
    files: list[float] = field(default_factory=list)
    checks: dict[str, list[float]] = field(default_factory=dict)
    alone_s: float = 0.0
    beside_s: float = 0.0
    n_bytes: int = 0

    @property
    def others_s(self) -> float:
        """Return the time of all parts, files and checks, which workers do."""
        return sum(map(sum, self.parts.values())) + sum(self.files) + sum(map(sum, self.checks.values()))

    @property
    def rest_s(self) -> float:
        """Return the work of the process that schedules."""
        return self.alone_s + self.beside_s

    @property
    def all_s(self) -> float:
        """Return the processor time of the whole build."""
        return self.others_s + self.rest_s


def names_in_ranges() -> frozenset[str]:
    """Return the names of all parts that are made in ranges; the others are a whole mart each."""
    return frozenset(
        model.name if model.late is None else early_name(model.name)
        for model in load_catalog().layer("marts")
        if model.ranges is not None
    )


def measure_parts(
    dataset: Path, rules: Path, database: Path, memory_gb: float, marts: Collection[str] | None = None
) -> PartTimes:
    """Build a new database, and return what its pieces cost; with `marts`, these alone are built."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_build, dataset, rules, database, memory_gb, marts).result()


class _Clock:
    """Stands in front of functions of a build, and notes the processor time of each call."""

    def __init__(self) -> None:
        self.found = PartTimes()
        self.first_s = self.last_s = 0.0
        self._ready_s = 0.0
        self._check: list[float] | None = None
        self._is_small = False

    @contextmanager
    def timed(self, times: list[float]) -> Iterator[None]:
        """Append the processor time of the `with` block to a list."""
        begun_s = time.process_time()
        yield
        times.append(time.process_time() - begun_s)

    def look(self, look: Callable[..., bool], one: OneRange, *, may_query: bool = True) -> bool:
        """Look at a range; its part takes the time of the queries. What a worker would get is pickled."""
        begun_s = time.process_time()
        has_rows = look(one, may_query=may_query)
        self._ready_s = time.process_time() - begun_s if may_query else 0.0
        if has_rows and not may_query:
            pickle.dumps(one.for_other_process)
        return has_rows

    def crew_for(self, n_rows: int) -> None:
        """Find out whether the next part would be handed out; it is made here."""
        self._is_small = n_rows < LEAST_ROWS

    def narrow(self, narrow: Callable[..., None], one: OneRange) -> None:
        """Read the rows of a range; its part takes the time."""
        begun_s = time.process_time()
        narrow(one)
        self._ready_s += time.process_time() - begun_s

    def make(
        self, make: Callable[..., Part], folder: PartsFolder, connection: Any, name: str, *recipe: Any
    ) -> Part:
        """Make a part."""
        begun_s = time.process_time() - self._ready_s
        self._ready_s = 0.0
        part = make(folder, connection, name, *recipe)
        self.last_s = time.process_time()
        self.first_s = self.first_s or begun_s
        if name != CANDIDATES and not self._is_small:
            self.found.parts.setdefault(name, []).append(self.last_s - begun_s)
        self._is_small = False
        self.found.n_bytes += part.n_bytes
        return part

    def read(
        self, connection: Any, dataset: Any, _n_at_once: int, files: Sequence[NewFile]
    ) -> list[FileFacts]:
        """Read files of raw tables one by one."""
        facts: list[FileFacts] = []
        for file in files:
            with self.timed(self.found.files):
                facts += read_files(connection, dataset, 1, [file])
        return facts

    def counted(self, marts: IncrementalMarts, check: str, reads: frozenset[str], _queries: object) -> None:
        """Find out whether a check would be handed out; it is run here."""
        is_large = marts.n_rows_below(reads) >= LEAST_ROWS
        self._check = self.found.checks.setdefault(check, []) if is_large else None

    def count(self, count: Callable[..., int], connection: Any, query: str) -> int:
        """Run a query of a check."""
        if self._check is None:
            return count(connection, query)
        with self.timed(self._check):
            return count(connection, query)


def _build(
    dataset: Path, rules: Path, database: Path, memory_gb: float, marts: Collection[str] | None
) -> PartTimes:
    clock = _Clock()
    look, narrow, make, count = OneRange.look, OneRange.narrow, PartsFolder.make, checks.n_rows_of
    instead: Mapping[tuple[Any, str], Any] = {
        (OneRange, "look"): lambda *of, **options: clock.look(look, *of, **options),
        (OneRange, "narrow"): lambda *of: clock.narrow(narrow, *of),
        (PartsFolder, "make"): lambda *of: clock.make(make, *of),
        (IncrementalMarts, "_crew_for"): lambda _, n_rows: clock.crew_for(n_rows),
        (engine, "read_files"): clock.read,
        (IncrementalMarts, "counted"): lambda marts, *of: clock.counted(marts, *of),  # noqa: PLW0108 - a bound method would not get it
        (incremental, "SMALL_ROWS"): LEAST_ROWS,  # as where workers look at ranges
        (checks, "n_rows_of"): lambda *of: clock.count(count, *of),
    }
    for (owner, name), other in instead.items():
        setattr(owner, name, other)
    begun_s = time.process_time()
    result = engine.build(dataset, rules, database, marts=marts, memory_gb=memory_gb, threads=1)
    ended_s = time.process_time()
    assert not result.failed_checks, result.failed_checks
    found = clock.found
    found.beside_s = clock.last_s - clock.first_s - sum(map(sum, found.parts.values()))
    found.alone_s = ended_s - begun_s - found.beside_s - found.others_s
    return found
