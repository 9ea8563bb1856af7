"""Pass messages through the ring, a file, from the receiver to the collector or to the run after a kill.

Both processes map the file into memory. What is put is in the operating system's cache at once, without a
system call, so it survives SIGKILL of either process or of both. The file has its disk space from the start,
so a full disk cannot stop the process that puts. One process puts (`Ring.put`, `Ring.put_notice`). The other
takes (`Ring.take`), and frees the room of what it has made safe elsewhere (`Ring.release`). A record counts
once the word `head` points to its end.

The file begins with a page that describes it: words of 64 bits, then JSON, whose length and CRC-32 stand in
one of the words. The records follow, each at a multiple of 8 bytes:

    length of the body (uint32) | CRC-32 of the rest (uint32) | number, received_ns, sequence (64 bits each)
    | topic, kind (uint16 each) | 0 (uint32) | body

Records are numbered from 1. Where the next record does not fit before the end of the file, a length of
0xFFFFFFFF says that it stands at the beginning. Byte order is little-endian in records, and the machine's own
in the page. A power cut may leave any mixture of old and new pages; the checksum and the number tell a record
from what was there before.
"""

import fcntl
import json
import mmap
import os
import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self

from collector.errors import NO_SPACE
from collector.receive.records import Message, Notice

CAPACITY_BYTES: Final = 64 << 20
MIN_CAPACITY_BYTES: Final = 1 << 20  # a smaller ring holds too little to be of use
SUFFIX: Final = ".ring"
NOTICE_RESERVE_BYTES: Final = 1 << 16  # room kept for notices, so that a full ring can say that it is full
MAX_NOTICE_BYTES: Final = 1 << 14
MAX_TAKEN: Final = 1000

_MAGIC: Final = b"mpring01"
_PAGE_BYTES: Final = 4096
# 64-bit words of the page, after the magic.
_HEAD, _TAIL, _PUT, _RELEASED, _CAPACITY, _TEXT, _READER_WAITS = range(1, 8)
_TEXT_AT: Final = 64
_MESSAGE, _NOTICE = 0, 1
_NO_TOPIC: Final = 0xFFFF
_TURN_BACK: Final = 0xFFFFFFFF
_rest = Struct("<QqqHHI")
_start = Struct("<II")
_HEADER_BYTES: Final = _start.size + _rest.size
_FILE_MODE: Final = 0o640
_UNMAP_BYTES: Final = 8 << 20  # mapped pages are given back each time so many bytes were put or released
_PATIENCE_S: Final = 1.0  # the longest wait for a record that this processor does not see whole yet

Item = Message | Notice


class LeftInRing(NamedTuple):
    """Holds what a run left in its ring (buffer file of received messages), the oldest first."""

    session: str
    items: list[Item]
    lost_bytes: int  # bytes where whole records should be and are not
    n_released: int = 0  # records whose content had been made safe elsewhere


