"""What a backfill asks a node: whether its chain is ours, hashes, times and fees."""

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final

from collector.codec.arrays import Integers
from collector.codec.rows import fee_array, fees_from_getblock
from collector.dataset.schema import hash_bytes, hash_hex
from collector.errors import DecodeError, RpcError, WrongChain
from collector.node.access import Access
from collector.node.rpc import RpcClient

PATIENCE_S: Final = 60.0
TIMEOUT_S: Final = 120.0
HEADERS_PER_BATCH: Final = 500
MOST_LISTED: Final = 100


@cache
def connect(access: Access, patience_s: float = 0.0) -> RpcClient:
    """Return a client, the same for the same arguments in one process."""
    return RpcClient(
        access.rpc_url,
        cookie_file=access.cookie_file,
        user=access.user,
        password=access.password,
        timeout_s=TIMEOUT_S,
        patience_s=patience_s,
        allow_remote=True,  # whether it may be remote was decided where the access was found
        ca_file=access.ca_file,
    )


def known_fees(client: RpcClient, block_hash: bytes) -> Integers | None:
    """Ask for the fees of a block, in satoshi, UNKNOWN for the coinbase; None when the node cannot tell."""
    try:
        return fee_array(fees_from_getblock(client.call("getblock", hash_hex(block_hash), 3)))
    except (RpcError, DecodeError):
        return None


def check_chain(client: RpcClient, chain: str) -> tuple[int, bytes]:
    """Return height and hash of the node's tip; raises WrongChain when it is on another chain."""
    answer = client.call("getblockchaininfo")
    if answer["chain"] != chain:
        raise WrongChain(
            f"the node at {client.url} is on {answer['chain']}, not on {chain}; set --chain or --rpc-url"
        )
    return answer["blocks"], hash_bytes(answer["bestblockhash"])


def hashes_at(client: RpcClient, heights: Sequence[int]) -> Iterator[bytes]:
    """Ask for the hashes of blocks on the node's chain."""
    for answer in client.batch([("getblockhash", height) for height in heights], size=HEADERS_PER_BATCH):
        if isinstance(answer, RpcError):
            raise answer
        yield hash_bytes(answer)


def find_height(client: RpcClient, time_s: int, tip_height: int) -> int:
    """Lowest height whose median time is not below time_s; the median never falls."""
    low, high = 0, tip_height + 1
    while low < high:
        middle = (low + high) // 2
        block_hash = next(hashes_at(client, [middle]))
        if client.call("getblockheader", hash_hex(block_hash))["mediantime"] < time_s:
            low = middle + 1
        else:
            high = middle
    return low


def header_times(client: RpcClient, hashes: Sequence[bytes]) -> list[int]:
    """Ask for the header times of blocks, seconds since 1970 UTC."""
    calls = [("getblockheader", hash_hex(block_hash)) for block_hash in hashes]
    return [int(answer["time"]) for answer in client.batch(calls, size=HEADERS_PER_BATCH)]


def foreign_blocks(client: RpcClient, active: dict[int, bytes]) -> list[str]:
    """Of the blocks on our active branch, by height, name those that the node's chain does not have."""
    tip_height = client.call("getblockcount")
    heights = sorted(height for height in active if height <= tip_height)
    low, high = 0, len(heights)
    # Up to the point where the branches part they are the same.
    while low < high:
        middle = (low + high) // 2
        if next(hashes_at(client, [heights[middle]])) == active[heights[middle]]:
            low = middle + 1
        else:
            high = middle
    return [hash_hex(active[height]) for height in heights[low : low + MOST_LISTED]]
