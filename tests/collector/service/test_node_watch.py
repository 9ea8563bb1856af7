"""Test what the thread of a node does with the errors that end its sessions."""

import errno
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import zmq

from collector.backoff import Backoff
from collector.blocks.stored import StoredBlocks
from collector.clock import StepDetector
from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import COVERAGE, ZMQ_TOPICS
from collector.errors import DatasetError, NodeError, NodeUnavailable
from collector.monitor.metrics import Metrics
from collector.node.preflight import METHODS
from collector.service import node_watch
from collector.service.node_watch import NodeWatch, PreparedNode, prepare_node
from collector.service.session import Outcome
from tests.collector.service.planted import MEMPOOL_INFO, NOT_FOUND, TIP, PlantedNode
from tests.collector.service.test_session import wait_until


@contextmanager
def watching(tmp_path: Path, *names: str, stop: threading.Event) -> Iterator[tuple[NodeWatch, Metrics]]:
    """Watch the first of the named nodes in a `with` block; yield the watch and its metrics."""
    nodes = [NodeSettings(name=name) for name in names]
    settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=nodes)
    dataset, metrics = Dataset.open(settings.dataset, "regtest", create=True), Metrics()
    watch = NodeWatch(nodes[0], settings=settings, dataset=dataset, metrics=metrics, stop=stop)
    try:
        watch.start(None, StoredBlocks((), None))
        yield watch, metrics
    finally:
        stop.set()
        watch.join()


@pytest.mark.parametrize(
    ("error", "waits"),
    [
        (OSError(errno.EMFILE, os.strerror(errno.EMFILE)), True),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), True),
        (KeyError("a mistake of ours"), False),
    ],
    ids=["no descriptor", "no memory", "a mistake"],
)
def test_the_only_node_is_tried_again_after_what_may_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, *, waits: bool
) -> None:
    """Without a free descriptor the service waits; a mistake of ours ends it, so that someone looks."""
    n_tries = 0

    def refuse(*_arguments: object, **_options: object) -> PreparedNode:
        nonlocal n_tries
        n_tries += 1
        raise error

    monkeypatch.setattr(node_watch, "prepare_node", refuse)
    monkeypatch.setattr(node_watch, "RETRY_WAIT_S", 0.01)
    stop = threading.Event()
    with watching(tmp_path, "alone", stop=stop) as (watch, _):
        wait_until(lambda: n_tries == 3 if waits else stop.is_set())
        assert stop.is_set() is not waits
    assert watch.error is error


def test_pauses_are_short_again_after_a_long_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of another month do not make a node wait: an attempt that lasted begins with short pauses."""
    pauses_s: list[float] = []
    stop = threading.Event()
    passed_s = 0.0

    class Noted(Backoff):
        """Notes the length of each pause, and makes it 0."""

        def next_s(self) -> float:
            """Note how long the next pause would be, and return 0."""
            pauses_s.append(super().next_s())
            return 0.0

    def fail(*_arguments: object, **_options: object) -> PreparedNode:
        nonlocal passed_s
        if len(pauses_s) == 5:
            stop.set()
        if len(pauses_s) == 3:
            passed_s += node_watch.LONGEST_WAIT_S + 1
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(node_watch, "prepare_node", fail)
    monkeypatch.setattr(node_watch, "Backoff", Noted)
    monkeypatch.setattr(node_watch, "time", SimpleNamespace(monotonic=lambda: passed_s))
    with watching(tmp_path, "alone", stop=stop):
        wait_until(stop.is_set)
    assert pauses_s[:5] == [node_watch.RETRY_WAIT_S * factor for factor in (1, 2, 4, 1, 2)]


def test_a_node_that_waits_for_its_next_attempt_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pause of minutes the thread says that it is there: else the service is taken for dead."""

    def refuse(*_arguments: object, **_options: object) -> PreparedNode:
        raise NodeError("too old")

    monkeypatch.setattr(node_watch, "prepare_node", refuse)
    monkeypatch.setattr(node_watch, "RETRY_WAIT_S", 60.0)
    monkeypatch.setattr(node_watch, "TURN_S", 0.01)
    with watching(tmp_path, "one", "two", stop=threading.Event()) as (_, metrics):
        wait_until(lambda: "one" in metrics.states() and metrics.states()["one"].reason != "")
        failed_s = metrics.states()["one"].turn_s
        wait_until(lambda: metrics.states()["one"].turn_s > failed_s)
    assert metrics.states()["one"].reason == "NodeError: too old"


