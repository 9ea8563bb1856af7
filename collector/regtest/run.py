"""Play a scenario on a node: blocks and transactions on a real clock."""

import threading
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import structlog

from collector.regtest.ledger import Ledger
from collector.regtest.mining import RESERVED_WEIGHT_WU, build_block, take_template
from collector.regtest.node import RegtestNode
from collector.regtest.preparation import Prepared, prepare
from collector.regtest.scenario import PlannedBlock, Scenario
from collector.regtest.selection import ORDERS, fill
from collector.regtest.third_parties import publish
from collector.regtest.traffic import PlannedTx
from collector.regtest.truth import (
    BlockTruth,
    Truth,
    acceptances,
    pool_truths,
    tx_truths,
    write_rules,
)
from collector.rpc import RpcClient

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
    prepared: Prepared | None = None,
) -> Truth:
    """Play the scenario; write `truth.json`, the pools' rules (`pools/`) and what others say into `out`.

    `progress(done, total)` is called after each block. What `prepare` made for this node may be given;
    else it is made here. Raises RegtestError when the node refuses anything that was planned.
    """
    prepared = prepared or prepare(scenario, node)
    out.mkdir(parents=True, exist_ok=True)
    write_rules(scenario, out / RULES_FOLDER)
    ledger = Ledger()
    sender = _Sender(ledger, node.client(), prepared.transactions)
    sender.send_initial()
    started_at_ns = time.time_ns()
    clock = _Clock()
    sender.begin(clock)
    try:
        blocks = _mine_all(
            scenario,
            node.client(),
            ledger,
            prepared.blocks,
            clock=clock,
            check=sender.check,
            progress=progress,
        )
    finally:
        sender.end()
    sender.check()
    ended_at_ns = time.time_ns()
    last_day = datetime.fromtimestamp(ended_at_ns / 1e9, UTC).date()
    prices, labels = publish(scenario, blocks, last_day, out)
    truth = Truth(
        scenario=scenario.name,
        seed=scenario.seed,
        node_version=node.bitcoind.version,
        started_at_ns=started_at_ns,
        ended_at_ns=ended_at_ns,
        pools=pool_truths(scenario, blocks, ledger.sent),
        blocks=blocks,
        transactions=tx_truths(ledger.sent),
        prices=prices,
        labels=labels,
        n_skipped_replacements=sender.n_skipped,
    )
    truth.write(out / TRUTH_FILE)
    log.info("scenario.done", scenario=scenario.name, blocks=len(blocks), sent=len(ledger.sent))
    return truth


class _Clock:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    @property
    def now_s(self) -> float:
        return time.monotonic() - self._start_s

    def wait_until(self, due_s: float, check: Callable[[], None]) -> None:
        """Sleep until `due_s`; `check` may raise while we wait."""
        while (left_s := due_s - self.now_s) > 0:
            check()
            time.sleep(min(left_s, CLOCK_STEP_S))
        check()


class _Sender:
    """Sends transactions when they are due, in a thread of its own."""

    def __init__(self, ledger: Ledger, rpc: RpcClient, planned: Sequence[PlannedTx]) -> None:
        self.n_skipped = 0
        self._ledger = ledger
        self._rpc = rpc
        self._planned = list(planned)
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread: threading.Thread | None = None

    def send_initial(self) -> None:
        """Send at once what is due before the clock starts."""
        while self._planned and self._planned[0].due_s < 0:
            self._send(self._planned.pop(0))

    def begin(self, clock: _Clock) -> None:
        """Send the rest by the clock."""
        self._thread = threading.Thread(target=self._work, args=[clock], name=SENDER_THREAD, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Stop sending; return when the thread is gone."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def check(self) -> None:
        """Raise what went wrong in the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _send(self, planned: PlannedTx) -> None:
        self.n_skipped += not self._ledger.send(self._rpc, planned)

    def _work(self, clock: _Clock) -> None:
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
    ledger: Ledger,
    planned: Sequence[PlannedBlock],
    *,
    clock: _Clock,
    check: Callable[[], None],
    progress: Progress | None,
) -> list[BlockTruth]:
    """Mine every block at its time; a pool looks at the mempool `template_age_s` before that."""
    blocks: list[BlockTruth] = []
    due_s = 0.0
    for block in planned:
        template_due_s = max(due_s, due_s + block.interval_s - block.pool.template_age_s)
        due_s += block.interval_s
        clock.wait_until(template_due_s, check)
        work = _Work(scenario, rpc, ledger, block, extranonce=len(blocks))
        clock.wait_until(due_s, check)
        blocks.append(work.publish(blocks[-1] if blocks else None))
        if progress is not None:
            progress(len(blocks), len(planned))
    return blocks


class _Work:
    """A block that a pool has built on the mempool as it was then, and publishes when its time has come."""

    def __init__(
        self, scenario: Scenario, rpc: RpcClient, ledger: Ledger, planned: PlannedBlock, *, extranonce: int
    ) -> None:
        self._rpc, self._ledger, self._planned = rpc, ledger, planned
        pool = planned.pool
        with ledger.still():
            self._template_at_ns = time.time_ns()
            self._view = ledger.view(rpc)
            template = take_template(rpc)
        limit_wu = scenario.block_weight_of(pool) - RESERVED_WEIGHT_WU
        order = [] if planned.is_empty else ORDERS[pool.policy](self._view)
        self._entries = fill(self._view, order, weight_wu=limit_wu)
        self._block = build_block(
            template,
            self._entries,
            tag=pool.tag_bytes,
            payout_script=pool.payout_script,
            extranonce=extranonce,
        )

    def publish(self, before: BlockTruth | None) -> BlockTruth:
        """Submit the block and return its truth; `before` is the block mined last."""
        block, pool = self._block, self._planned.pool
        txids = [entry.txid for entry in self._entries]
        with self._ledger.still():
            view_at_arrival = self._ledger.view(self._rpc)
            mined_at_ns, accepted_at_ns = self._ledger.mine(self._rpc, block, txids)
        return BlockTruth(
            height=block.height,
            hash=block.hash,
            pool=pool.slug,
            policy=pool.policy,
            is_empty=not txids,
            is_planted_empty=self._planned.is_empty,
            n_tx=len(txids),
            txids=txids,
            coinbase_txid=block.coinbase.txid_hex,
            fees_sat=sum(entry.fee_sat for entry in self._entries),
            weight_wu=block.weight_wu,
            template_at_ns=self._template_at_ns,
            mined_at_ns=mined_at_ns,
            accepted_at_ns=accepted_at_ns,
            planned_interval_s=self._planned.interval_s,
            interval_s=(mined_at_ns - before.mined_at_ns) / 1e9 if before is not None else None,
            acceptance_at_template=acceptances(self._view, txids),
            acceptance_at_arrival=acceptances(view_at_arrival, txids),
        )
