"""Questions in a thread of their own: order, errors, and a node that is away for a while."""

import queue
import threading
from pathlib import Path
from typing import Any

import pytest

from collector.errors import NodeUnavailable, RpcError
from collector.node.request_threads import RequestThread
from collector.node.rpc import RpcClient

TIMEOUT_S = 10.0


@pytest.fixture
def inbox() -> "queue.SimpleQueue[Any]":
    """Make a queue for answers."""
    return queue.SimpleQueue()


@pytest.fixture
def lane(inbox: "queue.SimpleQueue[Any]", tmp_path: Path) -> Any:
    """Make a lane whose client is never used."""
    made = RequestThread("test", RpcClient("http://127.0.0.1:1", cookie_file=tmp_path / "none"), inbox)
    yield made
    made.stop()


def test_answers_come_back_to_the_asker_in_order(
    lane: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """A question runs elsewhere, its answer is taken here."""
    taken: list[tuple[str, str]] = []
    for number in range(3):
        lane.ask(
            lambda _, number=number: f"{number} {threading.current_thread().name}",
            lambda answer: taken.append((answer, threading.current_thread().name)),
            pytest.fail,
        )
    for _ in range(3):
        inbox.get(timeout=TIMEOUT_S).deliver()
    here = threading.current_thread().name
    assert taken == [(f"{number} rpc-test", here) for number in range(3)]
    assert lane.n_open == 0


def test_an_error_of_the_node_is_handed_over(lane: RequestThread, inbox: "queue.SimpleQueue[Any]") -> None:
    """What the node refuses is an answer too."""
    errors: list[Exception] = []

    def refuse(_client: RpcClient) -> None:
        raise RpcError("getblock", -5, "Block not found")

    lane.ask(refuse, pytest.fail, errors.append)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert [str(error) for error in errors] == ["getblock: Block not found (code -5)"]


def test_a_node_that_is_away_is_asked_again(lane: RequestThread, inbox: "queue.SimpleQueue[Any]") -> None:
    """The question waits for the node; the lane says that it is away."""
    away = [True, True]
    seen: list[bool] = []

    def sometimes(_client: RpcClient) -> str:
        seen.append(lane.away)
        if away:
            away.pop()
            raise NodeUnavailable("gone for lunch")
        return "back"

    taken: list[str] = []
    lane.ask(sometimes, taken.append, pytest.fail)
    inbox.get(timeout=TIMEOUT_S).deliver()
    assert taken == ["back"]
    assert seen == [False, True, True]
    assert not lane.away


def test_a_mistake_of_ours_is_raised_where_we_asked(
    lane: RequestThread, inbox: "queue.SimpleQueue[Any]"
) -> None:
    """It does not vanish in a thread."""

    def mistake(_client: RpcClient) -> int:
        return 1 // 0

    lane.ask(mistake, pytest.fail, pytest.fail)
    with pytest.raises(ZeroDivisionError):
        inbox.get(timeout=TIMEOUT_S).deliver()
