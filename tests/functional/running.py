"""Run the service in a thread of the test, with its log as a list."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import structlog

from collector.config import NodeSettings, Settings
from collector.regtest import RegtestNode
from collector.service import service

DEADLINE_S = 60.0


def settings_for(dataset: Path, **nodes: RegtestNode) -> Settings:
    """Return settings that follow these nodes, by name, and write into this dataset."""
    watched = tuple(
        NodeSettings(name=name, rpc_url=node.rpc_url, cookie_file=node.cookie_path)
        for name, node in nodes.items()
    )
    return Settings(chain="regtest", dataset=dataset, node=watched)


@contextmanager
def collecting(settings: Settings) -> Iterator[list[Any]]:
    """Run the service in a thread during the `with` block and yield its log; fail if its status is not 0."""
    stop = threading.Event()
    status: list[int] = []
    with structlog.testing.capture_logs() as logs:
        running = threading.Thread(target=lambda: status.append(service.run(settings, stop)))
        running.start()
        try:
            yield logs
        finally:
            stop.set()
            running.join(DEADLINE_S)
    assert status == [0]


def wait_for_log(logs: list[Any], event: str, count: int = 1, **fields: Any) -> None:
    """Wait until an event with these fields was logged at least `count` times."""
    deadline = time.monotonic() + DEADLINE_S
    wanted = {"event": event, **fields}
    while sum(wanted.items() <= entry.items() for entry in list(logs)) < count:
        assert time.monotonic() < deadline, logs
        time.sleep(0.05)
