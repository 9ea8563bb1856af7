"""Play a scenario on a node: send each transaction and mine each block when it is due."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from collector.node.rpc import RpcClient
from collector.regtest.node import RegtestNode
from collector.regtest.pools import (
    Followers,
    UnpublishedBlock,
    branch_duration_s,
    lose_branch,
    reconsider_branch,
)
from collector.regtest.preparation import PreparedScenario, prepare_scenario
from collector.regtest.scenario import PlannedBlock, Scenario
from collector.regtest.sent import SentTransactions
from collector.regtest.third_parties import publish
from collector.regtest.traffic import PlannedTx
from collector.regtest.truth import BlockTruth, StaleTruth, Truth, pool_truths, tx_truths, write_rules

log = structlog.get_logger(__name__)

Progress = Callable[[int, int], None]

TRUTH_FILE: Final = "truth.json"
RULES_FOLDER: Final = "pools"
CLOCK_STEP_S: Final = 0.05
SENDER_THREAD: Final = "scenario-sender"


def run_scenario(
    scenario: Scenario,
    node: RegtestNode,
    out: Path,
    progress: Progress | None = None,
    *,
    prepared: PreparedScenario | None = None,
    peers: Sequence[RegtestNode] = (),
) -> Truth:
    """Play the scenario on a node; return what really happened, and write it to `truth.json` in `out`.

    The pools' rules and the third parties' files are written there too. `progress(done, total)` is called
    after each block. `prepared` is what `prepare_scenario` made for this node; without it, `prepare_scenario`
    is called here. `peers` are nodes connected to this one, which leave a losing branch too. Raises
    RegtestError when the node refuses anything that was planned.
    """
    prepared = prepared or prepare_scenario(scenario, node)
    out.mkdir(parents=True, exist_ok=True)
    write_rules(scenario, out / RULES_FOLDER)
    sent = SentTransactions()
    followers = Followers(peers)
    sender = _Sender(sent, node.client(), prepared.transactions)
    sender.send_initial()
    started_at_ns = time.time_ns()
    clock = _Clock()
    with sender.sending(clock):
        blocks, stale_blocks = _mine_all(
            scenario,
            node.client(),
            sent,
            prepared.blocks,
            clock=clock,
            check=sender.check,
            followers=followers,
            progress=progress,
        )
    followers.wait_for(blocks[-1].hash)
    truth = _sum_up(
        scenario,
        sent,
        blocks,
        stale_blocks,
        out=out,
        node_version=node.bitcoind.version,
        started_at_ns=started_at_ns,
        n_skipped_replacements=sender.n_skipped,
    )
    truth.write(out / TRUTH_FILE)
    log.info("scenario.done", scenario=scenario.name, blocks=len(blocks), sent=len(sent.by_txid))
    return truth


def _sum_up(
    scenario: Scenario,
    sent: SentTransactions,
    blocks: list[BlockTruth],
    stale_blocks: list[StaleTruth],
    *,
    out: Path,
    node_version: str,
    started_at_ns: int,
    n_skipped_replacements: int,
) -> Truth:
    """Write the third parties' files into `out`, and return all that happened in the scenario as a Truth."""
    ended_at_ns = time.time_ns()
    last_day = datetime.fromtimestamp(ended_at_ns / 1e9, UTC).date()
    prices, labels = publish(scenario, blocks, last_day, out)
    return Truth(
        scenario=scenario.name,
        seed=scenario.seed,
        node_version=node_version,
        started_at_ns=started_at_ns,
        ended_at_ns=ended_at_ns,
        pools=pool_truths(scenario, blocks, sent.by_txid),
        blocks=blocks,
        stale_blocks=stale_blocks,
        transactions=tx_truths(sent.by_txid),
        prices=prices,
        labels=labels,
        n_skipped_replacements=n_skipped_replacements,
    )


class _Clock:
    """Counts the seconds of a scenario from the moment this clock is made."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._start_s

    def wait_until(self, due_s: float, check: Callable[[], None]) -> None:
        """Sleep until the scenario's second `due_s`; call `check` now and then, which may raise an error."""
        while (left_s := due_s - self.now_s) > 0:
            check()
            time.sleep(min(left_s, CLOCK_STEP_S))
        check()


class _Sender:
    """Sends every transaction of a scenario when it is due, in its own thread."""

    def __init__(self, sent: SentTransactions, rpc: RpcClient, planned: Sequence[PlannedTx]) -> None:
        self.n_skipped = 0
        self._sent = sent
        self._rpc = rpc
        self._planned = list(planned)
        self._stop = threading.Event()
        self._failure: Exception | None = None

    def send_initial(self) -> None:
        """Send the scenario's transactions that are due before the clock starts, all at once."""
        while self._planned and self._planned[0].due_s < 0:
            self._send(self._planned.pop(0))

    @contextmanager
    def sending(self, clock: _Clock) -> Iterator[None]:
        """Send the transactions due after the clock's start, each when it is due, during the `with` block.

        At the end of the block the error of the sending thread is raised, if there is one.
        """
        thread = threading.Thread(target=self._send_on_time, args=[clock], name=SENDER_THREAD, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()
        self.check()

    def check(self) -> None:
        """Raise the error that ended the thread that sends transactions, if there is one."""
        if self._failure is not None:
            raise self._failure

    def _send(self, planned: PlannedTx) -> None:
        self.n_skipped += not self._sent.send(self._rpc, planned)

    def _send_on_time(self, clock: _Clock) -> None:
        try:
            for planned in self._planned:
                if self._stop.wait(max(0.0, planned.due_s - clock.now_s)):
                    return
                self._send(planned)
        except Exception as error:  # noqa: BLE001 - check() raises it in the thread that waits for us
            self._failure = error


def _mine_all(
    scenario: Scenario,
    rpc: RpcClient,
    sent: SentTransactions,
    planned: Sequence[PlannedBlock],
    *,
    clock: _Clock,
    check: Callable[[], None],
    followers: Followers,
    progress: Progress | None,
) -> tuple[list[BlockTruth], list[StaleTruth]]:
    """Mine every block when it is due; return the records of active blocks and those of stale blocks.

    Each pool builds its block `template_age_s` earlier. A branch that loses is mined just before the block
    that replaces it is built.
    """
    blocks: list[BlockTruth] = []
    stale: list[StaleTruth] = []
    forks = {fork.at_block: fork for fork in scenario.forks}
    due_s = 0.0
    for number, block in enumerate(planned, start=1):
        template_due_s = max(due_s, due_s + block.interval_s - block.pool.template_age_s)
        due_s += block.interval_s
        if number in forks:
            clock.wait_until(template_due_s - branch_duration_s(forks[number]), check)
            stale += lose_branch(
                scenario,
                rpc,
                sent,
                forks[number],
                extranonce=len(planned) + number,
                followers=followers,
            )
        clock.wait_until(template_due_s, check)
        pending = UnpublishedBlock(scenario, rpc, sent, block, extranonce=len(blocks))
        clock.wait_until(due_s, check)
        blocks.append(pending.publish(blocks[-1] if blocks else None))
        if progress is not None:
            progress(len(blocks), len(planned))
    for lost in stale:
        reconsider_branch(rpc, lost.hash, followers=followers)
    return blocks, stale
