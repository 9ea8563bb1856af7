"""A real HTTP server on loopback that serves files well or badly, as each test says."""

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from collector.fetch.data_sets import RemoteFile
from collector.fetch.download import Downloader

STALL_S = 10.0

Misbehaviour = Callable[["Handler", bytes], bool]  # answers itself and returns True, or leaves it to us


class Handler(BaseHTTPRequestHandler):
    """Answers GET from the files of its server, with ranges and validators as a good server does."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        """Answer one request."""
        site: Site = self.server.site
        site.requests.append((self.path, dict(self.headers)))
        content = site.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        number = sum(path == self.path for path, _ in site.requests)
        misbehave = site.misbehaviours.get(self.path, {}).get(number)
        if misbehave is None or not misbehave(self, content):
            self.answer(content)

    def answer(self, content: bytes, *, n_sent: int | None = None, **headers: str) -> None:
        """Send the whole content or the range that is asked for; with `n_sent` break off after that many."""
        etag = f'"{hashlib.sha256(content).hexdigest()[:12]}"'
        asked = self.headers.get("Range")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        if self.headers.get("If-Range", etag) != etag:
            start = 0
        if start and start >= len(content):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(content)}")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        for name, value in ({"ETag": etag, "Content-Length": str(len(body))} | headers).items():
            if value:
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[:n_sent])
        if n_sent is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Server(ThreadingHTTPServer):
    """Serves each request in a thread; a client that ends the connection is no error."""

    daemon_threads = True
    site: "Site"

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@dataclass
class Site:
    """What a server has, what it was asked for, and at which request of a path it misbehaves."""

    url: str = ""
    end: Callable[[], None] = lambda: None  # ends the server
    files: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    misbehaviours: dict[str, dict[int, Misbehaviour]] = field(default_factory=dict)

    def put(self, path: str, content: bytes, **more: Any) -> RemoteFile:
        """Serve `content` at `path`, and return how a list describes it."""
        self.files[path] = content
        return RemoteFile(url=self.url + path, **more)

    def at(self, path: str, *numbers: int, do: Misbehaviour) -> None:
        """Let the requests with these numbers, from 1 on, be answered by `do`."""
        self.misbehaviours.setdefault(path, {}).update(dict.fromkeys(numbers, do))

    def ranges(self) -> list[str | None]:
        """Return the header `Range` of each request."""
        return [headers.get("Range") for _, headers in self.requests]


@pytest.fixture
def site() -> Iterator[Site]:
    """Run a server on a free loopback port."""
    server = Server(("127.0.0.1", 0), Handler)

    def end() -> None:
        server.shutdown()
        server.server_close()

    found = Site(f"http://127.0.0.1:{server.server_address[1]}", end)
    server.site = found
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        end()


@pytest.fixture
def downloader() -> Iterator[Downloader]:
    """Make a downloader that asks again at once; a test of slow servers sets its patience."""
    made = Downloader(stall_s=STALL_S, attempts=3, first_pause_s=0.001)
    yield made
    made.session.close()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Make a folder for what is downloaded."""
    folder = tmp_path / "cache"
    folder.mkdir()
    return folder
