"""A thread that asks the node, so that what handles events never waits for an answer.

A question is a function of the client. Its answer goes into the asker's queue together with the function that
takes it, which the asker calls in its own thread. While the node is away a lane asks again and again, and
says so once; only an error that the node itself answers with is handed over as one.
"""

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from collector.errors import NodeError, NodeRefused, NodeUnavailable
from collector.node.rpc import RpcClient

T = TypeVar("T")
RETRY_WAIT_S: Final = 1.0
log = structlog.get_logger(__name__)


class Answered(NamedTuple):
    """An answer on its way back to the thread that asked."""

    deliver: Callable[[], None]


class Lane:
    """Questions to one node, one after the other."""

    def __init__(self, name: str, client: RpcClient, answers: "queue.SimpleQueue[Any]") -> None:
        self.n_open = 0  # questions whose answer was not delivered; the asker's thread alone changes it
        self.away = False  # the node does not answer
        self._name = name
        self._client = client
        self._answers = answers
        self._stopping = threading.Event()
        self._questions: queue.SimpleQueue[Callable[[], Answered] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"rpc-{name}", daemon=True)
        self._thread.start()

    def ask(
        self,
        question: Callable[[RpcClient], T],
        then: Callable[[T], None],
        failed: Callable[[NodeError], None],
    ) -> None:
        """Put a question. In the asker's thread `then` gets the answer, or `failed` the node's error.

        What is no NodeError is raised there.
        """

        def answered() -> Answered:
            try:
                result: Any = self._until_answered(question)
            except NodeError as error:
                return Answered(lambda error=error: self._deliver(failed, error))  # type: ignore[misc]
            except Exception as error:  # noqa: BLE001 - raised again in the asker's thread
                return Answered(lambda error=error: self._deliver(_throw, error))  # type: ignore[misc]
            return Answered(lambda: self._deliver(then, result))

        self.n_open += 1
        self._questions.put(answered)

    def end(self) -> None:
        """Take no more questions, and do not wait for the node."""
        self._stopping.set()
        self._questions.put(None)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the thread after its present question; one that hangs is left behind."""
        self.end()
        self._thread.join(timeout_s)

    def _deliver(self, take: Callable[[Any], None], result: Any) -> None:
        self.n_open -= 1
        take(result)

    def _until_answered(self, question: Callable[[RpcClient], T]) -> T:
        while True:
            try:
                result = question(self._client)
            except (NodeUnavailable, NodeRefused) as error:
                if self._stopping.is_set():
                    raise
                if not self.away:
                    log.warning("node.away", lane=self._name, reason=str(error))
                self.away = True
                self._stopping.wait(RETRY_WAIT_S)
            else:
                if self.away:
                    log.info("node.back", lane=self._name)
                self.away = False
                return result

    def _run(self) -> None:
        while (answered := self._questions.get()) is not None:
            self._answers.put(answered())
        self._client.close()


class Lanes:
    """The lanes to one node: its mempool, blocks, templates, and `state` for how it stands.

    A template is of the moment in which it is taken: it must not wait behind a hundred blocks.
    """

    def __init__(self, node: str, client: RpcClient, answers: "queue.SimpleQueue[Any]") -> None:
        self.quick = Lane(f"{node}-mempool", client, answers)
        self.slow = Lane(f"{node}-blocks", client, answers)
        self.template = Lane(f"{node}-template", client, answers)
        self.state = Lane(f"{node}-state", client, answers)
        self._all = (self.quick, self.slow, self.template, self.state)

    @property
    def n_open(self) -> int:
        """Questions whose answer was not delivered."""
        return sum(lane.n_open for lane in self._all)

    @property
    def away(self) -> bool:
        """Whether the node leaves a question unanswered."""
        return any(lane.away for lane in self._all)

    def stop(self) -> None:
        """End every lane after its present question."""
        for lane in self._all:
            lane.end()
        for lane in self._all:
            lane.stop()


def _throw(error: Exception) -> None:
    raise error


def stopped_or_fatal(error: NodeError) -> None:
    """Do without an answer that a stop has cut off; what else the node refuses is raised.

    For questions that every node we support answers.
    """
    if not isinstance(error, NodeUnavailable | NodeRefused):
        raise error
