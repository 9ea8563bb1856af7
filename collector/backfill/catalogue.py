"""Take stock of a folder of block files: every block with its place and height, and everything else.

Reading it costs one small read per block. What it holds is arrays, so that a whole chain fits.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

import gpuhash
from collector.backfill.blockfiles import Debris, Folder, Record
from collector.backfill.headertree import NO_PARENT, Tree, grow
from collector.codec.arrays import Bytes, Integers
from collector.codec.coinbase import bip34_height
from collector.codec.decode import HEADER_BYTES, decode_block
from collector.errors import DecodeError

TIME_AT: Final = 68  # where a header has its time


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """The blocks of a folder, by position in these arrays; each block once."""

    files: Integers
    at: Integers
    sizes_bytes: Integers
    n_tx: Integers
    headers: Bytes  # uint8[n, 80]
    hashes: Bytes  # uint8[n, 32]
    undo_ranks: Integers  # among the blocks of the file with as many transactions, by height
    tree: Tree
    unfinished: int  # position of a block that may still be being written; NO_PARENT when there is none
    debris: list[Debris]
    copies: dict[int, list[tuple[int, int, int, int]]]  # file, at, size, n_tx of the same block once more

    @property
    def heights(self) -> Integers:
        """Height of each block; UNKNOWN_HEIGHT where none could be found."""
        return self.tree.heights

    @property
    def times_s(self) -> Integers:
        """Header time of each block, seconds since 1970 UTC."""
        return np.ascontiguousarray(self.headers[:, TIME_AT : TIME_AT + 4]).view("<u4")[:, 0].astype(np.int64)


def take_stock(folder: Folder, watch: Callable[[int, int], None]) -> Catalogue:
    """Read the headers in every block file; calls watch with the number of files read and of all."""
    columns = [array("q") for _ in range(4)]
    headers = bytearray()
    debris: list[Debris] = []
    last: Record | None = None
    files = sorted(folder.numbers["blk"])
    for n_read, file in enumerate(files):
        watch(n_read, len(files))
        for found in folder.scan(file):
            if isinstance(found, Debris):
                debris.append(found)
                continue
            for column, value in zip(
                columns, (found.file, found.at, found.size_bytes, found.n_tx), strict=True
            ):
                column.append(value)
            headers += found.header
            last = found
    watch(len(files), len(files))
    return _catalogue(folder, columns, headers, debris, last)


def _catalogue(
    folder: Folder,
    columns: Sequence["array[int]"],
    headers: bytearray,
    debris: list[Debris],
    last: Record | None,
) -> Catalogue:
    rows = np.frombuffer(bytes(headers), np.uint8).reshape(-1, HEADER_BYTES)
    hashes = gpuhash.sha256d_headers(rows)
    places = np.array(columns, np.int64)
    once, copies = _without_copies(hashes, places)
    files, at, sizes_bytes, n_tx = places[:, once]

    def stated_height(i: int) -> int | None:
        try:
            block = decode_block(folder.read(int(files[i]), int(at[i]), int(sizes_bytes[i])))
        except DecodeError:
            return None
        return bip34_height(block)

    tree = grow(rows[once], hashes[once], stated_height)
    is_unfinished = (
        (files == last.file) & (at == last.at) if last and last.is_last else np.zeros(len(at), bool)
    )
    return Catalogue(
        files=files,
        at=at,
        sizes_bytes=sizes_bytes,
        n_tx=n_tx,
        headers=rows[once],
        hashes=hashes[once],
        undo_ranks=_ranks(files, n_tx, tree.heights),
        tree=tree,
        unfinished=int(np.flatnonzero(is_unfinished)[0]) if is_unfinished.any() else NO_PARENT,
        debris=debris,
        copies=copies,
    )


def _without_copies(
    hashes: Bytes, places: Integers
) -> tuple[Integers, dict[int, list[tuple[int, int, int, int]]]]:
    """Keep the first of each block, which may be there again after a crash; name the places of the others."""
    _, first, block = np.unique(
        np.ascontiguousarray(hashes).view("V32")[:, 0], return_index=True, return_inverse=True
    )
    once = np.sort(first)
    copies: dict[int, list[tuple[int, int, int, int]]] = {}
    for row in np.flatnonzero(first[block] != np.arange(len(hashes))):
        file, at, size_bytes, n_tx = map(int, places[:, row])
        kept = int(np.searchsorted(once, first[block[row]]))
        copies.setdefault(kept, []).append((file, at, size_bytes, n_tx))
    return once, copies


def _ranks(files: Integers, n_tx: Integers, heights: Integers) -> Integers:
    """Rank by height of each block among those of the same file with the same number of transactions."""
    order = np.lexsort((heights, n_tx, files))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (np.diff(files[order]) != 0) | (np.diff(n_tx[order]) != 0)
    places = np.arange(len(order))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(is_new, places, 0))
    return ranks
