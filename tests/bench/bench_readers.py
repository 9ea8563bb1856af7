"""Measure what readers of the live stream cost the collector; `bench_collector` runs it.

The whole collector takes the same traffic with its listener on, once without a reader and once with readers
that hold `/events` open and connect again when a stream ends. The readers run on the node's core.

- The listener alone, with all rows that it keeps and one more each second: its part of a core.
- As fast as it can: transactions a second, by the clock and by the collector's processor time. Where there
  are two cores, node and readers share one, so by the clock it says what a slower node costs as well.
- At the rate of mainnet, and at ten times that: the time from the moment at which the node is told to publish
  a transaction (its event and its body) to that at which both have gone from the ring into the journal. A
  process on the node's core looks at the ring's counter every half millisecond.
"""

import math
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import requests
from bench_running import Running
from bench_traffic import Node
from ratios import interval

from collector.monitor.health import Health
from collector.monitor.http import MonitorServer
from collector.monitor.live_rows import COLUMNS, MAX_ROWS, LiveRows
from collector.monitor.metrics import Metrics
from collector.regtest.ports import free_ports

N_READERS = 20
LATE_S = 5.0
OUR_CORE, NODE_CORE = 0, 1
RATES = (10, 100)  # transactions a second: more than mainnet has on most days, and ten times that
PACED_S = 30.0
LOOK_S = 0.0005
ALONE_S = 20.0
SETTLED_S = 5.0
FRAMES_PER_TX = 2  # the event and the body


def follow(url: str) -> None:
    """Read the stream for ever, and go on from the last id after each end."""
    http = requests.Session()
    last_id = ""
    while True:
        try:
            with http.get(url, headers={"last-event-id": last_id}, stream=True, timeout=LATE_S) as answer:
                for line in answer.iter_lines():
                    if line.startswith(b"id:"):
                        last_id = line[3:].strip().decode()
        except requests.RequestException:
            threading.Event().wait(0.1)  # the collector is not there yet, or the stream was cut off


def follow_all(url: str, n_readers: int, core: int, is_ready: Event) -> None:
    """Follow with so many readers, each in a thread of this process."""
    os.sched_setaffinity(0, {core})  # what is on the collector's core counts as its own
    is_ready.set()
    for _ in range(n_readers):
        threading.Thread(target=follow, args=(url,), daemon=True).start()
    threading.Event().wait()


@contextmanager
def readers(address: str | None, n_readers: int | None, core: int) -> Iterator[None]:
    """Read a collector's stream in another process during the `with` block; do nothing without readers."""
    if not n_readers:
        yield
        return
    context = multiprocessing.get_context("spawn")
    is_ready = context.Event()
    process = context.Process(
        target=follow_all, args=(f"http://{address}/events", n_readers, core, is_ready), daemon=True
    )
    process.start()
    is_ready.wait()
    try:
        yield
    finally:
        process.terminate()
        process.join()


def watch(ring: Path, core: int, found: Connection) -> None:
    """Send when the ring's counter of released records changed, and to what, after anything comes back."""
    os.sched_setaffinity(0, {core})
    seen = [(0.0, -1)]
    with ring.open("rb", buffering=0) as file:
        found.send(None)
        while not found.poll():
            n_released = int(memoryview(os.pread(file.fileno(), 64, 0)).cast("Q")[4])
            if n_released != seen[-1][1]:
                seen.append((time.monotonic(), n_released))
            time.sleep(LOOK_S)
    found.send(seen)


