"""Run a bitcoind on regtest that belongs to this process and ends with it.

The node listens on free loopback ports and has a temporary datadir. It is stopped at the end of the `with`
block and at exit. On Linux the kernel kills it when this process is killed.
"""

import atexit
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import structlog

from collector.dataset.schema import ZMQ_TOPICS
from collector.errors import CollectorError, NodeRefused, NodeUnavailable, RegtestError
from collector.node.rpc import RpcClient
from collector.regtest.bitcoind import Bitcoind
from collector.regtest.ports import free_ports

log = structlog.get_logger(__name__)

PUBLISHED: Final = (*ZMQ_TOPICS, "hashblock")
START_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
TERMINATE_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.05
START_ATTEMPTS: Final = 3
LOG_LINES_IN_ERROR: Final = 3

# Defaults differ between versions of Bitcoin Core and Knots; with these options all of them behave alike.
COMMON_OPTIONS: Final = (
    "-regtest",
    "-server",
    "-disablewallet",
    "-printtoconsole=0",
    "-txindex=0",
    "-dnsseed=0",
    "-fixedseeds=0",
    "-discover=0",
    "-natpmp=0",
    "-listenonion=0",
    "-checkmempool=0",  # on by default on regtest, and quadratic in the mempool
    "-checkblockindex=0",
    "-minrelaytxfee=0.00001",
    "-incrementalrelayfee=0.00001",
    "-blockmintxfee=0.00001",
    "-blockmaxweight=3990000",
    "-rpcworkqueue=256",
)
KNOTS_OPTIONS: Final = (
    "-corepolicy=1",
    "-blockmaxsize=3990000",  # 300,000 by default
    "-blockprioritysize=0",  # coin-age priority would break the feerate order of templates
    "-softwareexpiry=0",
)

# The program of a small process that asks the kernel to kill it with its parent (PR_SET_PDEATHSIG is 1) and
# then becomes bitcoind. A preexec_fn could do the same, but is unsafe while the parent has threads.
# If the parent died before the call, the id of the parent has changed.
LEASH: Final = """\
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit("the process that wanted a node is gone")
os.execv(sys.argv[2], sys.argv[2:])
"""


