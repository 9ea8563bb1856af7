"""Find the undo data of blocks in `rev?????.dat`, the files beside the block files of the same number.

A record is magic, length, undo data, and the double SHA-256 of the parent's hash and the undo data. Records
stand in the order in which blocks were connected, not in that of the block file, and carry no name: the
checksum is what says that they belong to a block. Source: Bitcoin Core, src/node/blockstorage.cpp.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

import gpuhash
from collector.backfill.blockfiles import FRAME_BYTES, SEARCH_BYTES, Folder
from collector.codec.arrays import Bytes, Integers

CHECKSUM_BYTES: Final = 32
MAX_UNDO_BYTES: Final = (
    1 << 26
)  # far above what the inputs of one block can spend in scripts of relayable size
COUNT_BYTES: Final = 9

_length = Struct("<I")


class Wanted(NamedTuple):
    """A block whose undo data are looked for."""

    file: int
    prev_hash: bytes
    n_tx: int
    rank: int  # among the blocks of the same file with as many transactions, by height


class Undo(NamedTuple):
    """Undo data in a file."""

    at: int
    size_bytes: int


@dataclass(slots=True)
class UndoFinder:
    """Finds undo data; the places in the files asked for last are kept."""

    folder: Folder
    kept_files: int = 8
    _places: dict[int, dict[int, list[Undo]]] = field(default_factory=dict)

    def find(self, wanted: Sequence[Wanted]) -> tuple[Bytes, Integers]:
        """Return undo data back to back and their limits; nothing where there are none for a block.

        The likeliest record of each block is checked in one batch; where it is another block's, the records
        with the same number of transactions are tried one after the other.
        """
        parts = [self._likeliest(each) for each in wanted]
        is_right = _match([each.prev_hash for each in wanted], parts)
        found = [
            part[:-CHECKSUM_BYTES] if right else self._search(each)
            for each, part, right in zip(wanted, parts, is_right, strict=True)
        ]
        limits = np.cumsum([0, *map(len, found)])
        return np.frombuffer(b"".join(found), np.uint8), limits

    def _likeliest(self, wanted: Wanted) -> bytes:
        """Undo data and checksum of the record that has the block's rank; nothing when there is none."""
        group = self._group(wanted)
        return self._read(wanted.file, group[min(wanted.rank, len(group) - 1)]) if group else b""

    def _search(self, wanted: Wanted) -> bytes:
        group = self._group(wanted)
        for _, place in sorted(enumerate(group), key=lambda item: abs(item[0] - wanted.rank)):
            part = self._read(wanted.file, place)
            if _match([wanted.prev_hash], [part])[0]:
                return part[:-CHECKSUM_BYTES]
        return b""

    def _group(self, wanted: Wanted) -> list[Undo]:
        if wanted.n_tx <= 1:  # nothing but a coinbase spends nothing
            return []
        if wanted.file not in self._places:
            while len(self._places) >= self.kept_files:
                del self._places[next(iter(self._places))]
            places: dict[int, list[Undo]] = {}
            for count, place in scan(self.folder, wanted.file):
                places.setdefault(count, []).append(place)
            self._places[wanted.file] = places
        return self._places[wanted.file].get(wanted.n_tx - 1, [])

    def _read(self, file: int, place: Undo) -> bytes:
        return self.folder.read(file, place.at, place.size_bytes + CHECKSUM_BYTES, "rev")


def scan(folder: Folder, file: int) -> Iterator[tuple[int, Undo]]:
    """Every record of an undo file, with the number of transactions that it is for."""
    end = folder.size_bytes(file, "rev")
    pos = 0
    while pos < end:
        head = folder.read(file, pos, FRAME_BYTES + COUNT_BYTES, "rev")
        if head.startswith(folder.magic) and len(head) > FRAME_BYTES:
            (size,) = _length.unpack_from(head, len(folder.magic))
            after = pos + FRAME_BYTES + size + CHECKSUM_BYTES
            if 0 < size <= MAX_UNDO_BYTES and after <= end:
                yield _count(head), Undo(pos + FRAME_BYTES, size)
                pos = after
                continue
        pos = _next_magic(folder, file, pos + 1, end)


def _next_magic(folder: Folder, file: int, pos: int, end: int) -> int:
    while pos < end:
        part = folder.read(file, pos, SEARCH_BYTES, "rev")
        found = part.find(folder.magic)
        if found >= 0:
            return pos + found
        pos += max(len(part) - len(folder.magic) + 1, 1)
    return end


def _count(head: bytes) -> int:
    first = head[FRAME_BYTES]
    width = {0xFD: 2, 0xFE: 4, 0xFF: 8}.get(first, 0)
    return int.from_bytes(head[FRAME_BYTES + 1 :][:width], "little") if width else first


def _match(prev_hashes: Sequence[bytes], parts: Sequence[bytes]) -> list[bool]:
    """Tell which undo data, with their checksum behind, belong to the child of which block."""
    messages = [
        prev_hash + part[:-CHECKSUM_BYTES] for prev_hash, part in zip(prev_hashes, parts, strict=True)
    ]
    digests = gpuhash.sha256d_batch(gpuhash.join(messages))
    return [
        len(part) > CHECKSUM_BYTES and part[-CHECKSUM_BYTES:] == digest.tobytes()
        for part, digest in zip(parts, digests, strict=True)
    ]
