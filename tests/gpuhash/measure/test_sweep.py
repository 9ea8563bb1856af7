"""The clock sweep on a scripted NVML: it finds the planted optimum, restores clocks, and refuses."""

import os
import signal
import types
from collections.abc import Callable

import pytest

from gpuhash.errors import BackendUnavailableError, MeasurementRefusedError
from gpuhash.measure.sweep import sweep
from tests.gpuhash.measure.test_energy import World

CLOCKS = (600, 900, 1200, 1500, 1800)
IDLE_W = 100.0
SLOT = "0000:1B:00.0"


class NvmlError(Exception):
    """Stands in for pynvml.NVMLError."""


class NoPermissionError(NvmlError):
    """Stands in for pynvml.NVMLError_NoPermission."""


class ScriptedGpu:
    """Plays a GPU: its speed is its clock, its power is 100 W and a part that grows with the clock cubed."""

    def __init__(self, *, root: bool = True, others: tuple[int, ...] = ()) -> None:
        self.root = root
        self.others = others
        self.mhz = max(CLOCKS)
        self.calls: list[str] = []
        self.world = World(idle_w=IDLE_W, busy_w=0)
        self.nvml = types.SimpleNamespace(
            NVMLError=NvmlError,
            NVMLError_NoPermission=NoPermissionError,
            NVML_CLOCK_SM=1,
            nvmlDeviceGetHandleByPciBusId=self.handle,
            nvmlDeviceGetComputeRunningProcesses=lambda _: self.processes(),
            nvmlDeviceGetSupportedMemoryClocks=lambda _: [800, 2600],
            nvmlDeviceGetSupportedGraphicsClocks=lambda _, memory: list(CLOCKS) if memory == 2600 else [],
            nvmlDeviceGetTotalEnergyConsumption=lambda _: int(self.world.joules() * 1000),
            nvmlDeviceGetClockInfo=lambda _, kind: {1: self.mhz}[kind],
            nvmlDeviceSetGpuLockedClocks=lambda _, low, high: self.lock(low, high),
            nvmlDeviceResetGpuLockedClocks=lambda _: self.reset(),
        )

    def work(self) -> int:
        """Hash a million times: a tenth of a second at 1000 MHz."""
        self.world.pass_time(1000 / self.mhz / 10, IDLE_W + 600 * (self.mhz / 1800) ** 3)
        return 1_000_000

    def handle(self, pci_bus_id: str) -> int:
        """Return the handle of the only GPU; raise for any other."""
        if pci_bus_id != SLOT:
            raise NvmlError("no such GPU")
        return 1

    def processes(self) -> list[types.SimpleNamespace]:
        """Return the processes on the GPU: this one and those that the test adds."""
        return [types.SimpleNamespace(pid=pid) for pid in (os.getpid(), *self.others)]

    def lock(self, low: int, high: int) -> None:
        """Lock the clock; raise without the rights of root."""
        self.require_root()
        assert low == high
        self.mhz = high
        self.calls.append(f"lock {high}")

    def reset(self) -> None:
        """Unlock the clock, which goes back to the highest; raise without the rights of root."""
        self.require_root()
        self.mhz = max(CLOCKS)
        self.calls.append("reset")

    def require_root(self) -> None:
        """Raise the error of missing rights unless the caller is root."""
        if not self.root:
            raise NoPermissionError("Insufficient Permissions")


def run(gpu: ScriptedGpu, work: Callable[[], int] | None = None, **options: object) -> object:
    """Sweep a scripted GPU with its own time."""
    arguments = {
        "allow_clock_changes": True,
        "pci_bus_id": SLOT,
        "window_s": 3.0,
        "clock": gpu.world.clock(),
        **options,
    }
    return sweep(gpu.nvml, work or gpu.work, **arguments)


