"""Energy of a device over a stretch of work, from its own counter.

Two counters are read: NVML's total energy of an NVIDIA GPU (millijoules since the driver was loaded, Volta
and later) and RAPL's packages of a CPU (microjoules, readable by root on most systems). Where there is
none, energy is unknown and is shown as n/a; it is never taken to be 0.

A counter moves in steps of 20 to 100 ms, so a window begins and ends where it has just moved and lasts
seconds: at 5 s the error is about 4 percent, at 10 s about 2. NVML's power reading is an average over a
second on most GPUs and covers a quarter of the time on A100 and H100 (arXiv:2312.02741), so it is not used.
Whether the energy counter has the same gap is not documented; steady work, as here, does not depend on it.
Power depends on data: hash random bytes, not zeros.
"""

import contextlib
import importlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from gpuhash.errors import BackendUnavailableError

RAPL_ROOT = Path("/sys/class/powercap")
POLL_S = 0.002
STANDSTILL_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """What a stretch of work took."""

    seconds: float
    joules: float  # gross: all the device took
    idle_w: float  # its power in the window before, doing nothing
    clock_mhz: float | None  # mean over the work, where it can be read

    @property
    def mean_w(self) -> float:
        """Mean power over the work."""
        return self.joules / self.seconds

    @property
    def net_joules(self) -> float:
        """Joules beyond what idling as long would have taken."""
        return self.joules - self.idle_w * self.seconds


class Meter(Protocol):
    """A counter that only rises."""

    name: str

    def joules(self) -> float:
        """Energy since some moment in the past."""

    def clock_mhz(self) -> float | None:
        """Clock now, or None where it cannot be read."""


class NvmlMeter:
    """NVML's energy counter of one GPU."""

    def __init__(self, nvml: Any, pci_bus_id: str) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        self.name = f"NVML, GPU {pci_bus_id}"
        self.joules()  # raises here, not in the middle of a measurement

    def joules(self) -> float:
        """Energy since the driver was loaded."""
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3

    def clock_mhz(self) -> float | None:
        """Clock of the multiprocessors now."""
        return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))


class RaplMeter:
    """The packages of RAPL, added up; their counters wrap around and are followed across that."""

    name = "RAPL, all packages"

    def __init__(self, root: Path = RAPL_ROOT) -> None:
        # A package has parts, such as its cores, and on some machines the platform (psys) contains it: to
        # count those too would be to count twice. AMD uses the same names.
        self._folders = [
            file.parent
            for file in sorted(root.glob("intel-rapl:*/name"))
            if file.read_text().startswith("package")
        ]
        if not self._folders:
            raise BackendUnavailableError(f"no RAPL packages below {root}")
        self._ranges = [self._read(folder, "max_energy_range_uj") for folder in self._folders]
        self._last = [self._read(folder, "energy_uj") for folder in self._folders]
        self._total = 0

    def joules(self) -> float:
        """Energy since this meter was made."""
        for i, folder in enumerate(self._folders):
            now = self._read(folder, "energy_uj")
            self._total += (now - self._last[i]) % (self._ranges[i] + 1)
            self._last[i] = now
        return self._total / 1e6

    def clock_mhz(self) -> float | None:
        """RAPL knows no clock."""
        return None

    @staticmethod
    def _read(folder: Path, name: str) -> int:
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError) as error:
            raise BackendUnavailableError(f"RAPL cannot be read: {error}") from error


def load_nvml() -> Any:
    """Import and start NVML, or raise BackendUnavailableError."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # its own exceptions exist only where it could be imported
        raise BackendUnavailableError(
            f"no NVML: {error}; it comes with the driver, and pip install nvidia-ml-py reads it"
        ) from error
    return nvml


def gpu_meter(pci_bus_id: str) -> Meter | None:
    """Return the meter of a GPU, or None where its energy cannot be known."""
    with contextlib.suppress(BackendUnavailableError):
        nvml = load_nvml()
        with contextlib.suppress(nvml.NVMLError):
            return NvmlMeter(nvml, pci_bus_id)
    return None


def cpu_meter() -> Meter | None:
    """Return the meter of the CPU, or None where its energy cannot be known."""
    with contextlib.suppress(BackendUnavailableError):
        return RaplMeter()
    return None


@dataclass(slots=True)
class Clock:
    """Time as a measurement sees it; a test brings its own."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


def measure(
    meter: Meter, work: Callable[[], None], *, window_s: float = 5.0, clock: Clock | None = None
) -> tuple[Energy, int]:
    """Idle for window_s, then repeat work for at least as long; return its energy and how often it ran.

    work returns when the device is done. Both windows begin and end with a step of the counter.
    """
    clock = clock or Clock()
    idle_seconds, idle_joules, _, _ = _window(meter, lambda: clock.sleep(POLL_S), window_s, clock)
    seconds, joules, runs, clocks = _window(meter, work, window_s, clock)
    mean_mhz = sum(clocks) / len(clocks) if clocks else None
    energy = Energy(seconds=seconds, joules=joules, idle_w=idle_joules / idle_seconds, clock_mhz=mean_mhz)
    return energy, runs


def _window(
    meter: Meter, work: Callable[[], None], window_s: float, clock: Clock
) -> tuple[float, float, int, list[float]]:
    """Repeat work from one step of the counter to another: seconds, joules, runs, clocks seen."""
    steps = _steps(meter, work, clock)
    begin_s, begin_joules, begin_runs, _ = next(steps)
    clocks = []
    for now_s, joules, runs, mhz in steps:
        if mhz is not None:
            clocks.append(mhz)
        if now_s - begin_s >= window_s:
            return now_s - begin_s, joules - begin_joules, runs - begin_runs, clocks
    raise AssertionError("the counter stopped stepping")  # _steps never ends


def _steps(
    meter: Meter, work: Callable[[], None], clock: Clock
) -> Iterator[tuple[float, float, int, float | None]]:
    """Repeat work; after each run in which the counter moved give time, joules, runs and clock."""
    before = meter.joules()
    still_since = clock.now()
    runs = 0
    while True:
        work()
        runs += 1
        joules, now_s = meter.joules(), clock.now()
        if joules != before:
            yield now_s, joules, runs, meter.clock_mhz()
            before, still_since = joules, now_s
        elif now_s - still_since > STANDSTILL_S:
            raise BackendUnavailableError(
                f"{meter.name} has not moved for {STANDSTILL_S} s; energy is unknown"
            )