class RegtestNode:
    """Runs one bitcoind on regtest during a `with` statement.

    A `datadir` that is given is kept; otherwise a temporary one is removed when the node is closed. `zmq_hwm`
    is the high-water mark of the node per topic and subscriber: above it the node drops messages. `listen`
    opens a P2P port, which two nodes need to connect. `options` are added to bitcoind's own. The kernel also
    kills the node when the thread that started it ends, so start it from a lasting thread.
    """

    def __init__(
        self,
        bitcoind: Bitcoind,
        *,
        datadir: Path | None = None,
        zmq_hwm: int = 100_000,
        listen: bool = False,
        options: Iterable[str] = (),
    ) -> None:
        self.bitcoind = bitcoind
        self.zmq_hwm = zmq_hwm
        self.listen = listen
        self.options = tuple(options)
        self._keep_datadir = datadir is not None
        self.datadir = (datadir or Path(tempfile.mkdtemp(prefix="regtest-node-"))).absolute()
        self._process: subprocess.Popen[bytes] | None = None
        self._choose_ports()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def rpc_url(self) -> str:
        """Return the URL of the node's RPC server, without credentials."""
        return f"http://127.0.0.1:{self._rpc_port}"

    @property
    def cookie_path(self) -> Path:
        """Return the path of the node's RPC cookie file; the node writes a new one at each start."""
        return self.datadir / "regtest" / ".cookie"

    @property
    def zmq_endpoints(self) -> dict[str, str]:
        """Return the ZMQ address of each topic: sequence, rawtx, rawblock, hashblock."""
        return {topic: f"tcp://127.0.0.1:{port}" for topic, port in self._zmq_ports.items()}

    @property
    def p2p_address(self) -> str:
        """Return the address that other nodes connect to; the node must have been made with `listen`."""
        return f"127.0.0.1:{self._p2p_port}"

    @property
    def process_id(self) -> int | None:
        """Return the process id of the running node; None while it does not run."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def client(self, *, timeout_s: float = 30.0) -> RpcClient:
        """Return a new RPC client for this node."""
        return RpcClient(self.rpc_url, cookie_file=self.cookie_path, timeout_s=timeout_s)

    def start(self) -> None:
        """Start bitcoind and return when its RPC answers; raise RegtestError if it does not."""
        if self.process_id is not None:
            return
        fresh = not (self.datadir / "regtest").exists()
        for attempt in range(1, START_ATTEMPTS + 1):
            try:
                self._start_once()
            except _PortTakenError:
                # Another process took a port after we looked and before the node bound it.
                if attempt == START_ATTEMPTS or not fresh:
                    raise
                self._choose_ports()
            else:
                return

    def stop(self) -> None:
        """Stop bitcoind over RPC, or else by force, and wait for its end; the datadir stays."""
        process, self._process = self._process, None
        atexit.unregister(self.close)
        if process is None or process.poll() is not None:
            return
        with contextlib.suppress(CollectorError):
            self.client(timeout_s=5.0).call("stop")
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_S)
        for end, patience_s in ((process.terminate, TERMINATE_TIMEOUT_S), (process.kill, None)):
            if process.poll() is None:
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(patience_s)
        log.info("node.stopped", datadir=str(self.datadir))

    def kill(self) -> None:
        """Kill bitcoind with SIGKILL, as a power cut would end it; the datadir stays."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()

    def restart(self, *, with_mempool: bool = True) -> None:
        """Restart bitcoind on the same datadir and ports; keep or remove the saved mempool."""
        self.stop()
        if not with_mempool:
            (self.datadir / "regtest" / "mempool.dat").unlink(missing_ok=True)
        self.start()

    def close(self) -> None:
        """Stop bitcoind and remove a temporary datadir."""
        try:
            self.stop()
        finally:
            if not self._keep_datadir:
                shutil.rmtree(self.datadir, ignore_errors=True)

    def connect(self, other: "RegtestNode") -> None:
        """Add `other` as a peer, to which the node reconnects by itself; `other` must listen."""
        if not other.listen:
            raise RegtestError(f"the node in {other.datadir} does not listen; start it with listen=True")
        self.client().call("addnode", other.p2p_address, "add")

    def disconnect(self, other: "RegtestNode") -> None:
        """End the connection to `other` that `connect` made."""
        rpc = self.client()
        rpc.call("addnode", other.p2p_address, "remove")
        with contextlib.suppress(CollectorError):
            rpc.call("disconnectnode", other.p2p_address)

    def _choose_ports(self) -> None:
        self._rpc_port, self._p2p_port, *zmq_ports = free_ports(2 + len(PUBLISHED))
        self._zmq_ports = dict(zip(PUBLISHED, zmq_ports, strict=True))

    def _arguments(self) -> Iterator[str]:
        yield from COMMON_OPTIONS
        if self.bitcoind.is_knots:
            yield from KNOTS_OPTIONS
        yield f"-datadir={self.datadir}"
        yield f"-rpcport={self._rpc_port}"
        if self.listen:
            yield f"-bind=127.0.0.1:{self._p2p_port}"
            yield "-whitelist=noban@127.0.0.1"  # relays at once instead of at random times
        else:
            yield from ("-listen=0", "-connect=0")
        for topic, address in self.zmq_endpoints.items():
            yield f"-zmqpub{topic}={address}"
            yield f"-zmqpub{topic}hwm={self.zmq_hwm}"
        yield from self.options

    def _start_once(self) -> None:
        self.datadir.mkdir(parents=True, exist_ok=True)
        self.cookie_path.unlink(missing_ok=True)
        command = [str(self.bitcoind.path), *self._arguments()]
        leash = [sys.executable, "-P", "-S", "-E", "-c", LEASH, str(os.getpid())]
        messages = self.datadir / "bitcoind.stderr"
        with messages.open("wb") as stderr:
            self._process = subprocess.Popen(  # noqa: S603 - our own arguments, no shell
                [*leash, *command] if sys.platform == "linux" else command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=stderr,
                start_new_session=True,  # Ctrl-C must not reach the node: we stop it over RPC
            )
        atexit.register(self.close)
        try:
            self._wait_until_ready(self._process, messages)
        except BaseException:
            self.kill()
            raise
        log.info("node.started", version=self.bitcoind.version, rpc=self.rpc_url, datadir=str(self.datadir))

    def _wait_until_ready(self, process: subprocess.Popen[bytes], messages: Path) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        rpc = self.client()
        while time.monotonic() < deadline:
            if process.poll() is not None:
                raise _start_failure(process.returncode, messages, self.datadir)
            try:
                rpc.call("getblockcount")
            except (
                NodeUnavailable,
                NodeRefused,
            ):  # NodeRefused: another node has our port; ours will end and say so
                time.sleep(POLL_S)
            else:
                return
        raise RegtestError(
            f"bitcoind did not answer on {self.rpc_url} within {START_TIMEOUT_S:g} s; "
            f"see {self.datadir / 'regtest' / 'debug.log'}"
        )


class _PortTakenError(RegtestError):
    """Means that the node could not bind a port that was free a moment before."""


def _start_failure(status: int, messages: Path, datadir: Path) -> RegtestError:
    """Return a RegtestError with the last lines that bitcoind wrote before it ended at its start."""
    said = messages.read_text(errors="replace").strip().splitlines()[-LOG_LINES_IN_ERROR:]
    debug_log = datadir / "regtest" / "debug.log"
    if not said and debug_log.exists():
        said = debug_log.read_text(errors="replace").strip().splitlines()[-LOG_LINES_IN_ERROR:]
    text = f"bitcoind ended at its start with status {status}: {' '.join(said) or 'it wrote nothing'}"
    taken = any(words in text.lower() for words in ("unable to bind", "unable to start http", "zmq"))
    return _PortTakenError(text) if taken else RegtestError(text)
