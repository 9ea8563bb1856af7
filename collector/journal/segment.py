"""Read and write segments, the files of the journal, and the parts that their frames hold.

A segment `<number>-<key>.journal` is a series of frames. Each frame is what one flush wrote:

    key (8 bytes, as in the name) | payload length (uint64) | CRC-32 of length and payload (uint32) | payload

A frame counts as a whole or not at all. Its payload is a series of parts, each an Arrow batch with a name:

    name length (uint8) | name | body length (uint64) | body: an Arrow IPC stream of one record batch

A part is named after the table whose rows it holds, or has one of the names in `OWN_NAMES`. Numbers are
little-endian. A reader skips bytes that are no frame, or that do not match their checksum, up to the next
valid frame. The key is random, so that no content of a message can look like a frame. Arrow reads only bytes
whose checksum was right.
"""

import errno
import mmap
import os
import re
import secrets
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np
import pyarrow as pa

from collector.dataset.files import (
    FILE_MODE,
    FOLDER_LOCK,
    make_folder,
    sync_folder,
    take_lock,
    why_unwritable,
)
from collector.dataset.open import listed
from collector.errors import NOT_WRITABLE, DatasetError, NotWritable
from collector.receive.records import Message

Bytes: TypeAlias = "bytes | memoryview | pa.Buffer"
KEY_BYTES: Final = 8

_NAME = re.compile(r"(\d{8})-([0-9a-f]{16})\.journal")
_length = Struct("<Q")
_checksum = Struct("<I")
_FRAME_BYTES: Final = KEY_BYTES + _length.size + _checksum.size

# Names of parts that are no tables: messages with their ordinals, spans of consumed ordinals, named states,
# and the lengths of the segments before this one.
MESSAGES: Final = "_messages"
CONSUMED: Final = "_consumed"
STATES: Final = "_states"
SIZES: Final = "_sizes"
OWN_NAMES: Final = frozenset({MESSAGES, CONSUMED, STATES, SIZES})
_MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("ordinal", pa.int64()),
        ("node", pa.string()),
        ("session", pa.string()),
        ("topic", pa.string()),
        ("sequence", pa.int64()),
        ("received_ns", pa.int64()),
        ("body", pa.binary()),
    ]
)
_CONSUMED_SCHEMA: Final = pa.schema([("first", pa.int64()), ("last", pa.int64())])
_STATE_SCHEMA: Final = pa.schema([("name", pa.string()), ("value", pa.binary())])
_SIZE_SCHEMA: Final = pa.schema([("stem", pa.string()), ("size_bytes", pa.int64())])

_plain_schemas: dict[str, pa.Schema] = {}  # without metadata, by the name of a part: made once

_REMOVED: Final = (errno.ENOENT, errno.ESTALE)

Spans = list[tuple[int, int]]  # of ordinals, both ends included
# Messages and their ordinals. An ordinal is the number of a message in its journal, counted from 0.
NumberedMessages = deque[tuple[int, Message]]


def journal_folder(root: Path, chain: str, node: str) -> Path:
    """Return the folder of a node's journal. Each node has its own, so that none waits for another."""
    return root / "journal" / chain / node


def journal_folders(root: Path, chain: str) -> list[Path]:
    """Return the folders of all journals of a chain, in the order of their nodes' names.

    Raises DatasetError where they cannot be listed: what they hold would pass for sealed.
    """
    return sorted(path for path in listed(root / "journal" / chain) if path.is_dir())


class Part(NamedTuple):
    """Holds one named Arrow batch of a journal file, and whether it comes after lost bytes."""

    name: str
    batch: pa.RecordBatch
    is_behind_loss: bool = False  # bytes of the segment before this part are lost


class SegmentContents(NamedTuple):
    """Holds what could be read from a journal file, the number of lost bytes, and if it ends in a loss."""

    parts: list[Part]  # in the order they were written
    lost_bytes: int  # bytes that belong to no whole frame
    ends_in_loss: bool  # some of the lost bytes come after the last whole frame

    @property
    def batches(self) -> dict[str, list[pa.RecordBatch]]:
        """Return the file's Arrow batches as lists by part name; each list is in the order of writing."""
        found: dict[str, list[pa.RecordBatch]] = {}
        for part in self.parts:
            found.setdefault(part.name, []).append(part.batch)
        return found


