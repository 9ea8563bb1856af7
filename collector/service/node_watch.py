"""Watch one node for as long as the service runs: one session after the other, each to its next restart.

Whatever fails concerns this node alone. Where others are watched it is begun again, ever more seldom, and
they go on undisturbed; a node that is watched alone ends the service, which whoever started it starts again.
"""

import queue
import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from collector.blocks.stored import StoredBlocks
from collector.codec.rows import warm_up
from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from collector.errors import CollectorError, NodeRefused, NodeUnavailable
from collector.journal.coverage_ledger import COVERAGE_STATE
from collector.journal.journal import Journal
from collector.journal.segment import journal_folder
from collector.mempool import told
from collector.monitor.metrics import Metrics
from collector.node.preflight import client_for, examine
from collector.node.rpc import RpcClient
from collector.receive.records import Message
from collector.receive.source import MessageSource
from collector.service.session import START_HEIGHT_STATE, Session

RETRY_WAIT_S: Final = 2.0
LONGEST_WAIT_S: Final = 300.0  # between two attempts with a node that fails
LOOK_S: Final = 0.5  # between two looks whether a node has read its mempool
log = structlog.get_logger(__name__)


class Prepared(NamedTuple):
    """A node that was examined, and a source that receives from it."""

    name: str
    session: str
    client: RpcClient
    source: MessageSource
    inbox: "queue.SimpleQueue[Any]"


def prepare(node: NodeSettings, settings: Settings, *, patience_s: float = 0.0) -> Prepared:
    """Examine a node and subscribe to it; from here on nothing it publishes is missed.

    Raises WrongChain, MissingTopic, NodeUnavailable or NodeRefused, each with what to do about it.
    """
    client = client_for(node, settings.chain, patience_s=patience_s)
    try:
        facts = examine(client, node, settings)
        _await_mempool(client, node.name, patience_s)
    finally:
        client.close()
    warm_up()  # not in the session: its first block would hold up all that comes with it
    session = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    source = MessageSource(node.name, session, facts.endpoints, inbox=inbox, queue_limit=settings.queue_limit)
    try:
        source.connect()
    except BaseException:
        source.stop()
        raise
    return Prepared(node.name, session, client_for(node, settings.chain), source, inbox)


def _await_mempool(client: RpcClient, name: str, patience_s: float) -> None:
    """Wait until a node has read the mempool of its last run, which it publishes as if it came just now.

    Raises NodeUnavailable when that takes longer.
    """
    deadline_s = time.monotonic() + patience_s
    while not client.call("getmempoolinfo").get("loaded", True):
        if time.monotonic() >= deadline_s:
            raise NodeUnavailable(
                f"node {name} is still reading the mempool that it saved; start again when it has read it"
            )
        time.sleep(LOOK_S)


