"""Test a played scenario: its truth agrees with the node, and every pool followed its policy."""

import csv
import threading
import time
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from analysis.attribution.rules import load_rules
from collector.dataset.schema import satoshi
from collector.errors import CollectorError, RegtestError
from collector.regtest import RegtestNode, Scenario, Truth, prepare_scenario, run_scenario
from collector.regtest.run import RULES_FOLDER, SENDER_THREAD, TRUTH_FILE
from collector.regtest.third_parties import THIRD_PARTIES
from collector.regtest.truth import NO_LABEL, BlockTruth, TxTruth, write_rules

pytestmark = pytest.mark.bitcoind

Played = tuple[RegtestNode, Truth, Path]


def node_block(node: RegtestNode, block: BlockTruth) -> dict[str, Any]:
    """Ask the node for a block with the fee of each transaction."""
    answer: dict[str, Any] = node.client().call("getblock", block.hash, 2)
    return answer


def txs(truth: Truth) -> dict[str, TxTruth]:
    """Return all transactions of a truth by txid."""
    return {each.txid: each for each in truth.transactions}


def only(smoke: Scenario, slug: str, **changes: Any) -> Scenario:
    """Make a short scenario in which one pool mines everything."""
    pool = next(pool for pool in smoke.pools if pool.slug == slug)
    pool = pool.model_copy(update={"share": 1.0})
    return smoke.model_copy(update={"blocks": 4, "pools": (pool,)} | changes)


def test_the_truth_of_every_block_is_what_the_node_says(played: Played) -> None:
    """Hash, height, transactions in order, fees, weight and coinbase are those of getblock."""
    node, truth, _ = played
    pools = {pool.slug: pool for pool in truth.pools}
    for block in truth.blocks:
        seen = node_block(node, block)
        assert (seen["height"], seen["weight"]) == (block.height, block.weight_wu)
        coinbase, *others = seen["tx"]
        assert [each["txid"] for each in others] == block.txids
        assert coinbase["txid"] == block.coinbase_txid
        assert sum(satoshi(each["fee"]) for each in others) == block.fees_sat
        assert block.n_tx == len(others)
        assert pools[block.pool].tag_hex in coinbase["vin"][0]["coinbase"]
        assert coinbase["vout"][0]["scriptPubKey"]["hex"] == pools[block.pool].payout_script_hex
        subsidy_sat = node.client().call("getblockstats", block.hash, ["subsidy"])["subsidy"]
        assert satoshi(coinbase["vout"][0]["value"]) == subsidy_sat + block.fees_sat
    assert node.client().call("getbestblockhash") == truth.blocks[-1].hash


def test_the_truth_of_every_transaction_is_what_the_node_says(played: Played) -> None:
    """Each is in the block named, in the mempool, or gone because it was replaced; fee and size agree."""
    node, truth, _ = played
    mined = {
        each["txid"]: (block.height, satoshi(each["fee"]), each["vsize"], each["weight"])
        for block in truth.blocks
        for each in node_block(node, block)["tx"][1:]
    }
    mempool = set(node.client().call("getrawmempool"))
    for each in truth.transactions:
        if each.mined_height is not None:
            assert mined[each.txid] == (each.mined_height, each.fee_sat, each.vsize_vb, each.weight_wu)
        else:
            assert each.txid not in mined
            assert (each.txid in mempool) == (each.replaced_by is None)
    assert mined.keys() <= txs(truth).keys()
    assert mempool <= txs(truth).keys()


def test_replacements_and_their_originals_point_at_each_other(played: Played) -> None:
    """A replaced transaction is of that kind, was sent before, paid less and was never mined."""
    by_txid = txs(played[1])
    replaced = [each for each in by_txid.values() if each.replaced_by is not None]
    assert len(replaced) > 3
    for each in replaced:
        successor = by_txid[each.replaced_by or ""]
        assert (each.kind, successor.kind, successor.replaces) == ("replaced", "rbf", each.txid)
        assert successor.fee_sat > each.fee_sat
        assert successor.sent_at_ns > each.sent_at_ns
        assert each.mined_height is None
    assert {each.kind for each in by_txid.values() if each.replaced_by is None}.isdisjoint({"replaced"})


def test_children_pay_for_parents_that_alone_would_wait(played: Played) -> None:
    """Of a package the child pays more than three times as much per vbyte, and names its parent."""
    by_txid = txs(played[1])
    children = [each for each in by_txid.values() if each.kind == "cpfp_child"]
    assert len(children) > 3
    for child in children:
        (parent,) = (by_txid[txid] for txid in child.parents)
        assert parent.kind == "cpfp_parent"
        assert child.fee_sat / child.vsize_vb > 3 * parent.fee_sat / parent.vsize_vb


def test_times_follow_each_other(played: Played) -> None:
    """Template, submission and acceptance of a block stand in this order, and so do the blocks."""
    truth = played[1]
    for block in truth.blocks:
        assert block.template_at_ns <= block.mined_at_ns <= block.accepted_at_ns
        for txid in block.txids:
            assert txs(truth)[txid].sent_at_ns < block.template_at_ns
    for before, block in pairwise(truth.blocks):
        assert block.interval_s == (block.mined_at_ns - before.mined_at_ns) / 1e9
        assert block.mined_at_ns > before.accepted_at_ns
    assert truth.blocks[0].interval_s is None


