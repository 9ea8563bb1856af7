"""Prepare a node for a scenario: mine coins, split and confirm them, and make every transaction."""

import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from collector.errors import RegtestError
from collector.node.rpc import RpcClient
from collector.regtest.block_assembly import Candidate
from collector.regtest.mining import build_block, submit, take_template
from collector.regtest.node import RegtestNode
from collector.regtest.scenario import PlannedBlock, Scenario, plan_blocks
from collector.regtest.scripts import COIN_KINDS
from collector.regtest.traffic import PlannedTx, draw_stories, plan_traffic
from collector.regtest.transaction import RegtestTransaction
from collector.regtest.wallet import Coin, Wallet, fan_out

COINBASE_MATURITY: Final = 100
HEADER_SPACING_S: Final = 60  # between the blocks made here, which are dated back
PREPARE_TAG: Final = b"/prepare/"
COINS_PER_FAN_OUT: Final = 1_000
FAN_OUTS_PER_BLOCK: Final = 20
FAN_OUT_FEE_SAT: Final = 200_000  # more than 1 sat/vB of the largest fan-out
COIN_VALUE_SAT: Final = 250_000
COIN_WEIGHTS: Final = {"p2wsh": 40, "p2sh": 15, "p2sh-p2wsh": 15, "p2tr": 25, "p2a": 5}
TAIL_S: Final = 1.0  # transactions are planned for this long after the last block, in case the clock lags
MIN_NODE_VERSION: Final = 280_000  # the first whose policy lets pay-to-anchor outputs be spent


@dataclass(frozen=True, kw_only=True)
class PreparedScenario:
    """Holds the planned blocks and transactions of a scenario; the coins that these spend are confirmed."""

    blocks: Sequence[PlannedBlock]
    transactions: Sequence[PlannedTx]


def prepare_scenario(scenario: Scenario, node: RegtestNode) -> PreparedScenario:
    """Mine and split the coins that a scenario needs on `node`; return its planned blocks and transactions.

    This takes seconds. Afterwards the mempool is empty and the time of the tip's header is a minute ago.
    """
    blocks = plan_blocks(scenario)
    stories = draw_stories(scenario, sum(block.interval_s for block in blocks) + TAIL_S)
    wallet = make_wallet(node, sum(story.n_coins for story in stories), seed=scenario.seed)
    return PreparedScenario(blocks=blocks, transactions=plan_traffic(scenario, stories, wallet))


def make_wallet(node: RegtestNode, n_coins: int, *, seed: int) -> Wallet:
    """Return a wallet of `n_coins` confirmed outputs of all kinds, in an order drawn from `seed`."""
    draw = random.Random(f"{seed} coins")  # noqa: S311 - a scenario wants repeatable chance
    kinds = draw.choices(list(COIN_WEIGHTS), list(COIN_WEIGHTS.values()), k=n_coins)
    parts = [kinds[start : start + COINS_PER_FAN_OUT] for start in range(0, n_coins, COINS_PER_FAN_OUT)]
    rpc = node.client()
    _require_version(rpc, node)
    n_blocks = len(parts) + COINBASE_MATURITY + math.ceil(len(parts) / FAN_OUTS_PER_BLOCK)
    header_times = itertools.count(int(time.time()) - HEADER_SPACING_S * n_blocks, HEADER_SPACING_S)
    sources = [_mine_coin(rpc, [], next(header_times)) for _ in range(len(parts) + COINBASE_MATURITY)]
    fan_outs = [
        fan_out(source, part, value_sat=COIN_VALUE_SAT, fee_sat=FAN_OUT_FEE_SAT)
        for source, part in zip(sources, parts, strict=False)
    ]
    for start in range(0, len(fan_outs), FAN_OUTS_PER_BLOCK):
        together = [transaction for transaction, _ in fan_outs[start : start + FAN_OUTS_PER_BLOCK]]
        _mine_coin(rpc, together, next(header_times))
    coins = [coin for _, made in fan_outs for coin in made]
    draw.shuffle(coins)
    return Wallet(coins)


def _require_version(rpc: RpcClient, node: RegtestNode) -> None:
    version = rpc.call("getnetworkinfo")["version"]
    if version < MIN_NODE_VERSION:
        raise RegtestError(
            f"{node.bitcoind.path} has version {version}, scenarios need {MIN_NODE_VERSION} or later; "
            "name a newer one with --bitcoind"
        )


def _mine_coin(rpc: RpcClient, transactions: Sequence[RegtestTransaction], header_time: int) -> Coin:
    """Mine a block with `transactions` whose coinbase anyone can spend, and return that coin."""
    template = take_template(rpc)
    candidates = [
        Candidate(
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
        template, candidates, tag=PREPARE_TAG, payout_script=kind.script, extranonce=0, time=header_time
    )
    submit(rpc, block)
    return Coin(txid=block.coinbase.txid, vout=0, value_sat=block.coinbase.outputs[0].value_sat, kind=kind)
