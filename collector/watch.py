"""Watch one node for as long as the service runs: one session after the other, each to its next restart."""

import queue
import secrets
import threading
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from collector import told
from collector.blockflow import StoredBlocks
from collector.config import NodeSettings, Settings
from collector.coverage import Ledger
from collector.errors import NodeRefused, NodeUnavailable
from collector.journal import Journal
from collector.metrics import Metrics
from collector.preflight import client_for, examine
from collector.records import Message
from collector.rpc import RpcClient
from collector.session import COVERAGE_STATE, Session
from collector.verify import warm_up
from collector.writer import Dataset
from collector.zmq_source import ZmqSource

RETRY_WAIT_S: Final = 2.0
log = structlog.get_logger(__name__)


class Prepared(NamedTuple):
    """A node that was examined, and a source that receives from it."""

    name: str
    session: str
    client: RpcClient
    source: ZmqSource
    inbox: "queue.SimpleQueue[Any]"


def prepare(node: NodeSettings, settings: Settings, *, patience_s: float = 0.0) -> Prepared:
    """Examine a node and subscribe to it; from here on nothing it publishes is missed.

    Raises WrongChain, MissingTopic, NodeUnavailable or NodeRefused, each with what to do about it.
    """
    client = client_for(node, settings.chain, patience_s=patience_s)
    try:
        facts = examine(client, node, settings)
    finally:
        client.close()
    warm_up()  # not in the session: its first block would hold up all that comes with it
    session = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    source = ZmqSource(node.name, session, facts.endpoints, inbox=inbox, queue_limit=settings.queue_limit)
    try:
        source.connect()
    except BaseException:
        source.stop()
        raise
    return Prepared(node.name, session, client_for(node, settings.chain), source, inbox)


class Watch:
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
        self.error: BaseException | None = None
        self._node = node
        self._settings = settings
        self._dataset = dataset
        self._metrics = metrics
        self._stop = stop
        self._stored = StoredBlocks((), None)
        self._thread: threading.Thread | None = None
        folder = dataset.root / "journal" / dataset.chain / node.name
        self._journal = Journal(folder, fsync_interval_s=settings.fsync_interval_s, stop=stop)
        self._left_over = self._journal.recover(dataset)

    def start(self, prepared: Prepared, stored: StoredBlocks) -> None:
        """Begin to follow the node; `stored` are the blocks of the dataset after every journal's recovery."""
        self._stored = stored
        self._thread = threading.Thread(target=self._run, args=(prepared,), name=f"watch-{prepared.name}")
        self._thread.start()

    def join(self) -> None:
        """Wait for the end of the thread, and give up the journal."""
        if self._thread is not None:
            self._thread.join()
        self._journal.close()

    def _run(self, prepared: Prepared | None) -> None:
        try:
            if prepared is not None:
                self._recover(prepared)
            while not self._stop.is_set():
                prepared = prepared or self._await_node()
                if prepared is not None:
                    self._follow(prepared)
                    prepared = None
        except BaseException as error:  # noqa: BLE001 - the thread that waits for this one raises it
            self.error = error
            self._stop.set()
        finally:
            if prepared is not None:
                prepared.source.stop()

    def _follow(self, prepared: Prepared) -> None:
        """Run one session, to the stop or to the node's restart; none when the node has gone away again."""
        # What the node says of itself is asked again now that the subscription stands: the tip must be one
        # behind which every change reaches us.
        try:
            facts = examine(prepared.client, self._node, self._settings)
        except (NodeUnavailable, NodeRefused) as error:
            log.warning("node.away", node=self._node.name, reason=str(error))
            prepared.source.stop()
            self._stop.wait(RETRY_WAIT_S)
            return
        finally:
            prepared.client.close()  # this thread's connection; the lanes have their own
        self._session(prepared, prepared.session).run(facts, prepared.source, self._stop)

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
            self._metrics.away(self._node.name)
            try:
                return prepare(self._node, self._settings)
            except (NodeUnavailable, NodeRefused) as error:
                if str(error) != said:
                    log.warning("node.away", node=self._node.name, reason=str(error))
                said = str(error)
                self._stop.wait(RETRY_WAIT_S)
        return None

    def _recover(self, prepared: Prepared) -> None:
        """Make rows of what a killed run had received, and close the intervals it left open."""
        for name, state in list(self._journal.states.items()):
            if name.startswith(COVERAGE_STATE):
                ledger = Ledger(self._node.name, name.removeprefix(COVERAGE_STATE))
                self._journal.append("coverage", ledger.close_killed(state, self._journal.late))
                self._journal.set_state(name, None)
        self._journal.late.clear()
        self._journal.flush()
        found: dict[str, tuple[list[Message], dict[str, bytes]]] = {}
        for message in self._left_over:
            found.setdefault(message.session, ([], {}))[0].append(message)
        for name, state in self._journal.states.items():
            if name.startswith(told.STATE):
                found.setdefault(told.session_of(name), ([], {}))[1][name] = state
        for session, (messages, states) in sorted(found.items()):  # their names begin with the time
            log.info("journal.recovering", node=self._node.name, session=session, n_messages=len(messages))
            self._session(prepared, session).recover(messages, states)
        self._left_over = []
