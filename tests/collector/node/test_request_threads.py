"""Test request threads: the order of answers, errors, and a node that is away for a while."""

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from collector.errors import NodeError, NodeUnavailable, RpcError, UnusableAnswer
from collector.node.request_threads import RequestThread
from collector.node.rpc import RpcClient

TIMEOUT_S = 10.0


@pytest.fixture
def inbox() -> "queue.SimpleQueue[Any]":
    """Make a queue for finished requests."""
    return queue.SimpleQueue()


@pytest.fixture
def thread(inbox: "queue.SimpleQueue[Any]", tmp_path: Path) -> Any:
    """Make a request thread whose client is never used."""
    made = RequestThread("test", RpcClient("http://127.0.0.1:1", cookie_file=tmp_path / "none"), inbox)
    yield made
    made.stop()


def test_answers_come_back_to_the_asker_in_order(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """A request runs in its own thread, and its answer is delivered in the thread that asked."""
    taken: list[tuple[str, str]] = []
    for number in range(3):
        thread.ask(
            lambda _, number=number: f"{number} {threading.current_thread().name}",
            lambda answer: taken.append((answer, threading.current_thread().name)),
            pytest.fail,
        )
    for _ in range(3):
        inbox.get(timeout=TIMEOUT_S).deliver()
    here = threading.current_thread().name
    assert taken == [(f"{number} rpc-test", here) for number in range(3)]
    assert thread.n_open == 0


def test_an_error_of_the_node_is_handed_over(thread: RequestThread, inbox: "queue.SimpleQueue[Any]") -> None:
    """An error that the node answers with is delivered like an answer."""
    errors: list[Exception] = []

    def refuse(_client: RpcClient) -> None:
        raise RpcError("getblock", -5, "Block not found")

    thread.ask(refuse, pytest.fail, errors.append)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert [str(error) for error in errors] == ["getblock: Block not found (code -5)"]


def test_what_nothing_can_go_on_without_is_asked_again_after_every_error(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """`insist` repeats a request that the node refuses or answers wrongly; a stop ends it with the error."""
    errors = [NodeError("no list of txids"), RpcError("getrawmempool", -1, "not now")]

    def wrong_at_first(_client: RpcClient) -> str:
        if errors:
            raise errors.pop()
        return "right"

    def always_wrong(_client: RpcClient) -> None:
        asked.set()
        raise NodeError("no list of txids")

    taken: list[object] = []
    asked = threading.Event()
    thread.insist(wrong_at_first, taken.append, pytest.fail)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert taken == ["right"]
    thread.insist(always_wrong, pytest.fail, taken.append)
    assert asked.wait(TIMEOUT_S)
    thread.stop()
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert [str(each) for each in taken] == ["right", "no list of txids"]


def test_a_node_that_is_away_is_asked_again(thread: RequestThread, inbox: "queue.SimpleQueue[Any]") -> None:
    """The request is repeated until the node answers, and `away` is set meanwhile."""
    away = [True, True]
    seen: list[bool] = []

    def sometimes(_client: RpcClient) -> str:
        seen.append(thread.away)
        if away:
            away.pop()
            raise NodeUnavailable("no answer")
        return "back"

    taken: list[str] = []
    thread.ask(sometimes, taken.append, pytest.fail)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert taken == ["back"]
    assert seen == [False, True, True]
    assert not thread.away


@pytest.mark.parametrize("is_in_request", [True, False])
def test_a_fault_of_ours_counts_as_an_error_of_the_node(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]", *, is_in_request: bool
) -> None:
    """Where the request, or what takes its answer, divides by zero, `failed` is told so once."""

    def mistake(_: object) -> int:
        return 1 // 0

    failed: list[NodeError] = []
    if is_in_request:
        thread.ask(mistake, pytest.fail, failed.append)
    else:
        thread.ask(lambda _: 1, mistake, failed.append)
    inbox.get(timeout=TIMEOUT_S).deliver()

    (error,) = failed
    assert isinstance(error, UnusableAnswer)
    assert "ZeroDivisionError" in str(error)
    assert thread.n_open == 0


def test_a_lack_of_memory_is_no_fault_of_an_answer(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """OSError and MemoryError are raised by `deliver`, in the thread that asked."""

    def out_of_memory(_: object) -> int:
        raise MemoryError

    thread.ask(out_of_memory, pytest.fail, pytest.fail)
    thread.ask(lambda _: 1, out_of_memory, pytest.fail)
    for _ in range(2):
        with pytest.raises(MemoryError):
            inbox.get(timeout=TIMEOUT_S).deliver()