class Segment:
    """Reads and writes one segment, a file of the journal; only the process that created it writes to it."""

    def __init__(self, path: Path) -> None:
        match = _NAME.fullmatch(path.name)
        if not match:
            raise ValueError(f"{path} is not named like a segment")
        self.path = path
        self.number = int(match[1])
        self.size_bytes = 0  # bytes of whole frames that this process wrote
        self.whole_bytes = 0  # the length the file must have; 0 when no later segment says it
        self._key = bytes.fromhex(match[2])
        self._handle = -1

    @classmethod
    def create(cls, folder: Path, number: int) -> Self:
        """Create and return an empty segment file with a random key. Raises OSError when that fails."""
        segment = cls(folder / f"{number:08d}-{secrets.token_hex(KEY_BYTES)}.journal")
        segment._handle = os.open(segment.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        try:
            sync_folder(folder)
        except OSError:  # the next attempt makes another file
            segment.close()
            segment.path.unlink(missing_ok=True)
            raise
        return segment

    @classmethod
    def all_in(cls, folder: Path) -> list[Self]:
        """Return the segments in a folder, the oldest first."""
        names = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
        return [cls(path) for path in names]

    @property
    def stem(self) -> str:
        """Return this journal file's name without ending, unique for all time because its key is random."""
        return self.path.stem

    def write(self, batches: Mapping[str, pa.RecordBatch]) -> None:
        """Append Arrow batches to this journal file as one frame, a unit with a checksum.

        When it raises OSError, nothing has changed. Raises FileNotFoundError when the file was removed
        meanwhile; the system would take the frame without an error.
        """
        if not os.fstat(self._handle).st_nlink:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self.path))
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
        """Wait until all that was written to this journal file is on disk, safe from a power cut."""
        os.fsync(self._handle)

    def close(self) -> None:
        """Close the journal file that `create` opened. A second call does nothing."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def read(self) -> SegmentContents:
        """Return what every undamaged frame holds; damaged or missing bytes are counted and are no error.

        A file that was cut exactly between two frames looks whole. Only `whole_bytes` can show that it was
        longer.
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
        """Remove the segment from the journal: delete the file, or with `keep` rename it to `.damaged`."""
        if keep:
            self.path.replace(self.path.with_suffix(".damaged"))
        else:
            self.path.unlink()
        sync_folder(self.path.parent)

    def _payloads(self, data: mmap.mmap) -> Iterator[tuple[int, memoryview]]:
        """Yield the payload of each frame whose checksum is right, with the position of the frame."""
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
    """Return a frame (a unit of the journal with its checksum) of these batches, as a list of pieces.

    Joining large bodies would take as long as writing them.
    """
    parts: list[Bytes] = []
    for name, batch in batches.items():
        sink = pa.BufferOutputStream()
        plain = _without_metadata(name, batch)
        with pa.ipc.new_stream(sink, plain.schema) as stream:
            stream.write_batch(plain)
        body = sink.getvalue()
        parts += [bytes([len(name)]), name.encode(), _length.pack(body.size), body]
    length = sum(map(len, parts))
    return [key, _length.pack(length), _checksum.pack(_crc(length, *parts)), *parts]


