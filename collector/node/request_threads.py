"""Run requests to a node in their own threads, so that the thread that handles events never waits.

A request is a function that gets the client and returns an answer. The finished request goes into the queue
of the thread that asked, which calls `deliver` on it. While the node is away, a thread repeats its request
and logs `node.away` once. What `ask` asks may be answered with an error, or with something that is no node's
answer; both are delivered as an error. The second is first repeated for as long as the caller says, because
it passes when it is the error page of a proxy. What `insist` asks is repeated until it is answered, because
nothing can go on without it, and a session that ended for it would end again after every start. Where less
can be done without the answer, the caller says when to give up (`GiveUp`): rows of thousands of messages must
not wait for one request that this node never answers.

Where our own code fails on an answer, the fault is logged with its traceback, and the answer counts as an
error of the node: one answer must not end the session at each start.
"""

import math
import queue
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

import structlog

from collector.backoff import Backoff
from collector.errors import (
    CollectorError,
    NodeError,
    NodeRefused,
    NodeUnavailable,
    RpcError,
    UnusableAnswer,
)
from collector.node.rpc import RpcClient

T = TypeVar("T")
FIRST_RETRY_S: Final = 0.25
LONGEST_RETRY_S: Final = 1.0
AWAY: Final = (NodeUnavailable, NodeRefused)
ANSWERED: Final = (RpcError, UnusableAnswer)  # by a node, which will answer the same again
NO_FAULT: Final = (CollectorError, OSError, MemoryError)  # of our code in what an answer holds
GRACE_S: Final = 1.0  # for requests that are open when a stop comes
log = structlog.get_logger(__name__)


class FinishedRequest(NamedTuple):
    """Carries an answered request back to the thread that asked.

    That thread calls `deliver`, which passes the answer to the function that waits for it.
    """

    deliver: Callable[[], None]


class GiveUp(NamedTuple):
    """Says how long a request is repeated that fails while the node answers others, and who is told then.

    The time counts from the first failure after the last request that this thread had answered.
    """

    after_s: float
    then: Callable[[NodeError], None]  # gets the last error, in the thread that asked


class _Unanswered(Exception):  # noqa: N818 - what the node did, not a mistake
    """Means that a request was given up because the node answers others; `error` is the last one."""

    def __init__(self, error: NodeError) -> None:
        super().__init__(str(error))
        self.error = error


