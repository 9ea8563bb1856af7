"""Time the txids and the merkle root of a real block against a hashlib loop; `make bench` runs this.

Usage: python -m tests.gpuhash.bench_txids [BLOCK], a raw block. Without one the block nearest to 2,500
transactions in $POOL_TEST_DATA or ../shared/data is taken. Both sides start from transaction bytes in memory
and run in turn; printed are medians and the median of paired ratios.
"""

import hashlib
import io
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bitcoin.core import CBlock

import gpuhash

ROOT = Path(__file__).resolve().parents[2]
WANTED = 2500
ROUNDS = 200


def block_file() -> Path | None:
    """Find the real block nearest to WANTED transactions; None where there is none."""
    data = Path(os.environ.get("POOL_TEST_DATA") or ROOT.parent / "shared" / "data")
    files = list((data / "mainnet-blocks").glob("*.bin"))
    return min(files, key=lambda path: abs(transaction_count(path.read_bytes()) - WANTED), default=None)


def transaction_count(block: bytes) -> int:
    """Read the count behind the header: one byte, or a marker and two."""
    return block[80] if block[80] < 0xFD else int.from_bytes(block[81:83], "little")


def by_hashlib(transactions: list[bytes]) -> list[bytes]:
    """Hash one transaction after the other."""
    return [hashlib.sha256(hashlib.sha256(one).digest()).digest() for one in transactions]


def root_by_hashlib(nodes: list[bytes]) -> bytes:
    """Fold the txids level by level."""
    while len(nodes) > 1:
        nodes = [*nodes, nodes[-1]] if len(nodes) % 2 else nodes
        nodes = by_hashlib([nodes[i] + nodes[i + 1] for i in range(0, len(nodes), 2)])
    return nodes[0]


def compare(name: str, slow: Callable[[], object], fast: Callable[[], object]) -> None:
    """Run both in turn and print their medians and paired ratio."""
    times: list[tuple[float, float]] = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        slow()
        middle = time.perf_counter()
        fast()
        times.append((middle - begin, time.perf_counter() - middle))
    one, other = (statistics.median(column) * 1e3 for column in zip(*times, strict=True))
    ratio = statistics.median(loop / batch for loop, batch in times)
    print(
        f"{name}: hashlib {one:.3f} ms, gpuhash {other:.3f} ms, ratio {ratio:.2f} (median of {ROUNDS} pairs)"
    )


def main() -> None:
    """Parse the block, check both ways give the same, and time them."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else block_file()
    if path is None:
        print("txids left out: name a raw block, or set POOL_TEST_DATA to a folder with mainnet-blocks/")
        return
    block = CBlock.stream_deserialize(io.BytesIO(path.read_bytes()))
    transactions = [one.serialize({"include_witness": False}) for one in block.vtx]
    flat, offsets = gpuhash.join(transactions)
    leaves = gpuhash.txids(flat, offsets)
    if (
        leaves.tobytes() != b"".join(by_hashlib(transactions))
        or block.hashMerkleRoot != gpuhash.merkle_root(leaves).root
    ):
        raise SystemExit("gpuhash and hashlib disagree")
    nodes = [leaf.tobytes() for leaf in leaves]
    print(f"{path.name}: {len(transactions)} transactions, {len(flat)} bytes without witness")
    compare("txids", lambda: by_hashlib(transactions), lambda: gpuhash.txids(flat, offsets))
    compare(
        "txids from a list",
        lambda: by_hashlib(transactions),
        lambda: gpuhash.txids(*gpuhash.join(transactions)),
    )
    compare("merkle root", lambda: root_by_hashlib(nodes), lambda: gpuhash.merkle_root(leaves))
    trees = np.concatenate([leaves] * 8)
    limits = np.arange(9) * len(leaves)
    compare(
        "8 merkle roots",
        lambda: [root_by_hashlib(nodes) for _ in range(8)],
        lambda: gpuhash.merkle_roots(trees, limits),
    )


if __name__ == "__main__":
    main()