class NodeWatch:
    """One node, its journal and the thread that follows it."""

    def __init__(
        self,
        node: NodeSettings,
        *,
        settings: Settings,
        dataset: Dataset,
        metrics: Metrics,
        stop: threading.Event,
    ) -> None:
        self.error: Exception | None = None  # what the last attempt failed with
        self._node = node
        self._settings = settings
        self._dataset = dataset
        self._metrics = metrics
        self._stop = stop
        self._stored = StoredBlocks((), None)
        self._thread: threading.Thread | None = None
        self._journal, self._left_over = self._open_journal()

    def start(self, prepared: Prepared | None, stored: StoredBlocks) -> None:
        """Begin to follow the node, or to wait for it.

        `stored` are the blocks of the dataset after every journal's recovery.
        """
        self._stored = stored
        self._thread = threading.Thread(target=self._run, args=(prepared,), name=f"watch-{self._node.name}")
        self._thread.start()

    @property
    def blocked(self) -> str:
        """Why nothing can be written at present; empty when it can."""
        return self._journal.blocked

    def join(self) -> None:
        """Wait for the end of the thread, and give up the journal."""
        if self._thread is not None:
            self._thread.join()
        self._journal.close()

    def _open_journal(self) -> tuple[Journal, list[Message]]:
        folder = journal_folder(self._dataset.root, self._dataset.chain, self._node.name)
        journal = Journal(folder, fsync_interval_s=self._settings.fsync_interval_s, stop=self._stop)
        try:
            return journal, journal.recover(self._dataset)
        except BaseException:
            journal.close()
            raise

    def _run(self, prepared: Prepared | None) -> None:
        wait_s = RETRY_WAIT_S
        while not self._stop.is_set():
            try:
                if self.error is not None:
                    self._begin_again()
                self._live(prepared)
            except Exception as error:  # noqa: BLE001 - kept for the thread that waits for this one
                self._failed(error)
            prepared = None
            self._stop.wait(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _failed(self, error: Exception) -> None:
        self.error = error
        said = f"{type(error).__name__}: {error}"
        traceback = None if isinstance(error, CollectorError) else error
        log.error("watch.failed", node=self._node.name, error=said, exc_info=traceback)
        self._metrics.away(self._node.name)
        if len(self._settings.node) == 1:
            self._stop.set()

    def _live(self, prepared: Prepared | None) -> None:
        """Make rows of what an earlier run left, then run sessions until the stop."""
        try:
            while not self._stop.is_set():
                prepared = prepared or self._await_node()
                if prepared is None:
                    return
                if not self._recover(prepared):
                    return
                if not self._follow(prepared) and not self._stop.is_set():
                    self._begin_again()
                self.error = prepared = None
        finally:
            if prepared is not None:
                prepared.source.stop()

    def _begin_again(self) -> None:
        """Go back to what the journal holds: what a session left unfinished is made anew from it."""
        self._journal.close()
        self._journal, self._left_over = self._open_journal()
        hashes = self._dataset.read_columns(BLOCKS, "block_hash")
        stored = {block_hash for rows in hashes for block_hash in rows["block_hash"].to_pylist()}
        self._stored.cancel_reservations(self._node.name, stored)

    def _follow(self, prepared: Prepared) -> bool:
        """Run one session, to the stop or to the node's restart; none when the node has gone away again.

        False when the session left messages in the journal.
        """
        # What the node says of itself is asked again now that the subscription stands: the tip must be one
        # behind which every change reaches us.
        try:
            facts = examine(prepared.client, self._node, self._settings, is_first=False)
        except (NodeUnavailable, NodeRefused) as error:
            log.warning("node.away", node=self._node.name, reason=str(error))
            prepared.source.stop()
            self._stop.wait(RETRY_WAIT_S)
            return True
        finally:
            prepared.client.close()  # this thread's connection; the lanes have their own
        return self._session(prepared, prepared.session).run(facts, prepared.source, self._stop)

    def _session(self, prepared: Prepared, name: str) -> Session:
        return Session(
            (self._node.name, name),
            prepared.client,
            inbox=prepared.inbox if name == prepared.session else queue.SimpleQueue(),
            settings=self._settings,
            dataset=self._dataset,
            journal=self._journal,
            stored=self._stored,
            metrics=self._metrics,
        )

    def _await_node(self) -> Prepared | None:
        """Wait until the node answers again; None when the service stops first."""
        said = ""
        while not self._stop.is_set():
            self._metrics.away(self._node.name, said)
            try:
                return prepare(self._node, self._settings)
            except (NodeUnavailable, NodeRefused) as error:
                if str(error) != said:
                    log.warning("node.away", node=self._node.name, reason=str(error))
                said = str(error)
                self._stop.wait(RETRY_WAIT_S)
        return None

    def _recover(self, prepared: Prepared) -> bool:
        """Make rows of what a killed run had received, and of what it claims to have observed.

        False when the service is stopped meanwhile.
        """
        states = dict(self._journal.states)
        messages: dict[str, deque[Message]] = {}
        for message in self._left_over:
            messages.setdefault(message.session, deque()).append(message)
        self._left_over = []
        told_states: dict[str, dict[str, bytes]] = {}
        for name, state in states.items():
            if name.startswith(told.STATE):
                told_states.setdefault(told.session_of(name), {})[name] = state
        began = _by_session(states, START_HEIGHT_STATE)
        claims = _by_session(states, COVERAGE_STATE)
        # In order: their names begin with the time. Each is sealed before the next one's claims are rows.
        for session in sorted(messages.keys() | told_states.keys() | began.keys() | claims.keys()):
            left = messages.pop(session, deque())
            log.info("journal.recovering", node=self._node.name, session=session, n_messages=len(left))
            told_of, claimed = told_states.get(session, {}), claims.get(session)
            again = self._session(prepared, session)
            if not again.recover(left, told_of, self._stop, began=began.get(session), claims=claimed):
                return False
        return True


def _by_session(states: Mapping[str, bytes], prefix: str) -> dict[str, bytes]:
    """Pick the states that a name and a session name."""
    return {name.removeprefix(prefix): value for name, value in states.items() if name.startswith(prefix)}
