"""Read a node's block files: `blk?????.dat`, plain or obfuscated with the key in `xor.dat`.

A file is a series of records: magic of the chain, length (uint32, little-endian), block. Blocks stand in the
order in which the node received them. Zeros may follow (the node reserves space), and a crash may leave any
bytes. Bytes are taken for a record when a header with enough work follows the length. All other bytes are
reported as debris, never skipped in silence. Source: Bitcoin Core, src/node/blockstorage.cpp.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

import numpy as np

from collector.codec.arrays import Bytes
from collector.codec.block import Block, decode_header
from collector.codec.format import HEADER_BYTES
from collector.codec.verify import has_work
from collector.errors import SettingsError

# Message start of each chain, src/kernel/chainparams.cpp; that of a custom signet differs.
MAGIC: Final = {
    "main": bytes.fromhex("f9beb4d9"),
    "test": bytes.fromhex("0b110907"),
    "testnet4": bytes.fromhex("1c163f28"),
    "signet": bytes.fromhex("0a03cf40"),
    "regtest": bytes.fromhex("fabfb5da"),
}
FRAME_BYTES: Final = 8
MAX_BLOCK_BYTES: Final = 4_000_000
MIN_BLOCK_BYTES: Final = HEADER_BYTES + 1 + 60
KEY_BYTES: Final = 8
KEY_FILE: Final = "xor.dat"
HEAD_BYTES: Final = FRAME_BYTES + HEADER_BYTES + 9  # a record up to the number of its transactions
SEARCH_BYTES: Final = 1 << 20
RESERVED_BYTES: Final = 256  # so many zeros at the end of a file are reserved space, and no part of a block
OPEN_FILES: Final = 64
LOOKED_INTO: Final = 5  # files at most, for a first block

_NAME = re.compile(r"(blk|rev)(\d{5,})\.dat")
_length = Struct("<I")


class BlockRecord(NamedTuple):
    """Holds the position of a block in a block file, its header and its number of transactions.

    `at` is the byte offset of the block itself; `is_last` says that no record follows in a file to which a
    node may still be adding.
    """

    file: int
    at: int  # where the block begins, after magic and length
    size_bytes: int
    header: bytes
    n_tx: int  # as the bytes after the header state
    is_last: bool  # a node may still be writing it


class Debris(NamedTuple):
    """Holds the range of bytes in a block file that are no block; `at` is the byte offset of its start."""

    file: int
    at: int
    size_bytes: int
    is_last: bool  # as in BlockRecord


class BlockFolder:
    """Reads the block files (blk) and undo files (rev) of one chain from a node's folder `blocks`.

    Raises SettingsError when the folder holds no block file, or its first ones no block of the chain. `magic`
    is what stands before each record; of a custom signet, the first file tells it.
    """

    def __init__(self, path: Path, chain: str | None = None) -> None:
        self.path = path
        self._handles: dict[tuple[str, int], int] = {}
        self.numbers = {kind: _numbers(path, kind) for kind in ("blk", "rev")}
        if not self.numbers["blk"]:
            raise SettingsError(
                f"{path} holds no blk*.dat; set --blocks-dir to the folder `blocks` in the node's datadir, "
                "or in its blocksdir"
            )
        self._newest = max(self.numbers["blk"])
        self._key = _key(path)
        try:
            self.chain = self._find_chain(chain)
            self.magic = MAGIC[self.chain]
            self._check_magic()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close every block and undo file that is open for reading."""
        for handle in self._handles.values():
            os.close(handle)
        self._handles.clear()

    def name(self, file: int, kind: str = "blk") -> str:
        """Return the name of a block or undo file: `kind` is blk or rev, `file` its number."""
        return f"{kind}{file:05d}.dat"

    def size_bytes(self, file: int, kind: str = "blk") -> int:
        """Return the present size of a block or undo file in bytes; 0 when there is no such file.

        A node may be writing the file.
        """
        if file not in self.numbers[kind] or not self.is_there(file, kind):
            return 0
        return os.fstat(self._handle(file, kind)).st_size

    def is_there(self, file: int, kind: str = "blk") -> bool:
        """Return whether a block or undo file still exists: a pruning node removes files meanwhile."""
        return (kind, file) in self._handles or (self.path / self.name(file, kind)).exists()

    def read(self, file: int, at: int, size_bytes: int, kind: str = "blk") -> bytes:
        """Return `size_bytes` bytes of a block or undo file from byte `at`, with the obfuscation removed.

        The result is shorter when the file ends earlier.
        """
        data = bytearray(os.pread(self._handle(file, kind), size_bytes, at))
        if self._key.any():
            self._clear(np.frombuffer(data, np.uint8), at)
        return bytes(data)

    def read_into(self, target: Bytes, file: int, at: int, kind: str = "blk") -> int:
        """Fill the array `target` from byte `at` of a block or undo file, with the obfuscation removed.

        Returns the number of bytes read, which is less at the end of the file.
        """
        got = os.preadv(self._handle(file, kind), [target.data], at)
        if self._key.any():
            self._clear(target[:got], at)
        return got

    def scan(self, file: int) -> Iterator[BlockRecord | Debris]:
        """Yield every block record of a block file, and all other bytes as Debris, in order."""
        end = self.size_bytes(file)
        may_grow = end > 0 and self._may_grow(file, end)  # a file that was pruned has no end
        pos = 0
        while pos < end:
            here = self._record(file, pos, end)
            if here is None or not self._is_followed(file, here, end):
                start = pos + FRAME_BYTES if here else pos + 1
                there = self._next_record(file, start, end)
                if here is None or there < here.at + here.size_bytes:
                    yield from self._debris(file, pos, there, end)
                    pos = there
                    continue
            pos = here.at + here.size_bytes
            yield here._replace(is_last=may_grow and self._is_reserved(file, pos, end))

    def _record(self, file: int, pos: int, end: int) -> BlockRecord | None:
        """Return the block record that begins at byte `pos` of a block file; None when there is none."""
        head = self.read(file, pos, HEAD_BYTES)
        if head[: len(self.magic)] != self.magic or len(head) < FRAME_BYTES + HEADER_BYTES + 1:
            return None
        (size,) = _length.unpack_from(head, len(self.magic))
        if not MIN_BLOCK_BYTES <= size <= MAX_BLOCK_BYTES or pos + FRAME_BYTES + size > end:
            return None
        header = head[FRAME_BYTES : FRAME_BYTES + HEADER_BYTES]
        if not is_worked_for(header, self.chain):
            return None
        n_tx = _count(head, FRAME_BYTES + HEADER_BYTES)
        return BlockRecord(file, pos + FRAME_BYTES, size, header, n_tx, is_last=False)

    def _next_record(self, file: int, start: int, end: int) -> int:
        """Return the byte at which the next record of a block file begins, or `end` when there is none."""
        pos = start
        while pos < end:
            part = self.read(file, pos, SEARCH_BYTES)
            found = part.find(self.magic)
            while found >= 0:
                if self._record(file, pos + found, end) is not None:
                    return pos + found
                found = part.find(self.magic, found + 1)
            # The magic may cross the border between two parts.
            pos += max(len(part) - len(self.magic) + 1, 1)
        return end

    def _is_followed(self, file: int, record: BlockRecord, end: int) -> bool:
        """Return whether another record or reserved space follows this record of a block file.

        If neither does, the length that the record states may be wrong.
        """
        pos = record.at + record.size_bytes
        return self.read(file, pos, len(self.magic)) == self.magic or self._is_reserved(file, pos, end)

    def _is_reserved(self, file: int, pos: int, end: int) -> bool:
        """Return whether a block file has only reserved zeros from `pos` to its end, or for SEARCH_BYTES."""
        return self._is_empty(file, pos, min(end, pos + SEARCH_BYTES))

    def _may_grow(self, file: int, end: int) -> bool:
        """Return whether a node may be adding to a block file: to the newest, or one with reserved space.

        A node cuts the reserved space off a file that is full. One that was started from a snapshot adds to
        two files in turn, of which one has a lower number.
        """
        return file == self._newest or self._is_empty(file, max(end - RESERVED_BYTES, 0), end)

    def _is_empty(self, file: int, pos: int, end: int) -> bool:
        """Return whether the bytes `pos` to `end` of a block file are zeros, obfuscated or as stored.

        The node does not obfuscate reserved space.
        """
        raw = os.pread(self._handle(file, "blk"), end - pos, pos)
        return not raw.strip(b"\x00") or not self.read(file, pos, end - pos).strip(b"\x00")

    def _debris(self, file: int, pos: int, there: int, end: int) -> Iterator[Debris]:
        if not self._is_empty(file, pos, there):
            yield Debris(file, pos, there - pos, there == end and self._may_grow(file, end))

    def _find_chain(self, wanted: str | None) -> str:
        """Return the chain with whose magic one of the first LOOKED_INTO files begins; `wanted` if none does.

        Raises SettingsError when that is another chain than `wanted`, and when `wanted` is None and no file
        tells the chain.
        """
        for file in self._first_files():
            magic = self._first_bytes(file)
            found = next((chain for chain, its_magic in MAGIC.items() if its_magic == magic), None)
            if found is None:  # empty or damaged, or of a custom signet
                continue
            if wanted not in {None, found}:
                raise SettingsError(
                    f"{self.path / self.name(file)} is of chain {found}, not of {wanted}; "
                    "set --chain or --blocks-dir"
                )
            return found
        if wanted is None:
            raise self._unknown_magic()
        return wanted

    def _check_magic(self) -> None:
        """Raise SettingsError when none of the first LOOKED_INTO files holds a block of the chain.

        If the first begins with a block behind another magic, and the chain is signet, that magic is taken: a
        custom signet has its own. Damaged and empty files do no harm beside others.
        """
        first, known = min(self.numbers["blk"]), self.magic
        begin, end = self._first_bytes(first), self.size_bytes(first)
        if begin == known:
            return
        if self.chain == "signet":
            self.magic = begin
            if self._record(first, 0, end) is not None:
                return
            self.magic = known
        if not any(map(self._holds_block, self._first_files())):
            raise self._unknown_magic()

    def _holds_block(self, file: int) -> bool:
        """Return whether a block file holds a record of the chain."""
        end = self.size_bytes(file)
        return self._next_record(file, 0, end) < end

    def _first_files(self) -> list[int]:
        """Return the numbers of the block files that are looked into for the chain, lowest first."""
        return sorted(self.numbers["blk"])[:LOOKED_INTO]

    def _first_bytes(self, file: int) -> bytes:
        """Return the bytes with which a block file begins, as many as a magic has."""
        return self.read(file, 0, len(MAGIC["main"]))

    def _unknown_magic(self) -> SettingsError:
        """Return the error that says that the files are of no known chain, or still obfuscated."""
        first = min(self.numbers["blk"])
        return SettingsError(
            f"{self.path / self.name(first)} begins with {self._first_bytes(first).hex() or 'nothing'}, not "
            f"the magic of a known chain; copy {KEY_FILE} from the node's folder `blocks` too, or name the "
            "chain, such as --chain main, and --chain signet for a custom signet"
        )

    def _clear(self, data: Bytes, at: int) -> None:
        """Remove the obfuscation in place from `data`, which holds the bytes of a file from byte `at` on."""
        key = np.roll(self._key, -(at % KEY_BYTES))
        whole = len(data) // KEY_BYTES * KEY_BYTES
        words = data[:whole].view(np.uint64)
        words ^= key.view(np.uint64)[0]
        data[whole:] ^= key[: len(data) - whole]

    def _handle(self, file: int, kind: str) -> int:
        """Return an open handle of a block or undo file; close the oldest handle when too many are open."""
        handle = self._handles.pop((kind, file), None)
        if handle is None:
            while len(self._handles) >= OPEN_FILES:
                os.close(self._handles.pop(next(iter(self._handles))))
            path = self.path / self.name(file, kind)
            try:
                handle = os.open(path, os.O_RDONLY)
            except OSError as error:
                raise SettingsError(f"cannot read {path}: {error.strerror}") from None
        self._handles[kind, file] = handle  # now the newest
        return handle


