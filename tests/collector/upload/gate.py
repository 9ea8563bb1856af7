"""Run a real S3 server in a process of its own (moto), and a gate before it that fails as each test says."""

import contextlib
import http.client
import importlib
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from collector.dataset.object_store import ObjectStore
from collector.dataset.store_address import StoreAddress

SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""
KEY, SECRET = "a-key-that-nobody-has", "a-secret-that-nobody-knows"
DROPPED_HEADERS = {"connection", "transfer-encoding", "content-length", "server", "date"}

Fault = Callable[["Handler"], bool]  # answers itself and returns True, or leaves the request to us


class Handler(BaseHTTPRequestHandler):
    """Passes each request on to the server, unless a fault takes it."""

    protocol_version = "HTTP/1.1"
    server: Any

    def pass_on(self) -> None:
        """Answer one request."""
        gate: Gate = self.server.gate
        fault = gate.fault_for(self.command, self.path)
        if fault is not None and fault(self):
            return
        self.answer(*self.asked(self.body()))

    do_GET = do_HEAD = do_PUT = do_DELETE = pass_on  # noqa: N815 - names that the base class looks for

    def body(self) -> bytes:
        """Read the body of the request."""
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def asked(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Ask the server; return status, headers and body of its answer."""
        gate: Gate = self.server.gate
        connection = http.client.HTTPConnection("127.0.0.1", gate.port, timeout=30)
        headers = {name: value for name, value in self.headers.items() if name.lower() != "expect"}
        connection.request(self.command, self.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        gate.passed(self.command, self.path)
        return answer.status, dict(answer.getheaders()), content

    def answer(self, status: int, headers: dict[str, str], content: bytes) -> None:
        """Send an answer to the client."""
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in DROPPED_HEADERS:
                self.send_header(name, value)
        length = headers.get("content-length", headers.get("Content-Length", "0"))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, status: int, code: str, more: str = "") -> None:
        """Send an error as S3 does."""
        self.body()
        error = f"<Error><Code>{code}</Code><Message>text of the store</Message>{more}</Error>"
        self.answer(status, {"Content-Type": "application/xml"}, error.encode())

    def hang_up(self) -> None:
        """End the connection without an answer."""
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class GateServer(ThreadingHTTPServer):
    """Serves each request in a thread; a client that ends the connection is no error."""

    daemon_threads = True
    gate: "Gate"

    def handle_error(self, *_: object) -> None:
        """Say nothing."""


@dataclass
class Gate:
    """What stands between the client and the server: its faults, and the requests that it has seen."""

    port: int  # of the server behind
    url: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)  # method and path
    faults: list[tuple[str, str, Fault]] = field(default_factory=list)  # each is used once
    default: Fault | None = None  # takes every request that no other fault takes
    passed: Callable[[str, str], None] = lambda _method, _path: None  # hears of each request that was done

    def at(self, method: str, part: str, *faults: Fault) -> None:
        """Let the next requests of a method whose path has `part` be taken by the faults, one each."""
        self.faults += [(method, part, fault) for fault in faults]

    def fault_for(self, method: str, path: str) -> Fault | None:
        """Return the fault that takes a request, if there is one."""
        self.requests.append((method, path))
        for each in self.faults:
            if each[0] == method and each[1] in path:
                self.faults.remove(each)
                return each[2]
        return self.default

    def n_puts(self, part: str = ".parquet") -> int:
        """Return how many puts of a path with `part` have been asked for."""
        return sum(method == "PUT" and part in path for method, path in self.requests)


def busy(handler: Handler) -> bool:
    """Say that the store is busy."""
    handler.refuse(503, "SlowDown")
    return True


def cut(handler: Handler) -> bool:
    """End the connection in the middle of the body."""
    handler.rfile.read(int(handler.headers["Content-Length"]) // 2)
    handler.hang_up()
    return True


def answer_lost(handler: Handler) -> bool:
    """Do what is asked, and end the connection before the answer."""
    handler.asked(handler.body())
    handler.hang_up()
    return True


def flipped(handler: Handler) -> bool:
    """Change a bit of the body on its way."""
    body = bytearray(handler.body())
    body[len(body) // 2] ^= 1
    handler.answer(*handler.asked(bytes(body)))
    return True


@dataclass
class Place:
    """A bucket of its own behind the gate, and direct access to it."""

    gate: Gate
    bucket: str
    client: Any  # past the gate

    @property
    def address(self) -> StoreAddress:
        """Return where the copy is."""
        return StoreAddress(self.bucket, "copy")

    def store(self, **more: Any) -> ObjectStore:
        """Open the store through the gate, with short pauses."""
        return ObjectStore(self.address, self.gate.url, first_pause_s=0.001, **{"patience_s": 20.0, **more})

    def contents(self) -> dict[str, bytes]:
        """Return every object of the copy, by its path in it."""
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix="copy/").get("Contents", ())
        found = {}
        for each in listed:
            with contextlib.suppress(self.client.exceptions.NoSuchKey):
                found[each["Key"].removeprefix("copy/")] = self.read(each["Key"])
        return found

    def read(self, key: str) -> bytes:
        """Return the content of an object."""
        content: bytes = self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read()
        return content

    def put(self, key: str, content: bytes) -> None:
        """Store an object past the gate."""
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)


@contextlib.contextmanager
def running_server() -> Iterator[int]:
    """Run an S3 server as a process of its own during the `with` block; yield its port on loopback."""
    command = [sys.executable, "-c", SERVER]
    quiet = subprocess.DEVNULL
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=quiet, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.stdin.close()
        process.terminate()


@contextlib.contextmanager
def opened_place(server_port: int) -> Iterator[Place]:
    """Make a bucket, and a gate before the server that stands during the `with` block."""
    server = GateServer(("127.0.0.1", 0), Handler)
    server.gate = Gate(server_port, f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    boto3 = importlib.import_module("boto3")
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server_port}",
        region_name="us-east-1",
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    bucket = f"pool-{uuid.uuid4().hex}"
    client.create_bucket(Bucket=bucket)
    try:
        yield Place(server.gate, bucket, client)
    finally:
        server.shutdown()
        server.server_close()
        client.close()
