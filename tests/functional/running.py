"""Run the service in a thread of the test, with its log as a list."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests
import structlog
from prometheus_client.parser import text_string_to_metric_families

from collector.config import NodeSettings, Settings
from collector.regtest import RegtestNode
from collector.regtest.ports import free_ports
from collector.service import service
from tests.functional.replay import wait_published

DEADLINE_S = 180.0  # a first start compiles, perhaps on a busy machine
SCRAPE_S = 0.15
LAST_TURN = "last_turn_timestamp_seconds"


def settings_for(dataset: Path, **nodes: RegtestNode) -> Settings:
    """Return settings that follow these nodes, by name, write into this dataset, and serve metrics."""
    watched = tuple(
        NodeSettings(name=name, rpc_url=node.rpc_url, cookie_file=node.cookie_path)
        for name, node in nodes.items()
    )
    (port,) = free_ports(1)
    return Settings(chain="regtest", dataset=dataset, node=watched, metrics=f"127.0.0.1:{port}")


def samples(url: str, **labels: str) -> dict[str, float]:
    """Return the value of each of our metrics at `url` by name: the sum of its samples with these labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(requests.get(f"{url}/metrics", timeout=5).text):
        for sample in family.samples:
            if labels.items() <= sample.labels.items():
                name = sample.name.removeprefix("pool_collector_")
                found[name] = found.get(name, 0.0) + sample.value
    return found


def wait_quiet(url: str, **labels: str) -> dict[str, float]:
    """Wait for two turns in a row without a message, and return the samples with these labels after them.

    In a seal the samples stand still while messages come, and the turn that ends first may have begun before
    the call.
    """
    deadline = time.monotonic() + DEADLINE_S
    n_turns, before = 0, samples(url, **labels)
    while n_turns < 2:
        assert time.monotonic() < deadline, before
        time.sleep(SCRAPE_S)
        now = samples(url, **labels)
        if now["messages_total"] != before["messages_total"] or now["queued_messages"]:
            n_turns = 0
        elif now[LAST_TURN] != before.get(LAST_TURN):
            n_turns += 1
        before = now
    return before


def wait_complete(settings: Settings, *nodes: RegtestNode) -> None:
    """Wait until the collector has made every row of what these nodes have published up to now.

    That is so when it has taken all messages, and none waits for a row.
    """
    for node in nodes:
        wait_published(node.client())
    deadline = time.monotonic() + DEADLINE_S
    names = {watched.rpc_url: watched.name for watched in settings.node}
    for node in nodes:
        while wait_quiet(f"http://{settings.metrics}", node=names[node.rpc_url])["waiting_messages"]:
            assert time.monotonic() < deadline, node.rpc_url


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


def wait_until(holds: Callable[[], Any]) -> None:
    """Wait until `holds()` is true; fail after 60 seconds."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def wait_for_log(logs: list[Any], event: str, count: int = 1, **fields: Any) -> None:
    """Wait until an event with these fields was logged at least `count` times."""
    deadline = time.monotonic() + DEADLINE_S
    wanted = {"event": event, **fields}
    while sum(wanted.items() <= entry.items() for entry in list(logs)) < count:
        assert time.monotonic() < deadline, logs
        time.sleep(0.05)
