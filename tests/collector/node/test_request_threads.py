"""Test request threads: the order of answers, errors, and a node that is away for a while."""

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from collector.errors import NodeError, NodeRefused, NodeUnavailable, RpcError, UnusableAnswer
from collector.node.request_threads import GiveUp, RequestThread
from collector.node.rpc import RpcClient
from tests.collector.service.planted import PlantedNode

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


def test_a_request_is_given_up_only_while_the_node_answers_others(
    inbox: "queue.SimpleQueue[Any]",
) -> None:
    """While nothing is answered, the node is away; once it answers `uptime`, the request is at fault."""
    node = PlantedNode()
    thread = RequestThread("test", node.client(), inbox)
    taken: list[object] = []
    seen: list[str] = []

    def always_wrong(_client: RpcClient) -> None:
        seen.append(thread.refusal)
        if len(seen) == 3:
            node.results["uptime"] = 1
        raise NodeError("no list of txids")

    try:
        thread.insist(always_wrong, pytest.fail, pytest.fail, GiveUp(0.0, taken.append))
        inbox.get(timeout=TIMEOUT_S).deliver()
        assert (str(taken[0]), thread.n_open) == ("no list of txids", 0)
        assert seen == ["", "no list of txids", "no list of txids"]
        assert (thread.away, thread.refusal) == (False, "")
        thread.insist(lambda _: "right", taken.append, pytest.fail)
        inbox.get(timeout=TIMEOUT_S).deliver()
        assert taken[1] == "right"
    finally:
        thread.stop()
        node.close()


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


def test_a_refusal_is_kept_until_the_node_answers(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """While the node refuses our credentials, or the cookie cannot be read, `refusal` says so."""
    errors: list[NodeError] = [NodeUnavailable("no answer"), NodeRefused("may not read the cookie file")]
    seen: list[str] = []

    def sometimes(_client: RpcClient) -> str:
        seen.append(thread.refusal)
        if errors:
            raise errors.pop()
        return "back"

    thread.ask(sometimes, seen.append, pytest.fail)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert seen == ["", "may not read the cookie file", "", "back"]
    assert not thread.refusal


def test_a_wrong_answer_is_asked_again_for_a_while(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """The error page of a proxy passes, and the request is answered; without patience it is an error."""
    pages = [NodeError("no JSON"), NodeError("no JSON")]

    def page_at_first(_client: RpcClient) -> str:
        if pages:
            raise pages.pop()
        return "a block"

    taken: list[object] = []
    thread.ask(page_at_first, taken.append, pytest.fail, wrong_for_s=TIMEOUT_S)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert taken == ["a block"]
    assert not thread.away

    pages.append(NodeError("no JSON"))
    thread.ask(page_at_first, pytest.fail, taken.append)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert [str(each) for each in taken] == ["a block", "no JSON"]


def test_patience_with_wrong_answers_ends_and_is_one_for_all_requests(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """Once all answers were wrong for the time given, each is an error at once, until a right one comes."""
    n_asked = 0

    def always_wrong(_client: RpcClient) -> None:
        nonlocal n_asked
        n_asked += 1
        raise NodeError("no JSON")

    failed: list[NodeError] = []
    wrong_for_s = 0.1  # the first pause is longer
    for _ in range(3):
        thread.ask(always_wrong, pytest.fail, failed.append, wrong_for_s=wrong_for_s)
        inbox.get(timeout=TIMEOUT_S).deliver()
    assert (len(failed), n_asked) == (3, 4)

    thread.ask(lambda _: "right", lambda _: None, pytest.fail)
    inbox.get(timeout=TIMEOUT_S).deliver()
    thread.ask(always_wrong, pytest.fail, failed.append, wrong_for_s=wrong_for_s)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert n_asked == 6


def test_the_end_of_patience_is_no_absence(thread: RequestThread, inbox: "queue.SimpleQueue[Any]") -> None:
    """A node whose answers stay wrong is not away, and an error of its own begins the patience anew."""
    wrong, refused = NodeError("no JSON"), RpcError("getblock", -5, "Block not found")
    taken: list[object] = []

    def ask(*errors: NodeError) -> None:
        left = list(errors)

        def answer(_client: RpcClient) -> str:
            if left:
                raise left.pop(0)
            return "a block"

        thread.ask(answer, taken.append, taken.append, wrong_for_s=0.1)  # the first pause is longer
        inbox.get(timeout=TIMEOUT_S).deliver()

    ask(wrong, wrong)
    assert (taken, thread.away, thread.refusal) == ([wrong], False, "")
    ask(refused)
    ask(wrong)
    assert taken == [wrong, refused, "a block"]


@pytest.mark.parametrize("error", [RpcError("getblock", -5, "Block not found"), UnusableAnswer("a fault")])
def test_what_a_node_answers_is_not_asked_again(
    thread: RequestThread, inbox: "queue.SimpleQueue[Any]", error: NodeError
) -> None:
    """An error that the node answers with, and an answer on which our code fails, stay what they are."""
    n_asked = 0

    def fail(_client: RpcClient) -> None:
        nonlocal n_asked
        n_asked += 1
        raise error

    failed: list[NodeError] = []
    thread.ask(fail, pytest.fail, failed.append, wrong_for_s=TIMEOUT_S)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert (failed, n_asked) == ([error], 1)


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
