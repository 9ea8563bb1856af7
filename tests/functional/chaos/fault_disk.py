"""Define the faults of the disk: it is full, files must not grow, or files are damaged."""

import contextlib
import errno
import os
import resource
import signal
import subprocess
import time
from pathlib import Path

from tests.functional.chaos.judge import Verdict, run_check
from tests.functional.chaos.registry import NotHereError, fault
from tests.functional.chaos.world import World

DISK_MB = 48
FULL_S = 12.0
BUSY_S = 10.0
ROUNDS = 12
FILE_LIMIT_BYTES = 600_000


@fault(
    "disk_full",
    "the dataset's disk (a tmpfs of 48 MB) is full for a while, then has space again",
    n_coins=15_000,
)
def disk_full(world: World) -> Verdict:
    """Fill the disk under traffic, then free it again; start the collector again whenever it ends."""
    disk = _small_disk(world)
    collector, traffic = world.new_collector(dataset=disk / "dataset"), world.traffic
    collector.start()
    traffic.begin()
    time.sleep(world.about(3))
    ballast = disk / "ballast"
    until_s = time.monotonic() + max(5.0, FULL_S * world.scale)
    while time.monotonic() < until_s:
        _fill(ballast)
        if collector.status is not None:
            collector.n_failed += 1
            world.facts["said"] = collector.said.strip().splitlines()[-1][-300:]
            collector.start(wait=False)
        time.sleep(0.5)
    ballast.unlink()
    collector.wait_in_step()
    time.sleep(2)
    traffic.end()
    return world.conclude(may_end=["killed", "overflow"])


@fault(
    "folder_read_only",
    "the folder of the chain (`chain=regtest`) is mounted read-only for a while, then can be written again",
    n_coins=15_000,
)
def folder_read_only(world: World) -> Verdict:
    """Let no file be sealed under traffic; the journal keeps the rows until the folder can be written."""
    collector, traffic = world.collector, world.traffic
    collector.start()
    traffic.begin()
    time.sleep(world.about(3))
    folder = str(collector.dataset / "chain=regtest")
    _mount("--bind", folder, folder)
    world.at_end(lambda: subprocess.run(["umount", "--lazy", folder], capture_output=True, check=False))
    _mount("-o", "remount,bind,ro", folder)
    time.sleep(max(5.0, world.about(FULL_S * world.scale)))
    ended = collector.status
    _mount("-o", "remount,bind,rw", folder)
    assert os.strerror(errno.EROFS) in collector.said, "no write was refused: this was no fault"
    time.sleep(3)
    traffic.end()
    verdict = world.conclude()
    if ended is not None:
        verdict.faults.append(f"a read-only folder ended the collector with {ended}")
    return verdict


@fault("file_limit", "files must not grow (RLIMIT_FSIZE) for a while, then may again", n_coins=15_000)
def file_limit(world: World) -> Verdict:
    """Let the journal reach the limit of a file's size, by not sealing it before."""
    collector, traffic = world.new_collector(settings={"seal_interval_s": 600}), world.traffic
    collector.start()
    pid, limit_bytes = collector.process_id, round(world.about(FILE_LIMIT_BYTES))
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, hard))
    traffic.begin()
    journal = collector.dataset / "journal"
    until_s = time.monotonic() + 30
    while time.monotonic() < until_s and collector.status is None and _largest(journal) < limit_bytes * 0.98:
        time.sleep(0.2)
    assert _largest(journal) > limit_bytes * 0.9, "the journal stayed small: this was no fault"
    time.sleep(max(3.0, FULL_S * world.scale / 2))
    if collector.status is None:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))
    else:
        world.facts["said"] = collector.said.strip().splitlines()[-1][-300:]
    collector.wait_in_step()
    time.sleep(2)
    traffic.end()
    return world.conclude(may_end=["killed", "overflow"])


