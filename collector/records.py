"""What passes between the stages of the collector."""

from typing import NamedTuple


class Message(NamedTuple):
    """One ZMQ message as received; the journal keeps it until its rows exist."""

    node: str  # name of the watched node, from the settings
    session: str  # names a row of `nodes`
    topic: str
    sequence: int  # the counter in the message's last frame
    received_ns: int  # our clock when it reached us, nanoseconds since 1970 UTC
    body: bytes
