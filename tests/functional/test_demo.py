"""Run the whole demo once and compare it with the planted truth: node, collector, Parquet, SQL and report."""

import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from analysis.database import open_database
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS, hash_bytes, hash_hex
from collector.regtest import RegtestNode, Truth, find_bitcoind, load_scenario
from collector.regtest.demo import DATASET, run_demo
from collector.regtest.run import TRUTH_FILE
from tests.analysis.report.chromium import browser
from tests.collector.codec.node_rows import expected_block, expected_transaction

# The demo is played within the time of its first test.
pytestmark = [pytest.mark.bitcoind, pytest.mark.timeout(900)]


class Played(NamedTuple):
    """Holds a finished demo: its files, what was planted, and what the node said of each block."""

    out: Path
    truth: Truth
    said: list[tuple[dict[str, Any], dict[str, Any]]]  # getblock with verbosity 3, getblockstats
    database: Path
    report: Path
    summary: str


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Run the demo as `make demo` does, and ask the node about every block before it stops."""
    out = tmp_path_factory.mktemp("demo")
    said: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def ask(node: RegtestNode) -> None:
        rpc = node.client()
        tip = rpc.call("getblockcount")
        hashes = rpc.batch([("getblockhash", height) for height in range(tip + 1)])
        hashes += [stale.hash for stale in Truth.read(out / TRUTH_FILE).stale_blocks]
        verbose = rpc.batch([("getblock", hash_, 3) for hash_ in hashes])
        stats = rpc.batch([("getblockstats", hash_) for hash_ in hashes])
        said.extend(zip(verbose, stats, strict=True))

    truth = run_demo(load_scenario("demo"), out, find_bitcoind(), inspect=ask)
    database, report = out / "demo.duckdb", out / "report.html"
    analyse("build", "--dataset", out / DATASET, "--pools", out / "pools", "--database", database)
    summary = analyse("report", "--database", database, "--out", report)
    return Played(out, truth, said, database, report, summary)


def analyse(*arguments: object) -> str:
    """Run `pool-analysis` with these arguments and return its output; fail if it fails."""
    command = [sys.executable, "-m", "analysis", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def rows(played: Played, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the built database."""
    with open_database(played.database) as connection:
        found: list[tuple[Any, ...]] = connection.execute(query).fetchall()
    return found


def labels(truth: Truth) -> dict[str, str]:
    """Return the pool label that attribution must find for each planted pool."""
    return {pool.slug: pool.label for pool in truth.pools}


def test_the_scenario_is_as_large_as_promised(played: Played) -> None:
    """The demo has at least 60 blocks, 5 pools, 5,000 transactions and some empty blocks."""
    assert len(played.truth.blocks) >= 60
    assert len({block.pool for block in played.truth.blocks}) == 5
    assert len(played.truth.transactions) >= 5000
    assert sum(block.is_empty for block in played.truth.blocks) >= 5


def test_every_block_has_the_pool_that_mined_it(played: Played) -> None:
    """Each block gets its planted pool, despite hostile, nested or misleading tags and an unknown pool."""
    label = labels(played.truth)
    wanted = {block.hash: label[block.pool] for block in (*played.truth.blocks, *played.truth.stale_blocks)}
    found = {hash_hex(hash_): pool for hash_, pool in rows(played, "SELECT block_hash, pool FROM block_pool")}
    assert found == wanted


def test_shares_are_the_planted_counts(played: Played) -> None:
    """`pool_share` counts each pool's blocks; blocks of unknown pools stand apart, without a rank."""
    label = labels(played.truth)
    found = rows(played, "SELECT pool, block_count, total_block_count, rank IS NULL FROM pool_share")
    assert {pool: count for pool, count, _, _ in found} == Counter(
        label[block.pool] for block in played.truth.blocks
    )
    assert {total for _, _, total, _ in found} == {len(played.truth.blocks)}
    assert [pool for pool, _, _, is_unranked in found if is_unranked] == ["unknown"]


def test_an_owner_has_the_blocks_of_its_pools(played: Played) -> None:
    """The owner Hearth Works has the blocks of its two pools, in the mart and on the report's page."""
    mined = sum(block.pool in {"kettle", "copper-kettle"} for block in played.truth.blocks)
    query = "SELECT block_count FROM hashrate WHERE period_kind = 'all' AND owner = 'hearth-works'"
    assert rows(played, query) == [(mined,)]
    assert "Hearth Works" in played.report.read_text(encoding="utf-8")


