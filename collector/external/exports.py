"""Write what our nodes saw in the forms that bitcoin-data collects: block arrival times, and stale blocks."""

import datetime as dt
import itertools
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

from collector.dataset.files import write_atomically
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import read_file
from collector.dataset.schema import BLOCK_ARRIVALS, BLOCKS, hash_hex
from collector.errors import DatasetError, NotWritable
from collector.external.header_files import header_bytes
from gpuhash import target_from_bits

STALE_HEAD: Final = "height,hash,header"
ARRIVED: Final = frozenset({"seen", "connected"})
HEADER_FIELDS: Final = ("prev_hash", "version", "merkle_root", "header_time", "bits", "nonce")
NEVER: Final = dt.datetime.max.replace(tzinfo=dt.UTC)

Block = Mapping[str, Any]  # height, hash and header fields


def arrival_lines(dataset: Dataset, node: str) -> list[str]:
    """Return `height,hash,milliseconds` for each block whose arrival at `node` we saw, newest first.

    The time is that of the first event that the node pushed; blocks that it caught up with are left out,
    and so are blocks of unknown height. Raises DatasetError if the dataset has no arrival at the node.
    """
    rows = [row for row in _arrivals(dataset, node) if row["node"] == node]
    heights = {row["block_hash"]: row["height"] for row in _stored_blocks(dataset)}
    first: dict[bytes, tuple[int, int]] = {}
    for row in rows:
        height = row["height"] if row["height"] is not None else heights.get(row["block_hash"])
        is_arrival = row["event"] in ARRIVED and row["kind"] == "pushed" and not row["is_catch_up"]
        if is_arrival and height is not None:
            found = (height, round(row["event_at"].timestamp() * 1_000_000) // 1000)
            first[row["block_hash"]] = min(first.get(row["block_hash"], found), found)
    newest = sorted(first.items(), key=lambda each: (each[1], each[0]), reverse=True)
    return [f"{height},{hash_hex(block_hash)},{at_ms}" for block_hash, (height, at_ms) in newest]


def stale_lines(dataset: Dataset, node: str) -> list[str]:
    """Return `height,hash,header` for each stale block that `node` announced to us, newest first.

    A block is stale if it is not on the active chain, as `chain_blocks` finds it among the blocks of our
    nodes. A branch with as much work as that chain is not stale yet. The first line names the columns. Raises
    DatasetError if the dataset has no arrival at the node.
    """
    arrivals = _arrivals(dataset, node)
    announced = {row["block_hash"] for row in arrivals if row["node"] == node}
    seen_at: dict[bytes, dt.datetime] = {}
    for row in arrivals:
        if row["event"] == "seen":
            seen_at[row["block_hash"]] = min(row["event_at"], seen_at.get(row["block_hash"], NEVER))
    lost = [
        block for block in lost_blocks(_stored_blocks(dataset), seen_at) if block["block_hash"] in announced
    ]
    lines = [f"{each['height']},{hash_hex(each['block_hash'])},{header_bytes(each).hex()}" for each in lost]
    return [STALE_HEAD, *lines]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text into a file, which appears whole; raise NotWritable if it cannot be written."""
    try:
        write_atomically(path, lambda file: file.writelines(f"{line}\n".encode() for line in lines))
    except OSError as error:
        raise NotWritable(f"cannot write {path}: {error.strerror}; choose another file") from None


def lost_blocks(blocks: Iterable[Block], seen_at: Mapping[bytes, dt.datetime]) -> list[Block]:
    """Return the stale blocks, newest first: those that are not on the active chain.

    That chain ends in the block with most work; of several in the highest one, and of those in the one that
    any node saw first (`seen_at`, by hash). Where its next ancestor is missing, it goes on one height below,
    from the block that was seen first there. Left out are branches that may still win: those with as much
    work, and those of unknown work that are as high.
    """
    ordered = sorted(
        blocks, key=lambda each: (-each["height"], seen_at.get(each["block_hash"], NEVER), each["block_hash"])
    )
    if not ordered:
        return []
    by_hash = {block["block_hash"]: block for block in ordered}
    work = _work_of_newest(ordered, by_hash)
    # Of equal ones max takes the first, which is the highest and earliest.
    tip = max(
        (block for block in ordered if block["block_hash"] in work), key=lambda each: work[each["block_hash"]]
    )
    settled = _active_chain(ordered, tip)
    for block in ordered:
        is_level = block["block_hash"] not in work and block["height"] >= tip["height"]
        if is_level or work.get(block["block_hash"]) == work[tip["block_hash"]]:
            at: Block | None = block
            while at is not None and at["block_hash"] not in settled:
                settled.add(at["block_hash"])
                at = by_hash.get(at["prev_hash"])
    return [block for block in ordered if block["block_hash"] not in settled]


def _work_of_newest(ordered: Sequence[Block], by_hash: Mapping[bytes, Block]) -> dict[bytes, int]:
    """Map block hashes to the work from the lowest known ancestor of the first block up to them.

    `ordered` has the highest blocks first. Only descendants of that ancestor are in it: the work of others
    cannot be compared.
    """
    root = ordered[0]
    while root["prev_hash"] in by_hash:
        root = by_hash[root["prev_hash"]]
    work = {root["prev_hash"]: 0}
    for block in reversed(ordered):
        if block["prev_hash"] in work:
            own = (1 << 256) // (target_from_bits(block["bits"]) + 1)
            work[block["block_hash"]] = work[block["prev_hash"]] + own
    del work[root["prev_hash"]]
    return work


def _active_chain(ordered: Sequence[Block], tip: Block) -> set[bytes]:
    """Return the hashes of `tip` and its ancestors, and of what stands for those that `ordered` lacks."""
    active = set()
    wanted: bytes | None = tip["block_hash"]
    at = tip["height"]
    for height, level in itertools.groupby(ordered, key=itemgetter("height")):
        if height > at:
            continue
        if height < at:
            wanted = None
        block = next((each for each in level if wanted in {None, each["block_hash"]}), None)
        if block is not None:
            active.add(block["block_hash"])
        wanted, at = None if block is None else block["prev_hash"], height - 1
    return active


def _arrivals(dataset: Dataset, node: str) -> list[dict[str, Any]]:
    """Return the block arrivals at all nodes; raise DatasetError if there is none at `node`."""
    rows: list[dict[str, Any]] = dataset.read(BLOCK_ARRIVALS).to_pylist()
    nodes = sorted({row["node"] for row in rows})
    if node not in nodes:
        raise DatasetError(
            f"{dataset.root} has no block arrivals of a node {node!r} on chain {dataset.chain}, only those "
            f"of {', '.join(nodes) or 'no node'}; --chain chooses another chain"
        )
    return rows


def _stored_blocks(dataset: Dataset) -> list[dict[str, Any]]:
    """Return height, hash and header fields of every block of the dataset whose verdict is `valid`."""
    names = ("block_hash", "height", "verdict", *HEADER_FIELDS)
    with dataset.read_lock():
        dataset.refuse_strange_paths(BLOCKS)
        rows = [row for path in dataset.paths(BLOCKS) for row in read_file(path, names).to_pylist()]
    return [row for row in rows if row["verdict"] == "valid"]
