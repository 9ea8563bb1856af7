"""Measure the energy that a device uses for some work, with the device's own counter.

Two counters are read: NVML's total energy of an NVIDIA GPU (millijoules since the driver was loaded, Volta
and later) and the packages of a CPU in RAPL (microjoules, readable only by root on most systems). Without a
counter the energy is unknown and shown as n/a, never as 0.

A counter moves in steps of 20 to 100 ms, and it is read between two runs of the work. A window begins and
ends at the first reading that differs from the one before, so up to a step late. It lasts seconds: at 5 s the
error is at most about 4 percent, at 10 s about 2. NVML's power reading is not used: it
is an average over a second on most GPUs, and on A100 and H100 it covers a quarter of the time
(arXiv:2312.02741). Whether the energy counter misses time in the same way is not documented; for steady work
this does not matter. Power depends on data, so hash random bytes, not zeros.
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
    """Holds the energy (joules) and time (seconds) that some work took, and the power (watts) when idle."""

    seconds: float
    joules: float  # gross: all that the device used
    idle_w: float  # its power while idle, in the window before
    clock_mhz: float | None  # mean over the work; None where it cannot be read

    @property
    def mean_w(self) -> float:
        """The mean power during the work, in watts."""
        return self.joules / self.seconds

    @property
    def net_joules(self) -> float:
        """The energy of the work in joules, less what the idle device would have used in the same time."""
        return self.joules - self.idle_w * self.seconds


class Meter(Protocol):
    """Is an energy counter of a device; it never falls."""

    name: str

    def joules(self) -> float:
        """Return the energy in joules that the device has used since some fixed moment in the past."""

    def clock_mhz(self) -> float | None:
        """Return the present clock of the device in MHz, or None if it cannot be read."""


class NvmlMeter:
    """Reads NVML's energy counter of one GPU, which is named by its PCI address."""

    def __init__(self, nvml: Any, pci_bus_id: str) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        self.name = f"NVML, GPU {pci_bus_id}"
        self.joules()  # if the counter cannot be read, raise now and not during a measurement

    def joules(self) -> float:
        """Return the energy in joules that the GPU has used since the driver was loaded."""
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle)) / 1e3

    def clock_mhz(self) -> float | None:
        """Return the present clock of the GPU's multiprocessors in MHz."""
        return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))


class RaplMeter:
    """Adds up the RAPL energy counters of all CPU packages; a counter that wraps around is followed."""

    name = "RAPL, all packages"

    def __init__(self, root: Path = RAPL_ROOT) -> None:
        # Only packages are counted. RAPL also lists the parts of a package, such as its cores, and on some
        # machines the platform (psys) that contains it: adding those would count energy twice. AMD uses
        # the same names.
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
        """Return the energy in joules that all CPU packages have used since this meter was made."""
        for i, folder in enumerate(self._folders):
            now = self._read(folder, "energy_uj")
            self._total += (now - self._last[i]) % (self._ranges[i] + 1)
            self._last[i] = now
        return self._total / 1e6

    def clock_mhz(self) -> float | None:
        """Return None: RAPL does not report a clock."""
        return None

    @staticmethod
    def _read(folder: Path, name: str) -> int:
        try:
            return int((folder / name).read_text())
        except (OSError, ValueError) as error:
            raise BackendUnavailableError(f"RAPL cannot be read: {error}") from error


def load_nvml() -> Any:
    """Import NVML's Python module, start it and return it; BackendUnavailableError if that fails."""
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
    except Exception as error:  # NVML's own exceptions exist only after the import
        raise BackendUnavailableError(
            f"no NVML: {error}; it comes with the driver, and pip install nvidia-ml-py reads it"
        ) from error
    return nvml


def gpu_meter(pci_bus_id: str) -> Meter | None:
    """Return the energy meter of a GPU, or None if its energy cannot be read."""
    with contextlib.suppress(BackendUnavailableError):
        nvml = load_nvml()
        with contextlib.suppress(nvml.NVMLError):
            return NvmlMeter(nvml, pci_bus_id)
    return None


def cpu_meter() -> Meter | None:
    """Return the energy meter of the CPU, or None if its energy cannot be read."""
    with contextlib.suppress(BackendUnavailableError):
        return RaplMeter()
    return None


@dataclass(slots=True)
class Clock:
    """Holds the functions that tell time and wait; a test passes its own."""

    now: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep


def measure(
    meter: Meter, work: Callable[[], None], *, window_s: float = 5.0, clock: Clock | None = None
) -> tuple[Energy, int]:
    """Idle for `window_s`, then repeat `work` for at least as long; return the energy and the number of runs.

    `work` must return only when the device is done. Both windows begin and end at the first look at
    which the counter has moved.
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
    """Repeat `work` for at least `window_s` seconds, from one step of the energy counter to another.

    Returns the seconds, joules and runs between the two steps, and the clocks seen in MHz.
    """
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
    """Repeat `work` without end; yield (time, joules, runs, clock) after each run in which the counter moved.

    Raises BackendUnavailableError if the counter has not moved for STANDSTILL_S.
    """
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
