"""Measure what each part of a build costs, in a process of its own with one thread of DuckDB."""

import multiprocessing
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import engine
from analysis.catalog import load_catalog
from analysis.late import early_name
from analysis.parts import Part, PartsFolder
from analysis.ranges import OneRange


@dataclass(frozen=True)
class PartTimes:
    """Holds the processor seconds of each part by the name of its mart, and those of everything else.

    A mart that is made in ranges has a number per range, with the time of looking at its rows and reading
    them into tables, which whoever makes the range does. The process that schedules works alone before the
    first part and after the last (`alone_s`: raw files, checks), and between parts (`beside_s`: which files a
    range reads, the catalogue).
    """

    parts: Mapping[str, list[float]]
    alone_s: float
    beside_s: float
    n_bytes: int

    @property
    def rest_s(self) -> float:
        """Return the work of the process that schedules."""
        return self.alone_s + self.beside_s

    @property
    def all_s(self) -> float:
        """Return the processor time of the whole build."""
        return sum(map(sum, self.parts.values())) + self.rest_s


def names_in_ranges() -> frozenset[str]:
    """Return the names of all parts that are made in ranges; the others are a whole mart each."""
    return frozenset(
        model.name if model.late is None else early_name(model.name)
        for model in load_catalog().layer("marts")
        if model.ranges is not None
    )


def measure_parts(dataset: Path, rules: Path, database: Path, memory_gb: float) -> PartTimes:
    """Build a database that does not exist yet, and return what its parts cost."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_build, dataset, rules, database, memory_gb).result()


def _build(dataset: Path, rules: Path, database: Path, memory_gb: float) -> PartTimes:
    found: dict[str, list[float]] = {}
    n_bytes = 0
    first_s = last_s = ready_s = 0.0
    make, look, narrow = PartsFolder.make, OneRange.look, OneRange.narrow

    def looked(self: OneRange, *, may_query: bool = True) -> bool:
        nonlocal ready_s
        begun_s = time.process_time()
        has_rows = look(self, may_query=may_query)
        ready_s = time.process_time() - begun_s if may_query else 0.0
        return has_rows

    def narrowed(self: OneRange) -> None:
        nonlocal ready_s
        begun_s = time.process_time()
        narrow(self)
        ready_s += time.process_time() - begun_s

    def measured(self: PartsFolder, connection: Any, name: str, *recipe: Any, **options: Any) -> Part:
        nonlocal n_bytes, first_s, last_s, ready_s
        begun_s = time.process_time() - ready_s
        ready_s = 0.0
        part = make(self, connection, name, *recipe, **options)
        last_s = time.process_time()
        first_s = first_s or begun_s
        found.setdefault(name, []).append(last_s - begun_s)
        n_bytes += part.n_bytes
        return part

    PartsFolder.make = measured  # type: ignore[method-assign] - the build itself stays as it is
    OneRange.look, OneRange.narrow = looked, narrowed  # type: ignore[method-assign] - the same
    begun_s = time.process_time()
    result = engine.build(dataset, rules, database, memory_gb=memory_gb, threads=1)
    ended_s = time.process_time()
    assert not result.failed_checks, result.failed_checks
    beside_s = last_s - first_s - sum(map(sum, found.values()))
    return PartTimes(found, first_s - begun_s + ended_s - last_s, beside_s, n_bytes)
