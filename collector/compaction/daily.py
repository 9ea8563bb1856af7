"""Compact a dataset every day while a collector runs, in a process of its own with the lowest priority.

A thread would compete with the collector for the interpreter. The process gives its memory back when it ends
and runs only where a core is idle. It may be killed at any moment, so a stop of the collector need not wait.
"""

import datetime as dt
import json
import os
import subprocess
import sys
import threading
from typing import Final

import structlog

from collector.dataset.open import Dataset

# Wait after a start and after midnight: at the usual settings the rows of the day before are sealed by then.
DELAY_S: Final = 600.0
NICENESS: Final = 19
NEXT_TRY: Final = "after the next midnight UTC, or with `pool-collector compact`"
CHECK_S: Final = 1.0  # how often a stop is looked for while a compaction runs

log = structlog.get_logger(__name__)


class Compactor:
    """Merges a dataset's small files in the background soon after its start and after each UTC day.

    It stops when it is closed.
    """

    def __init__(
        self, dataset: Dataset, *, keep_bodies_days: int | None = None, delay_s: float = DELAY_S
    ) -> None:
        self._dataset = dataset
        self._keep_bodies_days = keep_bodies_days
        self._delay_s = delay_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="compactor", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop compacting and wait for the thread; a compaction that runs is killed."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        wait_s = self._delay_s
        while not self._stop.wait(wait_s):
            self._compact()
            wait_s = seconds_to_midnight(dt.datetime.now(dt.UTC)) + self._delay_s

    def _compact(self) -> None:
        # -P: a folder named `collector` where the user happens to stand is not ours.
        command = [sys.executable, "-P", "-m", "collector", "compact", "--json"]
        command += ["--chain", self._dataset.chain]
        if self._keep_bodies_days is not None:
            command += ["--keep-bodies-days", str(self._keep_bodies_days)]
        try:
            process = subprocess.Popen(  # noqa: S603 - our own command, and a path that is one argument
                [*command, str(self._dataset.root)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",  # it names paths, in whatever bytes
            )
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        except OSError as error:
            reason = f"no process can be started: {error.strerror or error}"
            log.warning("compaction.failed", reason=reason, next_try=NEXT_TRY)
            return
        output = self._await(process).splitlines()
        if self._stop.is_set():
            return
        if process.returncode:
            reasons = [reason for line in output if (reason := _reason(line))]
            log.warning(
                "compaction.incomplete", n_left=len(reasons), reason="".join(reasons[:1]), next_try=NEXT_TRY
            )
        elif n_partitions := sum(map(_is_result, output)):
            log.info("compaction.done", n_partitions=n_partitions)

    def _await(self, process: "subprocess.Popen[str]") -> str:
        """Return what a compaction printed when it has ended; kill it when this compactor is closed."""
        while True:
            try:
                return process.communicate(timeout=CHECK_S)[0]
            except subprocess.TimeoutExpired:
                if self._stop.is_set():
                    process.kill()


def _is_result(line: str) -> bool:
    """Return whether a line of the output of `compact --json` is about a partition, and no warning."""
    try:
        return "partition" in json.loads(line)
    except (ValueError, TypeError):
        return False


def _reason(line: str) -> str:
    """Return the reason for which `compact --json` left a partition unmerged, from a line of its output.

    A line that is no JSON is an error message of the command. The text is empty for a partition that was
    merged or removed.
    """
    try:
        return json.loads(line).get("error") or ""
    except (ValueError, AttributeError):
        return line


def seconds_to_midnight(now: dt.datetime) -> float:
    """Return how many seconds remain until the next UTC day."""
    tomorrow = dt.datetime.combine(now.date() + dt.timedelta(days=1), dt.time(), dt.UTC)
    return (tomorrow - now).total_seconds()
