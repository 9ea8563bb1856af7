"""Run the collector against a node that stands in, feed it, and watch its memory."""

import os
import resource
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench_traffic import Node

from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import COVERAGE, MEMPOOL_EVENTS, MEMPOOL_TXS
from collector.service import service

CREDIT = 5_000  # messages that the node sends at once
MOST_WAITING = 40_000
ROWS_PER_S = 10_000
OVERLOAD = 6  # times as many are more than any machine takes
SHORT_QUEUE = 30_000  # messages in the ring, so that it is full soon
STEP_S = 0.05
ROWS_PER_TX = 3  # of one that comes and goes: two events and an entry
SETTLED_S = 15.0


def feed(node: Node, n_released: Callable[[], int]) -> None:
    """Let the node send everything, at the pace at which it is taken."""
    n_sent = CREDIT
    while node.send(CREDIT):
        n_sent += CREDIT
        while n_sent - n_released() > MOST_WAITING:
            time.sleep(0.005)


class Running:
    """Runs the collector in this process, on the node that stands in, until `finish`."""

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
        """Return how many records have gone from the ring into the journal."""
        assert self._thread.is_alive(), self._ends
        (path,) = self.journal.glob("*.ring")
        with path.open("rb") as file:
            return int(memoryview(file.read(64)).cast("Q")[4])

    def finish(self) -> Dataset:
        """Stop the collector, and open the dataset that it sealed."""
        self._stop.set()
        self._thread.join()
        assert self._ends == [0], self._ends
        return Dataset.open(self._settings.dataset, "regtest")

    def resident_mb(self) -> float:
        """Return the resident memory of this process and of the receiver."""
        return (_resident_bytes(os.getpid()) + self.receiver_bytes()) / 1e6

    def processor_s(self) -> float:
        """Return the processor time of this process and of the receiver so far, in seconds."""
        return sum(map(_processor_s, [os.getpid(), *_receivers()]))

    def receiver_bytes(self) -> int:
        """Return the resident memory of the receiver; 0 when there is none."""
        return sum(map(_resident_bytes, _receivers()))


def _receivers() -> list[int]:
    """Return the process of the receiver; none when there is none."""
    tasks = Path("/proc/self/task").glob("*/children")
    children = [int(child) for task in tasks for child in task.read_text().split()]
    return [
        child
        for child in children
        if b"collector.receive.process" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def _processor_s(process: int) -> float:
    """Return the processor time of a process so far, of the user and of the system, in seconds."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(process: int) -> int:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def memory(root: Path, *, is_full: bool = False, settled_s: float = SETTLED_S) -> dict[str, Any]:
    """Fill the mempool, or find it full at the start; look at resident memory before, then and later.

    The receiver's is counted too, but for the peak, which is of the process that does the work.
    """
    node = Node(root / "memory", is_full=is_full)
    with tempfile.TemporaryDirectory() as at:
        begun_s = time.monotonic()
        running = Running(node, Path(at), seal_interval_s=5)
        before = running.resident_mb()
        if is_full:
            while _n_sealed(Path(at)) < node.n_waiting:
                time.sleep(1)
        else:
            feed(node, running.n_released)
        while running.n_released() < node.n_frames:
            time.sleep(0.05)
        filled_s = time.monotonic() - begun_s
        time.sleep(settled_s)
        full = running.resident_mb()
        time.sleep(settled_s)
        later = running.resident_mb()
        receiver = running.receiver_bytes() / 1e6
        peak = _peak_mb()
        n_rows = running.finish().read(MEMPOOL_TXS).num_rows
    node.close()
    return {
        "n_tx": n_rows,
        "filled_s": filled_s,
        "before_mb": before,
        "full_mb": full,
        "later_mb": later,
        "of_which_receiver_mb": receiver,
        "peak_of_collector_mb": peak,
    }


def _peak_mb() -> float:
    """Return the most resident memory of this process; `getrusage` would begin with that of its parent."""
    words = Path("/proc/self/status").read_text().split()
    return int(words[words.index("VmHWM:") + 1]) * 1024 / 1e6


def _n_sealed(root: Path) -> int:
    files = root.glob("dataset/chain=regtest/mempool_txs/*/*.parquet")
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)


def sustained(root: Path, duration_s: float, times: float = 1) -> dict[str, Any]:
    """Give the collector 10,000 rows a second, or so many times as many, and watch memory and processor time.

    What it cannot take must be named in `coverage`, and everything else be there.
    """
    node = Node(root / "entries")
    per_step = max(1, round(times * ROWS_PER_S * STEP_S / ROWS_PER_TX))
    step_s = per_step * ROWS_PER_TX / (times * ROWS_PER_S)
    with tempfile.TemporaryDirectory() as at:
        limit = {"queue_limit": SHORT_QUEUE} if times > 1 else {}
        running = Running(node, Path(at), seal_interval_s=300, **limit)
        resident: list[float] = []
        begun_s, used_s = time.monotonic(), running.processor_s()
        n_steps = 0
        while time.monotonic() - begun_s < duration_s:
            node.come_and_go(per_step)
            n_steps += 1
            if time.monotonic() - begun_s > len(resident) + 1:
                resident.append(running.resident_mb())
            time.sleep(max(0.0, begun_s + n_steps * step_s - time.monotonic()))
        wall_s, used_s = time.monotonic() - begun_s, running.processor_s() - used_s
        n_behind = 2 * n_steps * per_step - running.n_released()
        dataset = running.finish()
        kinds = [rows["kind"] for rows in dataset.read_columns(MEMPOOL_EVENTS, "kind")]
        coverage = dataset.read(COVERAGE).filter(pc.field("topic") == "sequence")
    node.close()
    n_events = sum(pc.sum(pc.equal(kind, "pushed")).as_py() for kind in kinds)
    assert pc.sum(coverage["n_messages"]).as_py() == n_events, "what coverage claims is there"
    n_holes = pc.sum(pc.equal(coverage["end_reason"], "overflow")).as_py()
    assert n_holes or n_events == 2 * n_steps * per_step, "what is lost is named"
    late = resident[len(resident) // 2 :]
    slope = statistics.linear_regression(range(len(late)), late).slope
    return {
        "rows_per_s": 1.5 * n_events / wall_s,
        "offered_rows_per_s": n_steps * per_step * ROWS_PER_TX / wall_s,
        "duration_s": wall_s,
        "share_of_a_core": used_s / wall_s,
        "messages_behind_at_the_end": n_behind,
        "lost_messages": 2 * n_steps * per_step - n_events,
        "holes_named_overflow": n_holes,
        "resident_mb_each_second": [round(each) for each in resident],
        "resident_mb_growth_per_minute_in_second_half": 60 * slope,
        "resident_mb_most": max(resident),
    }
