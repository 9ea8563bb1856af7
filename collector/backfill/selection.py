"""Choose the blocks that a backfill writes, and find the heights for which there is no block."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from collector.backfill.catalogue import Catalogue
from collector.backfill.headertree import NO_PARENT, UNKNOWN_HEIGHT
from collector.codec.arrays import Integers


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSelection:
    """Selects the blocks inside a range of heights and inside a range of header times.

    A limit that is None does not apply. Times are in seconds since 1970 UTC. Both heights are included. The
    first time is included; the last time is not. A block of unknown height is never selected.
    """

    first_height: int | None = None
    last_height: int | None = None
    from_time_s: int | None = None  # header time, inclusive
    to_time_s: int | None = None  # header time, exclusive

    def has_time(self, time_s: Any) -> Any:
        """Return whether a header time (s) is in the range; for an array of times, an array of bools."""
        from_s = -math.inf if self.from_time_s is None else self.from_time_s
        to_s = math.inf if self.to_time_s is None else self.to_time_s
        return (from_s <= time_s) & (time_s < to_s)

    def among(self, catalogue: Catalogue) -> Integers:
        """Return the positions in a catalogue of the selected blocks, sorted by height and then by hash."""
        heights, times_s = catalogue.heights, catalogue.times_s
        selected = heights != UNKNOWN_HEIGHT
        if self.first_height is not None:
            selected &= heights >= self.first_height
        if self.last_height is not None:
            selected &= heights <= self.last_height
        selected &= self.has_time(times_s)
        found = np.flatnonzero(selected)
        hashes = [catalogue.hashes[i].tobytes() for i in found]
        order = sorted(range(len(found)), key=lambda k: (heights[found[k]], hashes[k]))
        return found[order]


def missing_heights(
    catalogue: Catalogue, selected: Integers, selection: BlockSelection
) -> list[tuple[int, int]]:
    """Return the spans of heights (first, last), both included, that are selected and have no block."""
    is_by_time = selection.from_time_s is not None or selection.to_time_s is not None
    if is_by_time or catalogue.tree.tip == NO_PARENT:
        first = int(catalogue.heights[selected].min()) if len(selected) else 0
    else:
        first = selection.first_height or 0
    found = sorted({int(height) for height in catalogue.heights[selected]})
    last = selection.last_height if selection.last_height is not None else (found[-1] if found else first - 1)
    spans = []
    expected = first
    for height in [*found, last + 1]:
        if height > expected:
            spans.append((expected, height - 1))
        expected = height + 1
    return spans