class Ring:
    """Reads and writes one ring: a memory-mapped file through which one process passes messages to another.

    The process that takes messages uses `create`, the process that puts them uses `open`.
    """

    def __init__(self, path: Path, handle: int) -> None:
        """Map an open file into memory. Raises ValueError when it is no ring, or is damaged.

        The caller closes the file after such an error.
        """
        self.path = path
        self._map = mmap.mmap(handle, 0)
        if len(self._map) < _PAGE_BYTES or self._map[: len(_MAGIC)] != _MAGIC:
            raise ValueError(f"{path} is no ring")
        self._words = memoryview(self._map)[:_TEXT_AT].cast("Q")
        self._capacity = self._words[_CAPACITY]
        checksum, length = divmod(self._words[_TEXT], 1 << 32)
        text = self._map[_TEXT_AT : min(_TEXT_AT + length, _PAGE_BYTES)]
        if self._capacity != len(self._map) - _PAGE_BYTES or zlib.crc32(text) != checksum:
            raise ValueError(f"the first page of {path} is damaged")
        names = json.loads(text)
        self._node: str = names["node"]
        self.session: str = names["session"]
        self._topics: list[str] = names["topics"]
        self._handle = handle
        self._number_of = {topic: number for number, topic in enumerate(self._topics)}
        self._at = self._words[_TAIL]  # what `take` reads next
        self._taken: deque[tuple[int, int]] = deque()  # number and end of records taken and not released
        self._unmapped_to = self._at

    @classmethod
    def create(
        cls,
        path: Path,
        *,
        node: str,
        session: str,
        topics: Sequence[str],
        capacity_bytes: int = CAPACITY_BYTES,
    ) -> Self:
        """Create an empty ring file and return it; it is smaller when the disk has less room.

        Raises OSError when the disk has no room for the smallest ring, ValueError for too many topics.
        """
        text = json.dumps({"node": node, "session": session, "topics": list(topics)}).encode()
        if len(text) > _PAGE_BYTES - _TEXT_AT:
            raise ValueError(f"the names of {len(topics)} topics do not fit into the page of {path}")
        for left_over in path.parent.glob(f".*{SUFFIX}.tmp"):  # a kill at this point left them
            left_over.unlink()
        temporary = path.with_name(f".{path.name}.tmp")
        handle = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _FILE_MODE)
        try:
            capacity = _allocate(handle, capacity_bytes)
            words = memoryview(bytearray(_TEXT_AT)).cast("Q")
            words[_CAPACITY], words[_TEXT] = capacity, zlib.crc32(text) << 32 | len(text)
            os.pwrite(handle, _MAGIC + words.tobytes()[len(_MAGIC) :] + text, 0)
            temporary.replace(path)
            return cls(path, handle)
        except BaseException:
            os.close(handle)
            temporary.unlink(missing_ok=True)
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open and return the ring at `path`, to put messages into it.

        The ring file is locked until `close` or the end of the process.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        fcntl.flock(handle, fcntl.LOCK_EX)
        ring = cls(path, handle)
        ring._complete()
        return ring

    def close(self) -> None:
        """Unmap and close the ring file. A second call does nothing."""
        if self._handle >= 0:
            self._words.release()
            self._map.close()
            os.close(self._handle)
            self._handle = -1

    # --- the side that puts

    def put(self, topic: str, sequence: int, received_ns: int, body: bytes) -> bool:
        """Append a message to the ring; return whether there was room for it."""
        kind = _MESSAGE, self._number_of[topic]
        return self._put(kind, sequence, received_ns, body)

    def put_notice(self, notice: Notice) -> bool:
        """Append a notice to the ring; return whether there was room, of which some is reserved for notices.

        When there is no room for the body of the notice, the notice is put without the body.
        """
        kind = _NOTICE, self._number_of.get(notice.topic or "", _NO_TOPIC)
        text = f"{notice.reason}\0{notice.detail}\0".encode()[:MAX_NOTICE_BYTES]
        return any(self._put(kind, 0, notice.received_ns, body) for body in (text + notice.body, text))

    def clear_wait_flag(self) -> bool:
        """Clear the flag in the ring that says that the reader waits; return whether the flag was set."""
        if self._words[_READER_WAITS]:
            self._words[_READER_WAITS] = 0
            return True
        return False

    @property
    def n_put(self) -> int:
        """Return how many messages and notices were put into the ring since its creation."""
        return self._words[_PUT]

    @property
    def n_released(self) -> int:
        """Return how many messages and notices were put into the ring and released since its creation."""
        return self._words[_RELEASED]

    @property
    def n_waiting(self) -> int:
        """Return how many messages and notices were put into the ring and not yet released."""
        return self._words[_PUT] - self._words[_RELEASED]

    def has_room(self, body_bytes: int) -> bool:
        """Return whether the ring has room for a message with a body of this size, after two notices."""
        needed_bytes = 2 * NOTICE_RESERVE_BYTES + _HEADER_BYTES + body_bytes
        words = self._words
        at = words[_HEAD] % self._capacity
        if at + needed_bytes > self._capacity:
            needed_bytes += self._capacity - at
        return words[_HEAD] + needed_bytes - words[_TAIL] <= self._capacity

    def _put(self, kind: tuple[int, int], sequence: int, received_ns: int, body: bytes) -> bool:
        words = self._words
        reserve_bytes = NOTICE_RESERVE_BYTES if kind[0] == _MESSAGE else 0
        head = words[_HEAD]
        size = _padded(_HEADER_BYTES + len(body))
        at = head % self._capacity
        begin = head if at + size <= self._capacity else head + self._capacity - at
        if begin + size + reserve_bytes - words[_TAIL] > self._capacity:
            return False
        if begin != head:
            _start.pack_into(self._map, _PAGE_BYTES + at, _TURN_BACK, 0)
        number = words[_PUT] + 1
        rest = _rest.pack(number, received_ns, sequence, kind[1], kind[0], 0)
        start = _start.pack(len(body), zlib.crc32(body, zlib.crc32(rest)))
        at = _PAGE_BYTES + begin % self._capacity
        self._map[at : at + _HEADER_BYTES] = start + rest
        self._map[at + _HEADER_BYTES : at + _HEADER_BYTES + len(body)] = body
        words[_PUT] = number
        words[_HEAD] = begin + size
        self._unmap(begin + size)
        return True

    def _complete(self) -> None:
        """Move the ring's head past the last record if a kill came between the writing of both."""
        words = self._words
        read = None if words[_HEAD] % 8 else self._read(words[_HEAD])
        if read is not None and read[0] == words[_PUT]:
            words[_HEAD] = read[1]

    def _complete_release(self) -> None:
        """Move the ring's tail behind the last released record if a kill came between the writing of both."""
        words = self._words
        at, last = words[_TAIL], 0
        while at < words[_HEAD] and last < words[_RELEASED]:
            read = self._read(at)
            if read is None or (last and read[0] != last + 1):
                return
            last, at, _ = read
        if last and last == words[_RELEASED]:
            words[_TAIL] = self._at = at

    def _unmap(self, position: int) -> None:
        """Give the ring's mapped pages back now and then, so that they do not count as this process's memory.

        They stay in the operating system's cache.
        """
        if position - self._unmapped_to > _UNMAP_BYTES:
            self._unmapped_to = position
            self._map.madvise(mmap.MADV_DONTNEED)

    @property
    def is_half_full(self) -> bool:
        """Return whether more than half of the ring's room is in use."""
        return 2 * (self._words[_HEAD] - self._words[_TAIL]) > self._capacity

    # --- the side that takes

    def take(self, limit: int) -> list[Item]:
        """Return up to `limit` messages and notices not taken before, in the order in which they were put.

        Returns an empty list when there are none. A taken record keeps its room in the ring until `release`.
        Raises ValueError when a record is damaged.
        """
        items: list[Item] = []
        head = self._words[_HEAD]
        deadline_s = 0.0
        while self._at < head and len(items) < limit:
            read = self._read(self._at)
            if read is None:
                deadline_s = deadline_s or time.monotonic() + _PATIENCE_S
                if time.monotonic() > deadline_s:
                    raise ValueError(f"the ring {self.path} is damaged at position {self._at}")
                time.sleep(0)
                continue
            number, self._at, item = read
            self._taken.append((number, self._at))
            items.append(item)
        return items

    def take_all(self) -> Iterator[Item]:
        """Yield every message and notice in the ring.

        Each is taken from the ring when the caller asks for it.
        """
        while items := self.take(MAX_TAKEN):
            yield from items

    def set_wait_flag(self) -> bool:
        """Set the flag in the ring that says that the reader waits; return whether there is nothing to take.

        Each process may write its word before it sees the other's, and then no wake comes. So the caller
        waits with a time limit.
        """
        self._words[_READER_WAITS] = 1
        return self._words[_HEAD] == self._at

    def release(self, number: int) -> None:
        """Free the ring's room of the taken records up to number `number`, as they are safe elsewhere."""
        tail = 0
        while self._taken and self._taken[0][0] <= number:
            released, tail = self._taken.popleft()
        if tail:
            self._words[_RELEASED] = released
            self._words[_TAIL] = tail
            self._unmap(tail)

    @classmethod
    def read_left(cls, path: Path, *, timeout_s: float = 10.0) -> LeftInRing:
        """Wait until the process that puts has ended, then read what is left in its ring.

        Damage is counted in the result and is no error. Raises TimeoutError when that process does not end in
        time.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        _await_end(handle, path, timeout_s)
        size_bytes = os.fstat(handle).st_size
        try:
            ring = cls(path, handle)
        except ValueError:
            os.close(handle)
            return LeftInRing(path.stem, [], size_bytes)
        try:
            items: list[Item] = []
            lost_bytes = 0
            for found in ring._read_records():
                if isinstance(found, int):
                    lost_bytes += found
                else:
                    items.append(found)
            return LeftInRing(ring.session, items, lost_bytes, ring.n_released)
        finally:
            ring.close()

    @classmethod
    def resume(cls, path: Path, *, timeout_s: float = 10.0) -> Self | None:
        """Open and return the undamaged ring that an ended process left, to `take` from it; None if damaged.

        `read_left` can read a damaged one. Raises TimeoutError when the process that puts does not end in
        time.
        """
        handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        _await_end(handle, path, timeout_s)
        try:
            ring = cls(path, handle)
        except ValueError:
            os.close(handle)
            return None
        is_damaged = any(isinstance(found, int) for found in ring._read_records())
        ring._map.madvise(mmap.MADV_DONTNEED)  # all pages were read just now: see `_unmap`
        if is_damaged:
            ring.close()
            return None
        return ring

    def _read_records(self) -> Iterator[Item | int]:
        """Yield every whole record (message or notice) in the ring that is not released.

        For damaged bytes, yield their number.
        """
        self._complete()
        words = self._words
        at, head, last = words[_TAIL], words[_HEAD], words[_RELEASED]
        if not at <= head <= at + self._capacity or at % 8:
            yield self._capacity
            return
        self._complete_release()
        at = words[_TAIL]
        is_whole = True
        while at < head:
            read = self._read(at)
            if read is None or not last < read[0] <= words[_PUT]:
                at += 8
                is_whole = False
                yield 8
                continue
            last, at, item = read
            yield item
        if last != words[_PUT] and is_whole:
            yield _PAGE_BYTES  # the page itself is damaged

    def _read(self, position: int) -> tuple[int, int, Item] | None:
        """Return number, end and content of the record at a position in the ring; None when none is there."""
        capacity = self._capacity
        at = position % capacity
        length, checksum = _start.unpack_from(self._map, _PAGE_BYTES + at)
        if length == _TURN_BACK:
            position += capacity - at
            at = 0
            length, checksum = _start.unpack_from(self._map, _PAGE_BYTES)
        begin = _PAGE_BYTES + at + _HEADER_BYTES
        end = begin + length
        if end > _PAGE_BYTES + capacity:
            return None
        body = self._map[begin:end]
        rest = self._map[begin - _rest.size : begin]
        if zlib.crc32(body, zlib.crc32(rest)) != checksum:
            return None
        number, received_ns, sequence, topic, kind, _ = _rest.unpack(rest)
        name = self._topics[topic] if topic < len(self._topics) else None
        item: Item
        if kind == _MESSAGE and name is not None:
            item = Message(self._node, self.session, name, sequence, received_ns, body, number)
        else:
            reason, _, tail = body.partition(b"\0")
            detail, _, kept = tail.partition(b"\0")
            item = Notice(reason.decode(), name, received_ns, detail.decode(errors="replace"), kept, number)
        return number, position + _padded(_HEADER_BYTES + length), item


def _padded(size: int) -> int:
    """Return `size` rounded up to a multiple of 8."""
    return size + 7 & ~7


def _allocate(handle: int, wanted_bytes: int) -> int:
    """Allocate disk space for a ring file, halved as often as needed; return the bytes for records.

    Raises OSError when the disk has no room even for the smallest ring.
    """
    capacity = wanted_bytes
    while True:
        try:
            os.posix_fallocate(handle, 0, _PAGE_BYTES + capacity)
        except OSError as error:
            if error.errno not in NO_SPACE or capacity // 2 < MIN_CAPACITY_BYTES:
                raise
            os.ftruncate(handle, 0)
            capacity //= 2
        else:
            return capacity


def _await_end(handle: int, path: Path, timeout_s: float) -> None:
    """Wait until no process holds the ring's lock, that is, none puts messages into it any more.

    After `timeout_s`, close the file and raise TimeoutError.
    """
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s:
                os.close(handle)
                raise TimeoutError(f"a process still receives into {path}; end that process first") from None
            time.sleep(0.01)
        else:
            return
