"""Run `pool-collector run` as a process of its own, which a fault starts, stops and kills repeatedly."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collector.regtest import RegtestNode
from collector.regtest.ports import free_ports

PATIENCE_S = 180.0  # a first start compiles, perhaps on a busy machine
MOST_FAILURES = 5
TOLD_LINES = 8
POLL_S = 0.05
SETTINGS: dict[str, Any] = {
    "chain": "regtest",
    "seal_interval_s": 2,
    "template_interval_s": 1,
    "stats_interval_s": 1,
    "log_format": "json",
}


class Collecting:
    """Runs collectors one after another on one dataset, each as a process of its own."""

    def __init__(
        self,
        node: RegtestNode,
        folder: Path,
        *,
        dataset: Path | None = None,
        settings: Mapping[str, Any] | None = None,
        node_settings: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.dataset = dataset or folder / "dataset"
        self.log = folder / "collector.log"
        self.environment = dict(environment or {})
        self.n_starts = 0
        self.n_failed = 0  # ends that nobody asked for
        self._port = free_ports(1)[0]
        self._config = folder / "collector.toml"
        top = SETTINGS | {"dataset": str(self.dataset), "metrics": f"127.0.0.1:{self._port}"}
        named = {"name": "alpha", "rpc_url": node.rpc_url, "cookie_file": str(node.cookie_path)}
        self._config.write_text(
            _toml(top | dict(settings or {})) + "\n[[node]]\n" + _toml(named | dict(node_settings or {}))
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._began_at = 0

    def start(self, *, wait: bool = True) -> None:
        """Start the collector; with `wait`, return when it is in step with the node's mempool."""
        self._began_at = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "collector", "run", "--config", self._config],
                stdout=log,
                stderr=log,
                env=os.environ | self.environment,
            )
        self.n_starts += 1
        if wait:
            self.wait_in_step()

    def wait_in_step(self) -> None:
        """Wait until the collector is in step with the node's mempool; start it again if it has failed."""
        deadline_s = time.monotonic() + PATIENCE_S
        n_failed_before = self.n_failed
        while not self.in_step:
            if self.status is not None:
                self.n_failed += 1
                self.start(wait=False)
                time.sleep(1)
            if time.monotonic() > deadline_s or self.n_failed > n_failed_before + MOST_FAILURES:
                told = self.log.read_text().splitlines()[-TOLD_LINES:]
                raise TimeoutError(f"not in step, after {self.n_failed} failures: {' / '.join(told)}")
            time.sleep(POLL_S)

    def wait_for(self, words: str, *, timeout_s: float = PATIENCE_S, times: int = 1) -> bool:
        """Wait until this run's log contains `words` at least `times` times; return whether it does."""
        deadline_s = time.monotonic() + timeout_s
        while self.said.count(words) < times:
            if time.monotonic() > deadline_s or self.status is not None:
                return False
            time.sleep(POLL_S)
        return True

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal to the collector and return its exit status; kill it when it does not end in time."""
        assert self._process is not None
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            return self._kill()

    def close(self) -> None:
        """Kill the collector if it still runs."""
        if self._process is not None and self._process.poll() is None:
            self._kill()

    def _kill(self) -> int:
        assert self._process is not None
        self._process.kill()
        return self._process.wait()

    @property
    def left_open(self) -> bool:
        """Return whether a stopped collector has left a journal to the next start."""
        return any(self.dataset.glob("journal/**/*.journal"))

    @property
    def address(self) -> tuple[str, int]:
        """Return host and port that serve the metrics."""
        return "127.0.0.1", self._port

    @property
    def process_id(self) -> int:
        """Return the id of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def children(self) -> list[int]:
        """Return the ids of the processes that the collector itself has started."""
        tasks = Path(f"/proc/{self.process_id}/task").glob("*/children")
        return [int(child) for task in tasks for child in task.read_text().split()]

    @property
    def status(self) -> int | None:
        """Return the collector's exit status; None while it runs."""
        assert self._process is not None
        return self._process.poll()

    @property
    def said(self) -> str:
        """Return the log of this run."""
        with self.log.open("rb") as log:
            log.seek(self._began_at)
            return log.read().decode(errors="replace")

    @property
    def in_step(self) -> bool:
        """Return whether the collector's metrics say that it is in step with the node's mempool."""
        return self.metric("pool_collector_in_step") == 1

    @property
    def is_ready(self) -> bool:
        """Return whether /readyz says that the dataset is complete up to now."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def metric(self, name: str) -> float | None:
        """Return the sum of a metric over its labels; None when the metrics cannot be read."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=2) as answer:
                text = answer.read().decode()
        except OSError:
            return None
        values = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(map(float, values)) if values else None

    @property
    def processes(self) -> list[int]:
        """Return the ids of the collector and its children: the receiver, and at times a compaction."""
        return [self.process_id, *self.children()]


def _toml(values: Mapping[str, Any]) -> str:
    """Return the values as TOML: strings, numbers, booleans and lists as in JSON, a table inline."""
    lines = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            inner = ", ".join(f"{key} = {json.dumps(each)}" for key, each in value.items())
            lines.append(f"{name} = {{ {inner} }}")
        else:
            lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"
