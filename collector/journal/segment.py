"""One file of the journal: frames that count as a whole or not at all.

A segment `<number>-<key>.journal` is a series of frames

    key (8 bytes, as in the name) | payload length (uint64) | CRC-32 of length and payload (uint32) | payload

and a payload is a series of parts

    name length (uint8) | name | body length (uint64) | body: an Arrow IPC stream of one record batch

Numbers are little-endian. Bytes that are no frame, or do not match their checksum, are skipped up to the next
frame that does. The key is random, so that nothing a stranger sends can look like a frame. Arrow sees checked
bytes only.
"""

import mmap
import os
import re
import secrets
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self, TypeAlias

import pyarrow as pa

from collector.dataset import locks
from collector.dataset.atomic_write import FILE_MODE, make_folder, sync_folder
from collector.errors import NO_SPACE, DatasetError, NoSpace

Bytes: TypeAlias = "bytes | memoryview | pa.Buffer"
KEY_BYTES: Final = 8

_NAME = re.compile(r"(\d{8})-([0-9a-f]{16})\.journal")
_length = Struct("<Q")
_checksum = Struct("<I")
_FRAME_BYTES: Final = KEY_BYTES + _length.size + _checksum.size


def journal_folder(root: Path, chain: str, node: str) -> Path:
    """Return where the journal of a watched node lies: one per node, so that none waits for another."""
    return root / "journal" / chain / node


def journal_folders(root: Path, chain: str) -> list[Path]:
    """List the journals that a dataset has, in order of their nodes' names."""
    return sorted(path for path in (root / "journal" / chain).glob("*") if path.is_dir())


class Part(NamedTuple):
    """A batch and its name."""

    name: str
    batch: pa.RecordBatch
    is_behind_loss: bool = False  # bytes before it are lost, of this segment


class SegmentContents(NamedTuple):
    """What a segment holds."""

    parts: list[Part]  # in the order they were written
    lost_bytes: int  # bytes that are not part of any whole frame
    ends_in_loss: bool  # some of them are behind the last frame

    @property
    def batches(self) -> dict[str, list[pa.RecordBatch]]:
        """The batches by name, in the order they were written."""
        found: dict[str, list[pa.RecordBatch]] = {}
        for part in self.parts:
            found.setdefault(part.name, []).append(part.batch)
        return found


