"""Do one unit of work, in a worker process: read blocks and what they spent, check them, write their rows."""

import multiprocessing
import os
import resource
import signal
import sys
import threading
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from collector.backfill.blockfiles import Folder
from collector.backfill.node_fees import PATIENCE_S, connect, known_fees
from collector.backfill.store import write_chunk
from collector.backfill.undofiles import UndoFinder, Wanted
from collector.backfill.units import Unit
from collector.codec.arrays import Integers
from collector.codec.chunk import Bad, Bodies, make_chunk
from collector.codec.feerates import UNKNOWN, effective_feerates
from collector.codec.hashes import transaction_ids
from collector.codec.parents import in_block_parents
from collector.codec.scripts import output_types
from collector.codec.timing import Stages
from collector.codec.undo import input_values
from collector.codec.verify import backend_name
from collector.codec.walk import walk
from collector.dataset.open import Dataset
from collector.journal.present_blocks import PresentBlocks
from collector.log import configure_logging
from collector.node.access import Access
from collector.node.rpc import RpcClient

KIB: Final = 1024


@dataclass(slots=True, kw_only=True)
class Done:
    """What came of one unit, or of many."""

    n_blocks: int = 0
    n_tx: int = 0
    n_without_fees: int = 0  # blocks of which some fee is unknown
    n_present: int = 0  # blocks that someone else had written in the meantime
    block_bytes: int = 0
    file_bytes: int = 0
    memory_bytes: int = 0  # most that one process had
    last_height: int = -1
    bad: list[Bad] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)  # where blocks were cut off that a node was writing
    unavailable: list[str] = field(default_factory=list)  # blocks that the node does not give, and why
    stages: Stages = field(default_factory=Stages)

    def add(self, other: "Done") -> None:
        """Add what came of another unit."""
        for name in ("n_blocks", "n_tx", "n_without_fees", "n_present", "block_bytes", "file_bytes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.memory_bytes = max(self.memory_bytes, other.memory_bytes)
        self.last_height = max(self.last_height, other.last_height)
        self.bad += other.bad
        self.unfinished += other.unfinished
        self.unavailable += other.unavailable
        self.stages.add(other.stages)


@dataclass(frozen=True, slots=True)
class FileWork:
    """Where a worker reads from and writes to; what it opens there it keeps open."""

    blocks_dir: Path
    dataset_root: Path
    chain: str
    begun_ns: int  # tells this run from others: what one has opened and seen is of no use to the next
    access: Access | None = None  # to a node that is asked for fees where there are no undo data

    def __call__(self, unit: Unit) -> Done:
        """Do one unit."""
        folder, finder, present = _opened(self)
        done = Done()
        present.refresh(task.place.height for task in unit)
        tasks = [task for task in unit if task.place.block_hash not in present]
        done.n_present = len(unit) - len(tasks)
        gone = [task for task in tasks if not folder.is_there(task.file)]
        done.unavailable = [f"{task.place.height}: {task.place.origin} was pruned" for task in gone]
        tasks = [task for task in tasks if task not in gone]
        with done.stages.time("read"):
            bodies = _read(folder, finder, tasks)
            if self.access is not None:
                bodies.fees_sat = _ask_fees(connect(self.access, PATIENCE_S), tasks, bodies)
        finish(self.dataset_root, self.chain, bodies, done)
        unfinished = {task.place.origin for task in tasks if task.is_unfinished}
        done.unfinished = [bad.place.origin for bad in done.bad if bad.place.origin in unfinished]
        done.bad = [bad for bad in done.bad if bad.place.origin not in unfinished]
        return done


def finish(dataset_root: Path, chain: str, bodies: Bodies, done: Done) -> None:
    """Make rows of blocks and write them; what came of it is added to done."""
    chunk, done.bad = make_chunk(bodies, chain, done.stages)
    if chunk is not None:
        done.file_bytes = write_chunk(Dataset.open(dataset_root, chain), chunk, backend_name(), done.stages)
        done.n_blocks, done.n_tx = len(chunk.heads), len(chunk.walked.txs)
        done.block_bytes = sum(head.size_bytes for head in chunk.heads)
        done.last_height = max(place.height for place in chunk.places)
        is_unknown = (chunk.fee_sat == UNKNOWN) & ~chunk.walked.txs["is_coinbase"]
        done.n_without_fees = int(np.logical_or.reduceat(is_unknown, chunk.walked.blocks["first_tx"]).sum())
    done.memory_bytes = peak_memory_bytes()


def prepare() -> None:
    """Set up a worker process: one core, code compiled, and an end when the parent's comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which lets units end
    threading.Thread(target=_end_with_parent, daemon=True).start()
    configure_logging("auto", "warning")
    # The other cores are for the other workers.
    pa.set_cpu_count(1)
    os.environ["GPUHASH_THREADS"] = "1"
    load_kernels()


def _end_with_parent() -> None:
    """Wait for the parent's end, also a violent one, and end at once: half a unit is worth nothing."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def load_kernels() -> None:
    """Load or compile what the first unit would wait for."""
    data, limits = np.empty(0, np.uint8), np.zeros(1, np.int64)
    walked = walk(data, limits)
    output_types(data, walked.scripts)
    ids = transaction_ids(data, walked)
    parent_limits, parents = in_block_parents(data, walked, ids[0])
    values = input_values(data, limits, walked.blocks, walked.txs)
    effective_feerates(walked.blocks, values, values, parent_limits, parents)


def peak_memory_bytes() -> int:
    """Most memory that this process has had."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * KIB


@lru_cache(maxsize=1)
def _opened(work: FileWork) -> tuple[Folder, UndoFinder, PresentBlocks]:
    folder = Folder(work.blocks_dir, work.chain)
    return folder, UndoFinder(folder), PresentBlocks(Dataset.open(work.dataset_root, work.chain))


def _ask_fees(client: RpcClient, tasks: Unit, bodies: Bodies) -> list[Integers | None]:
    """Ask a node for the fees of the blocks that have none by undo data."""
    assert bodies.undo_limits is not None  # noqa: S101 - files come with limits of undo data, empty or not
    has_undo = np.diff(bodies.undo_limits) > 0
    return [
        None if known or task.n_tx == 1 else known_fees(client, task.place.block_hash)
        for task, known in zip(tasks, has_undo, strict=True)
    ]


def _read(folder: Folder, finder: UndoFinder, tasks: Unit) -> Bodies:
    limits = np.cumsum([0, *(task.size_bytes for task in tasks)])
    data = np.empty(limits[-1], np.uint8)
    for i, task in enumerate(tasks):
        # A file that has become shorter leaves zeros, which no check lets pass.
        got = folder.read_into(data[limits[i] : limits[i + 1]], task.file, task.at)
        data[limits[i] + got : limits[i + 1]] = 0
    undo, undo_limits = finder.find(
        [Wanted(task.file, task.prev_hash, task.n_tx, task.undo_rank) for task in tasks]
    )
    return Bodies(
        places=[task.place for task in tasks], data=data, limits=limits, undo=undo, undo_limits=undo_limits
    )
