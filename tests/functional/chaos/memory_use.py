"""Measure the resident memory of a collector over time, and judge whether it grows."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import linear_regression, median

from tests.functional.chaos.judge import Verdict

SAMPLE_S = 1.0
GROWTH_RATIO = 1.05  # of resident memory, from the middle third to the last
GROWTH_BYTES = 10_000_000
JUDGED_S = 120.0  # a shorter run ends before memory has settled


def resident_bytes(processes: Iterable[int]) -> int:
    """Return the resident memory of all the processes, in bytes."""
    pages = [int(Path(f"/proc/{process}/statm").read_text().split()[1]) for process in processes]
    return sum(pages) * os.sysconf("SC_PAGE_SIZE")


def judge_memory(samples: Sequence[int], duration_s: float, verdict: Verdict) -> None:
    """Note the memory of a run in the verdict; a run of two minutes or more fails when its memory grows.

    `samples` are bytes, one for each second. Memory grows when the median of the last third exceeds that of
    the middle third by more than 5 % and 10 MB.
    """
    third = len(samples) // 3
    middle, last = median(samples[third : 2 * third]), median(samples[2 * third :])
    late = samples[len(samples) // 2 :]
    slope = linear_regression(range(len(late)), late).slope / SAMPLE_S
    verdict.figures |= {
        "resident MB, median of the middle third": round(middle / 1e6),
        "resident MB, median of the last third": round(last / 1e6),
        "resident MB, most": round(max(samples) / 1e6),
        "resident MB, growth per minute in the second half": round(60 * slope / 1e6, 2),
    }
    if duration_s >= JUDGED_S and last > middle * GROWTH_RATIO + GROWTH_BYTES:
        verdict.faults.append(f"memory grows: {middle / 1e6:.0f} MB, then {last / 1e6:.0f} MB")
