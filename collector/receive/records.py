"""Define messages and notices, which the receiver passes to the collector."""

from typing import Final, NamedTuple

COUNTER_RANGE: Final = 1 << 32  # each topic counts its messages in 32 bits and then begins at 0 again


class Message(NamedTuple):
    """Holds one ZMQ message as received; the journal keeps it until its rows exist."""

    node: str  # name of the watched node, from the settings
    session: str  # the session's name, as in its row of `nodes`
    topic: str
    sequence: int  # the counter in the message's last frame
    received_ns: int  # our clock when the message arrived, nanoseconds since 1970 UTC
    body: bytes
    number: int = 0  # its number in the ring it came through, from 1; 0 when it came through none


class Notice(NamedTuple):
    """States a fact about the stream of messages itself, such as a gap or a lost connection.

    It stands between the messages where it happened.
    """

    reason: str  # gap, overflow, node_restart, reconnect (lost), connected (back), malformed or failed
    topic: str | None  # None when it concerns no single topic
    received_ns: int
    detail: str
    body: bytes = b""  # of a malformed message: its frames as received
    number: int = 0  # its number in the ring it came through, from 1; 0 when it came through none