def is_worked_for(header: bytes, chain: str) -> bool:
    """Return whether the hash of a header meets the target in it, and its chain allows such a target."""
    fields, block_hash = decode_header(header)
    head = Block(
        header=fields,
        block_hash=block_hash,
        transactions=(),
        size_bytes=0,
        stripped_bytes=0,
        coinbase_witness=(),
    )
    return has_work(head, chain)


def _numbers(path: Path, kind: str) -> frozenset[int]:
    try:
        matches = [_NAME.fullmatch(each.name) for each in path.iterdir()]
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}; set --blocks-dir") from None
    return frozenset(int(match[2]) for match in matches if match and match[1] == kind)


def _key(path: Path) -> Bytes:
    """Return the key by which the node obfuscates its files: 8 bytes, all zeros when there is no key file.

    Raises SettingsError for a key file that cannot be read or has another length.
    """
    file = path / KEY_FILE
    if not file.exists():
        return np.zeros(KEY_BYTES, np.uint8)
    try:
        key = file.read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    if len(key) != KEY_BYTES:
        raise SettingsError(
            f"{file} has {len(key)} bytes, but a node writes {KEY_BYTES}; copy the file again from the node"
        )
    return np.frombuffer(key, np.uint8)


def _count(head: bytes, at: int) -> int:
    """Return the number of transactions that a block states (a compact size at `at`).

    The number is not checked here; the parser of the whole block checks it later.
    """
    first = head[at]
    width = {0xFD: 2, 0xFE: 4, 0xFF: 8}.get(first, 0)
    return int.from_bytes(head[at + 1 : at + 1 + width], "little") if width else first
