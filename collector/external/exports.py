"""Write what our nodes saw in the forms that bitcoin-data collects: block arrival times, and stale blocks."""

import itertools
from collections.abc import Iterable, Mapping
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


def arrival_lines(dataset: Dataset, node: str) -> list[str]:
    """Return `height,hash,milliseconds` for each block whose arrival at `node` we saw, newest first.

    The time is that of the first event that the node pushed; blocks that it caught up with are left out,
    and so are blocks of unknown height. Raises DatasetError if the dataset has no arrival at the node.
    """
    rows = _rows_of(dataset, node)
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

    A block is stale if it is not among the ancestors of the block with most work; at the height of that block
    no block is stale yet. The first line names the columns. Raises DatasetError if the dataset has no arrival
    at the node.
    """
    announced = {row["block_hash"] for row in _rows_of(dataset, node)}
    blocks = _stored_blocks(dataset)
    lost = [block for block in _lost(blocks) if block["block_hash"] in announced]
    lines = [f"{each['height']},{hash_hex(each['block_hash'])},{header_bytes(each).hex()}" for each in lost]
    return [STALE_HEAD, *lines]


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write lines of text into a file, which appears whole; raise NotWritable if it cannot be written."""
    try:
        write_atomically(path, lambda file: file.writelines(f"{line}\n".encode() for line in lines))
    except OSError as error:
        raise NotWritable(f"cannot write {path}: {error.strerror}; choose another file") from None


def _rows_of(dataset: Dataset, node: str) -> list[dict[str, Any]]:
    rows = dataset.read(BLOCK_ARRIVALS).to_pylist()
    nodes = sorted({row["node"] for row in rows})
    if node not in nodes:
        raise DatasetError(
            f"{dataset.root} has no block arrivals of a node {node!r} on chain {dataset.chain}, only those "
            f"of {', '.join(nodes) or 'no node'}; --chain chooses another chain"
        )
    return [row for row in rows if row["node"] == node]


def _stored_blocks(dataset: Dataset) -> list[dict[str, Any]]:
    """Return height, hash and header fields of every block of the dataset whose verdict is `valid`."""
    names = ("block_hash", "height", "verdict", *HEADER_FIELDS)
    with dataset.read_lock():
        dataset.refuse_strange_paths(BLOCKS)
        rows = [row for path in dataset.paths(BLOCKS) for row in read_file(path, names).to_pylist()]
    return [row for row in rows if row["verdict"] == "valid"]


def _lost(blocks: list[dict[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the stale blocks: those that are not ancestors of the block with most work, newest first.

    Blocks at the greatest height are left out, because it is not decided which of them stays. Where the
    dataset lacks an ancestor, the search goes on from the best block below.
    """
    work: dict[bytes, int] = {}
    by_height = sorted(blocks, key=lambda block: (block["height"], block["block_hash"]))
    for block in by_height:
        own = (1 << 256) // (target_from_bits(block["bits"]) + 1)
        work[block["block_hash"]] = work.get(block["prev_hash"], 0) + own
    lost: list[Mapping[str, Any]] = []
    wanted: bytes | None = None
    top = by_height[-1]["height"] if by_height else 0
    for height, members in itertools.groupby(reversed(by_height), key=itemgetter("height")):
        level = list(members)
        named = [block for block in level if block["block_hash"] == wanted]
        best = named[0] if named else max(level, key=lambda block: work[block["block_hash"]])
        wanted = best["prev_hash"]
        lost += [block for block in level if block is not best and height < top]
    return lost
