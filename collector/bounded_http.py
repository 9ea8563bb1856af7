"""Bound what clients of a small web server can take: connections, their time, and the size of a request."""

import asyncio
from typing import Final

from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_REQUEST_BYTES: Final = 16 << 10  # of the request line and all headers
PIECE_BYTES: Final = 1 << 10  # in which bytes reach the parser


def bounded_protocol(max_connections: int, deadline_s: float) -> type[H11Protocol]:
    """Return a new connection class for one server; all its connections count towards `max_connections`.

    A connection is closed `deadline_s` seconds after it was accepted. The server's setting
    `h11_max_incomplete_event_size` should be MAX_REQUEST_BYTES.
    """
    connections: dict[H11Protocol, asyncio.TimerHandle] = {}  # oldest first, with the deadline of each

    class BoundedProtocol(H11Protocol):
        """Handles one connection; closes it at its deadline, or when it is the oldest of too many."""

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            connections[self] = self.loop.call_later(deadline_s, transport.abort)
            if len(connections) > max_connections:
                oldest = next(iter(connections))
                connections.pop(oldest).cancel()
                oldest.transport.abort()

        def data_received(self, data: bytes) -> None:
            """Take bytes in pieces: the parser bounds a request only while it is not complete."""
            for begin in range(0, len(data), PIECE_BYTES):
                if not self.transport.is_closing():
                    super().data_received(data[begin : begin + PIECE_BYTES])

        def connection_lost(self, exc: Exception | None) -> None:
            if self in connections:
                connections.pop(self).cancel()
            super().connection_lost(exc)

    return BoundedProtocol
