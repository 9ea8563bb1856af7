"""Cut what is to be done into units: blocks that are read, checked and written together.

The blocks of a unit are of one span of heights, hence of one folder.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from collector.backfill.blockfiles import Debris, Folder
from collector.backfill.catalogue import Catalogue
from collector.backfill.headertree import NO_PARENT, UNKNOWN_HEIGHT
from collector.codec.arrays import Integers
from collector.codec.chunk import Place
from collector.dataset.schema import HEIGHT_SPAN

MAX_UNIT_BYTES: Final = 32 << 20
MIN_UNIT_BYTES: Final = 1 << 18
UNITS_PER_WORKER: Final = 4  # enough that the last ones end at about the same time
PREV_HASH_AT: Final = 4


class Task(NamedTuple):
    """One block to read from the files."""

    place: Place
    file: int
    at: int
    size_bytes: int
    n_tx: int
    prev_hash: bytes
    undo_rank: int
    is_unfinished: bool  # a node may still be writing it


Unit = list[Task]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Which blocks are wanted; None leaves a side open."""

    first_height: int | None = None
    last_height: int | None = None
    from_time_s: int | None = None  # header time, inclusive
    to_time_s: int | None = None  # header time, exclusive

    def has_time(self, time_s: Any) -> Any:
        """Whether a header time, or each of an array of them, is wanted."""
        from_s = -math.inf if self.from_time_s is None else self.from_time_s
        to_s = math.inf if self.to_time_s is None else self.to_time_s
        return (from_s <= time_s) & (time_s < to_s)

    def among(self, catalogue: Catalogue) -> Integers:
        """Positions of the wanted blocks, by height and then hash."""
        heights, times_s = catalogue.heights, catalogue.times_s
        wanted = heights != UNKNOWN_HEIGHT
        if self.first_height is not None:
            wanted &= heights >= self.first_height
        if self.last_height is not None:
            wanted &= heights <= self.last_height
        wanted &= self.has_time(times_s)
        found = np.flatnonzero(wanted)
        hashes = [catalogue.hashes[i].tobytes() for i in found]
        order = sorted(range(len(found)), key=lambda k: (heights[found[k]], hashes[k]))
        return found[order]


def cut(catalogue: Catalogue, folder: Folder, missing: Sequence[int], workers: int) -> Iterator[Unit]:
    """Cut the blocks at these positions, which are in order of height, into units."""
    limit_bytes = unit_bytes(int(catalogue.sizes_bytes[list(missing)].sum()), workers)
    unit: Unit = []
    taken_bytes = 0
    for i in missing:
        task = _task(catalogue, folder, i)
        is_other_span = bool(unit) and unit[0].place.height // HEIGHT_SPAN != task.place.height // HEIGHT_SPAN
        if unit and (is_other_span or taken_bytes + task.size_bytes > limit_bytes):
            yield unit
            unit, taken_bytes = [], 0
        unit.append(task)
        taken_bytes += task.size_bytes
    if unit:
        yield unit


def cut_copies(catalogue: Catalogue, folder: Folder, positions: Sequence[int]) -> Iterator[Unit]:
    """Make a unit of every further copy of the blocks at these positions."""
    for i in positions:
        task = _task(catalogue, folder, i)
        for file, at, size_bytes, n_tx in catalogue.copies[i]:
            place = task.place._replace(origin=f"{folder.name(file)}@{at}")
            yield [
                task._replace(place=place, file=file, at=at, size_bytes=size_bytes, n_tx=n_tx, undo_rank=0)
            ]


def unit_bytes(total_bytes: int, workers: int) -> int:
    """How much a unit may hold, so that memory stays small and every worker has some."""
    return min(max(total_bytes // (workers * UNITS_PER_WORKER), MIN_UNIT_BYTES), MAX_UNIT_BYTES)


def missing_heights(catalogue: Catalogue, wanted: Integers, wish: Wish) -> list[tuple[int, int]]:
    """Spans of heights, both ends included, of which no block is to be had below the highest that is."""
    if catalogue.tree.tip == NO_PARENT or wish.from_time_s is not None or wish.to_time_s is not None:
        first = int(catalogue.heights[wanted].min()) if len(wanted) else 0
    else:
        first = wish.first_height or 0
    found = sorted({int(height) for height in catalogue.heights[wanted]})
    last = wish.last_height if wish.last_height is not None else (found[-1] if found else first - 1)
    spans = []
    expected = first
    for height in [*found, last + 1]:
        if height > expected:
            spans.append((expected, height - 1))
        expected = height + 1
    return spans


def debris_place(folder: Folder, debris: Debris) -> Place:
    """Name bytes that are no record."""
    return Place(bytes(32), UNKNOWN_HEIGHT, "", "blkfile", f"{folder.name(debris.file)}@{debris.at}")


def _task(catalogue: Catalogue, folder: Folder, i: int) -> Task:
    file, at = int(catalogue.files[i]), int(catalogue.at[i])
    place = Place(
        block_hash=catalogue.hashes[i].tobytes(),
        height=int(catalogue.heights[i]),
        height_source="tree" if catalogue.tree.is_whole[i] else "bip34",
        source="blkfile",
        origin=f"{folder.name(file)}@{at}",
    )
    return Task(
        place=place,
        file=file,
        at=at,
        size_bytes=int(catalogue.sizes_bytes[i]),
        n_tx=int(catalogue.n_tx[i]),
        prev_hash=catalogue.headers[i, PREV_HASH_AT : PREV_HASH_AT + 32].tobytes(),
        undo_rank=int(catalogue.undo_ranks[i]),
        is_unfinished=i == catalogue.unfinished,
    )
