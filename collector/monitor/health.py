"""Whether the service lives and whether it is ready, with the reasons why not.

It *lives* while every node's thread turns: when one hangs, a new process helps, so this is what the watchdog
looks at. It is *ready* while what it writes is complete as of now: every node followed, its journal writable,
nothing far behind. A node that is away makes it unready and not dead, for no restart of ours brings it back.
"""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from collector.monitor.metrics import Metrics, NodeState

STALLED_S: Final = 120.0  # longer than any answer is waited for, and any seal takes
SLOW_TURN_S: Final = 10.0
LAG_LIMIT_S: Final = 10.0
WAITING_LIMIT_S: Final = 60.0  # a fee takes a second, a block some
LEAST_FREE_BYTES: Final = 64 << 20


class Health:
    """How every node stands; `journals` are their journals' folders, which exist."""

    def __init__(
        self, metrics: Metrics, journals: Mapping[str, Path], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._journals = journals
        self._clock = clock

    def stalled(self) -> list[str]:
        """Say which nodes' threads do not turn.

        One that has not begun to is no fault yet, and one that waits for a disk goes on by itself.
        """
        waiting = self._metrics.blocked()
        return [
            f"node {node}: its thread has not turned for {self._clock() - state.turn_s:.0f} s"
            for node, state in self._metrics.states().items()
            if self._clock() - state.turn_s > STALLED_S and node not in waiting
        ]

    def unready(self) -> list[str]:
        """Say why not everything is followed, and written as it comes; empty when it is."""
        states, blocked = self._metrics.states(), self._metrics.blocked()
        reasons = [f"node {node}: nothing can be written: {why}" for node, why in blocked.items()]
        for node, folder in self._journals.items():
            whys = [*self._behind(states.get(node)), *_unwritable(folder)]
            reasons += [f"node {node}: {why}" for why in whys]
        return reasons

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return how each node stands of which anything is known."""
        return {node: _shown(state) for node, state in self._metrics.states().items()}

    def _behind(self, state: NodeState | None) -> list[str]:
        if state is None:
            return ["not followed yet: it is starting, or recovers what an earlier run received"]
        if state.away:
            return [state.reason or "its RPC does not answer"]
        turn_age_s = self._clock() - state.turn_s
        found = []
        if not state.in_step:
            found.append("our copy of the mempool is not the node's; a snapshot is on its way")
        if turn_age_s > SLOW_TURN_S:
            found.append(f"its thread has not turned for {turn_age_s:.0f} s")
        if state.lag_s > LAG_LIMIT_S:
            found.append(f"messages wait {state.lag_s:.0f} s for the journal ({state.n_queued} are queued)")
        if state.waiting_s > WAITING_LIMIT_S:
            found.append(f"rows have been incomplete for {state.waiting_s:.0f} s")
        return found


def _shown(state: NodeState) -> dict[str, Any]:
    return {name: value for name, value in state._asdict().items() if name != "turn_s"}


def _unwritable(folder: Path) -> list[str]:
    """Say why the journal in a folder could not take another frame."""
    if not os.access(folder, os.W_OK):
        return [f"the journal {folder} cannot be written"]
    try:
        free_bytes = shutil.disk_usage(folder).free
    except OSError as error:
        return [f"the journal {folder} cannot be looked at: {error.strerror}"]
    if free_bytes < LEAST_FREE_BYTES:
        return [f"the disk of the journal {folder} has {free_bytes >> 20} MiB left"]
    return []
