"""Test the orders of transactions, and compare the feerate order with the node's own."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.regtest import RegtestNode, Scenario, prepare_scenario
from collector.regtest.block_assembly import (
    ORDERS,
    Candidate,
    MempoolView,
    Order,
    acceptance,
    ancestor_ranking,
    feerate_order,
    fill,
    first_come_order,
    out_of_band_order,
    package_ranking,
    plain_ranking,
    without_anchors,
)
from collector.regtest.mining import RESERVED_WEIGHT_WU
from collector.regtest.sent import SentTransactions


def candidate(
    txid: str,
    *,
    fee_sat: int,
    vsize_vb: int = 100,
    arrival: int = 0,
    parents: str = "",
    is_planted: bool = False,
    has_anchor: bool = False,
) -> Candidate:
    """Make a candidate whose txid and parents are single letters, encoded in hex."""
    return Candidate(
        txid=txid.encode().hex(),
        raw=b"",
        fee_sat=fee_sat,
        vsize_vb=vsize_vb,
        weight_wu=4 * vsize_vb,
        parents=frozenset(letter.encode().hex() for letter in parents),
        arrival=arrival,
        is_planted=is_planted,
        has_anchor=has_anchor,
    )


def letters(packages: Order) -> list[str]:
    """Return an order as one word per package, in the letters of `candidate`."""
    return ["".join(bytes.fromhex(txid).decode() for txid in package) for package in packages]


def view_of(*candidates: Candidate) -> MempoolView:
    """Make a view of candidates that came in this order."""
    return {each.txid: each for each in candidates}


@st.composite
def views(draw: st.DrawFn) -> MempoolView:
    """Draw a mempool of up to 30 transactions whose parents came before them."""
    made: dict[str, Candidate] = {}
    for arrival in range(draw(st.integers(0, 30))):
        parents = draw(st.sets(st.sampled_from(sorted(made)), max_size=3)) if made else set()
        made[f"{arrival:02}"] = Candidate(
            txid=f"{arrival:02}",
            raw=b"",
            fee_sat=draw(st.integers(100, 10_000)),
            vsize_vb=draw(st.integers(100, 300)),
            weight_wu=draw(st.integers(400, 1_200)),
            parents=frozenset(parents | draw(st.sets(st.just("confirmed"), max_size=1))),
            arrival=arrival,
            is_planted=draw(st.booleans()),
        )
    return made


@settings(deadline=None)
@given(views(), st.sampled_from(sorted(ORDERS)), st.integers(0, 40_000))
def test_a_filled_block_is_valid_and_within_its_weight(
    view: MempoolView, policy: str, weight_wu: int
) -> None:
    """Whatever the policy: no transaction twice, none before its parent, none above the limit."""
    order = ORDERS[policy](view)
    assert sorted(txid for package in order for txid in package) == sorted(view)
    chosen = fill(view, order, weight_wu=weight_wu)
    assert sum(each.weight_wu for each in chosen) <= weight_wu
    seen: set[str] = set()
    for each in chosen:
        assert {parent for parent in each.parents if parent in view} <= seen
        assert each.txid not in seen
        seen.add(each.txid)


@settings(deadline=None)
@given(views())
def test_a_limit_that_is_no_limit_takes_everything(view: MempoolView) -> None:
    """With room for all, every policy mines the whole mempool."""
    for order in ORDERS.values():
        assert len(fill(view, order(view), weight_wu=10**9)) == len(view)


def test_a_child_pulls_its_parent_up_and_leaves_the_other_child_where_it_is() -> None:
    """Parent p (1 sat/vB) and child c (9) go as one package at 5, after a (6) and before b (4) and d (2)."""
    view = view_of(
        candidate("p", fee_sat=100),
        candidate("a", fee_sat=600),
        candidate("b", fee_sat=400),
        candidate("c", fee_sat=900, parents="p"),
        candidate("d", fee_sat=200, parents="p"),
    )
    assert letters(feerate_order(view)) == ["a", "pc", "b", "d"]


def test_first_come_goes_by_arrival_alone() -> None:
    """The first-come order depends on the time of arrival, not on feerates."""
    view = view_of(candidate("a", fee_sat=900, arrival=2), candidate("b", fee_sat=100, arrival=1))
    assert letters(first_come_order(view)) == ["b", "a"]


def test_out_of_band_puts_planted_transactions_before_all_others() -> None:
    """Planted ones come first, by arrival and after their parents; the others by feerate."""
    view = view_of(
        candidate("a", fee_sat=500, arrival=0),
        candidate("p", fee_sat=300, arrival=1),
        candidate("q", fee_sat=100, arrival=2, parents="p", is_planted=True),
        candidate("r", fee_sat=100, arrival=3, is_planted=True),
        candidate("b", fee_sat=900, arrival=4),
    )
    assert letters(out_of_band_order(view)) == ["pq", "r", "b", "a"]


def test_who_refuses_anchors_lacks_their_descendants_too() -> None:
    """A transaction with an anchor, its child and its grandchild are missing; its parent is not."""
    view = view_of(
        candidate("p", fee_sat=100),
        candidate("a", fee_sat=900, parents="p", has_anchor=True),
        candidate("c", fee_sat=900, parents="a"),
        candidate("g", fee_sat=900, parents="c"),
        candidate("o", fee_sat=200),
    )
    assert letters(feerate_order(without_anchors(view))) == ["o", "p"]


def test_acceptance_counts_by_hand() -> None:
    """Of 7 transactions a block takes the 1st, 3rd and 7th: two of the best 3, and the one beyond 6."""
    view = view_of(*(candidate(txid, fee_sat=1_000 - 100 * rank) for rank, txid in enumerate("abcdefg")))
    ranking = plain_ranking(view)
    assert letters([ranking]) == ["abcdefg"]
    result = acceptance(ranking, [ranking[0], ranking[2], ranking[6]]).as_dict()
    assert result == {
        "n_tx": 3,
        "n_mempool": 7,
        "n_top_taken": 2,
        "n_outside": 1,
        "n_outside_taken": 1,
        "top_ratio": 2 / 3,
        "outside_ratio": 1.0,
    }


def test_an_empty_block_has_no_acceptance() -> None:
    """The shares of an empty block are None, not 0."""
    result = acceptance(["a", "b"], []).as_dict()
    assert (result["top_ratio"], result["outside_ratio"]) == (None, None)


def test_ancestor_ranking_sees_the_parent_that_must_come_along() -> None:
    """A child of 10 sat/vB under a parent of 2 ranks at 6, below a plain 7; by its own feerate it leads."""
    view = view_of(
        candidate("p", fee_sat=200),
        candidate("c", fee_sat=1_000, parents="p", arrival=1),
        candidate("a", fee_sat=700, arrival=2),
    )
    assert letters([plain_ranking(view)]) == ["cap"]
    assert letters([ancestor_ranking(view)]) == ["acp"]


def test_package_ranking_lifts_a_parent_with_its_child_and_no_child_with_its_parent() -> None:
    """Parent p (2) and child c (10) rank at 6; child d (1) of a (7) stays at 1, though both make 4."""
    view = view_of(
        candidate("c", fee_sat=1_000, parents="p", arrival=1),
        candidate("p", fee_sat=200),
        candidate("d", fee_sat=100, parents="a", arrival=3),
        candidate("a", fee_sat=700, arrival=2),
        candidate("b", fee_sat=300, arrival=4),
    )
    assert letters([package_ranking(view)]) == ["apcbd"]
    assert letters([ancestor_ranking(view)]) == ["acdbp"]


@pytest.mark.parametrize("ranking", [plain_ranking, package_ranking, ancestor_ranking])
def test_equal_feerates_rank_in_the_order_of_entry(ranking: Callable[[MempoolView], list[str]]) -> None:
    """Transactions of equal feerate rank by their entry, whatever their txids are."""
    view = view_of(candidate("a", fee_sat=100, arrival=2), candidate("b", fee_sat=100, arrival=1))
    assert letters([ranking(view)]) == ["ba"]


@pytest.mark.bitcoind
@pytest.mark.parametrize("seed", [1, 2])
def test_our_order_by_feerate_is_the_nodes_own(node: RegtestNode, smoke: Scenario, seed: int) -> None:
    """On a mempool of chains, packages and replacements a fresh template has the order we compute."""
    rpc, sent = node.client(), SentTransactions()
    if rpc.call("getnetworkinfo")["version"] >= 310_000:
        pytest.skip("from version 31 on a node orders by clusters, not by ancestors")
    prepared = prepare_scenario(smoke.model_copy(update={"seed": seed}), node)
    for planned in prepared.transactions:
        sent.send(rpc, planned)
    template = [each["txid"] for each in rpc.call("getblocktemplate", {"rules": ["segwit"]})["transactions"]]
    assert len(template) > 300
    view = sent.view(rpc)
    ours = [each.txid for each in fill(view, feerate_order(view), weight_wu=3_990_000 - RESERVED_WEIGHT_WU)]
    assert ours == template


def test_orders_do_not_depend_on_how_the_mempool_is_listed() -> None:
    """A node lists its mempool in no particular order; the result is the same."""
    candidates = [candidate(chr(65 + n), fee_sat=300 + 17 * n % 7, arrival=n) for n in range(40)]
    shuffled = list(candidates)
    random.Random(1).shuffle(shuffled)  # noqa: S311 - a repeatable shuffle
    for order in ORDERS.values():
        assert order(view_of(*candidates)) == order(view_of(*shuffled))
