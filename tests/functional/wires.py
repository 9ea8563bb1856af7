"""Stand between a node and the collector in tests, and fail as networks and notifiers do."""

import contextlib
import socket
import threading
import time
from typing import Final

import zmq

from collector.dataset.schema import ZMQ_TOPICS
from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode
from tests.functional.replay import wait_published

CHUNK_BYTES: Final = 1 << 16
POLL_S: Final = 0.05


class Forwarder:
    """Forwards TCP connections to an address, and can make them half open: still up, but carrying nothing."""

    def __init__(self, address: str) -> None:
        host, _, port = address.removeprefix("tcp://").rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(POLL_S)
        self.address = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.n_connections = 0
        self._dead: set[int] = set()  # connections that carry nothing any more
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def fall_silent(self) -> None:
        """Stop carrying data on the present connections but keep them open; new connections work."""
        self._dead.update(range(self.n_connections + 1))

    def close(self) -> None:
        """Close every connection and stop."""
        self._stopping.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                near, _ = self._listener.accept()
                self.n_connections += 1
                far = socket.create_connection(self._target)
                for source, sink in ((near, far), (far, near)):
                    thread = threading.Thread(target=self._carry, args=(self.n_connections, source, sink))
                    self._threads.append(thread)
                    thread.start()

    def _carry(self, number: int, source: socket.socket, sink: socket.socket) -> None:
        source.settimeout(POLL_S)
        while not self._stopping.is_set():
            try:
                data = source.recv(CHUNK_BYTES)
            except TimeoutError:
                continue
            except OSError:
                break
            if number in self._dead:
                continue  # read and dropped, and the connection stays
            try:
                if not data:
                    break
                sink.sendall(data)
            except OSError:
                break
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


class Relay:
    """Publishes what a node publishes once more; loses the topics in `losing`, waits while `holding`."""

    def __init__(self, node: RegtestNode) -> None:
        self.losing: set[str] = set()
        self.n_lost = 0
        self.mangling: dict[str, int] = {}  # topic -> position of a byte to change in the next body
        self.holding = False  # keep everything back, and send it at once when that ends
        self._held: list[list[bytes]] = []
        self._n_pauses = 0  # polls in which nothing came
        self._context = zmq.Context()
        self._sub = self._context.socket(zmq.SUB)
        self._pub = self._context.socket(zmq.PUB)
        for topic in ZMQ_TOPICS:
            self._sub.subscribe(topic)
            self._sub.connect(node.zmq_endpoints[topic])
        port = self._pub.bind_to_random_port("tcp://127.0.0.1")
        self.endpoints = dict.fromkeys(ZMQ_TOPICS, f"tcp://127.0.0.1:{port}")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._sub.poll(50):
                self._held.append(self._sub.recv_multipart())
            else:
                self._n_pauses += 1
            while self._held and not self.holding:
                self._pass_on(self._held.pop(0))

    def _pass_on(self, frames: list[bytes]) -> None:
        topic = frames[0].decode()
        if topic in self.losing:
            self.n_lost += 1
            return
        at = self.mangling.pop(topic, None)
        if at is not None:
            body = bytearray(frames[1])
            body[at] ^= 0xFF
            frames[1] = bytes(body)
        self._pub.send_multipart(frames)

    def wait_received(self, rpc: RpcClient) -> None:
        """Wait until the relay has received all that the node has published up to now."""
        wait_published(rpc)
        last = self._n_pauses + 2
        while self._n_pauses < last:
            time.sleep(POLL_S)

    def close(self) -> None:
        """Stop relaying."""
        self._stopping.set()
        self._thread.join()
        self._context.destroy(0)
