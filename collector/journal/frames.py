"""What the journal keeps beside rows, in Arrow: messages, what is consumed, states, sizes of segments."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from collector.journal.segment import Segment
from collector.receive.records import Message

# Names in a segment that are no tables: messages by ordinal, spans of consumed ordinals, states, and how long
# the segments before it are.
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

Spans = list[tuple[int, int]]  # of ordinals, both ends included
Waiting = deque[tuple[int, Message]]  # messages without rows, by ordinal: their number in this journal


def message_batch(items: Iterable[tuple[int, Message]]) -> pa.RecordBatch:
    """Make a batch of messages and their ordinals."""
    ordinals, messages = zip(*items, strict=True)
    *columns, bodies, _ = zip(*messages, strict=True)
    arrays = [
        pa.array(values, field.type)
        for values, field in zip((ordinals, *columns), _MESSAGE_SCHEMA, strict=False)
    ]
    return pa.RecordBatch.from_arrays([*arrays, _binary(bodies)], schema=_MESSAGE_SCHEMA)


def _binary(values: Sequence[bytes]) -> pa.Array:
    """Make an array of long values: pa.array would copy them more than once as it grows."""
    limits = np.zeros(len(values) + 1, np.int32)
    np.cumsum([len(value) for value in values], out=limits[1:])
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(b"".join(values))]
    return pa.Array.from_buffers(pa.binary(), len(values), buffers)


def messages_outside(spans: Spans, batch: pa.RecordBatch) -> dict[int, Message]:
    """Read the messages of a batch whose ordinals lie in none of the spans."""
    ordinals = batch.column(0).to_numpy()
    keep = np.ones(len(ordinals), np.bool_)
    for first, last in spans:
        keep &= (ordinals < first) | (ordinals > last)
    columns = batch.filter(pa.array(keep)).to_pydict().values()
    return {ordinal: Message(*fields) for ordinal, *fields in zip(*columns, strict=True)}


def consumed_batch(ordinals: Sequence[int]) -> pa.RecordBatch:
    """Make a batch of the spans that ordinals lie in, which ascend."""
    is_one = ordinals[-1] - ordinals[0] == len(ordinals) - 1
    spans = [(ordinals[0], ordinals[-1])] if is_one else merged((i, i) for i in ordinals)
    rows = [{"first": first, "last": last} for first, last in spans]
    return pa.RecordBatch.from_pylist(rows, schema=_CONSUMED_SCHEMA)


def merged(spans: Iterable[tuple[int, int]]) -> Spans:
    """Sort spans and join those that touch or overlap."""
    joined: Spans = []
    for first, last in sorted(spans):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return joined


def state_batch(states: Mapping[str, bytes | None]) -> pa.RecordBatch:
    """Make a batch of states, those to be forgotten too."""
    rows = [{"name": name, "value": value} for name, value in states.items()]
    return pa.RecordBatch.from_pylist(rows, schema=_STATE_SCHEMA)


def update(states: dict[str, bytes], changes: Mapping[str, bytes | None]) -> None:
    """Apply changes to states; None forgets a name."""
    for name, value in changes.items():
        if value is None:
            states.pop(name, None)
        else:
            states[name] = value


def size_batch(segments: Iterable[Segment]) -> pa.RecordBatch:
    """Make a batch of the sizes that segments have."""
    rows = [{"stem": segment.stem, "size_bytes": segment.path.stat().st_size} for segment in segments]
    return pa.RecordBatch.from_pylist(rows, schema=_SIZE_SCHEMA)
