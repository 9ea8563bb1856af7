"""Measure what readers of the live stream cost the collector; `bench_collector` runs it.

The whole collector takes the same traffic with its listener on, once without a reader and once with readers
that hold `/events` open and connect again when a stream ends. The readers run on the node's core.
"""

import math
import multiprocessing
import os
import statistics
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import requests
from scipy import stats

N_READERS = 20
LATE_S = 5.0
MIN_FOR_INTERVAL = 2


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


def with_readers(whole: Callable[..., dict[str, Any]], folder: Path, n_rounds: int) -> dict[str, Any]:
    """Compare rates with and without readers in pairs; `whole` runs the collector in a process of its own.

    A ratio below 1 is what the readers cost. Every other pair begins with the readers, so that a machine that
    becomes slower or faster meanwhile favours neither. The interval is that of the mean of the logarithms.
    """
    ratios: dict[str, list[float]] = {"tx_per_s": [], "tx_per_cpu_s": []}
    for number in range(n_rounds):
        order = (0, N_READERS) if number % 2 == 0 else (N_READERS, 0)
        found = {n_readers: whole(folder, n_readers) for n_readers in order}
        for key, made in ratios.items():
            made.append(found[N_READERS][key] / found[0][key])
    return {
        "n_readers": N_READERS,
        **{f"ratio_of_{key}": statistics.median(made) for key, made in ratios.items()},
        **{f"interval_of_{key}": interval(made) for key, made in ratios.items()},
        **{f"ratio_of_{key}_of_rounds": made for key, made in ratios.items()},
    }


def interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Return the 95 % interval of the geometric mean of ratios by Student's t; None for a single one."""
    if len(ratios) < MIN_FOR_INTERVAL:
        return None
    logs = [math.log(ratio) for ratio in ratios]
    error = statistics.stdev(logs) / math.sqrt(len(logs))
    low, high = stats.t.interval(0.95, len(logs) - 1, loc=statistics.fmean(logs), scale=error)
    return math.exp(low), math.exp(high)
