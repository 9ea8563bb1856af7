"""Merkle roots as Bitcoin computes them, one tree or many at once.

Nodes are SHA-256d of two concatenated children; an odd level repeats its last node. That rule lets two
different lists of transactions share a root (CVE-2012-2459): repeating the right leaves changes nothing.
A tree in which two children of one pair are equal is therefore reported as mutated, at any level, the
same way Bitcoin Core's ComputeMerkleRoot does; a block whose tree is mutated must not be believed to be
the block its header commits to.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpuhash.arrays import array_module, to_host
from gpuhash.errors import InvalidInputError
from gpuhash.hashing import sha256d_batch
from gpuhash.packing import DIGEST_BYTES, Bytes, Offsets, rows


class MerkleResult(NamedTuple):
    """A merkle root and whether its leaves could be a forged repetition."""

    root: bytes  # 32 bytes, internal order
    mutated: bool  # two equal children in one pair: the duplicate-leaf trap


def merkle_root(leaves: Bytes, *, backend: str = "auto") -> MerkleResult:
    """Root of one tree over leaves uint8[n, 32] in internal byte order; one leaf is its own root.

    Raises InvalidInputError for no leaf at all: no block has an empty tree.
    """
    nodes = rows(leaves, DIGEST_BYTES, "leaves")
    roots, mutated = merkle_roots(nodes, np.array([0, len(nodes)]), backend=backend)
    return MerkleResult(to_host(roots[0]).tobytes(), bool(mutated[0]))


def merkle_roots(
    leaves: Bytes, offsets: Offsets, *, backend: str = "auto"
) -> tuple[Bytes, npt.NDArray[np.bool_]]:
    """Roots of t trees hashed together, level by level: (uint8[t, 32], bool[t] mutated).

    The roots are where the leaves are, mutated is in host memory.

    Tree i has leaves[offsets[i]:offsets[i + 1]]; offsets are t + 1 rising positions from 0 to n.
    Raises InvalidInputError for offsets that do not fit and for a tree without leaves.
    """
    nodes = rows(leaves, DIGEST_BYTES, "leaves")
    library = array_module(nodes)
    starts = _tree_limits(offsets, len(nodes))
    counts = np.diff(starts)
    mutated = np.zeros(len(counts), np.bool_)
    while np.any(counts > 1):
        tree, left, right = _pairs(starts[:-1], counts)
        first, second = nodes[library.asarray(left)], nodes[library.asarray(right)]
        equal = (left != right) & to_host((first == second).all(axis=1))
        mutated[tree[equal]] = True
        parents = sha256d_batch(library.concatenate((first, second), axis=1), backend=backend)
        # A tree of one node is done: its root waits for the others.
        nodes = library.where(library.asarray(counts[tree] == 1)[:, None], first, parents)
        counts = (counts + 1) // 2
        starts = np.concatenate(([0], np.cumsum(counts)))
    return nodes, mutated


def _pairs(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """For each node of the next level: its tree and the positions of its two children."""
    pairs = (counts + 1) // 2
    tree = np.repeat(np.arange(len(counts)), pairs)
    rank = np.arange(len(tree)) - np.repeat(np.cumsum(pairs) - pairs, pairs)
    left = starts[tree] + 2 * rank
    return tree, left, np.minimum(left + 1, starts[tree] + counts[tree] - 1)


def _tree_limits(offsets: Offsets, leaf_count: int) -> npt.NDArray[np.int64]:
    limits = np.asarray(offsets)
    if limits.ndim != 1 or limits.dtype.kind not in "iu" or len(limits) == 0:
        raise InvalidInputError(
            f"offsets have dtype {limits.dtype} and shape {limits.shape}; t + 1 integers are needed"
        )
    limits = limits.astype(np.int64)
    if limits[0] != 0 or limits[-1] != leaf_count or np.any(limits[1:] <= limits[:-1]):
        raise InvalidInputError(
            f"offsets run from {limits[0]} to {limits[-1]} over {leaf_count} leaves; they must start at 0, "
            "end at the number of leaves and give every tree at least one"
        )
    return limits
