"""Merkle roots: real trees, odd levels, and the duplicate-leaf trap."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuhash

# Block 100000: its four txids and its merkle root, in display order.
BLOCK_100000_TXIDS = (
    "8c14f0db3df150123e6f3dbbf30f8b955a8249b62ac1d1ff16284aefa3d06d87",
    "fff2525b8931402dd09222c50775608f75787bd2b87e56995a7bdd30f79702c4",
    "6359f0868171b1d194cbee1af2f16ea598ae8fad666d9b012c8ed2b79a236ec4",
    "e9a66845e05d5abc0ad04ec80f774a7e585c6e8db975962d069a522137b80c1d",
)
BLOCK_100000_ROOT = "f3e94742aca4b5ef85488dc37c06c3282295ffec960994b2c0d5ac2a25a95766"


def leaves_of(*display: str) -> np.ndarray:
    """Return leaves in internal byte order, given txids as explorers show them."""
    return np.array([list(bytes.fromhex(txid)[::-1]) for txid in display], np.uint8)


def root_by_definition(leaves: list[bytes]) -> bytes:
    """Compute a root by the rule as it is written, one hash at a time."""
    while len(leaves) > 1:
        if len(leaves) % 2:
            leaves = [*leaves, leaves[-1]]
        leaves = [
            hashlib.sha256(hashlib.sha256(leaves[i] + leaves[i + 1]).digest()).digest()
            for i in range(0, len(leaves), 2)
        ]
    return leaves[0]


def test_root_of_a_real_block() -> None:
    """The four txids of block 100000 give the root its header holds."""
    root, mutated = gpuhash.merkle_root(leaves_of(*BLOCK_100000_TXIDS))

    assert root[::-1].hex() == BLOCK_100000_ROOT
    assert not mutated


def test_one_leaf_is_its_own_root() -> None:
    """A block with only a coinbase has its txid as root."""
    leaf = leaves_of(BLOCK_100000_TXIDS[0])

    assert gpuhash.merkle_root(leaf) == (leaf.tobytes(), False)


@given(st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70, unique=True))
def test_root_follows_the_definition(leaves: list[bytes]) -> None:
    """Any number of distinct leaves gives the root of the written rule, and no mutation."""
    nodes = np.frombuffer(b"".join(leaves), np.uint8).reshape(-1, 32)

    assert gpuhash.merkle_root(nodes) == (root_by_definition(leaves), False)


@pytest.mark.parametrize(("count", "repeated"), [(3, 1), (5, 1), (6, 2), (7, 1), (12, 4), (2500, 4)])
def test_repeated_leaves_keep_the_root_and_are_reported(count: int, repeated: int) -> None:
    """Repeating the tail that an odd level repeats anyway forges the same root (CVE-2012-2459)."""
    honest = np.random.default_rng(count).integers(0, 256, (count, 32), np.uint8)
    forged = np.concatenate((honest, honest[-repeated:]))

    assert gpuhash.merkle_root(forged) == (gpuhash.merkle_root(honest).root, True)
    assert not gpuhash.merkle_root(honest).mutated


def test_equal_leaves_in_different_pairs_are_no_mutation() -> None:
    """Only two children of one pair count, as in Bitcoin Core."""
    first, second, third = np.random.default_rng(1).integers(0, 256, (3, 32), np.uint8)

    assert not gpuhash.merkle_root(np.stack((first, second, second, third))).mutated


def test_many_trees_at_once_equal_one_by_one() -> None:
    """Trees of 1 to 40 leaves, one of them forged, hashed together."""
    rng = np.random.default_rng(7)
    counts = [*range(1, 41), 4]
    leaves = rng.integers(0, 256, (sum(counts), 32), np.uint8)
    leaves[-1] = leaves[-2]
    offsets = np.concatenate(([0], np.cumsum(counts)))

    roots, mutated = gpuhash.merkle_roots(leaves, offsets)

    for tree in range(len(counts)):
        alone = gpuhash.merkle_root(leaves[offsets[tree] : offsets[tree + 1]])
        assert (roots[tree].tobytes(), bool(mutated[tree])) == alone
    assert mutated.tolist() == [False] * 40 + [True]


@pytest.mark.parametrize("offsets", [[0, 0, 4], [0, 3], [1, 4], [0, 5], [0.0, 4.0], []])
def test_offsets_that_do_not_fit_are_refused(offsets: list[float]) -> None:
    """An empty tree, leaves outside every tree, and offsets that are no integers."""
    with pytest.raises(gpuhash.InvalidInputError, match="offsets"):
        gpuhash.merkle_roots(np.zeros((4, 32), np.uint8), np.array(offsets))


def test_an_empty_tree_is_refused() -> None:
    """No block has an empty tree, so there is no root to give."""
    with pytest.raises(gpuhash.InvalidInputError, match="at least one"):
        gpuhash.merkle_root(np.zeros((0, 32), np.uint8))