def test_pools_sum_up_their_blocks_and_one_of_them_is_unknown(played: Played, smoke: Scenario) -> None:
    """The counts of each pool are those of its blocks; a pool without rules has the label `unknown`."""
    truth = played[1]
    for pool in truth.pools:
        blocks = [block for block in truth.blocks if block.pool == pool.slug]
        assert (pool.n_blocks, pool.n_empty) == (len(blocks), sum(not block.txids for block in blocks))
        assert bool(pool.out_of_band_txids) == (pool.policy == "out_of_band")
    assert sum(pool.n_blocks for pool in truth.pools) == smoke.blocks
    assert {pool.slug: pool.label for pool in truth.pools if pool.label != pool.slug} == {"queue": "unknown"}
    for block in truth.blocks:
        assert block.is_empty == block.is_planted_empty


def test_truth_is_read_back_as_it_was_written(played: Played) -> None:
    """A truth is the same after it is written as JSON and read."""
    _, truth, out = played
    assert Truth.read(out / TRUTH_FILE) == truth


def test_the_rules_name_every_pool_that_has_any(played: Played, smoke: Scenario) -> None:
    """The analysis loads them, and they hold the very bytes that the pools mined with."""
    rules = load_rules(played[2] / RULES_FOLDER)
    assert {pool.slug for pool in rules.pools} == {pool.slug for pool in smoke.pools if pool.rules}
    patterns = {(rule.pool, rule.method): rule.pattern for pool in rules.pools for rule in pool.rules}
    for pool in smoke.pools:
        assert patterns.get((pool.slug, "tag")) == (pool.tag_bytes if "tag" in pool.rules else None)
        assert patterns.get((pool.slug, "payout")) == (pool.payout_script if "payout" in pool.rules else None)


def test_branches_that_lost_are_on_the_node_and_not_on_its_chain(played: Played, smoke: Scenario) -> None:
    """The node names each planted branch with its depth; its blocks hold what the truth says."""
    node, truth, _ = played
    rpc = node.client()
    tips = [tip for tip in rpc.call("getchaintips") if tip["status"] != "active"]
    wanted = sorted((fork.depth, "valid-fork") for fork in smoke.forks)
    assert sorted((tip["branchlen"], tip["status"]) for tip in tips) == wanted
    heights = {number: block.height for number, block in enumerate(truth.blocks, start=1)}
    places = [
        (fork.at_block, heights[fork.at_block] + above) for fork in smoke.forks for above in range(fork.depth)
    ]
    assert [(stale.at_block, stale.height) for stale in truth.stale_blocks] == places
    for stale in truth.stale_blocks:
        seen = rpc.call("getblock", stale.hash, 1)
        assert (seen["height"], seen["confirmations"], seen["tx"][1:]) == (stale.height, -1, stale.txids)
    assert sum(len(stale.txids) for stale in truth.stale_blocks) > 10


def test_third_parties_publish_what_the_truth_says(played: Played, smoke: Scenario) -> None:
    """Prices end on the day the scenario did; a label names its block's pool unless it is planted wrong."""
    _, truth, out = played
    with (out / THIRD_PARTIES / "prices.csv").open(encoding="utf-8", newline="") as lines:
        days = {row["day"]: float(row["close"]) for row in csv.DictReader(lines)}
    assert days == {price.day: price.close_usd for price in truth.prices}
    assert len(days) == 3
    assert max(days) == datetime.fromtimestamp(truth.ended_at_ns / 1e9, UTC).date().isoformat()
    with (out / THIRD_PARTIES / "labels.csv").open(encoding="utf-8", newline="") as lines:
        published = {int(row["height"]): row["label"] for row in csv.DictReader(lines)}
    assert published == {told.height: told.label for told in truth.labels}
    names = {pool.slug: pool.name for pool in smoke.pools}
    for block, told in zip(truth.blocks, truth.labels, strict=True):
        assert told.height == block.height
        assert (told.label == names[block.pool]) == (told.error is None)
        assert (told.label == NO_LABEL) == (told.error == "missing")
    assert {told.error for told in truth.labels} == {None, "wrong", "missing"}


def test_rules_of_another_scenario_are_not_mixed_in(tmp_path: Path, smoke: Scenario) -> None:
    """A folder with foreign rules is refused; the same scenario may be written again."""
    write_rules(smoke, tmp_path)
    write_rules(smoke, tmp_path)
    (tmp_path / "stranger.toml").touch()
    with pytest.raises(RegtestError, match=r"holds stranger\.toml"):
        write_rules(smoke, tmp_path)


def test_a_prepared_node_has_an_empty_mempool_and_a_chain_of_the_recent_past(
    node: RegtestNode, smoke: Scenario
) -> None:
    """The node is out of initial download, and its headers end a minute ago instead of in the future."""
    prepare_scenario(smoke, node)
    rpc = node.client()
    info = rpc.call("getblockchaininfo")
    assert not info["initialblockdownload"]
    assert 0 <= time.time() - info["time"] < 120
    assert rpc.call("getrawmempool") == []


