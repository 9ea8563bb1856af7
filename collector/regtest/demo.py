"""Play a scenario on two private nodes while a collector records both.

The collector is an ordinary `pool-collector run` in its own process, over real ZMQ and RPC, ended by SIGTERM.
The truth of the scenario is written beside the dataset. The files of invented third parties are imported
with `pool-collector import`, like those of real ones.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, Self

import structlog

from collector.dataset.files import is_lock_held, lock_taken, why_unwritable
from collector.errors import RegtestError
from collector.regtest import Bitcoind, RegtestNode, Scenario, Truth, prepare_scenario, run_scenario
from collector.regtest.pools import Followers
from collector.regtest.third_parties import THIRD_PARTIES

log = structlog.get_logger(__name__)

# The files that a demo writes; anything else in its folder, such as a report, stays.
MARKER: Final = "demo.json"
DATASET: Final = "dataset"
SETTINGS: Final = "collector.toml"
LOG: Final = "collector.log"
LOCK: Final = ".demo.lock"  # held while a demo is played, and never removed
OURS: Final = (MARKER, DATASET, SETTINGS, LOG, "pools", THIRD_PARTIES, "truth.json")
LICENCE: Final = "invented for the demo"

FIRST: Final = "north"  # the node that pools mine on
SECOND: Final = "south"
READY: Final = "mempool.in_step"  # what the collector logs once it follows a node
READY_TIMEOUT_S: Final = 180.0  # a first start compiles, perhaps on a busy machine
STOP_TIMEOUT_S: Final = 60.0
POLL_S: Final = 0.05
SETTLE_S: Final = 1.0  # the last messages need some milliseconds to reach the collector

Progress = Callable[[int, int], None]
Inspect = Callable[[RegtestNode], None]


def run_demo(
    scenario: Scenario,
    out: Path,
    bitcoind: Bitcoind,
    *,
    progress: Progress | None = None,
    inspect: Inspect | None = None,
) -> Truth:
    """Play `scenario` on two new nodes while a collector records them; return what really happened.

    Everything is written below `out`. Pools mine on the first node, and the second is connected to it. When
    the collector has ended, `inspect` is called with the first node, which still runs. Raises RegtestError if
    `out` holds anything but an earlier demo or another demo is writing to it, if the collector fails, or if
    it refuses a file; DatasetError if another demo begins in `out` at the same moment.
    """
    claim_folder(out)
    with lock_taken(out / LOCK, _in_use(out)):
        return _play(scenario, out, bitcoind, progress, inspect)


def _play(
    scenario: Scenario, out: Path, bitcoind: Bitcoind, progress: Progress | None, inspect: Inspect | None
) -> Truth:
    """Play the scenario in a folder that is locked for it, in place of an earlier demo."""
    _remove_earlier_demo(out)
    _write(out / MARKER, json.dumps({"scenario": scenario.name, "node": bitcoind.version}) + "\n")
    with RegtestNode(bitcoind, listen=True) as node, RegtestNode(bitcoind) as second:
        second.connect(node)
        prepared = prepare_scenario(scenario, node)
        Followers([second]).wait_for(node.client().call("getbestblockhash"))
        with _Collector({FIRST: node, SECOND: second}, out) as collector:
            truth = run_scenario(scenario, node, out, progress, prepared=prepared, peers=[second])
            time.sleep(SETTLE_S)
            collector.stop()
        _import_third_parties(scenario, out)
        if inspect is not None:
            inspect(node)
    return truth


class _Collector:
    """Runs `pool-collector run` as a process, which ends with the `with` block at the latest."""

    def __init__(self, nodes: Mapping[str, RegtestNode], out: Path) -> None:
        self._log = out / LOG
        self._n_nodes = len(nodes)
        settings = out / SETTINGS
        _write(settings, _settings(nodes, out / DATASET))
        with self._log.open("wb") as log_file:
            self._process = subprocess.Popen(  # noqa: S603 - our own program and arguments, no shell
                [sys.executable, "-P", "-m", "collector", "run", "--config", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log_file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must not reach it: we end it with SIGTERM
            )

    def __enter__(self) -> Self:
        try:
            self._wait_until_ready()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def stop(self) -> None:
        """Send SIGTERM to the collector and wait; raise RegtestError unless it ends with status 0."""
        self._process.terminate()
        try:
            status = self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise RegtestError(
                f"the collector did not end within {STOP_TIMEOUT_S:g} s; see {self._log}"
            ) from None
        if status != 0:
            raise RegtestError(f"the collector ended with status {status}: {self._last_line()}")

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while self._log.read_text(errors="replace").count(READY) < self._n_nodes:
            if self._process.poll() is not None:
                raise RegtestError(f"the collector did not start: {self._last_line()}")
            if time.monotonic() > deadline:
                raise RegtestError(
                    f"the collector was not ready within {READY_TIMEOUT_S:g} s; see {self._log}"
                )
            time.sleep(POLL_S)

    def _kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it wrote nothing"


def _import_third_parties(scenario: Scenario, out: Path) -> None:
    """Import the scenario's files of prices and pool labels into the dataset.

    Raises RegtestError if one is refused.
    """
    for kind, party in (("prices", scenario.prices), ("labels", scenario.labels)):
        if party is None:
            continue
        file = out / THIRD_PARTIES / f"{kind}.csv"
        origin = {
            "source": party.source,
            "licence": LICENCE,
            "url": f"https://{party.source}.invalid/{file.name}",
            "dataset": str(out / DATASET),
            "chain": "regtest",
        }
        options = [word for name, value in origin.items() for word in (f"--{name}", value)]
        answer = subprocess.run(  # noqa: S603 - our own program and arguments, no shell
            [sys.executable, "-P", "-m", "collector", "import", kind, str(file), *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if answer.returncode != 0:
            raise RegtestError(f"the import of {file} failed: {answer.stderr.strip()}")


def _settings(nodes: Mapping[str, RegtestNode], dataset: Path) -> str:
    """Return the TOML settings of the collector, with short intervals because a demo lasts two minutes."""
    sections = [
        f"""\
chain = "regtest"
dataset = {json.dumps(str(dataset))}
seal_interval_s = 20
template_interval_s = 5
stats_interval_s = 5
log_format = "json"
"""
    ]
    sections += [
        f"""
[[node]]
name = "{name}"
rpc_url = "{node.rpc_url}"
cookie_file = {json.dumps(str(node.cookie_path))}
"""
        for name, node in nodes.items()
    ]
    return "".join(sections)


def claim_folder(out: Path) -> None:
    """Make the folder of a demo; raise RegtestError if that fails, or if other files or a demo use it."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        raise RegtestError(f"{str(out)!r} is not UTF-8; choose another --out") from None
    try:
        out.mkdir(parents=True, exist_ok=True)
        is_foreign = any(path.name != LOCK for path in out.iterdir()) and not (out / MARKER).is_file()
    except OSError as error:
        raise RegtestError(
            f"cannot use the folder {out}: {why_unwritable(error)}; choose another --out"
        ) from None
    if is_foreign:
        raise RegtestError(f"{out} is not empty and no earlier demo made it; choose another --out")
    if is_lock_held(out / LOCK):
        raise RegtestError(_in_use(out))


def _in_use(out: Path) -> str:
    return f"another demo is writing to {out}; wait until it ends, or choose another --out"


def _remove_earlier_demo(out: Path) -> None:
    """Remove the files of an earlier demo."""
    for name in OURS:
        path = out / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
