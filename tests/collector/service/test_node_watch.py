"""Test what the thread of a node does with the errors that end its sessions."""

import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest

from collector.backoff import Backoff
from collector.blocks.stored import StoredBlocks
from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.errors import DatasetError, NodeError
from collector.monitor.metrics import Metrics
from collector.service import node_watch
from collector.service.node_watch import NodeWatch, PreparedNode
from tests.collector.service.test_session import wait_until


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
    settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=[NodeSettings(name="alone")])
    dataset = Dataset.open(settings.dataset, "regtest", create=True)
    stop = threading.Event()
    watch = NodeWatch(settings.node[0], settings=settings, dataset=dataset, metrics=Metrics(), stop=stop)
    try:
        watch.start(None, StoredBlocks((), None))
        wait_until(lambda: n_tries == 3 if waits else stop.is_set())
        assert stop.is_set() is not waits
    finally:
        stop.set()
        watch.join()
    assert watch.error is error


def test_pauses_are_short_again_after_a_long_attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Failures of another month do not make a node wait: an attempt that lasted begins with short pauses."""
    pauses_s: list[float] = []
    stop = threading.Event()

    class Noted(Backoff):
        """Notes the length of each pause, and makes it 0."""

        def next_s(self) -> float:
            """Note how long the next pause would be, and return 0."""
            pauses_s.append(super().next_s())
            return 0.0

    def fail(*_arguments: object, **_options: object) -> PreparedNode:
        if len(pauses_s) == 5:
            stop.set()
        if len(pauses_s) == 3:
            time.sleep(longest_s + 0.1)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    longest_s = 4.0
    monkeypatch.setattr(node_watch, "prepare_node", fail)
    monkeypatch.setattr(node_watch, "Backoff", Noted)
    monkeypatch.setattr(node_watch, "RETRY_WAIT_S", longest_s / 8)
    monkeypatch.setattr(node_watch, "LONGEST_WAIT_S", longest_s)
    settings = Settings(chain="regtest", dataset=tmp_path / "dataset", node=[NodeSettings(name="alone")])
    dataset = Dataset.open(settings.dataset, "regtest", create=True)
    watch = NodeWatch(settings.node[0], settings=settings, dataset=dataset, metrics=Metrics(), stop=stop)
    try:
        watch.start(None, StoredBlocks((), None))
        wait_until(stop.is_set)
    finally:
        stop.set()
        watch.join()
    assert pauses_s[:5] == [longest_s / part for part in (8, 4, 2, 8, 4)]


def test_a_node_that_waits_for_its_next_attempt_does_not_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pause of minutes the thread says that it is there: else the service is taken for dead."""

    def refuse(*_arguments: object, **_options: object) -> PreparedNode:
        raise NodeError("too old")

    monkeypatch.setattr(node_watch, "prepare_node", refuse)
    monkeypatch.setattr(node_watch, "RETRY_WAIT_S", 60.0)
    monkeypatch.setattr(node_watch, "TURN_S", 0.01)
    settings = Settings(
        chain="regtest",
        dataset=tmp_path / "dataset",
        node=[NodeSettings(name="one"), NodeSettings(name="two")],
    )
    dataset = Dataset.open(settings.dataset, "regtest", create=True)
    stop, metrics = threading.Event(), Metrics()
    watch = NodeWatch(settings.node[0], settings=settings, dataset=dataset, metrics=metrics, stop=stop)
    try:
        watch.start(None, StoredBlocks((), None))
        wait_until(lambda: "one" in metrics.states() and metrics.states()["one"].reason != "")
        failed_s = metrics.states()["one"].turn_s
        wait_until(lambda: metrics.states()["one"].turn_s > failed_s)
    finally:
        stop.set()
        watch.join()
    assert metrics.states()["one"].reason == "NodeError: too old"


def test_a_dataset_that_was_removed_stops_every_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The service ends although another node is watched, and nothing makes the folder again, unmarked."""
    settings = Settings(
        chain="regtest",
        dataset=tmp_path / "dataset",
        node=[NodeSettings(name="one"), NodeSettings(name="two")],
    )
    dataset = Dataset.open(settings.dataset, "regtest", create=True)

    def remove(*_arguments: object, **_options: object) -> PreparedNode:
        shutil.rmtree(dataset.root)
        raise DatasetError("the journal was removed")

    monkeypatch.setattr(node_watch, "prepare_node", remove)
    stop, metrics = threading.Event(), Metrics()
    watch = NodeWatch(settings.node[0], settings=settings, dataset=dataset, metrics=metrics, stop=stop)
    try:
        watch.start(None, StoredBlocks((), None))
        wait_until(stop.is_set)
    finally:
        stop.set()
        watch.join()
    assert metrics.states()["one"].reason == "DatasetError: the journal was removed"
    assert not dataset.root.exists()
