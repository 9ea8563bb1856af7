"""Measure energy per hash at several clocks of a GPU, after arXiv:1905.11012.

The core clock is locked at one step after the other, and the same work is measured at each. Energy per hash
has a minimum below the highest clock, because power rises faster than speed. The clocks are reset at the end,
also after errors and SIGTERM, but not if the process is killed with SIGKILL.

Locking clocks needs administrator rights, changes the speed of other programs on the GPU, and lasts after the
process if it is killed. A sweep therefore needs the caller's consent, and a GPU that no other process uses.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, NoReturn

from gpuhash.errors import BackendUnavailableError, MeasurementRefusedError
from gpuhash.measure.energy import Clock, Energy, NvmlMeter, measure


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Holds speed, energy per hash and power of the work at one clock of the GPU."""

    locked_mhz: int | None  # None: the driver's own choice
    hashes_per_s: float
    joules_per_hash: float
    mean_w: float
    clock_mhz: float | None  # as the device reported it


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """Holds the measurements at all clocks; the first is at the clock that the driver chooses."""

    points: tuple[Point, ...]

    @property
    def default(self) -> Point:
        """The measurement at the clock that the driver chooses."""
        return self.points[0]

    @property
    def best(self) -> Point:
        """Return the measurement with the least energy per hash."""
        return min(self.points, key=lambda point: point.joules_per_hash)

    @property
    def saving_ratio(self) -> float:
        """The part of the energy per hash at the driver's clock that the best clock saves: 0 to 1."""
        return 1 - self.best.joules_per_hash / self.default.joules_per_hash


def sweep(
    nvml: Any,
    work: Callable[[], int],
    *,
    allow_clock_changes: bool,
    pci_bus_id: str,
    steps: int = 8,
    window_s: float = 5.0,
    clock: Clock | None = None,
) -> Sweep:
    """Measure speed and energy of `work` at the driver's clock and at `steps` locked clocks of a GPU.

    `work` runs on the GPU at `pci_bus_id` and returns how many hashes it did. Its first call comes only after
    the GPU was found idle, and it should not open the GPU earlier: in a container, NVML lists a process under
    another number than the process itself knows, so it could not recognise itself.

    Raises MeasurementRefusedError without allow_clock_changes, without the right to lock clocks, and if
    another process computes on the GPU; BackendUnavailableError if the GPU's energy or clocks cannot be read.
    """
    if not allow_clock_changes:
        refuse()
    try:
        handle = nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
        _require_idle(nvml, handle, pci_bus_id)
        clocks = _clock_steps(nvml, handle, steps)
        meter = NvmlMeter(nvml, pci_bus_id)
        with _restored_clocks(nvml, handle):
            _try_lock(nvml, handle, clocks[0])
            nvml.nvmlDeviceResetGpuLockedClocks(handle)
            points = [_measure(meter, work, None, window_s, clock)]
            for mhz in clocks:
                nvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
                points.append(_measure(meter, work, mhz, window_s, clock))
    except nvml.NVMLError as error:
        raise BackendUnavailableError(f"GPU {pci_bus_id} cannot be swept: {error}") from error
    return Sweep(points=tuple(points))


def refuse() -> NoReturn:
    """Raise MeasurementRefusedError: the user must allow that the GPU's clocks are changed."""
    raise MeasurementRefusedError(
        "a sweep locks the clocks of the GPU for everybody who uses it; "
        "pass --allow-clock-changes if nobody else uses the GPU"
    )


def _measure(
    meter: NvmlMeter, work: Callable[[], int], locked_mhz: int | None, window_s: float, clock: Clock | None
) -> Point:
    hashes = 0

    def counted() -> None:
        nonlocal hashes
        hashes = work()

    energy: Energy
    energy, runs = measure(meter, counted, window_s=window_s, clock=clock)
    return Point(
        locked_mhz=locked_mhz,
        hashes_per_s=runs * hashes / energy.seconds,
        joules_per_hash=energy.joules / (runs * hashes),
        mean_w=energy.mean_w,
        clock_mhz=energy.clock_mhz,
    )


def _require_idle(nvml: Any, handle: Any, pci_bus_id: str) -> None:
    others = [
        process.pid
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        if process.pid != os.getpid()
    ]
    if others:
        listed = ", ".join(map(str, others))
        raise MeasurementRefusedError(f"GPU {pci_bus_id} is in use by process {listed}; stop it first")


def _clock_steps(nvml: Any, handle: Any, steps: int) -> list[int]:
    """Return up to `steps` clocks in MHz, spread over those that the GPU supports, highest first."""
    memory_mhz = max(nvml.nvmlDeviceGetSupportedMemoryClocks(handle))
    supported = sorted(set(nvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz)), reverse=True)
    if steps >= len(supported):
        return supported
    if steps < 2:  # noqa: PLR2004 - one step has no distance
        return supported[:1]
    return [supported[round(i * (len(supported) - 1) / (steps - 1))] for i in range(steps)]


def _try_lock(nvml: Any, handle: Any, mhz: int) -> None:
    try:
        nvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
    except nvml.NVMLError_NoPermission as error:
        raise MeasurementRefusedError("locking clocks needs administrator rights; run as root") from error


@contextlib.contextmanager
def _restored_clocks(nvml: Any, handle: Any) -> Iterator[None]:
    """Reset the GPU's clocks when the `with` block ends, even if SIGTERM ends it or comes just then."""

    def reset() -> None:
        # Without the right to lock clocks, no clock was locked, and a reset is refused too.
        with contextlib.suppress(nvml.NVMLError_NoPermission):
            nvml.nvmlDeviceResetGpuLockedClocks(handle)

    def stop(number: int, _frame: FrameType | None) -> None:
        reset()  # here as well: the signal may come at the end, just before the reset
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        try:
            reset()
        finally:
            signal.signal(signal.SIGTERM, before)