def test_empty_blocks_are_the_planted_ones(played: Played) -> None:
    """Each pool's empty blocks are counted, and the rank test shows that they were planted to come fast."""
    label = labels(played.truth)
    planted = Counter(label[block.pool] for block in played.truth.blocks if block.is_empty)
    found = dict(rows(played, "SELECT pool, n_empty FROM empty_intervals WHERE pool != 'all'"))
    assert {pool: count for pool, count in found.items() if count} == planted
    ((p_value, effect, low, high),) = rows(
        played,
        "SELECT p_value, rank_biserial, empty_low_ratio, empty_high_ratio FROM empty_intervals"
        " WHERE pool = 'all'",
    )
    assert p_value < 0.05
    assert effect < 0
    assert low < planted.total() / len(played.truth.blocks) < high


def test_branches_that_lost_are_found_with_their_depth(played: Played) -> None:
    """Each planted stale branch is one reorganisation, with its lowest block, pools and rival block."""
    label = labels(played.truth)
    active = {block.height: block for block in played.truth.blocks}
    branches = [
        list(group) for _, group in groupby(played.truth.stale_blocks, key=lambda stale: stale.at_block)
    ]
    planted = [
        (
            branch[0].hash,
            branch[0].height,
            len(branch),
            [label[stale.pool] for stale in branch],
            active[branch[0].height].hash,
            2 * len(branch),  # both nodes left each
        )
        for branch in branches
    ]
    assert sorted(len(branch) for branch in branches) == [1, 2]
    found = rows(
        played,
        "SELECT first_hash, from_height, depth, pools, rival_hash, n_disconnected, was_active, lead_s > 0"
        " FROM stale_branches ORDER BY from_height",
    )
    assert [
        (hash_hex(first), height, depth, pools, hash_hex(rival), n_left)
        for first, height, depth, pools, rival, n_left, *_ in found
    ] == planted
    assert all(was_active and is_earlier for *_, was_active, is_earlier in found)
    assert rows(played, "SELECT depth, n_branches, n_reorgs FROM reorg_depth") == [(1, 1, 1), (2, 1, 1)]


def test_spread_between_the_nodes_is_measured(played: Played) -> None:
    """No node has a block before its pool submitted it; blocks and transactions reach both nodes."""
    planted = (*played.truth.blocks, *played.truth.stale_blocks)
    mined_at_ns = {block.hash: block.mined_at_ns for block in planted}
    found = rows(
        played,
        "SELECT block_hash, epoch_ns(seen_at), lag_s, spread_s FROM block_propagation WHERE n_nodes > 1",
    )
    for hash_, seen_at_ns, lag_s, spread_s in found:
        assert seen_at_ns >= mined_at_ns[hash_hex(hash_)] // 1000 * 1000  # stored in microseconds
        assert 0 <= lag_s <= spread_s
    shared = rows(played, "SELECT node, kind, n_shared FROM node_propagation")
    n_shared = {(node, kind): count for node, kind, count in shared}
    # Not each one must be: a node that falls behind for a moment is catching up, which is no arrival.
    for node in ("north", "south"):
        assert n_shared[node, "block"] > 0.9 * len(planted)
        assert n_shared[node, "transaction"] > 0.9 * len(played.truth.transactions)


def test_stale_blocks_are_counted_apart_from_the_shares(played: Played) -> None:
    """`stale_rate` counts each pool's stale blocks; a stale empty block is in no rate of empty blocks."""
    label = labels(played.truth)
    lost = Counter(label[stale.pool] for stale in played.truth.stale_blocks)
    mined = Counter(label[block.pool] for block in played.truth.blocks)
    found = rows(played, "SELECT pool, n_blocks, n_stale FROM stale_rate WHERE pool != 'all'")
    assert {pool: (n_blocks, n_stale) for pool, n_blocks, n_stale in found} == {
        pool: (mined[pool] + lost[pool], lost[pool]) for pool in mined
    }
    assert any(stale.is_empty for stale in played.truth.stale_blocks)
    ((n_blocks,),) = rows(played, "SELECT n_blocks FROM empty_intervals WHERE pool = 'all'")
    assert n_blocks == len(played.truth.blocks)


