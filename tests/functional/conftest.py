"""Provide a real node, the collector as a process of its own, and a second subscriber as a witness."""

import fcntl
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import zmq

from collector.node.rpc import RpcClient
from collector.regtest import RegtestNode, find_bitcoind
from collector.regtest.ports import free_ports
from tests.functional.replay import wait_published
from tests.functional.running import SCRAPE_S, samples, wait_quiet

DEADLINE_S = 180.0  # a first start compiles, perhaps on a busy machine
SETTINGS = """\
chain = "regtest"
dataset = "{dataset}"
metrics = "127.0.0.1:{port}"
seal_interval_s = 2
{extra}template_interval_s = 1
stats_interval_s = 1
log_format = "json"

[[node]]
name = "alpha"
rpc_url = "{node.rpc_url}"
cookie_file = "{node.cookie_path}"
"""


class CollectorProcess:
    """Runs `pool-collector run` for one node and dataset; the log is a file beside the dataset."""

    def __init__(self, node: RegtestNode, folder: Path, extra: str = "") -> None:
        self.dataset = folder / "dataset"
        self.log = folder / "collector.log"
        self._config = folder / "collector.toml"
        (port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{port}"  # of its metrics and health
        settings = {"dataset": self.dataset, "node": node, "extra": extra, "port": port}
        self._config.write_text(SETTINGS.format(**settings))
        self._node = node
        self._process: subprocess.Popen[bytes] | None = None

    def use(self, endpoints: dict[str, str]) -> None:
        """Make the collector subscribe to these addresses, by topic, instead of the node's own."""
        lines = [f'{topic} = "{address}"' for topic, address in endpoints.items()]
        with self._config.open("a") as config:
            config.write("\n".join(["[node.zmq]", *lines]) + "\n")

    def start(self, *, ready: str = "mempool.in_step", wrapper: Sequence[str] = ()) -> None:
        """Start the collector and wait until the log of this run contains `ready`.

        `wrapper` is a command, such as `prlimit` with its arguments, that starts the collector.
        """
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*wrapper, sys.executable, "-m", "collector", "run", "--config", self._config],
                stdout=log,
                stderr=log,
            )
        self.wait_for(ready, after=before)

    @property
    def pid(self) -> int:
        """Return the process id of the collector, which is also that of a wrapper command that started it."""
        assert self._process is not None
        return self._process.pid

    def wait_for(self, words: str, *, after: int = 0) -> None:
        """Wait until the log contains these words after the position `after`, in bytes."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.log.read_text()[after:]:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def wait_taken(self) -> None:
        """Wait until the collector has taken all that the node has published up to now.

        It is then also in step with the node's mempool.
        """
        wait_published(self._node.client())
        deadline = time.monotonic() + DEADLINE_S
        while not wait_quiet(self.url)["in_step"]:
            assert time.monotonic() < deadline, self.log.read_text()

    def wait_complete(self) -> None:
        """Wait until the collector has made every row of what the node has published up to now."""
        self.wait_taken()
        deadline = time.monotonic() + DEADLINE_S
        while self.samples()["waiting_messages"]:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(SCRAPE_S)

    def wait_statistics(self) -> None:
        """Wait until the collector has asked for statistics of the mempool from now on, and has their row."""
        wanted = self._n_statistics() + 2  # the answer to one request may be under way
        deadline = time.monotonic() + DEADLINE_S
        while self._n_statistics() < wanted:
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(SCRAPE_S)

    def _n_statistics(self) -> float:
        """Return how many rows of `mempool_stats` this run has made."""
        return samples(self.url, table="mempool_stats").get("rows_total", 0.0)

    def samples(self) -> dict[str, float]:
        """Return the value of each of our metrics by name, added up over its labels."""
        return samples(self.url)

    def wait_receiver_ended(self) -> None:
        """Wait until the receiver process of a killed collector has ended and released its ring's lock."""
        (ring,) = self.dataset.glob("journal/*/*/*.ring")
        with ring.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the collector and return its exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        try:
            return self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()


class Witness:
    """Subscribes to `sequence` beside the collector and keeps the (counter, body) of each message."""

    def __init__(self, node: RegtestNode) -> None:
        self.messages: list[tuple[int, bytes]] = []
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.SUB)
        self._socket.set(zmq.RCVHWM, 0)
        self._socket.subscribe(b"sequence")
        self._socket.connect(node.zmq_endpoints["sequence"])
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._socket.poll(50):
                _, body, counter = self._socket.recv_multipart()
                self.messages.append((int.from_bytes(counter, "little"), body))

    def wait_for_tip(self, rpc: RpcClient) -> None:
        """Wait until the message that connects the node's present tip has arrived."""
        connected = bytes.fromhex(rpc.call("getbestblockhash")) + b"C"
        deadline = time.monotonic() + DEADLINE_S
        while all(body != connected for _, body in self.messages):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def close(self) -> None:
        """Stop receiving."""
        self._stopping.set()
        self._thread.join()
        self._socket.close(0)
        self._context.term()


@pytest.fixture(scope="module")
def node() -> Iterator[RegtestNode]:
    """Start a node for the tests of one module."""
    with RegtestNode(find_bitcoind()) as started:
        yield started


@pytest.fixture(scope="module")
def witness(node: RegtestNode) -> Iterator[Witness]:
    """Start a second subscriber beside the collector."""
    receiving = Witness(node)
    yield receiving
    receiving.close()


@pytest.fixture(scope="module")
def new_collector(
    node: RegtestNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., CollectorProcess]]:
    """Return a function that makes a collector with its own dataset; `extra` are lines of its settings.

    All collectors are killed at the end of the module.
    """
    made: list[CollectorProcess] = []

    def make(extra: str = "") -> CollectorProcess:
        made.append(CollectorProcess(node, tmp_path_factory.mktemp("collector"), extra))
        return made[-1]

    yield make
    for collector in made:
        if collector._process is not None and collector._process.poll() is None:
            collector._process.kill()
            collector._process.wait()
