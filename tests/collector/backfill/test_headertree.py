"""Test the heights that follow from headers: most work wins in any order, and nothing is guessed."""

import random
from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.backfill.headertree import NO_PARENT, UNKNOWN_HEIGHT, HeaderTree, build_tree
from gpuhash.reference import sha256d

EASY, HARD = 0x207FFFFF, 0x1F00FFFF  # one block of the second takes the work of thousands of the first


def header(prev_hash: bytes, number: int, bits: int = EASY) -> bytes:
    """Make a header; its proof of work is checked elsewhere."""
    return (
        (4).to_bytes(4, "little")
        + prev_hash
        + sha256d(number.to_bytes(8, "little"))
        + bytes(4)
        + bits.to_bytes(4, "little")
        + bytes(4)
    )


def chain(start: bytes, numbers: Sequence[int], bits: int = EASY) -> list[bytes]:
    """Make headers, each on top of the one before."""
    made = []
    for number in numbers:
        made.append(header(start, number, bits))
        start = sha256d(made[-1])
    return made


def tree_of(headers: Sequence[bytes], stated: dict[int, int | None] | None = None) -> HeaderTree:
    """Make a tree of headers; the stated heights are given by position, None for a block that is gone."""
    rows = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, 80)
    hashes = np.frombuffer(b"".join(map(sha256d, headers)), np.uint8).reshape(-1, 32)
    return build_tree(rows, hashes, lambda i: (stated or {}).get(i, UNKNOWN_HEIGHT))


def test_the_branch_of_most_work_is_active_even_when_it_is_shorter() -> None:
    """Two hard blocks outweigh five easy ones on the same parent."""
    trunk = chain(bytes(32), range(3))
    long = chain(sha256d(trunk[-1]), range(10, 15))
    heavy = chain(sha256d(trunk[-1]), range(20, 22), HARD)

    tree = tree_of(trunk + long + heavy)

    assert tree.heights.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 3, 4]
    assert tree.is_active.tolist() == [True] * 3 + [False] * 5 + [True] * 2
    assert tree.tip == 9


def test_of_equal_branches_the_one_found_first_is_active() -> None:
    """Of two branches with equal work, the first one found is active, as in the node."""
    trunk = chain(bytes(32), range(2))
    one, other = chain(sha256d(trunk[-1]), [7]), chain(sha256d(trunk[-1]), [8])

    assert tree_of(trunk + one + other).tip == 2
    assert tree_of(trunk + other + one).tip == 2


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=40), st.integers(0, 1000))
def test_heights_do_not_depend_on_the_order_of_the_headers(parents: list[int], seed: int) -> None:
    """Any tree, shuffled, gives every block the number of its ancestors."""
    headers = [header(bytes(32), 0)]
    depths = [0]
    for number, parent in enumerate(parents, start=1):
        at = parent % len(headers)
        headers.append(header(sha256d(headers[at]), number))
        depths.append(depths[at] + 1)
    order = list(range(len(headers)))
    random.Random(seed).shuffle(order)  # noqa: S311 - any order will do

    tree = tree_of([headers[i] for i in order])

    assert tree.heights.tolist() == [depths[i] for i in order]
    assert tree.heights[tree.tip] == max(depths)
    assert tree.is_whole.all()


def test_without_ancestors_the_majority_of_the_coinbases_decides() -> None:
    """When one coinbase is wrong, one states no height and one is gone, the others decide."""
    branch = chain(b"\x01" * 32, range(8))
    stated = {i: 700_000 + i for i in range(8)} | {2: 5_000_000, 5: UNKNOWN_HEIGHT, 6: None}

    tree = tree_of(branch, stated)

    assert tree.heights.tolist() == [700_000 + i for i in range(8)]
    assert not tree.is_whole.any()
    assert tree.tip == 7


def test_a_branch_whose_coinbases_do_not_say_stays_unknown() -> None:
    """Blocks older than BIP 34, and coinbases that contradict each other, give no height."""
    silent = chain(b"\x01" * 32, range(3))
    torn = chain(b"\x02" * 32, range(10, 14))

    tree = tree_of(silent + torn, {3: 10, 4: 90, 5: 40, 6: 7})

    assert set(tree.heights.tolist()) == {UNKNOWN_HEIGHT}


def test_a_branch_from_the_first_block_goes_before_a_heavier_one_without_ancestors() -> None:
    """A branch that does not reach down to the first block is not taken for the chain."""
    whole = chain(bytes(32), range(2))
    loose = chain(b"\x01" * 32, range(10, 14), HARD)

    tree = tree_of(loose + whole, {i: 1 + i for i in range(4)})

    assert tree.is_active.tolist() == [False] * 4 + [True] * 2
    assert tree.heights[tree.tip] == 1


def test_a_missing_block_does_not_make_stale_what_stands_on_it() -> None:
    """With two blocks missing, the blocks between and above stay active, and a lighter branch is stale."""
    whole = chain(bytes(32), range(20))
    stale = chain(sha256d(whole[11]), range(40, 42))
    headers = whole[:5] + whole[6:15] + whole[16:] + stale
    heights = [*range(5), *range(6, 15), *range(16, 20), 12, 13]

    tree = tree_of(headers, dict(enumerate(heights)))

    assert tree.is_active.tolist() == [True] * 18 + [False] * 2
    assert tree.heights.tolist() == heights
    assert tree.tip == 17


def test_no_headers_have_no_tip() -> None:
    """A tree without headers has no tip and raises no error."""
    assert tree_of([]).tip == NO_PARENT