def test_what_each_pool_mines_and_refuses_is_the_planted_policy(played: Played) -> None:
    """Only the pool that refuses P2A outputs is found to; of the others each such transaction is counted."""
    label = labels(played.truth)
    pool_at = {block.height: label[block.pool] for block in played.truth.blocks}
    mined = Counter(
        pool_at[tx.mined_height]
        for tx in played.truth.transactions
        if tx.has_anchor and tx.mined_height is not None
    )
    refusing = [pool for pool in played.truth.pools if pool.refuses]
    assert [(pool.slug, pool.refuses) for pool in refusing] == [("harbour-light", ["anchor"])]
    found = rows(played, "SELECT pool, feature, n_mined, verdict FROM pool_policy")
    assert {pool: n for pool, feature, n, _ in found if feature == "anchor" and n} == mined
    assert [(pool, feature) for pool, feature, _, verdict in found if verdict == "refuses"] == [
        (label[pool.slug], feature) for pool in refusing for feature in pool.refuses
    ]
    assert "Harbour Light took others that pay as much, but none" in " ".join(played.summary.split())
    said = "took none of the pay-to-anchor outputs that paid enough"
    assert said in played.report.read_text(encoding="utf-8")


def test_the_algorithm_of_each_pool_is_the_planted_one(played: Played) -> None:
    """Pools that go by feerate follow ancestor sets, and data in full is the same here; one is first come."""
    label = labels(played.truth)
    planted = {
        label[pool.slug]: ["first_come"] if pool.policy == "first_come" else ["ancestor_sets", "data_cost"]
        for pool in played.truth.pools
    }
    found = dict(rows(played, "SELECT pool, left_open FROM pool_algorithm"))
    assert found == planted
    said = " ".join(played.report.read_text(encoding="utf-8").split())
    assert "orders its blocks by time of arrival" in said


def test_intervals_are_those_of_the_scenario(played: Played) -> None:
    """A block interval is the planted time between submissions, plus the difference of the delays.

    The delay of a block is the time from its submission to its arrival.
    """
    planted = {block.hash: block.interval_s for block in played.truth.blocks if block.interval_s is not None}
    found = rows(
        played,
        "SELECT block_hash, interval_s FROM block_intervals WHERE is_active AND interval_s IS NOT NULL",
    )
    measured = {hash_hex(hash_): seconds for hash_, seconds in found}
    assert set(measured) == set(planted)
    arrived = rows(played, "SELECT block_hash, epoch_ns(arrived_at) FROM block_intervals WHERE is_active")
    arrived_at_ns = {hash_hex(hash_): at_ns for hash_, at_ns in arrived}
    late_s = {  # how long after its submission each block arrived, on this machine
        block.hash: (arrived_at_ns[block.hash] - block.mined_at_ns) / 1e9 for block in played.truth.blocks
    }
    assert min(late_s.values()) > -1e-6  # arrivals are stored in microseconds
    for before, block in pairwise(played.truth.blocks):
        lag_s = late_s[block.hash] - late_s[before.hash]
        assert measured[block.hash] == pytest.approx(planted[block.hash] + lag_s, abs=1e-5)


@pytest.mark.parametrize("kind", ["plain", "package"])
def test_acceptance_of_each_block_is_the_miners_own(played: Played, kind: str) -> None:
    """Counts of top-X and outside-2X transactions equal the node's mempool when the block was submitted.

    Both kinds of feerate are tested.
    """
    found = rows(
        played,
        "SELECT feerate_kind, block_hash, x, n_top_taken, n_outside, n_outside_taken"
        " FROM feerate_strategy_block WHERE node = 'north'",
    )
    measured = {hash_hex(hash_): numbers for kind_, hash_, *numbers in found if kind_ == kind}
    for block in played.truth.blocks:
        planted = block.acceptance_at_arrival[kind]
        x, n_top_taken, n_outside, n_outside_taken = measured[block.hash]
        assert x == block.n_tx
        if block.is_empty:
            continue
        assert n_top_taken == planted["n_top_taken"]
        assert n_outside == planted["n_outside"]
        assert n_outside_taken == planted["n_outside_taken"]


