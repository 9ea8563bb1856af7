"""Take blocks and fees from a node's RPC, where its files are out of reach.

Each worker asks one question at a time, so as many run in the node as there are workers; a node that is out
of reach or overloaded is asked again for a while. Fees come from `getblock` with verbosity 3, which needs no
index of transactions but a node that has not pruned the block.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from collector.backfill.node_fees import PATIENCE_S, connect, find_height, hashes_at, header_times, known_fees
from collector.backfill.units import Wish
from collector.backfill.work import Done, finish
from collector.codec.arrays import Integers
from collector.codec.chunk import Bodies, Place
from collector.dataset.open import Dataset
from collector.dataset.schema import HEIGHT_SPAN, hash_hex
from collector.errors import RpcError
from collector.journal.present_blocks import PresentBlocks
from collector.node.access import Access
from collector.node.rpc import RpcClient

BLOCKS_PER_UNIT: Final = 20
DAY_S: Final = 86_400  # how far a header's time may be from the median time of its block, generously


class NodeTask(NamedTuple):
    """One block to ask a node for."""

    height: int
    block_hash: bytes


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Where a worker asks and where it writes to."""

    access: Access
    dataset_root: Path
    chain: str

    def __call__(self, unit: Sequence[NodeTask]) -> Done:
        """Do one unit."""
        client = connect(self.access, PATIENCE_S)
        done = Done()
        present = PresentBlocks(Dataset.open(self.dataset_root, self.chain))
        present.refresh(task.height for task in unit)
        tasks = [task for task in unit if task.block_hash not in present]
        done.n_present = len(unit) - len(tasks)
        with done.stages.time("read"):
            bodies = _ask(client, tasks, done)
        finish(self.dataset_root, self.chain, bodies, done)
        return done


def wanted_tasks(client: RpcClient, wish: Wish, tip_height: int) -> Iterator[NodeTask]:
    """Every wanted block on the node's chain, from the lowest on."""
    first, last = wish.first_height or 0, tip_height
    if wish.last_height is not None:
        last = min(last, wish.last_height)
    if wish.from_time_s is not None:
        first = max(first, find_height(client, wish.from_time_s - DAY_S, tip_height))
    if wish.to_time_s is not None:
        last = min(last, find_height(client, wish.to_time_s + DAY_S, tip_height) - 1)
    heights = range(first, last + 1)
    hashes = list(hashes_at(client, heights))
    if wish.from_time_s is None and wish.to_time_s is None:
        yield from map(NodeTask, heights, hashes)
        return
    for height, block_hash, time_s in zip(heights, hashes, header_times(client, hashes), strict=True):
        if wish.has_time(time_s):
            yield NodeTask(height, block_hash)


def cut_tasks(tasks: Sequence[NodeTask]) -> Iterator[list[NodeTask]]:
    """Cut tasks into units of one span of heights."""
    unit: list[NodeTask] = []
    for task in tasks:
        if unit and (
            len(unit) == BLOCKS_PER_UNIT or unit[0].height // HEIGHT_SPAN != task.height // HEIGHT_SPAN
        ):
            yield unit
            unit = []
        unit.append(task)
    if unit:
        yield unit


def _ask(client: RpcClient, tasks: Sequence[NodeTask], done: Done) -> Bodies:
    """Fetch blocks and their fees; those that the node has pruned are named in done."""
    places: list[Place] = []
    raws: list[bytes] = []
    fees: list[Integers | None] = []
    for task in tasks:
        name = hash_hex(task.block_hash)
        try:
            raw = bytes.fromhex(client.call("getblock", name, 0))
        except RpcError as error:
            done.unavailable.append(f"{task.height}: {error}")
            continue
        places.append(Place(task.block_hash, task.height, "rpc", "rpc", f"getblock {name}"))
        raws.append(raw)
        fees.append(known_fees(client, task.block_hash))
    return Bodies(
        places=places,
        data=np.frombuffer(b"".join(raws), np.uint8),
        limits=np.cumsum([0, *map(len, raws)]),
        fees_sat=fees,
    )