class Segment:
    """A segment file. Only the process that created it writes to it."""

    def __init__(self, path: Path) -> None:
        match = _NAME.fullmatch(path.name)
        if not match:
            raise ValueError(f"{path} is not named like a segment")
        self.path = path
        self.number = int(match[1])
        self.size_bytes = 0  # of whole frames written by this process
        self.whole_bytes = 0  # that it must have, as far as anybody knows
        self._key = bytes.fromhex(match[2])
        self._handle = -1

    @classmethod
    def create(cls, folder: Path, number: int) -> Self:
        """Create an empty segment with a key of its own. OSError when that fails."""
        segment = cls(folder / f"{number:08d}-{secrets.token_hex(KEY_BYTES)}.journal")
        segment._handle = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        sync_folder(folder)
        return segment

    @classmethod
    def all_in(cls, folder: Path) -> list[Self]:
        """Every segment in a folder, oldest first."""
        names = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
        return [cls(path) for path in names]

    @property
    def stem(self) -> str:
        """The name without its ending; no other segment has or had it."""
        return self.path.stem

    def write(self, batches: Mapping[str, pa.RecordBatch]) -> None:
        """Append one frame that holds the batches. OSError leaves the segment as it was."""
        frame = _frame(self._key, batches)
        try:
            rest = frame
            while rest:
                rest = _rest_after(os.writev(self._handle, rest), rest)
        except OSError:
            os.ftruncate(self._handle, self.size_bytes)
            os.lseek(self._handle, self.size_bytes, os.SEEK_SET)
            raise
        self.size_bytes += sum(map(len, frame))

    def fsync(self) -> None:
        """Force what was written to disk."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Stop writing. May be called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def read(self) -> SegmentContents:
        """Read every whole frame; what is cut off or damaged is counted, and never an error.

        A file cut exactly between two frames looks like one that was never longer, unless `whole_bytes` says
        that it was.
        """
        parts: list[Part] = []
        size_bytes = self.path.stat().st_size
        read_bytes = end = 0
        is_behind_loss = False
        if size_bytes:
            with self.path.open("rb") as file:
                data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            for begin, payload in self._payloads(data):
                is_behind_loss |= begin != end
                end = begin + _FRAME_BYTES + len(payload)
                read_bytes += _FRAME_BYTES + len(payload)
                parts += [Part(name, batch, is_behind_loss) for name, batch in _parts(payload)]
        size_bytes = max(size_bytes, self.whole_bytes)
        return SegmentContents(parts, size_bytes - read_bytes, size_bytes > end)

    def remove(self, *, keep: bool) -> None:
        """Take the segment out of the journal; with keep the file stays, with the ending `.damaged`."""
        if keep:
            self.path.replace(self.path.with_suffix(".damaged"))
        else:
            self.path.unlink()
        sync_folder(self.path.parent)

    def _payloads(self, data: mmap.mmap) -> Iterator[tuple[int, memoryview]]:
        """Every payload that matches its checksum, and where its frame begins."""
        view = memoryview(data)
        pos = data.find(self._key)
        while pos >= 0:
            begin = pos + _FRAME_BYTES
            payload = view[0:0]
            if begin <= len(view):
                (length,) = _length.unpack_from(view, pos + KEY_BYTES)
                (checksum,) = _checksum.unpack_from(view, begin - _checksum.size)
                payload = view[begin : begin + length] if length <= len(view) - begin else payload
                if len(payload) == length and _crc(length, payload) == checksum:
                    yield pos, payload
                    pos = data.find(self._key, begin + length)
                    continue
            pos = data.find(self._key, pos + 1)


def _frame(key: bytes, batches: Mapping[str, pa.RecordBatch]) -> list[Bytes]:
    """Make a frame in parts: bodies are large, and copying them takes as long as writing."""
    parts: list[Bytes] = []
    for name, batch in batches.items():
        sink = pa.BufferOutputStream()
        # The contract's sentence on each column need not be in every frame.
        schema = pa.schema([field.remove_metadata() for field in batch.schema])
        with pa.ipc.new_stream(sink, schema) as stream:
            stream.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        body = sink.getvalue()
        parts += [bytes([len(name)]), name.encode(), _length.pack(body.size), body]
    length = sum(map(len, parts))
    return [key, _length.pack(length), _checksum.pack(_crc(length, *parts)), *parts]


def _rest_after(n_bytes: int, parts: list[Bytes]) -> list[Bytes]:
    """Return what is left of parts behind their first bytes."""
    for i, part in enumerate(parts):
        if n_bytes < len(part):
            return [memoryview(part)[n_bytes:], *parts[i + 1 :]]
        n_bytes -= len(part)
    return []


def _parts(payload: memoryview) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Read the parts of a payload whose checksum holds."""
    pos = 0
    while pos < len(payload):
        name_end = pos + 1 + payload[pos]
        name = bytes(payload[pos + 1 : name_end]).decode()
        (length,) = _length.unpack_from(payload, name_end)
        pos = name_end + _length.size + length
        with pa.ipc.open_stream(pa.py_buffer(payload[pos - length : pos])) as stream:
            yield name, stream.read_next_batch()


def _crc(length: int, *parts: Bytes) -> int:
    """Checksum of a length and the payload, which may come in parts."""
    return reduce(lambda so_far, part: zlib.crc32(part, so_far), parts, zlib.crc32(_length.pack(length)))


@contextmanager
def explain_os_errors(folder: Path) -> Iterator[None]:
    """Raise what the system says of a journal's folder as DatasetError, or NoSpace when the disk is full."""
    try:
        yield
    except OSError as error:
        raised = NoSpace if error.errno in NO_SPACE else DatasetError
        raise raised(
            f"cannot use the journal {folder}: {error.strerror or error}; what was received is safe, give it "
            "space and rights"
        ) from None


def lock_folder(folder: Path) -> int:
    """Take the folder for this process; the operating system gives it back when the process ends."""
    with explain_os_errors(folder):
        make_folder(folder)
        return locks.take(
            folder / locks.FOLDER_LOCK,
            f"the journal {folder} is in use by another process; stop that one first",
        )


def unsealed_segments(root: Path, chain: str) -> list[Segment]:
    """List the segments of all journals of a dataset: what is not in Parquet yet."""
    return [segment for folder in journal_folders(root, chain) for segment in Segment.all_in(folder)]
