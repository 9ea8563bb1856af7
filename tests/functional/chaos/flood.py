"""Play a lasting flood: rows by the million, judged by message counters and by the memory of the process.

One block of many transactions is disconnected and connected again, over and over: each time the node
publishes that all of them entered its mempool and left it, and sends each of them three times. Other
transactions stay in the mempool and are in every template. The node writes no debug.log here, so the dataset
is compared with the recorder alone, as arrays.

How many rows a second come through depends on the host, so it is a figure and no verdict: what finds no room
has to be named. `bench_collector.py --sustain-s` measures the rate that is kept up without a loss.
"""

import time
from array import array
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from collector.dataset.schema import TABLES
from tests.functional.chaos.judge import Verdict, check_command
from tests.functional.chaos.memory_use import SAMPLE_S, MemoryUse, judge_memory, memory_use
from tests.functional.chaos.registry import fault
from tests.functional.chaos.world import World

DURATION_S = 600.0
SHORTEST_S = 20.0
N_TRANSACTIONS = 2_500  # in the block
N_STANDING = 3_000  # in the mempool all the time
CYCLES_PER_S = 2.1  # of which each makes an event and an entry for every transaction of the block
MESSAGE_BYTES = 33  # of a message: the hash and the letter, before the mempool's number


@fault(
    "flood",
    "10,000 events and entries a second, where the host can, for 10 minutes; memory must stay flat",
    n_coins=10 * (N_TRANSACTIONS + N_STANDING),
    is_logged=False,
    usual_scale=0.1,
)
def flood(world: World) -> Verdict:
    """Keep up the rate for a time, then compare the dataset with what the recorder has."""
    collector = world.collector
    collector.start()
    world.traffic.send(N_TRANSACTIONS)
    (block,) = world.traffic.mine()
    world.traffic.send(N_STANDING)
    world.settle()
    duration_s = max(SHORTEST_S, DURATION_S * world.scale)
    samples = _pour(world, block, duration_s)
    began_s = time.monotonic()
    world.settle()
    world.facts["s until in step again"] = round(time.monotonic() - began_s, 1)
    status = collector.stop()
    rows = _rows(world)
    rows_per_s = (rows["mempool_events"] + rows["mempool_txs"]) / duration_s
    rates = {"events and entries per s": round(rows_per_s), "for s": duration_s}
    rates["rows of all tables per s"] = round(sum(rows.values()) / duration_s)
    verdict = Verdict(figures=world.facts | rates)
    if status:
        verdict.faults.append(f"the collector ends with {status}: {collector.said[-600:]}")
    judge_memory(samples, duration_s, verdict)
    _compare(world, rows, verdict)
    check_command(collector.dataset, verdict)
    return verdict


def _pour(world: World, block: str, duration_s: float) -> list[MemoryUse]:
    """Disconnect and connect the block again at a steady rate; return the memory, each second."""
    processes = world.collector.processes  # not the compaction that begins ten minutes later
    began_s = time.monotonic()
    samples: list[MemoryUse] = []
    n_cycles = 0
    while (now_s := time.monotonic() - began_s) < duration_s:
        if now_s >= len(samples) * SAMPLE_S:
            samples.append(memory_use(processes))
        if n_cycles < CYCLES_PER_S * now_s:
            world.rpc.call("invalidateblock", block)
            world.rpc.call("reconsiderblock", block)
            n_cycles += 1
        else:
            time.sleep(0.02)
    world.facts["blocks taken away and put back"] = n_cycles
    return samples


def _compare(world: World, rows: dict[str, int], verdict: Verdict) -> None:
    """Check that every event that coverage claims is there once and equals the recorded one."""
    events = _columns(world, "mempool_events", ["sequence", "kind", "event", "hash"])
    events = events.filter(pc.equal(events["kind"], "pushed")).sort_by("sequence")
    counters = events["sequence"].to_numpy()
    verdict.wrong("events twice, by counter", counters[1:][np.diff(counters) == 0].tolist())
    told_counters, told = _recorded(world)
    at = np.searchsorted(told_counters, counters).clip(max=len(told_counters) - 1)
    is_same = (told_counters[at] == counters) & (told[at] == _messages(events)).all(axis=1)
    verdict.wrong("rows that differ from the recorder's, by counter", counters[~is_same].tolist())
    coverage = _columns(world, "coverage", ["topic", "n_messages", "end_reason"]).to_pylist()
    claimed = sum(row["n_messages"] for row in coverage if row["topic"] == "sequence")
    if claimed != len(counters):
        verdict.faults.append(f"coverage claims {claimed} events, {len(counters)} are there")
    ends = {row["end_reason"] for row in coverage} - {"sealed", "shutdown"}
    if len(counters) < (told_counters >= counters[0]).sum() and not ends:
        verdict.faults.append(
            f"the recorder has {len(told)} events, the dataset {len(counters)}, no hole is named"
        )
    verdict.figures |= {
        "recorded": len(told),
        "published": int(told_counters[-1]) + 1,
        "events": len(counters),
        "holes": {reason: sum(row["end_reason"] == reason for row in coverage) for reason in sorted(ends)},
    }
    verdict.figures |= {f"rows of {name}": count for name, count in rows.items()}


def _recorded(world: World) -> tuple[np.ndarray, np.ndarray]:
    """Return the recorded counters, which rise, and the messages as rows of 33 bytes, as `_messages` does."""
    counters, messages = array("q"), bytearray()
    for frame in world.frames():
        counters.append(frame.counter)
        messages += frame.body[:MESSAGE_BYTES]
    return np.frombuffer(counters, np.int64), np.frombuffer(messages, np.uint8).reshape(-1, MESSAGE_BYTES)


def _messages(events: pa.Table) -> np.ndarray:
    """Return events as the node sent them, 33 bytes each: the hash in displayed order, and the letter."""
    hashes = np.frombuffer(b"".join(events["hash"].to_pylist()), np.uint8).reshape(len(events), -1)
    letters = np.frombuffer("".join(events["event"].to_pylist()).encode(), np.uint8)
    return np.column_stack([hashes[:, ::-1], letters])


def _rows(world: World) -> dict[str, int]:
    counts = {
        name: sum(pq.ParquetFile(file).metadata.num_rows for file in _files(world, name)) for name in TABLES
    }
    return {name: count for name, count in counts.items() if count}


def _columns(world: World, name: str, columns: list[str]) -> pa.Table:
    return pa.concat_tables([pq.ParquetFile(file).read(columns) for file in _files(world, name)])


def _files(world: World, name: str) -> list[Any]:
    return sorted((world.collector.dataset / "chain=regtest" / name).glob("*/*.parquet"))
