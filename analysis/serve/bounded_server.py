"""Run the web server: one process, with a limit for connections and a deadline for each of them.

A connection carries one request and has DEADLINE_S from accept to close, so neither a client that sends
nothing nor one that does not read can hold it longer. A stream of live events has its own, longer deadline.
"""

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from analysis.serve.address import MAX_WAITING
from collector.bounded_http import MAX_REQUEST_BYTES, bounded_protocol

MAX_CONNECTIONS: Final = 64  # a new one beyond them closes the oldest
MAX_ACCEPTED: Final = 16  # connections that are accepted together, before the limit is applied
DEADLINE_S: Final = (
    40.0  # for a connection, from accept to close: a wait for a turn, a question, a slow reader
)


class BoundedServer(uvicorn.Server):
    """Serves an ASGI application on a listening socket until `close`, or SIGINT or SIGTERM in `run_here`."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # the application reports its errors
        super().__init__(
            uvicorn.Config(
                app,
                http=bounded_protocol(MAX_CONNECTIONS, DEADLINE_S),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=MAX_ACCEPTED,
                h11_max_incomplete_event_size=MAX_REQUEST_BYTES,
                timeout_graceful_shutdown=1,
            )
        )
        self._listening = listening
        self._thread: threading.Thread | None = None
        self.port: int = listening.getsockname()[1]

    def run_here(self) -> None:
        """Serve HTTP in this thread until a signal asks to stop."""
        asyncio.run(self._serve_all())

    def start(self) -> None:
        """Serve HTTP in a thread of its own until `close`."""
        self._thread = threading.Thread(target=self.run_here, name="serve", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and wait until the thread that `start` began has ended."""
        self.should_exit = True
        if self._thread is not None:
            self._thread.join()
        self._listening.close()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve: few connections are accepted at once, and many may wait in the kernel.

        asyncio has only one setting for both numbers.
        """
        await super().startup(sockets)
        for each in sockets or ():
            each.listen(MAX_WAITING)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop the server on SIGINT and SIGTERM without passing them on, so that the command exits with 0."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.signal(each, self.handle_exit) for each in handled}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    async def _serve_all(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_ignore_broken)
        await self.serve(sockets=[self._listening])


def _ignore_broken(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of the event loop, but no OSError: a client broke its connection, or files ran out."""
    if not isinstance(context.get("exception"), OSError):
        loop.default_exception_handler(context)
