"""What passes between the stages of the collector."""

from typing import Final, NamedTuple

COUNTER_RANGE: Final = 1 << 32  # of the counter that each topic has


class Message(NamedTuple):
    """One ZMQ message as received; the journal keeps it until its rows exist."""

    node: str  # name of the watched node, from the settings
    session: str  # names a row of `nodes`
    topic: str
    sequence: int  # the counter in the message's last frame
    received_ns: int  # our clock when it reached us, nanoseconds since 1970 UTC
    body: bytes
    number: int = 0  # in the ring it came through, from 1; 0: it came through none


class Notice(NamedTuple):
    """Something about the stream itself; it stands in the queue where it happened."""

    reason: str  # gap, overflow, node_restart, reconnect (lost), connected (back), malformed or failed
    topic: str | None  # None: it concerns no single topic
    received_ns: int
    detail: str
    body: bytes = b""  # malformed: the frames as received
