"""Let a pool of a scenario build a block, publish it when it is due, or lose a branch."""

import time
from collections.abc import Iterable, Iterator
from typing import Final

from collector.errors import RegtestError
from collector.node.rpc import RpcClient
from collector.regtest.block_assembly import ORDERS, Candidate, MempoolView, fill, without_anchors
from collector.regtest.mining import RESERVED_WEIGHT_WU, MinedBlock, build_block, submit, take_template
from collector.regtest.node import RegtestNode
from collector.regtest.scenario import Fork, PlannedBlock, Pool, Scenario
from collector.regtest.sent import SentTransactions
from collector.regtest.truth import BlockTruth, StaleTruth, acceptances

# How long each tip of a losing branch stays, and the tip below the branch, so that everybody sees each step.
HOLD_S: Final = 0.3
FOLLOW_TIMEOUT_S: Final = 60.0
FOLLOW_POLL_S: Final = 0.02


class UnpublishedBlock:
    """Holds a block that a pool of a scenario built from the mempool of one moment and publishes later."""

    def __init__(
        self,
        scenario: Scenario,
        rpc: RpcClient,
        sent: SentTransactions,
        planned: PlannedBlock,
        *,
        extranonce: int,
    ) -> None:
        self._rpc, self._sent, self._planned = rpc, sent, planned
        with sent.paused():
            self._template_at_ns = time.time_ns()
            self._view = sent.view(rpc)
            self._candidates, self._block = _assemble(
                scenario, rpc, self._view, planned.pool, is_empty=planned.is_empty, extranonce=extranonce
            )

    def publish(self, before: BlockTruth | None) -> BlockTruth:
        """Submit the block to the node and return a BlockTruth of it.

        `before` is the record of the block before.
        """
        block, pool = self._block, self._planned.pool
        txids = [candidate.txid for candidate in self._candidates]
        with self._sent.paused():
            view_at_arrival = self._sent.view(self._rpc)
            mined_at_ns, accepted_at_ns = self._sent.mine(self._rpc, block, txids)
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
            fees_sat=sum(candidate.fee_sat for candidate in self._candidates),
            weight_wu=block.weight_wu,
            template_at_ns=self._template_at_ns,
            mined_at_ns=mined_at_ns,
            accepted_at_ns=accepted_at_ns,
            planned_interval_s=self._planned.interval_s,
            interval_s=(mined_at_ns - before.mined_at_ns) / 1e9 if before is not None else None,
            acceptance_at_template=acceptances(self._view, txids),
            acceptance_at_arrival=acceptances(view_at_arrival, txids),
        )


class Followers:
    """Controls the nodes connected to the one that pools mine on, so that they follow each branch."""

    def __init__(self, nodes: Iterable[RegtestNode]) -> None:
        self._rpcs = [node.client() for node in nodes]

    def wait_for(self, block_hash: str) -> None:
        """Wait until every connected node has the tip `block_hash`; raise RegtestError after a minute."""
        deadline = time.monotonic() + FOLLOW_TIMEOUT_S
        for rpc in self._rpcs:
            while rpc.call("getbestblockhash") != block_hash:
                if time.monotonic() > deadline:
                    raise RegtestError(
                        f"the node at {rpc.url} did not follow to block {block_hash} within "
                        f"{FOLLOW_TIMEOUT_S:g} s; is it connected?"
                    )
                time.sleep(FOLLOW_POLL_S)

    def call(self, method: str, block_hash: str) -> None:
        """Call an RPC method with a block hash on every connected node."""
        for rpc in self._rpcs:
            rpc.call(method, block_hash)


def branch_duration_s(fork: Fork) -> float:
    """Return the least number of seconds that mining and losing the branch of a fork takes."""
    return (fork.depth + 1) * HOLD_S


def lose_branch(
    scenario: Scenario,
    rpc: RpcClient,
    sent: SentTransactions,
    fork: Fork,
    *,
    extranonce: int,
    followers: Followers,
) -> list[StaleTruth]:
    """Mine the blocks of a fork, lowest first, then invalidate them on all nodes; return records of them.

    Their transactions are in the mempool again afterwards. No transaction is sent in between: a payment that
    is replaced while a losing block holds it would be both mined and replaced.
    """
    with sent.paused():
        stale = []
        for block in _mine_branch(scenario, rpc, sent, fork, extranonce):
            followers.wait_for(block.hash)
            time.sleep(HOLD_S)
            stale.append(block)
        rpc.call("invalidateblock", stale[0].hash)
        followers.call("invalidateblock", stale[0].hash)
        # The node returns them to the mempool in this order: block by block, the lowest first.
        sent.take_back(txid for block in stale for txid in block.txids)
        time.sleep(HOLD_S)
    return stale


def reconsider_branch(rpc: RpcClient, block_hash: str, *, followers: Followers) -> None:
    """Make the nodes accept an invalidated branch again, once the active chain is longer."""
    rpc.call("reconsiderblock", block_hash)
    followers.call("reconsiderblock", block_hash)


def _mine_branch(
    scenario: Scenario, rpc: RpcClient, sent: SentTransactions, fork: Fork, extranonce: int
) -> Iterator[StaleTruth]:
    (pool,) = (pool for pool in scenario.pools if pool.slug == fork.pool)
    for _ in range(fork.depth):
        candidates, block = _assemble(
            scenario, rpc, sent.view(rpc), pool, is_empty=fork.is_empty, extranonce=extranonce
        )
        mined_at_ns = time.time_ns()
        submit(rpc, block)
        yield StaleTruth(
            at_block=fork.at_block,
            height=block.height,
            hash=block.hash,
            pool=pool.slug,
            is_empty=not candidates,
            txids=[candidate.txid for candidate in candidates],
            mined_at_ns=mined_at_ns,
        )


def _assemble(
    scenario: Scenario, rpc: RpcClient, view: MempoolView, pool: Pool, *, is_empty: bool, extranonce: int
) -> tuple[list[Candidate], MinedBlock]:
    """Return the transactions and the solved block of `pool` on the node's tip.

    Call it inside `SentTransactions.paused`.
    """
    template = take_template(rpc)
    limit_wu = scenario.block_weight_of(pool) - RESERVED_WEIGHT_WU
    accepted = without_anchors(view) if "anchor" in pool.refuses else view
    candidates = fill(accepted, [] if is_empty else ORDERS[pool.policy](accepted), weight_wu=limit_wu)
    block = build_block(
        template,
        candidates,
        tag=pool.tag_bytes,
        payout_script=pool.payout_script,
        extranonce=extranonce,
    )
    return candidates, block