class RequestThread:
    """Sends requests to a node in one thread, one after the other."""

    def __init__(self, name: str, client: RpcClient, finished: "queue.SimpleQueue[Any]") -> None:
        self.n_open = 0  # requests not delivered yet; only the thread that asks changes it
        self.away = False  # the node does not answer
        self.refusal = (
            ""  # why it refuses us, or what is wrong with its answers, where that is why it is away
        )
        self._failing_since_s: float | None = None  # monotonic time of the first failure after an answer
        self._wrong_since_s: float | None = None  # monotonic time of the first of several wrong answers
        self._name = name
        self._fault = ""  # the last fault of ours that was logged
        self._client = client
        self._finished = finished
        self._stopping = threading.Event()
        self._requests: queue.SimpleQueue[Callable[[], FinishedRequest] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"rpc-{name}", daemon=True)
        self._thread.start()

    def ask(
        self,
        request: Callable[[RpcClient], T],
        then: Callable[[T], None],
        failed: Callable[[NodeError], None],
        *,
        wrong_for_s: float = 0.0,
    ) -> None:
        """Queue a request; when it is answered, the asking thread calls `then` or `failed`.

        `then` gets the answer and `failed` the node's error, or UnusableAnswer where the request or `then`
        fails on what the answer holds. While the node is away, the request is repeated. It is repeated too
        while this thread has got nothing but wrong answers (no node's) for less than `wrong_for_s` seconds.
        OSError and MemoryError are raised in the asking thread.
        """

        def take(answer: T) -> None:
            try:
                then(answer)
            except NO_FAULT:
                raise
            except Exception as error:  # noqa: BLE001 - logged with its traceback
                failed(self._unusable(error))

        self._queue(request, take, failed, again_on=AWAY, wrong_for_s=wrong_for_s)

    def insist(
        self,
        request: Callable[[RpcClient], T],
        then: Callable[[T], None],
        stopped: Callable[[NodeError], None],
        give_up: GiveUp | None = None,
    ) -> None:
        """Queue a request that every supported node can answer, and repeat it after every error.

        Once it is answered, the asking thread calls `then` with the answer. When a stop comes first, it calls
        `stopped` with the last error. An exception of `then` is raised there. With `give_up`, the request is
        given up when it goes on to fail although the node answers a simple one.
        """
        self._queue(request, then, stopped, again_on=(NodeError,), give_up=give_up)

    def _queue(
        self,
        request: Callable[[RpcClient], T],
        then: Callable[[T], None],
        failed: Callable[[NodeError], None],
        *,
        again_on: tuple[type[NodeError], ...],
        wrong_for_s: float = 0.0,
        give_up: GiveUp | None = None,
    ) -> None:
        """Queue a request; repeat it after errors `again_on`, and for `wrong_for_s` after wrong answers."""
        give_up = give_up or GiveUp(math.inf, failed)

        def finish() -> FinishedRequest:
            try:
                answer: Any = self._until_answered(request, again_on, wrong_for_s, give_up.after_s)
            except _Unanswered as unanswered:
                return FinishedRequest(partial(self._deliver, give_up.then, unanswered.error))
            except NodeError as error:
                return FinishedRequest(partial(self._deliver, failed, error))
            except (OSError, MemoryError) as error:
                return FinishedRequest(partial(self._deliver, _raise, error))
            return FinishedRequest(partial(self._deliver, then, answer))

        self.n_open += 1
        self._requests.put(finish)

    def end(self) -> None:
        """Make the request thread end after its present request, and not wait for a node that is away."""
        self._stopping.set()
        self._requests.put(None)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the request thread; wait up to `timeout_s` for it, then abandon a request that hangs."""
        self.end()
        self._thread.join(timeout_s)

    def _deliver(self, take: Callable[[Any], None], answer: Any) -> None:
        """Count one open request less, and pass `answer` to `take`; runs in the thread that asked."""
        self.n_open -= 1
        take(answer)

    def _until_answered(
        self,
        request: Callable[[RpcClient], T],
        again_on: tuple[type[NodeError], ...],
        wrong_for_s: float,
        give_up_s: float,
    ) -> T:
        """Repeat a request until the node answers, and return the answer.

        It is repeated after each error of `again_on`. It is repeated after a wrong answer until all answers
        have been wrong for `wrong_for_s` seconds. Any other error is raised; after `end`, each is. Raises
        _Unanswered when it has failed for `give_up_s` seconds and the node answers a simple request.
        """
        pauses: Backoff | None = None
        while True:
            try:
                with self._client.reading():
                    answer = self._answer(request)
                break
            except NodeError as error:
                may_pass = isinstance(error, again_on) or self._wrong_for_less_than(wrong_for_s, error)
                if not may_pass and not self._stopping.is_set():
                    self._say_back()  # the node answers, though not as we wish
                    if isinstance(error, ANSWERED):
                        self._wrong_since_s = None
                if not may_pass or self._stopping.is_set():
                    raise
                self._say_away(error)
                self._give_up_after(give_up_s, error)
                pauses = pauses or Backoff(FIRST_RETRY_S, LONGEST_RETRY_S)
                if pauses.wait(self._stopping):
                    raise
        self._say_back()
        self._wrong_since_s = self._failing_since_s = None
        return answer

    def _give_up_after(self, limit_s: float, error: NodeError) -> None:
        """Raise _Unanswered when requests have failed for `limit_s` and the node answers a simple one.

        A node that does not answer that one either is away, and the time begins again.
        """
        now_s = time.monotonic()
        self._failing_since_s = now_s if self._failing_since_s is None else self._failing_since_s
        if now_s - self._failing_since_s < limit_s:
            return
        try:
            self._client.call("uptime")
        except NodeError:
            self._failing_since_s = None
            return
        log.warning("request.given_up", thread=self._name, reason=str(error))
        self._say_back()
        raise _Unanswered(error) from error

    def _say_back(self) -> None:
        """Log `node.back` if the node was away, and unset `away` and `refusal`."""
        if self.away:
            log.info("node.back", thread=self._name)
        self.away = False
        self.refusal = ""

    def _wrong_for_less_than(self, limit_s: float, error: NodeError) -> bool:
        """Return whether `error` is a wrong answer, and the first in a row came less than `limit_s` ago."""
        if isinstance(error, AWAY + ANSWERED):
            return False
        now_s = time.monotonic()
        self._wrong_since_s = now_s if self._wrong_since_s is None else self._wrong_since_s
        return now_s - self._wrong_since_s < limit_s

    def _answer(self, request: Callable[[RpcClient], T]) -> T:
        """Run a request and return the node's answer. Raises UnusableAnswer where our code fails on it."""
        try:
            return request(self._client)
        except NO_FAULT:
            raise
        except Exception as error:
            raise self._unusable(error) from error

    def _unusable(self, error: Exception) -> UnusableAnswer:
        """Return an exception of our own code as an UnusableAnswer; log its traceback, unless it repeats."""
        reason = f"our code fails on an answer of the node: {type(error).__name__}: {error}"
        if reason != self._fault:
            log.error("answer.failed", thread=self._name, reason=reason, exc_info=error)
        self._fault = reason
        return UnusableAnswer(reason)

    def _say_away(self, error: BaseException) -> None:
        """Log `node.away` at the first failed attempt at a request, and set `away` and `refusal`."""
        if not self.away:
            log.warning("node.away", thread=self._name, reason=str(error))
        self.away = True
        self.refusal = "" if isinstance(error, NodeUnavailable) else str(error)

    def _run(self) -> None:
        """Carry out the queued requests, one after the other, until `end` is called."""
        while (finish := self._requests.get()) is not None:
            self._finished.put(finish())
        self._client.close()