def test_a_dataset_that_was_removed_stops_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service ends although another node is watched, and nothing makes the folder again, unmarked."""
    folder = tmp_path / "dataset"

    def remove(*_arguments: object, **_options: object) -> PreparedNode:
        shutil.rmtree(folder)
        raise DatasetError("the journal was removed")

    monkeypatch.setattr(node_watch, "prepare_node", remove)
    stop = threading.Event()
    with watching(tmp_path, "one", "two", stop=stop) as (_, metrics):
        wait_until(stop.is_set)
    assert metrics.states()["one"].reason == "DatasetError: the journal was removed"
    assert not folder.exists()


@contextmanager
def answering_node(folder: Path) -> Iterator[NodeSettings]:
    """Run a planted node that passes every check, and a publisher for it; yield the settings for it."""
    planted = PlantedNode()
    chain = {"chain": "regtest", "blocks": 100, "bestblockhash": TIP, "initialblockdownload": False}
    with zmq.Context() as context, context.socket(zmq.PUB) as publisher:
        address = f"tcp://127.0.0.1:{publisher.bind_to_random_port('tcp://127.0.0.1')}"
        planted.results = {
            "getblockchaininfo": chain,
            "getnetworkinfo": {"version": 270000, "subversion": "/planted/"},
            "getmempoolinfo": MEMPOOL_INFO,
            "uptime": 1,
            "getzmqnotifications": [
                {"type": f"pub{topic}", "address": address, "hwm": 0} for topic in ZMQ_TOPICS
            ],
        }
        planted.errors = dict.fromkeys(set(METHODS) - planted.results.keys(), NOT_FOUND)
        cookie = folder / "cookie"
        cookie.write_text("u:p")
        try:
            yield NodeSettings(name="beta", rpc_url=planted.client().url, cookie_file=cookie)
        finally:
            planted.close()


def test_a_stop_ends_what_is_asked_at_the_start_of_a_session(tmp_path: Path) -> None:
    """A node that has fallen silent since it was subscribed to does not hold up the stop."""
    stop = threading.Event()
    with answering_node(tmp_path) as node:
        prepared = prepare_node(node, Settings(chain="regtest", node=[node]), stop=stop)
        prepared.source.stop()
        stop.set()
        with pytest.raises(NodeUnavailable, match="ended by a stop"):
            prepared.client.call("uptime")


def test_a_clock_set_before_the_session_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is set ahead between the subscription and the session: coverage does not bridge the step."""
    set_by_ns = 0
    stop = threading.Event()

    def recover(*_arguments: object) -> Outcome:
        nonlocal set_by_ns
        set_by_ns = 36_000 * 10**9
        return Outcome.COMPLETE

    def detector(threshold_us: int) -> StepDetector:
        return StepDetector(threshold_us, lambda: time.time_ns() + set_by_ns)

    monkeypatch.setattr(node_watch, "StepDetector", detector)
    monkeypatch.setattr(NodeWatch, "_recover", recover)
    with answering_node(tmp_path) as node:
        settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=[node])
        dataset, metrics = Dataset.open(settings.dataset, "regtest", create=True), Metrics(["beta"])
        watch = NodeWatch(node, settings=settings, dataset=dataset, metrics=metrics, stop=stop)
        watch.start(None, StoredBlocks((), None))
        try:
            labels = {"node": "beta", "topic": "sequence", "reason": "clock_step"}
            wait_until(lambda: metrics.registry.get_sample_value("pool_collector_losses_total", labels))
        finally:
            stop.set()
            watch.join()
    ends = {row["end_reason"] for row in dataset.read(COVERAGE).to_pylist() if row["topic"] == "sequence"}
    assert ends == {"clock_step", "shutdown"}


def test_a_stop_ends_the_wait_for_publishers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node whose publishers do not answer does not hold up the stop."""
    stop = threading.Event()
    monkeypatch.setattr(node_watch, "warm_up", stop.set)  # the last step before the publishers are reached
    with answering_node(tmp_path) as node, pytest.raises(NodeUnavailable, match="ended by a stop"):
        prepare_node(node, Settings(chain="regtest", node=[node]), stop=stop)


def test_a_node_that_comes_late_does_not_take_the_messages_of_another(tmp_path: Path) -> None:
    """A node whose address leads to the publisher of another is refused whenever it first answers."""
    stop, metrics = threading.Event(), Metrics()
    with answering_node(tmp_path) as node:
        nodes = [node, NodeSettings(name="alpha")]
        settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=nodes)
        dataset = Dataset.open(settings.dataset, "regtest", create=True)
        taken = prepare_node(node, settings)
        taken.source.stop()
        publishers: dict[str, Mapping[str, str]] = {"alpha": taken.source.endpoints}
        watch = NodeWatch(
            node, settings=settings, dataset=dataset, metrics=metrics, stop=stop, publishers=publishers
        )
        watch.start(None, StoredBlocks((), None))
        try:
            wait_until(lambda: metrics.states()["beta"].reason if metrics.states() else "")
        finally:
            stop.set()
            watch.join()
    assert "nodes alpha and beta both publish" in str(watch.error)
    assert not (settings.dataset / "chain=regtest").exists()