@pytest.mark.parametrize("kind", ["plain", "package"])
def test_rates_hold_the_truth_in_their_intervals(played: Played, kind: str) -> None:
    """The planted acceptance of each pool lies in the 95 % interval over its blocks.

    The truth is of the first node's mempool. A block that the second node connected first is counted as
    measured there.
    """
    label = labels(played.truth)
    rates = rows(
        played,
        "SELECT feerate_kind, pool, top_x_low_ratio, top_x_high_ratio FROM feerate_strategy"
        " WHERE pool != 'all' AND top_x_low_ratio IS NOT NULL",
    )
    found = [rate for kind_, *rate in rates if kind_ == kind]
    assert len(found) >= 4
    counted = rows(
        played,
        "SELECT feerate_kind, block_hash, n_top_taken, n_top FROM feerate_strategy_block"
        " WHERE is_counted AND node = 'south'",
    )
    elsewhere = {hash_hex(hash_): numbers for kind_, hash_, *numbers in counted if kind_ == kind}
    for pool, low, high in found:
        blocks = [b for b in played.truth.blocks if label[b.pool] == pool and not b.is_empty]
        taken, best = 0, 0
        for block in blocks:
            planted = (block.acceptance_at_arrival[kind]["n_top_taken"], block.n_tx)
            n_top_taken, n_top = elsewhere.get(block.hash, planted)
            taken, best = taken + n_top_taken, best + n_top
        assert low <= taken / best <= high


def test_every_number_is_what_the_node_says(played: Played) -> None:
    """Every column of `blocks` and `transactions` equals getblock with verbosity 3 and getblockstats."""
    dataset = Dataset.open(played.out / DATASET, "regtest")
    blocks = {row["block_hash"]: row for row in dataset.read(BLOCKS).to_pylist()}
    transactions = dataset.read(TRANSACTIONS).to_pylist()
    said = {hash_bytes(verbose["hash"]): (verbose, stats) for verbose, stats in played.said}
    planted = (*played.truth.blocks, *played.truth.stale_blocks)
    assert {hash_hex(hash_) for hash_ in blocks} == {block.hash for block in planted}
    for hash_, row in blocks.items():
        expected = expected_block(*said[hash_])
        seen = {name: row[name] for name in expected} | {"header_time": int(row["header_time"].timestamp())}
        assert seen == expected
        assert row["verdict"] == "valid"
    for row in transactions:
        verbose, _ = said[row["block_hash"]]
        txids = [transaction["txid"] for transaction in verbose["tx"]]
        expected = expected_transaction(verbose["tx"][row["tx_index"]], row["tx_index"], txids)
        assert {name: row[name] for name in expected} == expected
    assert len(transactions) == sum(len(said[hash_][0]["tx"]) for hash_ in blocks)


def test_every_transaction_that_was_sent_is_there_with_its_fee(played: Played) -> None:
    """`mempool_txs` has a row with the true fee and size for each stay of a transaction in the mempool.

    A transaction of a stale block returns to the mempool, and so has a second row.
    """
    found = rows(
        played, "SELECT txid, first_seen_kind, fee_sat, vsize_vb FROM stg_mempool_txs WHERE node = 'north'"
    )
    seen = {hash_hex(txid): (kind, fee_sat, vsize_vb) for txid, kind, fee_sat, vsize_vb in found}
    again = Counter(txid for stale in played.truth.stale_blocks for txid in stale.txids)
    assert Counter(hash_hex(txid) for txid, *_ in found) == Counter(seen.keys()) + again
    assert seen == {tx.txid: ("pushed", tx.fee_sat, tx.vsize_vb) for tx in played.truth.transactions}


def test_replaced_transactions_are_named_with_what_replaced_them(played: Played) -> None:
    """Each removal that the scenario caused has the reason `replaced` and the txid of the replacement."""
    found = rows(
        played,
        "SELECT hash, removal_reason, replaced_by FROM stg_mempool_events"
        " WHERE event = 'R' AND node = 'north'",
    )
    seen = {hash_hex(txid): (reason, by and hash_hex(by)) for txid, reason, by in found}
    planted = {tx.txid: ("replaced", tx.replaced_by) for tx in played.truth.transactions if tx.replaced_by}
    assert planted
    assert seen == planted


def test_replacement_chains_have_the_planted_fees(played: Played) -> None:
    """Each replacement that the scenario caused is a hop, with the fee and size of both transactions."""
    found = rows(
        played,
        "SELECT txid, fee_sat, vsize_vb, replaced_by, by_fee_sat, by_vsize_vb FROM replacement_chain"
        " WHERE node = 'north'",
    )
    planted = {tx.txid: tx for tx in played.truth.transactions}
    expected = [
        (tx.txid, tx.fee_sat, tx.vsize_vb, by.txid, by.fee_sat, by.vsize_vb)
        for tx in planted.values()
        if tx.replaced_by and (by := planted[tx.replaced_by])
    ]
    assert expected
    seen = [(hash_hex(row[0]), *row[1:3], hash_hex(row[3]), *row[4:]) for row in found]
    assert sorted(seen) == sorted(expected)


