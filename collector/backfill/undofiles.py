"""Find the undo data of blocks in `rev?????.dat`: each such file belongs to the block file of its number.

A record is magic, length, undo data, and the double SHA-256 of the parent's hash and the undo data. The order
of the records is that in which blocks were connected, not that of the block file, and a record carries no
block hash: only the checksum shows to which block a record belongs. Source: Bitcoin Core,
src/node/blockstorage.cpp.

The checksum tells the parent, not the block. Blocks with one parent and as many transactions are rivals: a
record of one fits the others, and a block that was never connected has none. So rivals of one file get none,
except the block of the active chain, where a single record fits.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

import gpuhash
from collector.backfill.blockfiles import FRAME_BYTES, SEARCH_BYTES, BlockFolder
from collector.codec.arrays import Bytes, Integers

CHECKSUM_BYTES: Final = 32
MAX_UNDO_BYTES: Final = (
    1 << 26
)  # far above what the inputs of one block can spend in scripts of relayable size
COUNT_BYTES: Final = 9

_length = Struct("<I")


class Claim(IntEnum):
    """Says which undo records that fit a block are the block's own."""

    ANY = 0  # it has no rival in its files
    # It has a rival and lies in the active chain, below the tip. It gets a record only if all records that
    # fit have the same content.
    SINGLE = 1
    NONE = 2  # it has, and may never have been connected


class UndoRequest(NamedTuple):
    """Describes a block whose undo data is to be found.

    The rank is the block's place, by height, among the blocks of its first file with as many transactions.
    """

    files: tuple[int, ...]  # the numbers of the block files that hold the block
    prev_hash: bytes
    n_tx: int
    rank: int
    claim: Claim = Claim.ANY


class UndoRecord(NamedTuple):
    """Holds the position of a block's undo data in a rev file: byte offset and size in bytes."""

    at: int
    size_bytes: int


@dataclass(slots=True)
class UndoFinder:
    """Finds undo data of blocks in the rev files; remembers the records of the files searched last."""

    folder: BlockFolder
    kept_files: int = 8
    _records: dict[int, dict[int, list[UndoRecord]]] = field(default_factory=dict)

    def find(self, requests: Sequence[UndoRequest]) -> tuple[Bytes, Integers]:
        """Return the undo data of all requested blocks back to back, and the byte limits between them.

        A block without undo data has an empty part. First the likeliest record of each block is checked, all
        in one batch. If that record belongs to another block, the other records with the same number of
        transactions are tried.
        """
        parts = [self._likeliest(each) for each in requests]
        is_match = _match([each.prev_hash for each in requests], parts)
        found = [
            part[:-CHECKSUM_BYTES] if right else self._search(each)
            for each, part, right in zip(requests, parts, is_match, strict=True)
        ]
        limits = np.cumsum([0, *map(len, found)])
        return np.frombuffer(b"".join(found), np.uint8), limits

    def _likeliest(self, request: UndoRequest) -> bytes:
        """Return undo data and checksum of the undo record whose rank in its file equals the block's rank.

        The result is empty when there is no such record, or the block may not have the first one that fits.
        """
        file = request.files[0]
        group = self._group(request, file) if request.claim == Claim.ANY else []
        return self._read(file, group[min(request.rank, len(group) - 1)]) if group else b""

    def _search(self, request: UndoRequest) -> bytes:
        """Return the block's undo data without checksum; empty if no record belongs to the block."""
        if request.claim == Claim.NONE:
            return b""
        if request.claim == Claim.ANY:
            return next(self._fitting(request), b"")
        fitting = set(self._fitting(request))
        return fitting.pop() if len(fitting) == 1 else b""

    def _fitting(self, request: UndoRequest) -> Iterator[bytes]:
        """Yield the undo data, without checksum, of each record in the block's files that fits the block.

        All records with the right number of transactions are tried, those of the nearest rank first.
        """
        for file in request.files:
            group = self._group(request, file)
            for _, record in sorted(enumerate(group), key=lambda item: abs(item[0] - request.rank)):
                part = self._read(file, record)
                if _match([request.prev_hash], [part])[0]:
                    yield part[:-CHECKSUM_BYTES]

    def _group(self, request: UndoRequest, file: int) -> list[UndoRecord]:
        if request.n_tx <= 1:  # a block that has only a coinbase spends nothing
            return []
        if file not in self._records:
            while len(self._records) >= self.kept_files:
                del self._records[next(iter(self._records))]
            records: dict[int, list[UndoRecord]] = {}
            for count, record in scan(self.folder, file):
                records.setdefault(count, []).append(record)
            self._records[file] = records
        return self._records[file].get(request.n_tx - 1, [])

    def _read(self, file: int, record: UndoRecord) -> bytes:
        return self.folder.read(file, record.at, record.size_bytes + CHECKSUM_BYTES, "rev")


def scan(folder: BlockFolder, file: int) -> Iterator[tuple[int, UndoRecord]]:
    """Yield (number of transactions, position) for every record of an undo file.

    The number does not count the coinbase.
    """
    end = folder.size_bytes(file, "rev")
    pos = 0
    while pos < end:
        head = folder.read(file, pos, FRAME_BYTES + COUNT_BYTES, "rev")
        if head.startswith(folder.magic) and len(head) > FRAME_BYTES:
            (size,) = _length.unpack_from(head, len(folder.magic))
            after = pos + FRAME_BYTES + size + CHECKSUM_BYTES
            if 0 < size <= MAX_UNDO_BYTES and after <= end:
                yield _count(head), UndoRecord(pos + FRAME_BYTES, size)
                pos = after
                continue
        pos = _next_magic(folder, file, pos + 1, end)


def _next_magic(folder: BlockFolder, file: int, pos: int, end: int) -> int:
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
    """Return, for each part, whether its checksum fits its undo data and the hash of the block's parent.

    A part is the undo data of a block followed by the checksum.
    """
    messages = [
        prev_hash + part[:-CHECKSUM_BYTES] for prev_hash, part in zip(prev_hashes, parts, strict=True)
    ]
    digests = gpuhash.sha256d_batch(gpuhash.join(messages))
    return [
        len(part) > CHECKSUM_BYTES and part[-CHECKSUM_BYTES:] == digest.tobytes()
        for part, digest in zip(parts, digests, strict=True)
    ]
