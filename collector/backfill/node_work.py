"""Ask a node for whole blocks, if its files are out of reach, or only for the fees of blocks.

Each worker sends one request at a time, so the node works on as many at once as there are workers. A request
to a node that is out of reach or overloaded is repeated for a while. Fees come from `getblock` with verbosity
3, which needs no transaction index, but only a node that has not pruned the block can answer.
"""

import reprlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from collector.backfill.selection import BlockSelection
from collector.backfill.store import WorkResult, store_blocks
from collector.codec.arrays import Bytes, Integers
from collector.codec.chunk import BlockRef, RawBlocks
from collector.codec.rows import fee_array, fees_from_getblock, spent_types_from_getblock
from collector.dataset.open import Dataset
from collector.dataset.schema import HEIGHT_SPAN, hash_bytes, hash_hex
from collector.errors import DecodeError, NodeError, RpcError, WrongChain
from collector.journal.present_blocks import PresentBlocks
from collector.log import excerpt, printable
from collector.node.access import Access
from collector.node.rpc import RpcClient

PATIENCE_S: Final = 60.0
TIMEOUT_S: Final = 120.0
HEADERS_PER_BATCH: Final = 500
MOST_LISTED: Final = 100
BLOCKS_PER_UNIT: Final = 20
MAX_HEIGHT: Final = (1 << 31) - 1  # what the column holds
DAY_S: Final = 86_400  # the most that a header's time differs from the median time of its block, generously
MEDIAN_BLOCKS: Final = 11  # a median time is that of so many blocks: after a pause of the chain it is old


class NodeTask(NamedTuple):
    """Names a block to fetch from a node: its height and its hash."""

    height: int
    block_hash: bytes
    is_row_stored: bool = False  # as in BlockRef


@dataclass(frozen=True, slots=True)
class NodeWork:
    """Fetches and stores units of blocks from a node, in a worker process."""

    access: Access
    dataset_root: Path
    chain: str

    def __call__(self, unit: Sequence[NodeTask]) -> WorkResult:
        """Fetch and store those blocks of one unit of work that the dataset lacks.

        Returns the counts and the rejected blocks as a WorkResult.
        """
        client = connect(self.access, PATIENCE_S)
        result = WorkResult()
        present = PresentBlocks(Dataset.open(self.dataset_root, self.chain))
        present.refresh(task.height for task in unit)
        tasks = [task for task in unit if task.is_row_stored or task.block_hash not in present]
        result.n_present = len(unit) - len(tasks)
        with result.times.measure("read"):
            raw_blocks = _fetch_blocks(client, tasks, result)
        store_blocks(self.dataset_root, self.chain, raw_blocks, result)
        return result


def select_tasks(client: RpcClient, selection: BlockSelection, tip_height: int) -> Iterator[NodeTask]:
    """Yield height and hash of each selected block of the node's chain as a NodeTask, by rising height."""
    first, last = selection.first_height or 0, tip_height
    if selection.last_height is not None:
        last = min(last, selection.last_height)
    if selection.from_time_s is not None:
        late = find_height(client, selection.from_time_s - DAY_S, tip_height)
        first = max(first, late - MEDIAN_BLOCKS)
    if selection.to_time_s is not None:
        last = min(last, find_height(client, selection.to_time_s + DAY_S, tip_height) - 1)
    heights = range(first, last + 1)
    hashes = list(hashes_at(client, heights))
    if selection.from_time_s is None and selection.to_time_s is None:
        yield from map(NodeTask, heights, hashes)
        return
    for height, block_hash, time_s in zip(heights, hashes, header_times(client, hashes), strict=True):
        if selection.has_time(time_s):
            yield NodeTask(height, block_hash)


def cut_node_units(tasks: Sequence[NodeTask]) -> Iterator[list[NodeTask]]:
    """Cut NodeTasks into units of work, lists within one span of heights, and yield the units."""
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


Field = TypeVar("Field", int, str)


@cache
def connect(access: Access, patience_s: float = 0.0) -> RpcClient:
    """Return an RPC client for a node; the same arguments give the same client within a process."""
    return RpcClient(
        access.rpc_url,
        cookie_file=access.cookie_file,
        user=access.user,
        password=access.password,
        timeout_s=TIMEOUT_S,
        patience_s=patience_s,
        allow_remote=True,  # the settings decided this when the access was found
        ca_file=access.ca_file,
    )


def ask_spent(client: RpcClient, block_hash: bytes) -> tuple[Integers | None, Bytes | None]:
    """Return the fees of a block and the types of the outputs that it spends, as a node tells them.

    The fees are in satoshi, with UNKNOWN for the coinbase; the types are in the form of
    `spent_types_from_getblock`. Each is None when the node cannot give it.
    """
    try:
        answer = client.call("getblock", hash_hex(block_hash), 3)
        return fee_array(fees_from_getblock(answer)), spent_types_from_getblock(answer)
    except (RpcError, DecodeError):
        return None, None


def check_chain(client: RpcClient, chain: str) -> tuple[int, bytes]:
    """Return height and hash of the node's tip; raise WrongChain when the node is on another chain.

    `chain` is the chain that the node must be on, such as `main`.
    """
    answer = client.call("getblockchaininfo")
    node_chain = _field(client, "getblockchaininfo", answer, "chain", str)
    if node_chain != chain:
        raise WrongChain(
            f"the node at {client.url} is on {excerpt(node_chain)}, not on {chain}; set --chain or --rpc-url"
        )
    height = _field(client, "getblockchaininfo", answer, "blocks", int)
    tip = _field(client, "getblockchaininfo", answer, "bestblockhash", str)
    return _checked_height(client, "getblockchaininfo", height), _hash(client, "getblockchaininfo", tip)


