"""Follow one node for as long as the service runs: one session after another, each until the node restarts.

A failure concerns this node alone. Where other nodes are watched too, the failed node is tried again after
pauses that double, and the others continue undisturbed. When only one node is watched, its failure ends the
service, and whatever started the service starts it again.
"""

import queue
import secrets
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import structlog

from collector.backoff import Backoff
from collector.blocks.stored import StoredBlocks
from collector.clock import StepDetector
from collector.codec.rows import warm_up
from collector.config import NodeSettings, Settings
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from collector.errors import CollectorError, NodeRefused, NodeUnavailable, SettingsError, may_pass
from collector.journal.batches import CommittedRows
from collector.journal.journal import Journal
from collector.journal.segment import journal_folder
from collector.mempool.bodies import WaitingBodies
from collector.monitor.metrics import Metrics
from collector.node.answers import Fields
from collector.node.preflight import client_for, examine, refuse_shared_publishers
from collector.node.rpc import RpcClient
from collector.receive.records import Message
from collector.receive.source import MessageSource
from collector.service.session import Outcome, Session, unfinished_sessions

RETRY_WAIT_S: Final = 2.0
LONGEST_WAIT_S: Final = 300.0  # between two attempts with a node that fails
TURN_S: Final = 10.0  # in a pause the thread says so often that it does not hang
LOOK_S: Final = 0.5  # between two questions whether a node has read its mempool
log = structlog.get_logger(__name__)


class PreparedNode(NamedTuple):
    """Holds a checked node, the name of its next session, and the source of its messages, subscribed.

    `steps` watches the wall clock since before the subscription, with whose time `coverage` begins.
    """

    name: str
    session: str
    client: RpcClient
    source: MessageSource
    inbox: "queue.SimpleQueue[Any]"
    steps: StepDetector


def prepare_node(
    node: NodeSettings,
    settings: Settings,
    *,
    patience_s: float = 0.0,
    stop: threading.Event | None = None,
) -> PreparedNode:
    """Check a node and subscribe to its topics; from then on we miss nothing that it publishes.

    Returns the session's name, an RPC client and the source of messages as a PreparedNode. While the node
    does not answer, it is tried again for `patience_s` seconds. Raises WrongChain, MissingTopic,
    NodeUnavailable or NodeRefused, each with advice; NodeUnavailable also when `stop` is set meanwhile.
    """
    stop = stop or threading.Event()
    client = client_for(node, settings.chain, patience_s=patience_s, stop=stop)
    try:
        facts = examine(client, node, settings)
        _await_mempool(client, node.name, patience_s, stop)
    finally:
        client.close()
    warm_up()  # now, because in the session it would delay the first block and all that comes with it
    client = client_for(node, settings.chain, stop=stop)  # the session does not wait for a node that is away
    session = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    source = MessageSource(node.name, session, facts.endpoints, inbox=inbox, queue_limit=settings.queue_limit)
    steps = StepDetector(round(settings.clock_step_s * 1e6))
    try:
        source.connect(stop=stop)
    except BaseException:
        source.stop()
        raise
    return PreparedNode(node.name, session, client, source, inbox, steps)


def _await_mempool(client: RpcClient, name: str, patience_s: float, stop: threading.Event) -> None:
    """Wait until a node has read its saved mempool, which it publishes as if the transactions were new.

    Raises NodeUnavailable when that takes longer than `patience_s` seconds, and NodeError for an answer of a
    wrong form.
    """
    deadline_s = time.monotonic() + patience_s
    while not Fields("getmempoolinfo", client.call("getmempoolinfo")).all.get("loaded", True):
        if time.monotonic() >= deadline_s:
            raise NodeUnavailable(
                f"node {name} is still reading the mempool that it saved; start again when it has read it"
            )
        stop.wait(LOOK_S)  # the next call raises NodeUnavailable after a stop


