"""Define the fault of the clock: it steps while the collector runs, by a preloaded library that shifts it."""

import mmap
import shutil
import subprocess
import time
from pathlib import Path

from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import NotHereError, fault
from tests.functional.chaos.world import World

SHIM = Path(__file__).with_name("clock_offset.c")
SMALL_S, LARGE_S = range(2, 120), range(600, 7200)  # sizes of steps
BUSY_S = 4.0


class Clock:
    """Shifts the wall clock of the processes that run with `environment`."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise NotHereError("no C compiler to build the clock's shim with")
        library, file = folder / "clock_offset.so", folder / "offset"
        command = [compiler, "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotHereError(f"the clock's shim does not compile: {done.stderr[-200:]}")
        file.write_bytes(bytes(8))
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_OFFSET_FILE": str(file)}
        with file.open("r+b") as opened:
            self._offset = mmap.mmap(opened.fileno(), 8)
        self._offset_s = 0

    def step(self, by_s: int) -> None:
        """Set the wall clock ahead by this many seconds, or back if the number is negative."""
        self._offset_s += by_s
        self._offset[:] = (self._offset_s * 1_000_000_000).to_bytes(8, "little", signed=True)


@fault(
    "clock_steps",
    "the collector's clock steps back and ahead, by seconds and by up to two hours, while it runs",
    n_coins=12_000,
)
def clock_steps(world: World) -> Verdict:
    """Set the wall clock under traffic, while the monotonic clock runs on."""
    clock = Clock(world.folder)
    collector, traffic = world.new_collector(environment=clock.environment), world.traffic
    collector.start()
    traffic.begin()
    small, large = world.draw.choice(SMALL_S), world.draw.choice(LARGE_S)
    steps_s = [-world.draw.choice(SMALL_S), small, world.draw.choice([-large, large])]
    world.draw.shuffle(steps_s)
    world.facts["steps, s"] = steps_s
    for step_s in steps_s:
        time.sleep(max(1.0, world.about(BUSY_S * world.scale)))
        clock.step(step_s)
    time.sleep(max(1.0, BUSY_S * world.scale))
    traffic.end()
    return world.conclude(must_end=["clock_step"], has_clock=False)