def hashes_at(client: RpcClient, heights: Sequence[int]) -> Iterator[bytes]:
    """Yield the hashes (internal byte order) of the blocks at these heights of the node's chain."""
    for answer in client.batch([("getblockhash", height) for height in heights], size=HEADERS_PER_BATCH):
        yield _hash(client, "getblockhash", _given(answer))


def find_height(client: RpcClient, time_s: int, tip_height: int) -> int:
    """Return the lowest height of the node's chain whose median time is `time_s` (since 1970 UTC) or later.

    The median time never falls from block to block, so a binary search finds it. If no block is so late, the
    result is `tip_height` + 1.
    """
    low, high = 0, tip_height + 1
    while low < high:
        middle = (low + high) // 2
        block_hash = next(hashes_at(client, [middle]))
        header = client.call("getblockheader", hash_hex(block_hash))
        if _field(client, "getblockheader", header, "mediantime", int) < time_s:
            low = middle + 1
        else:
            high = middle
    return low


def header_times(client: RpcClient, hashes: Sequence[bytes]) -> list[int]:
    """Return the header times of blocks in seconds since 1970 UTC, asked from a node by their hashes."""
    calls = [("getblockheader", hash_hex(block_hash)) for block_hash in hashes]
    return [
        _field(client, "getblockheader", _given(answer), "time", int)
        for answer in client.batch(calls, size=HEADERS_PER_BATCH)
    ]


def blocks_unknown_to_node(client: RpcClient, active: dict[int, bytes]) -> list[str]:
    """Return those hashes of our active chain, in hex, that the node's chain lacks; at most MOST_LISTED.

    `active` maps each height to the hash in our active chain.
    """
    tip_height = _checked_height(client, "getblockcount", client.call("getblockcount"))
    heights = sorted(height for height in active if height <= tip_height)
    low, high = 0, len(heights)
    # The two chains agree up to one height and differ above it: search for that height.
    while low < high:
        middle = (low + high) // 2
        if next(hashes_at(client, [heights[middle]])) == active[heights[middle]]:
            low = middle + 1
        else:
            high = middle
    return [hash_hex(active[height]) for height in heights[low : low + MOST_LISTED]]


def _fetch_blocks(client: RpcClient, tasks: Sequence[NodeTask], result: WorkResult) -> RawBlocks:
    """Fetch blocks from a node; return their raw bytes, their fees and the types of the outputs they spend.

    Fees or types are None for a block where the node does not give them. A block whose bytes the node does
    not give is left out, and a line in `result.unavailable` says why.
    """
    refs: list[BlockRef] = []
    raws: list[bytes] = []
    fees: list[Integers | None] = []
    types: list[Bytes | None] = []
    for task in tasks:
        name = hash_hex(task.block_hash)
        try:
            raw = _block_bytes(client, name)
        except (RpcError, DecodeError) as error:
            result.unavailable.append(f"{task.height}: {error}")
            continue
        origin = f"getblock {name}"
        refs.append(BlockRef(task.block_hash, task.height, "rpc", "rpc", origin, task.is_row_stored))
        raws.append(raw)
        block_fees, block_types = ask_spent(client, task.block_hash)
        fees.append(block_fees)
        types.append(block_types)
    return RawBlocks(
        refs=refs,
        data=np.frombuffer(b"".join(raws), np.uint8),
        limits=np.cumsum([0, *map(len, raws)]),
        fees_sat=fees,
        spent_types=types,
    )


def _block_bytes(client: RpcClient, name: str) -> bytes:
    """Return the bytes of a block, fetched from a node; DecodeError when the answer is not hex digits."""
    answer = client.call("getblock", name, 0)
    try:
        return bytes.fromhex(answer)
    except (TypeError, ValueError):
        raise DecodeError(
            f"{client.url} answered getblock {name} 0 with something else than a block"
        ) from None


def _given(answer: Any) -> Any:
    """Return `answer`, one result of a batch of RPC calls; raise it if it is an RpcError."""
    if isinstance(answer, RpcError):
        raise answer
    return answer


def _field(client: RpcClient, method: str, answer: Any, name: str, kind: type[Field]) -> Field:
    """Return a field of an RPC answer; raise NodeError when the answer lacks it or it has another type."""
    value = answer.get(name) if isinstance(answer, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise _strange(client, method, f"`{name}`", answer)
    return value


def _checked_height(client: RpcClient, method: str, height: Any) -> int:
    """Return a height from an RPC answer; raise NodeError when it is not a valid height."""
    if not isinstance(height, int) or isinstance(height, bool) or not 0 <= height <= MAX_HEIGHT:
        raise _strange(client, method, "a height", height)
    return height


def _hash(client: RpcClient, method: str, text: Any) -> bytes:
    """Return a hash in internal byte order from its hex text; raise NodeError when the text is no hash."""
    try:
        return hash_bytes(text)
    except (TypeError, ValueError):
        raise _strange(client, method, "a block hash", text) from None


def _strange(client: RpcClient, method: str, wanted: str, answer: Any) -> NodeError:
    """Return a NodeError that says that an RPC answer lacks something which every node sends."""
    shown = printable(reprlib.repr(answer))
    return NodeError(
        f"{client.url} answered {method} without {wanted}: {shown}; is it a node's RPC port? check --rpc-url"
    )