def test_the_planted_optimum_is_found() -> None:
    """Energy per hash is power / speed; its minimum over the clocks is known by construction."""
    gpu = ScriptedGpu()

    done = run(gpu)

    energy = {mhz: (IDLE_W + 600 * (mhz / 1800) ** 3) / (mhz * 1e4) for mhz in CLOCKS}
    best = min(energy, key=lambda mhz: energy[mhz])
    assert best == 900
    assert done.best.locked_mhz == best
    assert done.default.locked_mhz is None
    assert done.saving_ratio == pytest.approx(1 - energy[best] / energy[1800], abs=0.03)
    assert [point.locked_mhz for point in done.points] == [None, 1800, 1500, 1200, 900, 600]
    for point in done.points[1:]:
        assert point.clock_mhz == point.locked_mhz
        assert point.hashes_per_s == pytest.approx(point.locked_mhz * 1e4, rel=0.03)


def test_clocks_are_reset_at_the_end() -> None:
    """The last call to the GPU resets its clocks."""
    gpu = ScriptedGpu()

    run(gpu, steps=2)

    assert [call for call in gpu.calls if call != "reset"] == ["lock 1800", "lock 1800", "lock 600"]
    assert gpu.calls[-1] == "reset"


@pytest.mark.parametrize("failure", [RuntimeError("kernel died"), KeyboardInterrupt(), "SIGTERM"])
def test_clocks_are_reset_whatever_happens(failure: BaseException | str) -> None:
    """An error, Ctrl-C and SIGTERM in the middle of the work leave the GPU as it was."""
    gpu = ScriptedGpu()

    def work() -> int:
        if gpu.mhz == 1200:
            if isinstance(failure, BaseException):
                raise failure
            os.kill(os.getpid(), signal.SIGTERM)
        return gpu.work()

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises((RuntimeError, KeyboardInterrupt, SystemExit)):
        run(gpu, work)

    assert gpu.calls[-1] == "reset"
    assert gpu.mhz == 1800
    assert signal.getsignal(signal.SIGTERM) is before


def test_clocks_are_reset_when_sigterm_comes_at_the_very_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A SIGTERM just before the clocks are reset does not end the process while they are locked."""
    gpu = ScriptedGpu()
    ended_at: list[int] = []
    signals = iter([signal.SIGTERM])

    def reset(_handle: int) -> None:
        if gpu.mhz == min(CLOCKS):  # the sweep is over
            for number in signals:
                os.kill(os.getpid(), number)
        gpu.reset()

    monkeypatch.setattr(gpu.nvml, "nvmlDeviceResetGpuLockedClocks", reset)
    before = signal.signal(signal.SIGTERM, lambda *_: ended_at.append(gpu.mhz))
    try:
        with pytest.raises(SystemExit):
            run(gpu)
    finally:
        signal.signal(signal.SIGTERM, before)

    assert next(signals, None) is None
    assert ended_at == []
    assert gpu.mhz == max(CLOCKS)


def test_nothing_is_touched_without_the_word_of_the_caller() -> None:
    """Without allow_clock_changes the sweep is refused and no clock is changed."""
    gpu = ScriptedGpu()

    with pytest.raises(MeasurementRefusedError, match="--allow-clock-changes"):
        run(gpu, allow_clock_changes=False)

    assert gpu.calls == []


def test_without_privilege_the_sweep_is_refused() -> None:
    """When NVML denies the rights, the sweep raises our error before it measures anything."""
    gpu = ScriptedGpu(root=False)

    with pytest.raises(MeasurementRefusedError, match="administrator"):
        run(gpu)

    assert gpu.world.seconds == 0


def test_a_gpu_in_use_is_left_alone() -> None:
    """Another process on the GPU is named and the clocks stay."""
    gpu = ScriptedGpu(others=(4242,))

    with pytest.raises(MeasurementRefusedError, match="in use by process 4242"):
        run(gpu)

    assert gpu.calls == []


def test_a_gpu_that_is_not_there_is_an_error() -> None:
    """Our error contains the text of NVML's error."""
    with pytest.raises(BackendUnavailableError, match="no such GPU"):
        run(ScriptedGpu(), pci_bus_id="0000:FF:00.0")
