"""List the blocks in a folder of block files, with position and height, and the bytes that are not blocks.

Making the list costs one small read per block. It is held in arrays, so that a whole chain fits in memory.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

import gpuhash
from collector.backfill.blockfiles import BlockFolder, Debris
from collector.backfill.headertree import UNKNOWN_HEIGHT, HeaderTree, build_tree
from collector.backfill.undofiles import Claim
from collector.codec.arrays import Bytes, Flags, Integers
from collector.codec.block import decode_block
from collector.codec.coinbase import bip34_height
from collector.codec.format import HEADER_BYTES
from collector.errors import DecodeError

PREV_HASH: Final = slice(4, 36)  # where a header has its parent's hash
TIME_AT: Final = 68  # where it has its time

Copies = dict[int, list[tuple[int, int, int, int]]]  # file, at, size, n_tx of each further copy of a block


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Lists the blocks in a folder of block files, as arrays in which each block has the same position."""

    files: Integers
    at: Integers
    sizes_bytes: Integers
    n_tx: Integers
    headers: Bytes  # uint8[n, 80]
    hashes: Bytes  # uint8[n, 32]
    undo_ranks: Integers  # rank by height among the blocks of the file with as many transactions
    undo_claims: Bytes  # uint8[n], values of undofiles.Claim
    tree: HeaderTree
    is_last: Flags  # no record follows in a file to which a node may be adding: it may be half written
    debris: list[Debris]
    copies: Copies

    @property
    def heights(self) -> Integers:
        """Return the height of each block, or UNKNOWN_HEIGHT where none could be found."""
        return self.tree.heights

    def files_of(self, i: int) -> tuple[int, ...]:
        """Return the numbers of the block files that hold the block at position `i`, without repetition."""
        return _files_of(i, self.files, self.copies)

    @property
    def times_s(self) -> Integers:
        """Return the header time of each block, in seconds since 1970 UTC."""
        return np.ascontiguousarray(self.headers[:, TIME_AT : TIME_AT + 4]).view("<u4")[:, 0].astype(np.int64)


def read_catalogue(folder: BlockFolder, watch: Callable[[int, int], None]) -> Catalogue:
    """Read the header of every block in a folder; return the Catalogue of its blocks.

    Meanwhile, `watch` is called with the number of files read so far and the number of all files.
    """
    columns = [array("q") for _ in range(5)]
    headers = bytearray()
    debris: list[Debris] = []
    files = sorted(folder.numbers["blk"])
    for n_read, file in enumerate(files):
        watch(n_read, len(files))
        for found in folder.scan(file):
            if isinstance(found, Debris):
                debris.append(found)
                continue
            for column, value in zip(
                columns, (found.file, found.at, found.size_bytes, found.n_tx, found.is_last), strict=True
            ):
                column.append(value)
            headers += found.header
    watch(len(files), len(files))
    return _catalogue(folder, columns, headers, debris)


def _catalogue(
    folder: BlockFolder,
    columns: Sequence["array[int]"],
    headers: bytearray,
    debris: list[Debris],
) -> Catalogue:
    rows = np.frombuffer(bytes(headers), np.uint8).reshape(-1, HEADER_BYTES)
    hashes = gpuhash.sha256d_headers(rows)
    positions = np.array(columns, np.int64)
    once, copies = _without_copies(hashes, positions[:4])
    files, at, sizes_bytes, n_tx, is_last = positions[:, once]

    def stated_height(i: int) -> int | None:
        if not folder.is_there(int(files[i])):  # pruned since it was listed
            return None
        try:
            block = decode_block(folder.read(int(files[i]), int(at[i]), int(sizes_bytes[i])))
        except DecodeError:
            return UNKNOWN_HEIGHT
        height = bip34_height(block)
        return UNKNOWN_HEIGHT if height is None else height

    tree = build_tree(rows[once], hashes[once], stated_height)
    return Catalogue(
        files=files,
        at=at,
        sizes_bytes=sizes_bytes,
        n_tx=n_tx,
        headers=rows[once],
        hashes=hashes[once],
        undo_ranks=_ranks(files, n_tx, tree.heights),
        undo_claims=_claims(rows[once], n_tx, tree, lambda i: _files_of(i, files, copies)),
        tree=tree,
        is_last=is_last.astype(np.bool_),
        debris=debris,
        copies=copies,
    )


def _without_copies(hashes: Bytes, positions: Integers) -> tuple[Integers, Copies]:
    """Return the position of each block's first copy in the files, and per block a list of further copies.

    A further copy is (file number, byte offset, size in bytes, number of transactions). A crash of the node
    may leave a block in the files twice.
    """
    _, first, block = np.unique(
        np.ascontiguousarray(hashes).view("V32")[:, 0], return_index=True, return_inverse=True
    )
    once = np.sort(first)
    copies: Copies = {}
    for row in np.flatnonzero(first[block] != np.arange(len(hashes))):
        file, at, size_bytes, n_tx = map(int, positions[:, row])
        kept = int(np.searchsorted(once, first[block[row]]))
        copies.setdefault(kept, []).append((file, at, size_bytes, n_tx))
    return once, copies


def _ranks(files: Integers, n_tx: Integers, heights: Integers) -> Integers:
    """Return each block's rank by height among the blocks of its file with equally many transactions."""
    order = np.lexsort((heights, n_tx, files))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(files[order]) != 0) | (np.diff(n_tx[order]) != 0)
    numbers = np.arange(len(order))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = numbers - np.maximum.accumulate(np.where(is_new, numbers, 0))
    return ranks


def _files_of(i: int, files: Integers, copies: Copies) -> tuple[int, ...]:
    return tuple(dict.fromkeys([int(files[i]), *(copy[0] for copy in copies.get(i, ()))]))


def _claims(
    headers: Bytes, n_tx: Integers, tree: HeaderTree, files_of: Callable[[int], tuple[int, ...]]
) -> Bytes:
    """Return for each block which of the undo records that fit it are its own, as values of Claim."""
    parents = np.ascontiguousarray(headers[:, PREV_HASH]).view("V32")[:, 0]
    _, parent, n_children = np.unique(parents, return_inverse=True, return_counts=True)
    alike: dict[tuple[int, int, int], list[int]] = {}
    for i in map(int, np.flatnonzero((n_children[parent] > 1) & (n_tx > 1))):
        for file in files_of(i):
            alike.setdefault((int(parent[i]), int(n_tx[i]), file), []).append(i)
    claims = np.full(len(n_tx), Claim.ANY, np.uint8)
    for rivals in alike.values():
        for i in rivals if len(rivals) > 1 else ():
            # Of two tips with equal work, the node may have connected the other one.
            claims[i] = Claim.SINGLE if tree.is_active[i] and i != tree.tip else Claim.NONE
    return claims
