"""Record the conditions of a benchmark: when it ran, how long, how busy other programs kept the CPUs."""

import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

CPU_TIMES = Path("/proc/stat")
IDLE_FIELDS = (3, 4)  # of the line "cpu": idle, and idle while waiting for a disk


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Says when a benchmark ran, how many seconds, and which part of the CPUs others kept busy meanwhile."""

    begun_at: str  # UTC, ISO 8601
    duration_s: float
    busy_elsewhere_ratio: float | None  # CPU time of others as a part of all CPU time; None if unknown


class Watch:
    """Measures under which conditions a benchmark runs, from the making of this object to `conditions`."""

    def __init__(self, cpu_times: Path = CPU_TIMES) -> None:
        self._file = cpu_times
        self._begun_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._begun_s = time.monotonic()
        self._before = _busy_and_all(cpu_times)
        self._own_s = _own_seconds()

    def conditions(self) -> Conditions:
        """Return when the benchmark began, how long it ran, and how busy other programs kept the CPUs."""
        elsewhere = None
        after = _busy_and_all(self._file)
        if self._before is not None and after is not None and after[1] > self._before[1]:
            busy = after[0] - self._before[0] - (_own_seconds() - self._own_s)
            elsewhere = min(max(busy / (after[1] - self._before[1]), 0.0), 1.0)
        return Conditions(
            begun_at=self._begun_at,
            duration_s=time.monotonic() - self._begun_s,
            busy_elsewhere_ratio=elsewhere,
        )


def _own_seconds() -> float:
    """Return the CPU seconds of this process and of those that it started and that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _busy_and_all(file: Path) -> tuple[float, float] | None:
    """Return the busy seconds and all seconds of all CPUs since the system started; None if not reported.

    Time that the host of a virtual machine gave to others counts as busy.
    """
    try:
        ticks = [int(word) for word in file.read_text().splitlines()[0].split()[1:9]]
    except (OSError, IndexError, ValueError):
        return None
    per_s = os.sysconf("SC_CLK_TCK")
    idle = sum(ticks[field] for field in IDLE_FIELDS)
    return (sum(ticks) - idle) / per_s, sum(ticks) / per_s