class NodeWatch:
    """Records one node in a thread of its own and owns the node's journal (the log of unsealed rows).

    The constructor opens the journal and writes what it holds to Parquet. Setting `stop` ends the thread.
    """

    def __init__(
        self,
        node: NodeSettings,
        *,
        settings: Settings,
        dataset: Dataset,
        metrics: Metrics,
        stop: threading.Event,
        follower: CommittedRows | None = None,
        publishers: dict[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.error: Exception | None = None  # of the last attempt
        self._node = node
        self._settings = settings
        self._dataset = dataset
        self._metrics = metrics
        self._follower = follower
        # The ZMQ address by topic of each node that answered last; all nodes of the process share it.
        self._publishers = {} if publishers is None else publishers
        self._stop = stop
        self._stored = StoredBlocks((), None)
        self._thread: threading.Thread | None = None
        self._journal, self._unfinished = self._open_journal()
        self._bodies = WaitingBodies(journal_folder(dataset.root, dataset.chain, node.name))

    def start(self, prepared: PreparedNode | None, stored: StoredBlocks) -> None:
        """Start the thread that records this node.

        `prepared` is the checked and subscribed node; with None the thread first waits for the node to
        answer. `stored` is the set of blocks that the dataset holds, read after every journal has been
        recovered.
        """
        self._stored = stored
        self._thread = threading.Thread(target=self._run, args=(prepared,), name=f"watch-{self._node.name}")
        self._thread.start()

    @property
    def blocked(self) -> str:
        """Return why the journal cannot be written now; empty when it can be written."""
        return self._journal.blocked

    def join(self) -> None:
        """Wait until the thread that records the node has ended, then close the node's journal."""
        if self._thread is not None:
            self._thread.join()
        self._bodies.close()
        self._journal.close()

    def _open_journal(self) -> tuple[Journal, list[Message]]:
        """Open the node's journal and write its complete rows to Parquet.

        Returns the journal and the messages without rows.
        """
        folder = journal_folder(self._dataset.root, self._dataset.chain, self._node.name)
        journal = Journal(folder, fsync_interval_s=self._settings.fsync_interval_s, stop=self._stop)
        try:
            return journal, journal.recover(self._dataset)
        except BaseException:
            journal.close()
            raise

    def _run(self, prepared: PreparedNode | None) -> None:
        """Record the node until the service stops; after a failure try again, with pauses that get longer.

        After an attempt that lasted, the pauses are short again.
        """
        pauses = Backoff(RETRY_WAIT_S, LONGEST_WAIT_S)
        while not self._stop.is_set():
            began_s = time.monotonic()
            try:
                if self.error is not None:
                    self._reopen_journal()
                self._follow(prepared)
            except Exception as error:  # noqa: BLE001 - kept for the thread that waits for this one
                self._failed(error)
            prepared = None
            if time.monotonic() - began_s > LONGEST_WAIT_S:
                pauses.reset()
            self._pause(pauses.next_s())

    def _pause(self, length_s: float) -> None:
        """Wait between two attempts, or until the service stops; say meanwhile that this thread is there."""
        until_s = time.monotonic() + length_s
        while (left_s := until_s - time.monotonic()) > 0 and not self._stop.wait(min(left_s, TURN_S)):
            self._metrics.turned(self._node.name)

    def _failed(self, error: Exception) -> None:
        """Keep and log the error that ended this node's recording; if it is the only node, stop the service.

        After an error that may pass, such as a full disk, the service goes on. A dataset that was removed is
        lost for every node, so the service stops.
        """
        self.error = error
        text = f"{type(error).__name__}: {error}"
        traceback = None if isinstance(error, CollectorError) else error
        log.error("watch.failed", node=self._node.name, error=text, exc_info=traceback)
        self._metrics.away(self._node.name, text)
        is_alone = len(self._settings.node) == 1
        if (is_alone and not may_pass(error)) or not self._dataset.is_there:
            self._stop.set()

    def _follow(self, prepared: PreparedNode | None) -> None:
        """Complete the rows of earlier runs, then run one session after another until the service stops.

        Returns early when the recovery of earlier runs was interrupted by the stop.
        """
        try:
            while not self._stop.is_set():
                prepared = prepared or self._await_node()
                if prepared is None or self._recover(prepared) is Outcome.LEFT:
                    return
                if self._run_session(prepared) is Outcome.LEFT and not self._stop.is_set():
                    self._reopen_journal()
                self.error = prepared = None
        finally:
            if prepared is not None:
                prepared.source.stop()

    def _reopen_journal(self) -> None:
        """Close the journal and open it again, so that the next recovery completes what a session left.

        Blocks that this node had reserved in the set of stored blocks, but not stored, may be fetched again.
        """
        self._journal.close()
        self._dataset.refuse_if_gone()  # before a new journal makes the folder again
        self._journal, self._unfinished = self._open_journal()
        hashes = self._dataset.read_columns(BLOCKS, "block_hash")
        stored = {block_hash for rows in hashes for block_hash in rows["block_hash"].to_pylist()}
        self._stored.cancel_reservations(self._node.name, stored)

    def _run_session(self, prepared: PreparedNode) -> Outcome:
        """Run one session until the service stops or the node restarts, and return how it ended.

        Returns NODE_AWAY when the node does not answer at the start of the session.
        """
        # The node is asked again now that the subscription stands, because every change after the tip that
        # it names must reach us.
        try:
            facts = examine(prepared.client, self._node, self._settings, is_first=False)
        except (NodeUnavailable, NodeRefused) as error:
            log.warning("node.away", node=self._node.name, reason=str(error))
            prepared.source.stop()
            self._stop.wait(RETRY_WAIT_S)
            return Outcome.NODE_AWAY
        finally:
            prepared.client.close()  # this thread's connection; the request threads have their own
        return self._new_session(prepared, prepared.session).run(facts, prepared.source, self._stop)

    def _new_session(self, prepared: PreparedNode, name: str) -> Session:
        """Return a session with an RPC client of its own, which its end stops for good."""
        is_new = name == prepared.session
        return Session(
            (self._node.name, name),
            client_for(self._node, self._settings.chain),
            inbox=prepared.inbox if is_new else queue.SimpleQueue(),
            settings=self._settings,
            dataset=self._dataset,
            journal=self._journal,
            stored=self._stored,
            bodies=self._bodies,
            metrics=self._metrics,
            follower=self._follower,
            steps=prepared.steps if is_new else None,
        )

    def _await_node(self) -> PreparedNode | None:
        """Try the node until it answers; return it as a PreparedNode, checked and subscribed.

        The result is None if the service stops first. Raises SettingsError for a node that publishes where
        another one does.
        """
        reason = ""
        while not self._stop.is_set():
            self._metrics.away(self._node.name, reason)
            try:
                return self._alone(prepare_node(self._node, self._settings, stop=self._stop))
            except (NodeUnavailable, NodeRefused) as error:
                if str(error) != reason:
                    log.warning("node.away", node=self._node.name, reason=str(error))
                reason = str(error)
                self._stop.wait(RETRY_WAIT_S)
        return None

    def _alone(self, prepared: PreparedNode) -> PreparedNode:
        """Return a prepared node; if another node has its publishers, stop it and raise SettingsError."""
        self._publishers[self._node.name] = prepared.source.endpoints
        try:
            refuse_shared_publishers(dict(self._publishers))
        except SettingsError:
            del self._publishers[self._node.name]
            prepared.source.stop()
            raise
        return prepared

    def _recover(self, prepared: PreparedNode) -> Outcome:
        """Make the rows and coverage of killed sessions, from the messages in the journal and the ring.

        The ring is the buffer file of received messages. Returns LEFT when the service is stopped before
        every such session is complete, else COMPLETE.
        """
        messages, self._unfinished = self._unfinished, []
        # Each session is sealed before the coverage of the next becomes rows.
        for session, unfinished in unfinished_sessions(messages, self._journal.states).items():
            n_messages = len(unfinished.messages)
            log.info("journal.recovering", node=self._node.name, session=session, n_messages=n_messages)
            if self._new_session(prepared, session).recover(unfinished, self._stop) is Outcome.LEFT:
                return Outcome.LEFT
        return Outcome.COMPLETE
