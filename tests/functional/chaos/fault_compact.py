"""Define the fault that kills a compaction: at every moment, each row must be in the dataset once."""

import contextlib
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.functional.chaos.fault_clock import Clock
from tests.functional.chaos.judge import Verdict, check_command, read_tables
from tests.functional.chaos.registry import NotHereError, fault
from tests.functional.chaos.world import World

N_KILLS = 20
DAYS_AGO_S = -3 * 86_400
SEAL_S = 0.5


@fault(
    "compaction_killed",
    "`pool-collector compact` is killed at 20 random moments, over a dataset of many small files",
    n_coins=12_000,
)
def compaction_killed(world: World) -> Verdict:
    """Collect with a clock three days late, so that the recorded days are over; then kill compactions."""
    clock = Clock(world.folder)
    clock.step(DAYS_AGO_S)
    collector = world.new_collector(environment=clock.environment, settings={"seal_interval_s": SEAL_S})
    collector.start()
    world.traffic.busy(max(4.0, 20 * world.scale))
    verdict = world.conclude(has_clock=False)
    dataset = collector.dataset
    before, n_files = _counted(dataset), _n_files(dataset)
    command = [sys.executable, "-m", "collector", "compact", str(dataset)]
    if subprocess.run([*command[:4], "--help"], capture_output=True, check=False).returncode:
        raise NotHereError("this version has no `compact`")
    longest_s = _duration_of([*command[:4], "--help"]) + 1.0
    for number in range(max(3, round(N_KILLS * world.scale))):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(world.draw.uniform(longest_s / 4, longest_s))
        process.kill()
        process.wait()
        if _counted(dataset) != before:
            verdict.faults.append(f"rows differ after kill {number + 1}")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        verdict.faults.append(f"compact ends with {done.returncode}: {done.stderr[-300:]}")
    if _counted(dataset) != before:
        verdict.faults.append("rows differ after the last compaction")
    verdict.figures |= {"files before": n_files, "files after": _n_files(dataset)}
    check_command(dataset, verdict)
    return verdict


def _counted(dataset: Path) -> dict[str, Counter[str]]:
    """Return how often each row occurs, by table."""
    return {name: Counter(map(repr, rows)) for name, rows in read_tables(dataset).items()}


def _n_files(dataset: Path) -> int:
    return len(list(dataset.glob("chain=regtest/*/[dh]*=*/*.parquet")))


def _duration_of(command: list[str]) -> float:
    began_s = time.monotonic()
    subprocess.run(command, capture_output=True, check=False)
    return time.monotonic() - began_s