def delays(folder: Path, n_readers: int, tx_per_s: int, duration_s: float = PACED_S) -> dict[str, Any]:
    """Let the node publish at a rate; return the delays to the journal in ms, median and 95 % quantile."""
    node = Node(folder, NODE_CORE)
    os.sched_setaffinity(0, {OUR_CORE})
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory() as at, readers(address, n_readers, NODE_CORE):
        running = Running(node, Path(at), metrics=address)
        (ring,) = running.journal.glob("*.ring")
        ours, theirs = multiprocessing.Pipe()
        watching = multiprocessing.get_context("spawn").Process(target=watch, args=(ring, NODE_CORE, theirs))
        watching.start()
        ours.recv()
        n_before = running.n_released()
        begun_s, used_s = time.monotonic(), running.processor_s()
        sent = []
        for number in range(round(duration_s * tx_per_s)):
            time.sleep(max(0.0, begun_s + number / tx_per_s - time.monotonic()))
            sent.append(time.monotonic())
            node.send(FRAMES_PER_TX)
        while running.n_released() < n_before + FRAMES_PER_TX * len(sent):
            time.sleep(0.01)
        used_s = running.processor_s() - used_s
        time.sleep(0.1)
        ours.send(None)
        seen = ours.recv()
        watching.join()
        running.finish()
    node.close()
    counts = [count for _, count in seen]
    ends = [bisect_left(counts, n_before + FRAMES_PER_TX * number) for number in range(1, len(sent) + 1)]
    found = sorted(1000 * (seen[end][0] - begin) for end, begin in zip(ends, sent, strict=True))
    return {
        "median_ms": statistics.median(found),
        "p95_ms": found[math.ceil(0.95 * len(found)) - 1],
        "cpu_s": used_s,
    }


def listener(n_readers: int, duration_s: float = ALONE_S, settled_s: float = SETTLED_S) -> dict[str, Any]:
    """Serve readers and nothing else; return the part of a core that this process, without them, uses."""
    os.sched_setaffinity(0, {OUR_CORE})
    metrics, live = Metrics(["bench"]), LiveRows()
    arrival = dict.fromkeys(COLUMNS["block_arrivals"]) | {"block_hash": bytes(32)}
    live.take("block_arrivals", [arrival] * MAX_ROWS)
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with tempfile.TemporaryDirectory() as at:
        server = MonitorServer(address, metrics, Health(metrics, {"bench": Path(at)}), live)
        with readers(address, n_readers, NODE_CORE):
            time.sleep(settled_s)  # the readers start
            begun_s, used_s = time.monotonic(), time.process_time()
            while time.monotonic() - begun_s < duration_s:
                time.sleep(1)
                live.take("block_arrivals", [arrival])
            share = (time.process_time() - used_s) / (time.monotonic() - begun_s)
        server.close()
    return {"share_of_a_core": share}


def with_readers(  # noqa: PLR0917 - what is compared, and how
    whole: Callable[[Path, int], dict[str, Any]],
    paced: Callable[[Path, int, int], dict[str, Any]],
    alone: Callable[[int], dict[str, Any]],
    folder: Path,
    n_rounds: int,
    rates: Sequence[int] = RATES,
) -> dict[str, Any]:
    """Compare with and without readers in pairs; all three run what they measure in a process of its own.

    `rates` has the transactions a second that the node publishes.
    """
    return {
        "n_readers": N_READERS,
        "listener_alone": {n_readers: alone(n_readers) for n_readers in (0, N_READERS)},
        "as_fast_as_it_can": pairs(partial(whole, folder), ("tx_per_s", "tx_per_cpu_s"), n_rounds),
        **{
            f"{rate}_tx_per_s": pairs(
                lambda n_readers, rate=rate: paced(folder, n_readers, rate),
                ("median_ms", "p95_ms", "cpu_s"),
                n_rounds,
            )
            for rate in rates
        },
    }


def pairs(measure: Callable[[int], dict[str, Any]], keys: Sequence[str], n_rounds: int) -> dict[str, Any]:
    """Measure with and without readers in turn; return the ratios of the facts, and the facts without.

    Every other pair begins with the readers, so that a machine that becomes slower or faster meanwhile
    favours neither. The interval is that of the mean of the logarithms.
    """
    ratios: dict[str, list[float]] = {key: [] for key in keys}
    without: dict[str, list[float]] = {key: [] for key in keys}
    for number in range(n_rounds):
        order = (0, N_READERS) if number % 2 == 0 else (N_READERS, 0)
        found = {n_readers: measure(n_readers) for n_readers in order}
        for key in keys:
            ratios[key].append(found[N_READERS][key] / found[0][key])
            without[key].append(found[0][key])
    return {
        key: {
            "without_readers": statistics.median(without[key]),
            "ratio": statistics.median(made),
            "interval": interval(made),
            "ratios": made,
        }
        for key, made in ratios.items()
    }
