"""Time the stages of a backfill's work on real blocks, with both kinds of loops for SHA-256.

Usage: python -m tests.gpuhash.bench_pipeline. The blocks of $POOL_TEST_DATA or ../shared/data go through
parse, hash, fees and feerates to Parquet in memory, with SHA-256 on vector lanes and by SHA instructions in
turn, on one thread. Time is CPU time of the process, so other programs disturb little. Printed are medians of
ROUNDS pairs, and the quartiles of the ratios.
"""

import hashlib
import io
import os
import statistics
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pyarrow.parquet as pq

from collector.codec import timing
from collector.codec.chunk import BlockRef, RawBlocks, make_chunk
from collector.codec.rows import blocks_table, transactions_table
from gpuhash import cpu, cpu_sha256, cpu_sha_extensions

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 25
TOTAL = "total"


def main() -> None:
    """Print the stages with each kind of loops, and how many times as fast the second one is."""
    if not cpu_sha_extensions.HAS_SHA:
        raise SystemExit("this CPU has no SHA instructions: there is one kind of loops only")
    os.environ["GPUHASH_THREADS"] = "1"
    timing.time = SimpleNamespace(perf_counter=time.process_time)  # type: ignore[assignment]
    blocks = real_blocks()
    pairs = [(once(blocks, cpu_sha256), once(blocks, cpu_sha_extensions)) for _ in range(ROUNDS + 1)][1:]
    for name, take in (("vector lanes", 0), ("SHA instructions", 1)):
        stages = {stage: statistics.median(pair[take][stage] for pair in pairs) for stage in pairs[0][0]}
        total = stages[TOTAL]
        print(f"{name}: " + ", ".join(f"{s} {t * 1e3:.1f} ms ({t / total:.0%})" for s, t in stages.items()))
    for stage in pairs[0][0]:
        quartiles = statistics.quantiles((before[stage] / after[stage] for before, after in pairs), n=4)
        print(f"{stage}: {quartiles[1]:.2f} times as fast (quartiles {quartiles[0]:.2f}, {quartiles[2]:.2f})")


def real_blocks() -> RawBlocks:
    """Return the real blocks of the main chain whose height is known."""
    data = Path(os.environ.get("POOL_TEST_DATA") or ROOT.parent / "shared" / "data")
    files = sorted(path for path in (data / "mainnet-blocks").glob("*.bin") if path.name[0].isdigit())
    bodies = [path.read_bytes() for path in files]
    refs = [
        BlockRef(
            hashlib.sha256(hashlib.sha256(body[:80]).digest()).digest(),
            int(path.name.split("-")[0]),
            "rpc",
            "rpc",
            path.name,
        )
        for path, body in zip(files, bodies, strict=True)
    ]
    limits = np.cumsum([0, *map(len, bodies)]).astype(np.int64)
    return RawBlocks(refs=refs, data=np.frombuffer(b"".join(bodies), np.uint8), limits=limits)


def once(blocks: RawBlocks, loops: ModuleType) -> dict[str, float]:
    """Do the work once with one kind of loops; return the seconds of each stage and of all."""
    cpu.sha256_loops = loops
    times = timing.StageTimes()
    begin = time.process_time()
    chunk, _rejected = make_chunk(blocks, "main", times)
    if chunk is None:
        raise SystemExit("no block is valid")
    with times.measure("rows and Parquet"):
        for table in (
            blocks_table(chunk, chain="main", verified_by="gpuhash-cpu"),
            transactions_table(chunk),
        ):
            pq.write_table(table, io.BytesIO(), compression="zstd")
    return times.seconds | {TOTAL: time.process_time() - begin}


if __name__ == "__main__":
    main()