def _without_metadata(name: str, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch of the part `name` without the sentence on each column, which frames do without."""
    if batch.schema.metadata is None:
        return batch
    schema = _plain_schemas.get(name)
    if schema is None or not schema.equals(batch.schema):
        schema = _plain_schemas[name] = pa.schema([field.remove_metadata() for field in batch.schema])
    return pa.RecordBatch.from_arrays(batch.columns, schema=schema)


def _rest_after(n_bytes: int, parts: list[Bytes]) -> list[Bytes]:
    """Return the pieces of a frame without the frame's first `n_bytes` bytes."""
    for i, part in enumerate(parts):
        if n_bytes < len(part):
            return [memoryview(part)[n_bytes:], *parts[i + 1 :]]
        n_bytes -= len(part)
    return []


def _parts(payload: memoryview) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the name and the Arrow batch of each part in a frame's payload, whose checksum was right."""
    pos = 0
    while pos < len(payload):
        name_end = pos + 1 + payload[pos]
        name = bytes(payload[pos + 1 : name_end]).decode()
        (length,) = _length.unpack_from(payload, name_end)
        pos = name_end + _length.size + length
        with pa.ipc.open_stream(pa.py_buffer(payload[pos - length : pos])) as stream:
            yield name, stream.read_next_batch()


def _crc(length: int, *parts: Bytes) -> int:
    """Return the CRC-32 of a frame, from its payload's length and the pieces of the payload."""
    return reduce(lambda so_far, part: zlib.crc32(part, so_far), parts, zlib.crc32(_length.pack(length)))


def message_batch(items: Iterable[tuple[int, Message]]) -> pa.RecordBatch:
    """Return an Arrow batch of messages with their ordinals (running numbers in the journal)."""
    ordinals, messages = zip(*items, strict=True)
    *columns, bodies, _ = zip(*messages, strict=True)
    arrays = [
        pa.array(values, field.type)
        for values, field in zip((ordinals, *columns), _MESSAGE_SCHEMA, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*arrays, _binary(bodies)], schema=_MESSAGE_SCHEMA)


def _binary(values: Sequence[bytes]) -> pa.Array:
    """Return a binary Arrow array; the values are copied only once, where pa.array copies long ones more."""
    limits = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=limits[1:])
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def read_messages_outside(spans: Spans, batch: pa.RecordBatch) -> dict[int, Message]:
    """Map ordinals to the messages of a batch whose ordinals lie in none of the spans.

    An ordinal is a message's running number in the journal.
    """
    ordinals = batch.column(0).to_numpy()
    keep = np.ones(len(ordinals), np.bool_)
    for first, last in spans:
        keep &= (ordinals < first) | (ordinals > last)
    columns = batch.filter(pa.array(keep)).to_pydict().values()
    return {ordinal: Message(*fields) for ordinal, *fields in zip(*columns, strict=True)}


def consumed_batch(ordinals: Sequence[int]) -> pa.RecordBatch:
    """Return an Arrow batch of the fewest spans (first, last) that cover these numbers, which must ascend."""
    is_one = ordinals[-1] - ordinals[0] == len(ordinals) - 1
    spans = [(ordinals[0], ordinals[-1])] if is_one else merge_spans((i, i) for i in ordinals)
    rows = [{"first": first, "last": last} for first, last in spans]
    return pa.RecordBatch.from_pylist(rows, schema=_CONSUMED_SCHEMA)


def merge_spans(spans: Iterable[tuple[int, int]]) -> Spans:
    """Return spans (first, last) sorted, with those that touch or overlap joined."""
    joined: Spans = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def state_batch(states: Mapping[str, bytes | None]) -> pa.RecordBatch:
    """Return an Arrow batch of named states; the value None says that the state is to be removed."""
    rows = [{"name": name, "value": value} for name, value in states.items()]
    return pa.RecordBatch.from_pylist(rows, schema=_STATE_SCHEMA)


def apply_changes(states: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    """Set the values of named states in `states`; the value None removes the state."""
    for name, value in changes.items():
        if value is None:
            states.pop(name, None)
        else:
            states[name] = value


def size_batch(segments: Iterable[Segment]) -> pa.RecordBatch:
    """Return an Arrow batch with the name and the length in bytes of each journal file."""
    rows = [{"stem": segment.stem, "size_bytes": segment.path.stat().st_size} for segment in segments]
    return pa.RecordBatch.from_pylist(rows, schema=_SIZE_SCHEMA)


@contextmanager
def explain_os_errors(folder: Path) -> Iterator[None]:
    """Turn an OSError inside the `with` block, which uses a journal's files, into an error with advice.

    It becomes NotWritable when the fault may pass, as a full disk does, else DatasetError.
    """
    try:
        yield
    except OSError as error:
        raised = NotWritable if error.errno in NOT_WRITABLE else DatasetError
        if error.errno in _REMOVED:
            outcome = "it or a file in it was removed, and what was in it and not sealed is lost; start again"
        elif isinstance(error, FileExistsError | NotADirectoryError):
            outcome = "move that file away, and start again"
        else:
            outcome = "what was received is safe, give it space and rights"
        raise raised(f"cannot use the journal {folder}: {why_unwritable(error)}; {outcome}") from None


def lock_folder(folder: Path) -> int:
    """Lock the folder for this process and return the open file that holds the lock; closing it unlocks.

    The lock ends with the process. Raises DatasetError when another process has it.
    """
    with explain_os_errors(folder):
        make_folder(folder)
        return take_lock(
            folder / FOLDER_LOCK,
            f"the journal {folder} is in use by another process; stop that one first",
        )


def unsealed_segments(root: Path, chain: str) -> list[Segment]:
    """Return the segments of all journals of a chain; they hold what is not in Parquet yet."""
    return [segment for folder in journal_folders(root, chain) for segment in Segment.all_in(folder)]
