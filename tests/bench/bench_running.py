"""The collector, run on a node that stands in: how it is fed, and how much memory it takes."""

import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench_traffic import Node

from collector import service
from collector.config import NodeSettings, Settings
from collector.schema import MEMPOOL_EVENTS, MEMPOOL_TXS
from collector.writer import Dataset

CREDIT = 5_000  # messages that the node sends at once
MOST_WAITING = 40_000
EVENTS_PER_S = 10_000
STEP_S = 0.05


def feed(node: Node, n_released: Callable[[], int]) -> None:
    """Let the node send all, and no faster than it is taken."""
    n_sent = CREDIT
    while node.send(CREDIT):
        n_sent += CREDIT
        while n_sent - n_released() > MOST_WAITING:
            time.sleep(0.005)


class Running:
    """The collector, run in this process on the node that stands in, until `finish`."""

    def __init__(self, node: Node, root: Path, **changes: Any) -> None:
        cookie = root / "cookie"
        cookie.write_text("bench:bench")
        watched = NodeSettings(name="bench", rpc_url=node.rpc_url, cookie_file=cookie)
        values: dict[str, Any] = {
            "chain": "regtest",
            "dataset": root / "dataset",
            "node": (watched,),
            "template_interval_s": 3600,
            "stats_interval_s": 3600,
            "watchdog_interval_s": 3600,
            "seal_interval_s": 3600,
            "log_level": "error",
        } | changes
        known = {name: value for name, value in values.items() if name in Settings.model_fields}
        self._settings = Settings(**known)
        self._stop = threading.Event()
        self._ends: list[Any] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self.journal = root / "dataset" / "journal" / "regtest" / "bench"
        while not list(self.journal.glob("*.ring")):
            assert self._thread.is_alive(), self._ends
            time.sleep(0.01)
        time.sleep(1.0)  # the first snapshot

    def _run(self) -> None:
        try:
            self._ends.append(service.run(self._settings, self._stop))
        except Exception as error:  # noqa: BLE001 - for the thread that waits
            self._ends.append(error)

    def n_released(self) -> int:
        """Tell how many records have gone from the ring into the journal."""
        assert self._thread.is_alive(), self._ends
        (path,) = self.journal.glob("*.ring")
        with path.open("rb") as file:
            return int(memoryview(file.read(64)).cast("Q")[4])

    def finish(self) -> Dataset:
        """Stop it, and open what it sealed."""
        self._stop.set()
        self._thread.join()
        assert self._ends == [0], self._ends
        return Dataset.open(self._settings.dataset, "regtest")


def memory(root: Path) -> dict[str, Any]:
    """Fill the mempool, and look at resident memory before, full, and some time later."""
    node = Node(root / "memory")
    with tempfile.TemporaryDirectory() as at:
        running = Running(node, Path(at), seal_interval_s=5)
        before = resident_mb()
        feed(node, running.n_released)
        while running.n_released() < node.n_frames:
            time.sleep(0.05)
        time.sleep(15)
        full = resident_mb()
        time.sleep(10)
        later = resident_mb()
        dataset = running.finish()
        n_rows = dataset.read(MEMPOOL_TXS).num_rows
    node.close()
    return {
        "n_tx": n_rows,
        "before_mb": before,
        "full_mb": full,
        "10_s_later_mb": later,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "receiver_peak_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
    }


def resident_mb() -> float:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


def sustained(root: Path, duration_s: float) -> dict[str, Any]:
    """Give the collector 10,000 events a second, each a row at least, and watch its memory."""
    node = Node(root / "memory")
    with tempfile.TemporaryDirectory() as at:
        running = Running(node, Path(at), seal_interval_s=5)
        resident: list[float] = []
        begun_s = time.monotonic()
        steps = round(duration_s / STEP_S)
        for step in range(1, steps + 1):
            node.come_and_go(round(EVENTS_PER_S * STEP_S / 2))
            if step % round(1 / STEP_S) == 0:
                resident.append(resident_mb())
            time.sleep(max(0.0, begun_s + step * STEP_S - time.monotonic()))
        wall_s = time.monotonic() - begun_s
        n_behind = 2 * steps * round(EVENTS_PER_S * STEP_S / 2) - running.n_released()
        dataset = running.finish()
        n_events = dataset.read(MEMPOOL_EVENTS).num_rows
        n_entries = dataset.read(MEMPOOL_TXS).num_rows
    node.close()
    assert n_events == 2 * n_entries == 2 * steps * round(EVENTS_PER_S * STEP_S / 2), "nothing is lost"
    third = max(1, len(resident) // 3)
    return {
        "rows_per_s": (n_events + n_entries) / wall_s,
        "events_per_s": n_events / wall_s,
        "duration_s": wall_s,
        "messages_behind_at_the_end": n_behind,
        "resident_mb_by_thirds": [
            statistics.mean(resident[at : at + third]) for at in range(0, 3 * third, third)
        ],
    }
