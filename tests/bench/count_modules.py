"""Count the modules of `collector` that one transaction passes, from the socket to its row in a Parquet file.

    python tests/bench/count_modules.py [--root FOLDER] [--json]

A regtest node and `pool-collector run` start as they are; a profile function in each process of the collector
notes which functions run. In each of three rounds the collector is first left idle; then the node gets one
transaction, and the round ends when its row is sealed. A module counts when one of its functions runs because
of the transaction: it runs on the way in every round, and never in the idle collector. Imports do not count.
The polls on a timer are set to an hour, and the log to warnings: a line that says that files were sealed is
not on the way of a transaction. FOLDER is the checkout to count in: this script also runs on checkouts that
have the modules elsewhere.
"""

import argparse
import json
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

PAUSED: Final = b"0"  # the profile function notes nothing
IDLE: Final = "abc"  # what the collector does in each round, one letter each
ON_THE_WAY: Final = "ABC"
SEAL_INTERVAL_S: Final = 1.0
IDLE_S: Final = 4.0
DEADLINE_S: Final = 60.0
SETTINGS: Final = """\
chain = "regtest"
dataset = "{dataset}"
seal_interval_s = {seal_s}
template_interval_s = 3600
stats_interval_s = 3600
watchdog_interval_s = 3600
log_format = "json"
log_level = "warning"

[[node]]
name = "counted"
rpc_url = "{node.rpc_url}"
cookie_file = "{node.cookie_path}"
"""
# Python runs this at the start of every process of the collector.
PROFILER: Final = """\
import mmap, os, sys, threading
with open(os.environ["COUNT_PHASE"], "r+b") as file:
    phase = mmap.mmap(file.fileno(), 1)
root = os.environ["COUNT_ROOT"] + "/collector/"
seen = set()
out = os.open(os.environ["COUNT_OUT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
def note(frame, event, argument):
    if event != "call" or phase[0] == 48:
        return
    code = frame.f_code
    key = (phase[0], code)
    if key in seen:
        return
    seen.add(key)
    if code.co_filename.startswith(root) and code.co_flags & 1:  # no body of a module or class
        module = code.co_filename.removeprefix(root)
        os.write(out, f"{chr(phase[0])} {module} {code.co_qualname}\\n".encode())
threading.setprofile(note)
sys.setprofile(note)
"""


def main() -> None:
    """Count, and print the modules with the functions that ran in them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[2], help="the checkout")
    parser.add_argument("--json", action="store_true", help="print the modules as JSON")
    options = parser.parse_args()
    functions = count(options.root.resolve())
    if options.json:
        print(json.dumps({"n_modules": len(functions), "functions": functions}, indent=1))
        return
    for module, names in functions.items():
        print(f"{module:36} {', '.join(names)}")
    print(f"{len(functions)} modules")


def count(root: Path) -> dict[str, list[str]]:
    """Return, by module, the functions that run because of one transaction."""
    sys.path.insert(0, str(root))
    from collector.regtest import RegtestNode, find_bitcoind, make_wallet

    with tempfile.TemporaryDirectory() as folder, RegtestNode(find_bitcoind()) as node:
        traced = Traced(root, Path(folder), node)
        rpc = node.client()
        wallet = make_wallet(node, 2 * len(IDLE), seed=1)
        try:
            traced.wait_until_sealed(send(rpc, wallet))  # it is in step now; what runs only once has run
            for idle, on_the_way in zip(IDLE, ON_THE_WAY, strict=True):
                traced.set_phase(idle.encode())
                time.sleep(IDLE_S)
                traced.set_phase(on_the_way.encode())
                traced.wait_until_sealed(send(rpc, wallet))
        finally:
            traced.stop()
        return traced.functions()


def send(rpc: Any, wallet: Any) -> bytes:
    """Send one payment to the node; return its txid in internal byte order."""
    from collector.regtest.wallet import pay

    payment = pay([wallet.take()], [], feerate_sat_vb=3)
    return bytes.fromhex(rpc.call("sendrawtransaction", payment.transaction.raw.hex()))[::-1]


class Traced:
    """`pool-collector run` with the profile function in each of its processes."""

    def __init__(self, root: Path, folder: Path, node: Any) -> None:
        self._dataset = folder / "dataset"
        self._log = folder / "collector.log"
        self._notes = folder / "notes"
        (folder / "sitecustomize.py").write_text(PROFILER)
        (folder / "phase").write_bytes(PAUSED)
        with (folder / "phase").open("r+b") as file:
            self._phase = mmap.mmap(file.fileno(), 1)
        config = folder / "collector.toml"
        config.write_text(SETTINGS.format(dataset=self._dataset, node=node, seal_s=SEAL_INTERVAL_S))
        environment = os.environ | {
            "PYTHONPATH": f"{folder}{os.pathsep}{root}",
            "COUNT_PHASE": str(folder / "phase"),
            "COUNT_ROOT": str(root),
            "COUNT_OUT": str(self._notes),
        }
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "collector", "run", "--config", config],
                env=environment,
                cwd=folder,
                stdout=log,
                stderr=log,
            )

    def wait_until_sealed(self, txid: bytes) -> None:
        """Return when a Parquet file holds the row of a transaction that entered the mempool."""
        import pyarrow.parquet as pq

        def is_sealed() -> bool:
            files = self._dataset.glob("chain=regtest/mempool_txs/*/*.parquet")
            return any(txid in pq.read_table(file, columns=["txid"])["txid"].to_pylist() for file in files)

        self._wait_for(is_sealed)

    def set_phase(self, phase: bytes) -> None:
        """Tell the profile function what the collector is doing now."""
        self._phase[:1] = phase

    def stop(self) -> None:
        """End the collector; what its end calls does not count."""
        self.set_phase(PAUSED)
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(DEADLINE_S)

    def functions(self) -> dict[str, list[str]]:
        """Return, by module, the functions that ran on the way in every round and never while idle."""
        notes = {tuple(line.split(" ")) for line in self._notes.read_text().splitlines()}
        by_phase = {phase: {note[1:] for note in notes if note[0] == phase} for phase in IDLE + ON_THE_WAY}
        on_the_way = set.intersection(*(by_phase[phase] for phase in ON_THE_WAY))
        because = sorted(on_the_way.difference(*(by_phase[phase] for phase in IDLE)))
        found: dict[str, list[str]] = {}
        for module, name in because:
            found.setdefault(module, []).append(name)
        return found

    def _wait_for(self, is_so: Any) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not is_so():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(self._log.read_text())
            time.sleep(0.05)


if __name__ == "__main__":
    main()
