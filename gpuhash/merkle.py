"""Compute merkle roots as Bitcoin does, of one tree or of many at once.

A node is the SHA-256d of its two concatenated children, and a level with an odd number of nodes repeats its
last one. Because of that rule two different lists of transactions can have the same root (CVE-2012-2459):
repeating the right leaves does not change the root. A tree in which the two children of one pair are equal,
at any level, is therefore reported as mutated, as Bitcoin Core's ComputeMerkleRoot does. A block whose tree
is mutated must not be taken for the block that its header commits to.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuhash.arrays import array_module, to_host
from gpuhash.errors import InvalidInputError
from gpuhash.hashing import sha256d_batch
from gpuhash.packing import DIGEST_BYTES, Bytes, Offsets, integers, rows

Counts = npt.NDArray[np.int64]


class MerkleResult(NamedTuple):
    """Holds a merkle root, and whether its leaves could be a forged repetition (CVE-2012-2459)."""

    root: bytes  # 32 bytes, internal order
    mutated: bool  # a pair has two equal children


def merkle_root(leaves: Bytes, *, backend: str = "auto") -> MerkleResult:
    """Return the merkle root of leaves uint8[n, 32] in internal byte order, and whether it is mutated.

    A single leaf is its own root. Raises InvalidInputError if there are no leaves: no block has an empty
    tree.
    """
    nodes = rows(leaves, DIGEST_BYTES, "leaves")
    if len(nodes) == 0:
        raise InvalidInputError("there are no leaves; a tree has at least one")
    roots, mutated = merkle_roots(nodes, np.array([0, len(nodes)]), backend=backend)
    return MerkleResult(to_host(roots[0]).tobytes(), bool(mutated[0]))


def merkle_roots(
    leaves: Bytes, offsets: Offsets, *, backend: str = "auto"
) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """Return the roots of t trees, hashed together, and which trees are mutated: (uint8[t, 32], bool[t]).

    Mutated means that the leaves could be a forged repetition (CVE-2012-2459). The leaves of tree i are
    leaves[offsets[i]:offsets[i + 1]]; offsets are t + 1 rising positions from 0 to the number of leaves. The
    roots are in the memory that holds the leaves, the flags always in host memory. Raises InvalidInputError
    for other offsets and for a tree without leaves.
    """
    nodes = rows(leaves, DIGEST_BYTES, "leaves")
    library = array_module(nodes)
    counts = np.diff(_tree_limits(offsets, len(nodes)))
    trees = np.arange(len(counts))  # trees that still have more than one node
    roots = library.empty((len(counts), DIGEST_BYTES), np.uint8)
    mutated = np.zeros(len(counts), np.bool_)
    while True:
        folded = counts == 1
        if folded.any():
            roots[library.asarray(trees[folded])] = nodes[
                library.asarray((np.cumsum(counts) - counts)[folded])
            ]
            nodes = nodes[library.asarray(np.repeat(~folded, counts))]
            trees, counts = trees[~folded], counts[~folded]
        if len(trees) == 0:
            return roots, mutated
        pairs = _pairs(nodes, counts)
        halves = pairs.view(np.uint64)
        equal = to_host((halves[:, :4] == halves[:, 4:]).all(axis=1))
        counts, odd = (counts + 1) // 2, counts % 2 == 1
        if equal.any():
            equal[np.cumsum(counts)[odd] - 1] = False  # a repeated last node, as the rule demands
            mutated[np.repeat(trees, counts)[equal]] = True
        nodes = sha256d_batch(pairs, backend=backend)


def _pairs(nodes: Bytes, counts: Counts) -> Bytes:
    """Return the two children of each node as one row, uint8[pairs, 64]; an odd tree's last node is repeated.

    `counts` is the number of nodes of each tree.
    """
    odd = counts % 2 == 1
    if odd.any():
        times = np.ones(len(nodes), np.int64)
        times[np.cumsum(counts)[odd] - 1] = 2
        nodes = nodes[array_module(nodes).asarray(np.repeat(np.arange(len(nodes)), times))]
    return nodes.reshape(-1, 2 * DIGEST_BYTES)


def _tree_limits(offsets: Offsets, leaf_count: int) -> npt.NDArray[np.int64]:
    limits = integers(offsets, "t + 1 integers are needed")
    if limits[0] != 0 or limits[-1] != leaf_count or np.any(limits[1:] <= limits[:-1]):
        raise InvalidInputError(
            f"offsets run from {limits[0]} to {limits[-1]} over {leaf_count} leaves; they must start at 0, "
            "end at the number of leaves and give every tree at least one"
        )
    return limits
