"""Run a scenario on a node: coins first, then blocks and transactions on a real clock."""

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from collector.regtest.ledger import Ledger
from collector.regtest.mining import RESERVED_WEIGHT_WU, build_block, submit, take_template
from collector.regtest.node import RegtestNode
from collector.regtest.scenario import PlannedBlock, Scenario, plan_blocks
from collector.regtest.scripts import COIN_KINDS
from collector.regtest.selection import ORDERS, Entry, fill
from collector.regtest.traffic import PlannedTx, draw_stories, plan_traffic
from collector.regtest.transaction import Transaction
from collector.regtest.truth import (
    BlockTruth,
    Truth,
    acceptances,
    pool_truths,
    tx_truths,
    write_rules,
)
from collector.regtest.wallet import Coin, Wallet, fan_out
from collector.rpc import RpcClient

log = structlog.get_logger(__name__)

Progress = Callable[[int, int], None]

TRUTH_FILE: Final = "truth.json"
RULES_FOLDER: Final = "pools"
COINBASE_MATURITY: Final = 100
HEADER_SPACING_S: Final = 60  # of the blocks made beforehand, which are dated back
PREPARE_TAG: Final = b"/prepare/"
COINS_PER_FAN_OUT: Final = 1_000
FAN_OUTS_PER_BLOCK: Final = 20
FAN_OUT_FEE_SAT: Final = 200_000  # above 1 sat/vB for the largest
COIN_VALUE_SAT: Final = 250_000
COIN_WEIGHTS: Final = {"p2wsh": 40, "p2sh": 15, "p2sh-p2wsh": 15, "p2tr": 25, "p2a": 5}
TAIL_S: Final = 1.0  # transactions are planned a little beyond the last block, should the clock lag
CLOCK_STEP_S: Final = 0.05


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A scenario whose coins are confirmed: its blocks and transactions wait for the clock."""

    blocks: Sequence[PlannedBlock]
    transactions: Sequence[PlannedTx]


def prepare(scenario: Scenario, node: RegtestNode) -> Prepared:
    """Mine and split the coins a scenario needs, and make all its transactions.

    Takes seconds; afterwards the node's mempool is empty and its tip a minute old.
    """
    blocks = plan_blocks(scenario)
    stories = draw_stories(scenario, sum(block.interval_s for block in blocks) + TAIL_S)
    wallet = make_wallet(node, sum(story.n_coins for story in stories), seed=scenario.seed)
    return Prepared(blocks=blocks, transactions=plan_traffic(scenario, stories, wallet))


def make_wallet(node: RegtestNode, n_coins: int, *, seed: int) -> Wallet:
    """Return a wallet of `n_coins` confirmed outputs of all kinds, in an order drawn from `seed`."""
    draw = random.Random(f"{seed} coins")  # noqa: S311 - a scenario wants repeatable chance
    kinds = draw.choices(list(COIN_WEIGHTS), list(COIN_WEIGHTS.values()), k=n_coins)
    parts = [kinds[start : start + COINS_PER_FAN_OUT] for start in range(0, n_coins, COINS_PER_FAN_OUT)]
    rpc = node.client()
    n_final = math.ceil(len(parts) / FAN_OUTS_PER_BLOCK)
    dated_back_s = HEADER_SPACING_S * (len(parts) + COINBASE_MATURITY + n_final)
    header_time = int(time.time()) - dated_back_s
    sources = []
    for number in range(len(parts) + COINBASE_MATURITY):
        coin = _mine_coin(rpc, [], header_time + HEADER_SPACING_S * number)
        sources.append(coin)
    coins: list[Coin] = []
    fan_outs: list[Transaction] = []
    for part, source in zip(parts, sources, strict=False):
        transaction, made = fan_out(source, part, value_sat=COIN_VALUE_SAT, fee_sat=FAN_OUT_FEE_SAT)
        fan_outs.append(transaction)
        coins += made
    for start in range(0, len(fan_outs), FAN_OUTS_PER_BLOCK):
        number = len(sources) + start // FAN_OUTS_PER_BLOCK
        part_of_them = fan_outs[start : start + FAN_OUTS_PER_BLOCK]
        _mine_coin(rpc, part_of_them, header_time + HEADER_SPACING_S * number)
    draw.shuffle(coins)
    return Wallet(coins)


def run_scenario(
    scenario: Scenario,
    node: RegtestNode,
    out: Path,
    progress: Progress | None = None,
    *,
    prepared: Prepared | None = None,
) -> Truth:
    """Play the scenario and write `truth.json` and the pools' rules (`pools/`) into `out`.

    `progress(done, total)` is called after each block. What `prepare` made for this node may be given;
    else it is made here. Raises RegtestError when the node refuses anything that was planned.
    """
    prepared = prepared or prepare(scenario, node)
    out.mkdir(parents=True, exist_ok=True)
    write_rules(scenario, out / RULES_FOLDER)
    run = _Run(scenario, node)
    sender = _Sender(run.ledger, node.client(), prepared.transactions)
    sender.send_initial()
    started_at_ns = time.time_ns()
    sender.begin()
    try:
        run.mine_all(prepared.blocks, sender, progress or (lambda _done, _total: None))
    finally:
        sender.end()
    sender.check()
    truth = Truth(
        scenario=scenario.name,
        seed=scenario.seed,
        node_version=node.bitcoind.version,
        started_at_ns=started_at_ns,
        ended_at_ns=time.time_ns(),
        pools=pool_truths(scenario, run.blocks, run.ledger.sent),
        blocks=run.blocks,
        transactions=tx_truths(run.ledger.sent),
        n_skipped_replacements=sender.n_skipped,
    )
    truth.write(out / TRUTH_FILE)
    log.info("scenario.done", scenario=scenario.name, blocks=len(run.blocks), sent=len(run.ledger.sent))
    return truth


class _Run:
    """The pools at work, one block after the other."""

    def __init__(self, scenario: Scenario, node: RegtestNode) -> None:
        self.scenario = scenario
        self.ledger = Ledger()
        self.blocks: list[BlockTruth] = []
        self._rpc = node.client()

    def mine_all(self, planned: Sequence[PlannedBlock], sender: "_Sender", progress: Progress) -> None:
        """Mine every block at its time; a pool looks at the mempool `template_age_s` before that."""
        due_s = 0.0
        clock = _Clock()
        for done, block in enumerate(planned):
            template_due_s = max(due_s, due_s + block.interval_s - block.pool.template_age_s)
            due_s += block.interval_s
            clock.wait_until(template_due_s, sender.check)
            self._mine(block, lambda due_s=due_s: clock.wait_until(due_s, sender.check))  # type: ignore[misc]
            progress(done + 1, len(planned))

    def _mine(self, planned: PlannedBlock, wait: Callable[[], None]) -> None:
        pool, ledger, rpc = planned.pool, self.ledger, self._rpc
        with ledger.still():
            template_at_ns = time.time_ns()
            view = ledger.view(rpc)
            template = take_template(rpc)
        limit_wu = self.scenario.block_weight_of(pool) - RESERVED_WEIGHT_WU
        entries = [] if planned.is_empty else fill(view, ORDERS[pool.policy](view), weight_wu=limit_wu)
        block = build_block(
            template,
            entries,
            tag=pool.tag_bytes,
            payout_script=pool.payout_script,
            extranonce=len(self.blocks),
        )
        txids = [entry.txid for entry in entries]
        wait()
        with ledger.still():
            view_at_arrival = ledger.view(rpc)
            mined_at_ns, accepted_at_ns = ledger.mine(rpc, block, txids)
        before_ns = self.blocks[-1].mined_at_ns if self.blocks else None
        self.blocks.append(
            BlockTruth(
                height=block.height,
                hash=block.hash,
                pool=pool.slug,
                policy=pool.policy,
                is_empty=not txids,
                is_planted_empty=planned.is_empty,
                n_tx=len(txids),
                txids=txids,
                coinbase_txid=block.coinbase.txid_hex,
                fees_sat=sum(entry.fee_sat for entry in entries),
                weight_wu=block.weight_wu,
                template_at_ns=template_at_ns,
                mined_at_ns=mined_at_ns,
                accepted_at_ns=accepted_at_ns,
                planned_interval_s=planned.interval_s,
                interval_s=None if before_ns is None else (mined_at_ns - before_ns) / 1e9,
                acceptance_at_template=acceptances(view, txids),
                acceptance_at_arrival=acceptances(view_at_arrival, txids),
            )
        )


class _Sender:
    """Sends transactions when they are due, in a thread of its own."""

    def __init__(self, ledger: Ledger, rpc: RpcClient, planned: Sequence[PlannedTx]) -> None:
        self.n_skipped = 0
        self._ledger = ledger
        self._rpc = rpc
        self._planned = list(planned)
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._work, name="scenario-sender", daemon=True)

    def send_initial(self) -> None:
        """Send at once what is due before the clock starts."""
        while self._planned and self._planned[0].due_s < 0:
            self._send(self._planned.pop(0))

    def begin(self) -> None:
        """Start the clock."""
        self._thread.start()

    def end(self) -> None:
        """Stop sending; return when the thread is gone."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what went wrong in the thread, if anything did."""
        if self._failure is not None:
            raise self._failure

    def _send(self, planned: PlannedTx) -> None:
        self.n_skipped += not self._ledger.send(self._rpc, planned)

    def _work(self) -> None:
        clock = _Clock()
        try:
            for planned in self._planned:
                if self._stop.wait(max(0.0, planned.due_s - clock.now_s)):
                    return
                self._send(planned)
        except Exception as error:  # noqa: BLE001 - check() raises it in the thread that waits for us
            self._failure = error


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


def _mine_coin(rpc: RpcClient, transactions: Sequence[Transaction], header_time: int) -> Coin:
    """Mine a block whose coinbase anyone can spend, and return that coin."""
    template = take_template(rpc)
    entries = [
        Entry(
            txid=each.txid_hex,
            raw=each.raw,
            fee_sat=FAN_OUT_FEE_SAT,
            vsize_vb=each.vsize_vb,
            weight_wu=each.weight_wu,
            parents=frozenset(),
            arrival=arrival,
            is_planted=False,
        )
        for arrival, each in enumerate(transactions)
    ]
    kind = COIN_KINDS["p2wsh"]
    block = build_block(
        template, entries, tag=PREPARE_TAG, payout_script=kind.script, extranonce=0, time=header_time
    )
    submit(rpc, block)
    return Coin(txid=block.coinbase.txid, vout=0, value_sat=block.coinbase.outputs[0].value_sat, kind=kind)