def _damaged(world: World, kind: str) -> Verdict:
    """Kill the collector, damage a segment of the journal, start again; the loss must be named.

    `kind` is "cut" or "bits".
    """
    collector, traffic = world.collector, world.traffic
    traffic.begin()
    n_rounds = max(2, round(ROUNDS * world.scale))
    n_damaged = 0
    for _ in range(n_rounds):
        collector.start()
        time.sleep(world.draw.uniform(0.5, 2.5))
        collector.stop(signal.SIGKILL)
        segments = sorted((collector.dataset / "journal").glob("**/*.journal"))
        sizes = {segment: segment.stat().st_size for segment in segments}
        chosen = [segment for segment, size in sizes.items() if size]
        if chosen:
            n_damaged += 1
            _damage(world, world.draw.choice(chosen), kind)
    collector.start()
    traffic.end()
    world.facts["segments damaged"] = n_damaged
    assert n_damaged, "no segment was there to damage: this was no fault"
    return world.conclude(must_end=["killed"], may_end=["gap"], journal_damaged=True)


def _damage(world: World, segment: Path, kind: str) -> None:
    size = segment.stat().st_size
    if kind == "cut":
        os.truncate(segment, world.draw.randrange(size))
        return
    content = bytearray(segment.read_bytes())
    for _ in range(world.draw.choice([1, 1, 3])):
        content[world.draw.randrange(size)] ^= 1 << world.draw.randrange(8)
    segment.write_bytes(content)


@fault("journal_cut", "the journal is cut at a random byte between a kill and the next start", n_coins=15_000)
def journal_cut(world: World) -> Verdict:
    """Cut off the end of a journal segment between a kill and the next start."""
    return _damaged(world, "cut")


@fault("journal_bits", "bits of the journal are flipped between a kill and the next start", n_coins=15_000)
def journal_bits(world: World) -> Verdict:
    """Flip one to three bits of a journal segment between a kill and the next start."""
    return _damaged(world, "bits")


@fault(
    "parquet_truncated",
    "a sealed file of each table in turn is cut at a random byte, and restored; one of `blocks` is removed",
    n_coins=6_000,
)
def parquet_truncated(world: World) -> Verdict:
    """Cut a file of each table; `check` must name it, and a start must name it or work without it.

    At the end a file of `blocks` is removed; its blocks must be fetched again.
    """
    collector = world.collector
    collector.start()
    world.traffic.busy(max(3.0, 8 * world.scale))
    collector.stop()
    unnamed = []
    for table in ("mempool_events", "mempool_txs", "coverage", "transactions", "blocks"):
        files = sorted((collector.dataset / "chain=regtest" / table).glob("*/*.parquet"))
        damaged = world.draw.choice(files)
        content = damaged.read_bytes()
        os.truncate(damaged, world.draw.randrange(len(content)))
        status, said = run_check(collector.dataset)
        if status != 1 or damaged.name not in said:
            unnamed.append(f"check ends with {status} and does not name {table}: {said[-200:]}")
        collector.start(wait=False)
        if not collector.wait_for("mempool.in_step") and damaged.name not in collector.said:
            unnamed.append(
                f"a start with a damaged file of {table} fails without naming it: {collector.said[-300:]}"
            )
        collector.stop()
        damaged.write_bytes(content)
    for file in sorted((collector.dataset / "chain=regtest" / "blocks").glob("*/*.parquet"))[-1:]:
        file.unlink()
    collector.start()
    world.traffic.busy(1)
    verdict = world.conclude()
    verdict.faults += unnamed
    return verdict


def _small_disk(world: World) -> Path:
    disk = world.folder / "disk"
    disk.mkdir()
    _mount("-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(disk))
    world.at_end(lambda: subprocess.run(["umount", "--lazy", disk], check=False))
    return disk


def _mount(*options: str) -> None:
    """Call `mount`; raise NotHereError where we may not.

    A file that is being sealed keeps its folder from becoming read-only, so a busy one is tried again.
    """
    until_s = time.monotonic() + BUSY_S
    while True:
        done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
        if not done.returncode:
            return
        if "busy" not in done.stderr or time.monotonic() > until_s:
            raise NotHereError(f"mount {' '.join(options)} does not work here: {done.stderr.strip()}")
        time.sleep(0.02)


def _fill(ballast: Path) -> None:
    """Append to the file until the disk has no room for one more byte."""
    with contextlib.suppress(OSError), ballast.open("ab", buffering=0) as file:
        for size in (1 << 20, 4096, 64):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


def _largest(folder: Path) -> int:
    return max((path.stat().st_size for path in folder.glob("**/*.journal")), default=0)
