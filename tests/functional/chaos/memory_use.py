"""Measure the memory of a collector over time, and judge whether it grows.

Judged is what the processes hold for themselves. The pages of mapped files are only stated: the ring is a
file of 64 MiB that two processes map, so its pages become resident, in both, as messages first pass them.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

from tests.functional.chaos.judge import Verdict

SAMPLE_S = 1.0
GROWTH_RATIO = 1.05  # of private memory, from the middle third to the last
GROWTH_BYTES = 10_000_000
JUDGED_S = 120.0  # a shorter run ends before memory has settled
KIB = 1024


class MemoryUse(NamedTuple):
    """The memory of some processes together, in bytes."""

    private: int  # anonymous pages
    mapped: int  # resident pages of files


def memory_use(processes: Iterable[int]) -> MemoryUse:
    """Return the memory of all the processes together."""
    private = mapped = 0
    for process in processes:
        status = Path(f"/proc/{process}/status").read_text()
        kib = {
            name: int(value) for name, value in re.findall(r"^(Rss\w+):\s+(\d+) kB$", status, re.MULTILINE)
        }
        private += kib["RssAnon"] * KIB
        mapped += (kib["RssFile"] + kib["RssShmem"]) * KIB
    return MemoryUse(private, mapped)


def judge_memory(samples: Sequence[MemoryUse], duration_s: float, verdict: Verdict) -> None:
    """Note the memory of a run in the verdict; a run of two minutes or more fails when its memory grows.

    There is one sample for each second. Memory grows when the median of private memory in the last third
    exceeds that of the middle third by more than 5 % and 10 MB.
    """
    private = [sample.private for sample in samples]
    third = len(private) // 3
    middle, last = median(private[third : 2 * third]), median(private[2 * third :])
    late = private[len(private) // 2 :]
    slope = linear_regression(range(len(late)), late).slope / SAMPLE_S
    verdict.figures |= {
        "private MB, median of the middle third": round(middle / 1e6),
        "private MB, median of the last third": round(last / 1e6),
        "private MB, most": round(max(private) / 1e6),
        "private MB, growth per minute in the second half": round(60 * slope / 1e6, 2),
        "resident MB of mapped files, in the middle": round(samples[len(samples) // 2].mapped / 1e6),
        "resident MB of mapped files, at the end": round(samples[-1].mapped / 1e6),
    }
    if duration_s < JUDGED_S:
        verdict.figures["whether memory grows"] = f"not judged below {JUDGED_S:g} s"
    elif last > middle * GROWTH_RATIO + GROWTH_BYTES:
        verdict.faults.append(f"memory grows: {middle / 1e6:.0f} MB, then {last / 1e6:.0f} MB")
