"""Decide whether the service is alive and whether it is ready, and list the reasons when it is not.

It is *alive* while the thread of every node finishes turns (a turn handles the messages that have arrived).
When a thread hangs, a restart of the service helps, so systemd's watchdog relies on this. It is *ready* while
the dataset is complete up to now: every node is followed, its journal can be written, and nothing is far
behind. A node that does not answer makes the service unready but not dead, because a restart of our service
would not bring the node back.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from collector.monitor.metrics import Metrics, NodeState

STALLED_S: Final = 120.0  # longer than any wait for an answer, and than any seal
SLOW_TURN_S: Final = 10.0
LAG_LIMIT_S: Final = 10.0
WAITING_LIMIT_S: Final = 60.0  # a fee takes a second, a block several
LEAST_FREE_BYTES: Final = 64 << 20


class Health:
    """Judges the health of every node from the states that the nodes' threads report to `metrics`.

    `journals` maps the name of each node to the folder of its journal, which must exist.
    """

    def __init__(
        self, metrics: Metrics, journals: Mapping[str, Path], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._journals = journals
        self._clock = clock

    def stalled(self) -> list[str]:
        """Return a sentence for each node whose thread has hung for STALLED_S seconds or more.

        A thread that has not started yet is left out, and so is a thread that waits for disk space: it
        continues by itself.
        """
        waiting = self._metrics.blocked()
        return [
            f"node {node}: its thread has taken no turn for {self._clock() - state.turn_s:.0f} s"
            for node, state in self._metrics.states().items()
            if self._clock() - state.turn_s > STALLED_S and node not in waiting
        ]

    def unready(self) -> list[str]:
        """Return the reasons why the dataset is not complete up to now; empty when it is complete."""
        states, blocked = self._metrics.states(), self._metrics.blocked()
        reasons = [f"node {node}: nothing can be written: {why}" for node, why in blocked.items()]
        for node, folder in self._journals.items():
            whys = [*self._lags(states.get(node)), *_unwritable(folder)]
            reasons += [f"node {node}: {why}" for why in whys]
        store = self._metrics.store_blocked()
        return [*reasons, store] if store else reasons

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the last reported state of each node as JSON objects, by the node's name."""
        return {node: _as_json(state) for node, state in self._metrics.states().items()}

    def _lags(self, state: NodeState | None) -> list[str]:
        """Return the reasons why a node is not recorded completely up to now; an empty list when it is.

        `state` is None before the first turn of the node's thread.
        """
        if state is None:
            return ["not followed yet: it is starting, or an earlier run's messages are being recovered"]
        if state.away:
            return [state.reason or "its RPC does not answer"]
        turn_age_s = self._clock() - state.turn_s
        found = []
        if not state.in_step:
            found.append("our copy of the mempool is not in step with the node's; a snapshot is on its way")
        if state.silent:
            found.append(
                f"nothing comes of {', '.join(state.silent)} although the node has changed; if it lasts, "
                "see its zmqpub settings and [node.zmq]"
            )
        if turn_age_s > SLOW_TURN_S:
            found.append(f"its thread has taken no turn for {turn_age_s:.0f} s")
        if state.lag_s > LAG_LIMIT_S:
            found.append(f"messages wait {state.lag_s:.0f} s for the journal ({state.n_queued} are queued)")
        if state.waiting_s > WAITING_LIMIT_S:
            found.append(f"rows have been incomplete for {state.waiting_s:.0f} s")
        return found


def _as_json(state: NodeState) -> dict[str, Any]:
    return {name: value for name, value in state._asdict().items() if name != "turn_s"}


def _unwritable(folder: Path) -> list[str]:
    """Return a list of reasons why the journal in this folder cannot be written; empty when it can."""
    if not os.access(folder, os.W_OK):
        return [f"the journal {folder} cannot be written"]
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return [f"the journal {folder} cannot be examined: {error.strerror}"]
    if free_bytes < LEAST_FREE_BYTES:
        return [f"the disk of the journal {folder} has {free_bytes >> 20} MiB left"]
    return []
