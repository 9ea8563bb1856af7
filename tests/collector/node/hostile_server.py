"""Run a loopback server that answers HTTP requests with bytes that a test chooses, at its pace."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterable, Iterator

Answer = Callable[[threading.Event], Iterable[bytes]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def whole(body: bytes) -> Answer:
    """Return an answer that sends `body` at once, as a complete HTTP response."""
    return lambda _end: [HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body]


def endless(_end: threading.Event) -> Iterator[bytes]:
    """Send a JSON string that never ends."""
    yield HEAD + b'\r\n{"result": "'
    while True:
        yield b"0" * (1 << 20)


def dripping(end: threading.Event) -> Iterator[bytes]:
    """Send one byte of the body every twentieth of a second, for ever."""
    yield HEAD + b'\r\n{"result": "'
    while not end.wait(0.05):
        yield b"0"


def dripping_header(end: threading.Event) -> Iterator[bytes]:
    """Send one byte of the header every twentieth of a second, for ever."""
    yield HEAD + b"X-Header: "
    while not end.wait(0.05):
        yield b"0"


def silent(end: threading.Event) -> Iterator[bytes]:
    """Take the request and send no answer."""
    end.wait()
    yield b""


class HostileServer:
    """Answers every request with `answer`; `n_requests` counts the requests taken."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked = threading.Event()  # a request has come
        self._end = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End every answer and stop listening."""
        self._end.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while request := connection.recv(1 << 16):
                if b"POST" not in request:
                    continue
                self.asked.set()
                for part in self.answer(self._end):
                    connection.sendall(part)