def test_blocks_in_feerate_order_take_the_best(node: RegtestNode, smoke: Scenario, tmp_path: Path) -> None:
    """A stock pool takes most of the top by ancestor feerate, and little from beyond the top 2X.

    That is so of all its blocks together: in one of 30 transactions, a package that does not fit counts much.
    """
    truth = run_scenario(only(smoke, "tin-whistle"), node, tmp_path)
    results = [block.acceptance_at_template["ancestor"] for block in truth.blocks]
    n_txs, n_top, n_outside, n_taken = (
        sum(result[name] or 0 for result in results)
        for name in ("n_tx", "n_top_taken", "n_outside", "n_outside_taken")
    )
    assert all(result["n_outside"] for result in results)
    assert n_top > 0.75 * n_txs
    assert n_taken < 0.1 * n_outside


def test_first_come_blocks_are_in_the_order_of_arrival(
    node: RegtestNode, smoke: Scenario, tmp_path: Path
) -> None:
    """Within a block the order is that of sending, and nothing older is left behind for something newer."""
    truth = run_scenario(only(smoke, "queue"), node, tmp_path)
    sent = {each.txid: number for number, each in enumerate(truth.transactions)}
    mined = [sent[txid] for block in truth.blocks for txid in block.txids]
    for block in truth.blocks:
        numbers = [sent[txid] for txid in block.txids]
        assert numbers == sorted(numbers)
    # Two neighbouring blocks may overlap at the brim only, where a large one did not fit.
    overlap = sum(a > b for a, b in pairwise(mined))
    assert len(mined) > 80
    assert overlap <= len(truth.blocks) * 2


def test_out_of_band_blocks_begin_with_planted_transactions(
    node: RegtestNode, smoke: Scenario, tmp_path: Path
) -> None:
    """All planted ones of the mempool come first, low as their feerates are; the truth lists them."""
    truth = run_scenario(only(smoke, "back-door"), node, tmp_path)
    kinds = {each.txid: each.kind for each in truth.transactions}
    for block in truth.blocks:
        planted = [kinds[txid] == "planted_low" for txid in block.txids]
        assert planted == sorted(planted, reverse=True)
    (pool,) = truth.pools
    listed = [txid for block in truth.blocks for txid in block.txids if kinds[txid] == "planted_low"]
    assert pool.out_of_band_txids == listed
    assert len(listed) > 5


def test_an_old_template_knows_nothing_of_what_came_since(
    node: RegtestNode, smoke: Scenario, tmp_path: Path
) -> None:
    """A pool on templates 0.2 s old mines nothing sent later, and two moments give two acceptances."""
    scenario = only(smoke, "tin-whistle")
    pools = tuple(pool.model_copy(update={"template_age_s": 0.2}) for pool in scenario.pools)
    truth = run_scenario(scenario.model_copy(update={"pools": pools}), node, tmp_path)
    n_unseen = 0
    for before, block in pairwise(truth.blocks):
        assert block.template_at_ns > before.mined_at_ns
        unseen = {
            each.txid
            for each in truth.transactions
            if block.template_at_ns < each.sent_at_ns < block.mined_at_ns
        }
        assert unseen.isdisjoint(block.txids)
        n_unseen += len(unseen)
    assert n_unseen
    assert any(block.acceptance_at_template != block.acceptance_at_arrival for block in truth.blocks)


def test_a_block_keeps_the_weight_of_its_pool(node: RegtestNode, smoke: Scenario, tmp_path: Path) -> None:
    """A pool's own limit beats the scenario's, and is nearly used up while the mempool is full."""
    scenario = only(smoke, "tin-whistle", blocks=2)
    pools = tuple(pool.model_copy(update={"block_weight_wu": 10_000}) for pool in scenario.pools)
    truth = run_scenario(scenario.model_copy(update={"pools": pools}), node, tmp_path)
    for block in truth.blocks:
        assert 7_000 < block.weight_wu <= 10_000


def test_a_node_that_goes_away_ends_the_scenario_with_an_error(
    node: RegtestNode, smoke: Scenario, tmp_path: Path
) -> None:
    """No truth is written and no thread goes on when the node dies in the middle."""

    def kill_after_two(done: int, _total: int) -> None:
        if done == 2:
            node.kill()

    with pytest.raises(CollectorError):
        run_scenario(only(smoke, "tin-whistle"), node, tmp_path, kill_after_two)
    assert not (tmp_path / TRUTH_FILE).exists()
    assert SENDER_THREAD not in {thread.name for thread in threading.enumerate()}


def test_progress_counts_every_block(node: RegtestNode, smoke: Scenario, tmp_path: Path) -> None:
    """The callback hears of each block with the number there will be; a prepared scenario runs as well."""
    scenario = only(smoke, "tin-whistle")
    prepared = prepare_scenario(scenario, node)
    calls: list[tuple[int, int]] = []
    run_scenario(scenario, node, tmp_path, lambda *call: calls.append(call), prepared=prepared)
    assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