def test_revenue_in_usd_is_the_nodes_own_at_the_planted_prices(played: Played) -> None:
    """Revenue is subsidy and fees by getblockstats at the price of each day; hashprice uses the chainwork."""
    price_usd = {price.day: price.close_usd for price in played.truth.prices}
    revenue_usd, n_hashes = 0.0, 0
    for before, (verbose, stats) in pairwise([({"chainwork": "0"}, {}), *played.said]):
        if verbose["hash"] in {block.hash for block in played.truth.blocks}:
            day = datetime.fromtimestamp(verbose["time"], UTC).date().isoformat()
            revenue_usd += (stats["subsidy"] + stats["totalfee"]) / 1e8 * price_usd[day]
            n_hashes += int(verbose["chainwork"], 16) - int(before[0]["chainwork"], 16)
    found = rows(
        played,
        "SELECT priced_block_count, revenue_usd, hashprice_usd_per_ph_day FROM revenue"
        " WHERE grouped_by = 'network' AND period_kind = 'all'",
    )
    hashes_per_ph_day = 1e15 * 86_400
    assert found == [
        (
            len(played.truth.blocks),
            pytest.approx(revenue_usd),
            pytest.approx(revenue_usd / n_hashes * hashes_per_ph_day),
        )
    ]


def test_third_party_labels_agree_where_they_were_not_planted_wrong(played: Played) -> None:
    """Each kind of disagreement with third-party labels is counted as often as it was planted.

    This includes the labels of the pool for which there is no rule.
    """
    label = labels(played.truth)
    known_names = {pool.name for pool in played.truth.pools if pool.label != "unknown"}
    expected: Counter[str] = Counter()
    for block, told in zip(played.truth.blocks, played.truth.labels, strict=True):
        assert block.height == told.height
        is_unknown = label[block.pool] == "unknown"
        if told.error == "missing":
            expected["neither" if is_unknown else "only_here"] += 1
        elif is_unknown:
            expected["only_there"] += 1
        elif told.error == "wrong":
            expected["disagree" if told.label in known_names else "unmapped"] += 1
        else:
            expected["agree"] += 1
    assert expected["disagree"] >= 2
    assert expected["only_here"] >= 1
    found = rows(played, "SELECT verdict, sum(block_count) FROM label_agreement GROUP BY verdict")
    assert dict(found) == expected
    assert rows(played, "SELECT source, licence FROM stg_external_sources ORDER BY source") == [
        ("invented-exchange", "invented for the demo"),
        ("invented-explorer", "invented for the demo"),
    ]


def test_the_dataset_is_complete_without_us(played: Played) -> None:
    """Plain DuckDB reads each table by its documented file pattern, and every table of the demo has rows."""
    root = played.out / DATASET / "chain=regtest"
    tables = {path.name for path in root.iterdir() if path.is_dir()}
    wanted = {"nodes", "blocks", "transactions", "mempool_txs", "mempool_events", "block_arrivals"}
    wanted |= {"templates", "template_txs", "mempool_stats", "mempool_bodies", "coverage"}
    wanted |= {"chain_tips", "external_prices", "external_pool_labels", "external_sources"}
    assert tables == wanted
    for table in tables:
        pattern = str(root / table / "**" / "*.parquet")
        query = "SELECT count(*) FROM read_parquet(?, hive_partitioning=false, union_by_name=true)"
        assert duckdb.execute(query, [pattern]).fetchall()[0][0] > 0


def test_the_report_says_the_same(played: Played) -> None:
    """The page and the terminal output name the pools; hostile tags appear as text, and add no script."""
    page = played.report.read_text()
    for pool in ("Harbour Light", "Copper Kettle", "Kettle", "Salt &amp; Iron"):
        assert pool in page
    assert page.lower().count("<script") == 1
    assert "<img src=x" not in page
    assert "Harbour Light" in played.summary
    assert "\x1b" not in page + played.summary
    assert f"{len(played.truth.blocks)} blocks of regtest" in played.summary


def test_the_page_of_the_demo_is_short(played: Played, tmp_path: Path) -> None:
    """On a window of 1280 pixels the whole report of the demo is less than 12,000 pixels high."""
    with browser(tmp_path / "profile") as tab:
        tab.show(played.report, width_px=1280)
        assert 2000 < tab.run("return document.documentElement.scrollHeight") < 12_000