class NodeRequests:
    """Holds the request threads of one node: for its mempool, blocks, templates, status and chain tips.

    A template describes the moment in which it is taken. In a thread of its own it does not wait behind a
    hundred blocks. Nothing waits behind the chain tips, for which a node goes through all its headers.
    """

    def __init__(self, node: str, client: RpcClient, finished: "queue.SimpleQueue[Any]") -> None:
        self._client = client
        self.mempool = RequestThread(f"{node}-mempool", client, finished)
        self.blocks = RequestThread(f"{node}-blocks", client, finished)
        self.template = RequestThread(f"{node}-template", client, finished)
        self.status = RequestThread(f"{node}-status", client, finished)
        self.chain_tips = RequestThread(f"{node}-chain-tips", client, finished)
        self._all = (self.mempool, self.blocks, self.template, self.status, self.chain_tips)

    @property
    def n_open(self) -> int:
        """Return how many requests to the node, of all threads, have no delivered answer yet."""
        return sum(each.n_open for each in self._all)

    @property
    def away(self) -> bool:
        """Return whether any thread repeats a request because the node does not answer."""
        return any(each.away for each in self._all)

    @property
    def refusal(self) -> str:
        """Return why the node refuses us, or what is wrong with its answers; empty while neither is so."""
        return next((each.refusal for each in self._all if each.refusal), "")

    def stop(self) -> None:
        """End every request thread after its present request, which is cut off after a second."""
        for each in self._all:
            each.end()
        deadline_s = time.monotonic() + GRACE_S
        for each in self._all:
            each.stop(max(0.0, deadline_s - time.monotonic()))
        self._client.stop()
        for each in self._all:
            each.stop(GRACE_S)


def _raise(error: Exception) -> None:
    """Raise `error`, as a function, because `ask` delivers every result by calling a function."""
    raise error
