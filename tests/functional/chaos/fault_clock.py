"""Faults of the clock: it steps while the collector runs. libfaketime stands between the two."""

import platform
import subprocess
import time
from pathlib import Path

from collector.regtest.bitcoind import cache_folder
from tests.functional.chaos.judge import Verdict
from tests.functional.chaos.registry import NotHereError, fault
from tests.functional.chaos.world import World

PACKAGE = "libfaketime"
LIBRARY = "faketime/libfaketimeMT.so.1"
STEPS_S = (-30, 45, -3600)
BUSY_S = 4.0


def find_faketime() -> Path:
    """Return the library: the system's, or Debian's package unpacked into the cache. Raises NotHereError."""
    place = f"usr/lib/{platform.machine()}-linux-gnu/{LIBRARY}"
    folder = cache_folder() / PACKAGE
    if not (Path("/") / place).exists() and not (folder / place).exists():
        folder.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(["apt-get", "download", PACKAGE], cwd=folder, capture_output=True, check=True)
            (archive,) = folder.glob("*.deb")
            subprocess.run(["dpkg-deb", "--extract", archive, folder], capture_output=True, check=True)
        except (OSError, ValueError, subprocess.CalledProcessError) as error:
            raise NotHereError(f"no {PACKAGE} here, and Debian's is not to be had: {error}") from None
    for found in (Path("/") / place, folder / place):
        if found.exists():
            return found
    raise NotHereError(f"{PACKAGE} has no {place}")


@fault(
    "clock_steps",
    "the collector's clock steps back 30 s, ahead 45 s and back an hour while it runs",
    n_coins=12_000,
)
def clock_steps(world: World) -> Verdict:
    """Step under traffic; the monotonic clock goes on."""
    offset = world.folder / "offset"
    offset.write_text("+0s\n")
    faked = {
        "LD_PRELOAD": str(find_faketime()),
        "FAKETIME_TIMESTAMP_FILE": str(offset),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    collector, traffic = world.new_collector(environment=faked), world.traffic
    collector.start()
    traffic.begin()
    total_s = 0
    for step_s in STEPS_S:
        time.sleep(max(1.0, BUSY_S * world.scale))
        total_s += step_s
        partial = offset.with_suffix(".new")
        partial.write_text(f"{total_s:+d}s\n")
        partial.replace(offset)
    time.sleep(max(1.0, BUSY_S * world.scale))
    traffic.end()
    return world.conclude(must_end=["clock_step"], has_clock=False)
