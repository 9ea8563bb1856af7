"""A real node, the collector as a process of its own, and a bare recorder beside it as a witness."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from collector.regtest import RegtestNode, find_bitcoind

DEADLINE_S = 60.0
SETTINGS = """\
chain = "regtest"
dataset = "{dataset}"
seal_interval_s = 4
{extra}template_interval_s = 1
stats_interval_s = 1
log_format = "json"

[[node]]
name = "alpha"
rpc_url = "{node.rpc_url}"
cookie_file = "{node.cookie_path}"
"""


class CollectorProcess:
    """`pool-collector run` on one node and dataset; logs go to a file beside the dataset."""

    def __init__(self, node: RegtestNode, folder: Path, extra: str = "") -> None:
        self.dataset = folder / "dataset"
        self.log = folder / "collector.log"
        self._config = folder / "collector.toml"
        self._config.write_text(SETTINGS.format(dataset=self.dataset, node=node, extra=extra))
        self._process: subprocess.Popen[bytes] | None = None

    def use(self, endpoints: dict[str, str]) -> None:
        """Subscribe to these addresses instead of the node's."""
        lines = [f'{topic} = "{address}"' for topic, address in endpoints.items()]
        with self._config.open("a") as config:
            config.write("\n".join(["[node.zmq]", *lines]) + "\n")

    def start(self, *, ready: str = "mempool.in_step") -> None:
        """Start, and wait for a line in the log of this run."""
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "collector", "run", "--config", self._config],
                stdout=log,
                stderr=log,
            )
        self.wait_for(ready, after=before)

    def wait_for(self, words: str, *, after: int = 0) -> None:
        """Wait until the log says something behind a position."""
        deadline = time.monotonic() + DEADLINE_S
        while words not in self.log.read_text()[after:]:
            assert self._process is not None
            assert self._process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.05)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and return the exit status."""
        assert self._process is not None
        self._process.send_signal(number)
        try:
            return self._process.wait(DEADLINE_S)
        finally:
            self._process.kill()
            self._process.wait()


class Witness:
    """A second subscriber of the `sequence` topic: keeps (counter, body) and knows nothing else."""

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

    def close(self) -> None:
        """Stop receiving."""
        self._stopping.set()
        self._thread.join()
        self._socket.close(0)
        self._context.term()


@pytest.fixture(scope="module")
def node() -> Iterator[RegtestNode]:
    """Start a node of our own."""
    with RegtestNode(find_bitcoind()) as started:
        yield started


@pytest.fixture(scope="module")
def witness(node: RegtestNode) -> Iterator[Witness]:
    """Receive beside the collector."""
    receiving = Witness(node)
    yield receiving
    receiving.close()


@pytest.fixture(scope="module")
def new_collector(
    node: RegtestNode, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., CollectorProcess]]:
    """Make collectors, each with a dataset of its own and lines of settings; none outlives the module."""
    made: list[CollectorProcess] = []

    def make(extra: str = "") -> CollectorProcess:
        made.append(CollectorProcess(node, tmp_path_factory.mktemp("collector"), extra))
        return made[-1]

    yield make
    for collector in made:
        if collector._process is not None and collector._process.poll() is None:
            collector._process.kill()
            collector._process.wait()
