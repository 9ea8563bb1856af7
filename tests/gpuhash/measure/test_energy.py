"""Energy from counters that step, wrap, stand still or are missing."""

from pathlib import Path

import pytest

from gpuhash.errors import BackendUnavailableError
from gpuhash.measure import energy
from gpuhash.measure.energy import Clock, RaplMeter, measure


class World:
    """Plays a clock that moves only when work is done, and a device whose counter steps every 0.1 s."""

    step_s = 0.1
    name = "a scripted counter"

    def __init__(self, idle_w: float, busy_w: float) -> None:
        self.seconds = 0.0
        self.spent_joules = 0.0
        self.idle_w = idle_w
        self.busy_w = busy_w
        self.shown_joules = 0.0
        self.shown_at_s = 0.0

    def pass_time(self, seconds: float, watts: float) -> None:
        """Let time pass in small pieces; the counter shows what was spent up to its last step."""
        pieces = max(int(seconds / 0.001), 1)
        for _ in range(pieces):
            self.seconds += seconds / pieces
            self.spent_joules += watts * seconds / pieces
            if self.seconds - self.shown_at_s >= self.step_s:
                self.shown_at_s = self.seconds
                self.shown_joules = self.spent_joules

    def joules(self) -> float:
        """Return what the counter shows."""
        return self.shown_joules

    def clock_mhz(self) -> float | None:
        """Return a clock that never changes."""
        return 1500.0

    def clock(self) -> Clock:
        """Return the clock and the sleep function that measure this time."""
        return Clock(now=lambda: self.seconds, sleep=lambda s: self.pass_time(s, self.idle_w))

    def work(self) -> None:
        """Let 30 ms pass at the power of a busy device."""
        self.pass_time(0.03, self.busy_w)


def test_gross_and_net_energy_of_known_power() -> None:
    """A device of 80 W idle and 500 W busy is measured as such, within two steps of the counter."""
    world = World(idle_w=80, busy_w=500)

    spent, runs = measure(world, world.work, window_s=3.0, clock=world.clock())

    assert spent.seconds >= 3.0
    assert spent.mean_w == pytest.approx(500, rel=0.03)
    assert spent.idle_w == pytest.approx(80, rel=0.03)
    assert spent.net_joules == pytest.approx((500 - 80) * spent.seconds, rel=0.05)
    assert runs == pytest.approx(spent.seconds / 0.03, abs=5)
    assert spent.clock_mhz == 1500


def test_a_counter_that_stands_still_is_not_zero_energy() -> None:
    """A counter that never moves is an error, not 0 joules."""
    world = World(idle_w=80, busy_w=500)
    world.step_s = 1e9

    with pytest.raises(BackendUnavailableError, match="has not moved"):
        measure(world, world.work, window_s=1.0, clock=world.clock())


def rapl(root: Path, *packages: tuple[int, int]) -> list[Path]:
    """Folders as the kernel shows them: each package, its cores, and the platform, which holds them all."""
    zones = {"intel-rapl:9": ("psys", 1, 10)}
    for number, (joules, span) in enumerate(packages):
        zones[f"intel-rapl:{number}"] = (f"package-{number}", joules, span)
        zones[f"intel-rapl:{number}:0"] = ("core", joules, span)
    for folder, (name, joules, span) in zones.items():
        (root / folder).mkdir()
        (root / folder / "name").write_text(f"{name}\n")
        (root / folder / "energy_uj").write_text(f"{joules}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{span}\n")
    return [root / f"intel-rapl:{number}" / "energy_uj" for number in range(len(packages))]


def test_rapl_adds_packages_and_follows_a_wrap(tmp_path: Path) -> None:
    """Two packages, one of which wraps around; what holds or is held by a package is not counted again."""
    first, second = rapl(tmp_path, (1_000_000, 9_999_999), (9_000_000, 9_999_999))
    meter = RaplMeter(tmp_path)
    (tmp_path / "intel-rapl:9" / "energy_uj").write_text("7")

    first.write_text("3000000")
    second.write_text("500000")

    assert meter.joules() == pytest.approx(2.0 + 1.5)
    first.write_text("4000000")
    assert meter.joules() == pytest.approx(4.5)


def test_missing_counters_are_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No RAPL folder, or one only root may read, gives no meter; no NVML neither."""
    monkeypatch.setattr(energy, "RAPL_ROOT", tmp_path)
    with pytest.raises(BackendUnavailableError, match="no RAPL packages"):
        RaplMeter(tmp_path)
    files = rapl(tmp_path, (1, 10))
    files[0].unlink()
    with pytest.raises(BackendUnavailableError, match="cannot be read"):
        RaplMeter(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)

    assert energy.gpu_meter("0000:1B:00.0") is None
