"""Compare feerate_strategy_block with a plain count, transaction by transaction, in random worlds."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from analysis.stats.chunk_feerates import chunk_feerates
from tests.analysis.shared_build import SharedBuild
from tests.analysis.world import label_of

COUNTS = ("x", "n_mempool", "n_ranked", "n_own", "n_top", "n_top_taken", "n_outside", "n_outside_taken")


@dataclass(frozen=True)
class Tx:
    """Describes one transaction in the mempool; `order` is its place in the order of entry."""

    txid: str
    fee_sat: int | None
    vsize_vb: int
    parents: frozenset[str]
    order: tuple[int, int, str]


@dataclass
class World:
    """Plays one node step by step: writes the rows that a collector would, and counts the truth by itself."""

    tables: dict[str, list[dict[str, Any]]] = field(
        default_factory=lambda: {
            name: []
            for name in ("blocks", "transactions", "mempool_txs", "mempool_events", "coverage", "nodes")
        }
    )
    truth: dict[tuple[str, str], tuple[int | None, ...]] = field(default_factory=dict)
    mempool: dict[str, Tx] = field(default_factory=dict)
    now: int = 0
    sequence: int = 0
    n_txs: int = 0
    session: int = 0
    covered_since: int | None = 0

    def event(self, letter: str, hash_: str, **more: Any) -> None:
        """Append one message of the `sequence` topic."""
        self.sequence += 1
        row = {"event": letter, "hash": hash_, "received_at": self.now, "sequence": self.sequence}
        self.tables["mempool_events"].append(row | {"session": f"s{self.session}"} | more)

    def enter(self, tx: Tx, kind: str, **more: Any) -> None:
        """Put a transaction into the mempool and write its row."""
        self.mempool[tx.txid] = tx
        row = {"txid": tx.txid, "entered_at": self.now, "first_seen_kind": kind, "vsize_vb": tx.vsize_vb}
        row |= {"parents": sorted(tx.parents), "session": f"s{self.session}"} | more
        if tx.fee_sat is not None:
            row["fee_sat"] = tx.fee_sat
        self.tables["mempool_txs"].append(row)

    def add(self, fee_sat: int | None, vsize_vb: int, picks: Sequence[int]) -> None:
        """Add a transaction that spends outputs of some waiting transactions."""
        waiting = sorted(self.mempool)
        parents = frozenset(waiting[pick % len(waiting)] for pick in picks if waiting)
        self.n_txs += 1
        txid = f"t{self.n_txs * 7919 % 1000:03}"
        self.event("A", txid, mempool_sequence=self.sequence)
        order = (self.now, self.sequence, txid)
        tx = Tx(txid, fee_sat, vsize_vb, parents, order)
        self.enter(tx, "pushed", mempool_sequence=self.sequence - 1)

    def remove(self, pick: int, reason: str = "replaced") -> None:
        """Remove a transaction and all its descendants from the mempool."""
        if self.mempool:
            victim = sorted(self.mempool)[pick % len(self.mempool)]
            for txid in sorted(descendants(self.mempool, victim)):
                del self.mempool[txid]
                self.event("R", txid, removal_reason=reason)

    def mine(self, picks: Sequence[int], n_unseen: int, conflict: int | None) -> None:
        """Connect a block of waiting transactions with their ancestors, and of unseen ones.

        `picks` choose waiting transactions; `conflict` chooses one that the block removes.
        """
        name = f"b{len(self.tables['blocks']) + 1}"
        waiting = sorted(self.mempool)
        chosen = {waiting[pick % len(waiting)] for pick in picks if waiting}
        chosen = set().union(*(ancestors(self.mempool, txid) for txid in chosen))
        self.count(name, chosen, n_unseen)
        left = sorted(self.mempool.keys() - chosen)
        if conflict is not None and left:
            victim = left[conflict % len(left)]
            # The victim has no descendant in the block, because `chosen` includes all ancestors.
            self.remove(waiting.index(victim), "conflict")
        height = len(self.tables["blocks"]) + 1
        self.tables["blocks"].append({"block_hash": name, "prev_hash": f"b{height - 1}", "height": height})
        for txid in sorted(chosen):
            tx = self.mempool.pop(txid)
            row = {"block_hash": name, "txid": txid, "vsize_vb": tx.vsize_vb}
            self.tables["transactions"].append(
                row | ({"fee_sat": tx.fee_sat} if tx.fee_sat is not None else {})
            )
        unseen = [
            {"block_hash": name, "txid": f"{name}u{i}", "fee_sat": 1, "vsize_vb": 1} for i in range(n_unseen)
        ]
        self.tables["transactions"] += unseen
        self.event("C", name)

    def restart(self) -> None:
        """Begin a new session, which lists the mempool that it finds."""
        if self.covered_since is not None:
            self.cover()
        self.session += 1
        self.now += 2
        self.sequence = 0
        for tx in list(self.mempool.values()):
            again = Tx(tx.txid, tx.fee_sat, tx.vsize_vb, tx.parents, (self.now, 0, tx.txid))
            self.enter(again, "at_start")
        self.now += 1
        self.cover()

    def cover(self) -> None:
        """End the coverage of the mempool, or begin it again."""
        self.now += 1
        if self.covered_since is None:
            self.covered_since = self.now
        else:
            row = {"from_at": self.covered_since, "to_at": self.now, "end_reason": "gap"}
            self.tables["coverage"].append(row | {"session": f"s{self.session}"})
            self.covered_since = None
        self.now += 1

    def count(self, block: str, chosen: set[str], n_unseen: int) -> None:
        """Compute what the mart must give for a block, from the mempool just before it."""
        if self.covered_since is None:
            return
        x = len(chosen) + n_unseen
        rated = {txid: tx for txid, tx in self.mempool.items() if tx.fee_sat is not None}
        for kind, feerate in (
            ("plain", own_feerate),
            ("package", package_feerate),
            ("cluster", cluster_feerate),
        ):
            # Equals share what is left of the places: those that the block took fill them first.
            best = sorted(
                rated.values(),
                key=lambda tx, rate=feerate: (-rate(rated, tx.txid), tx.txid not in chosen, tx.order),
            )
            taken = [tx.txid in chosen for tx in best]
            top, outside = taken[:x], taken[2 * x :]
            behind = (None, None) if x == 0 else (len(outside), sum(outside))
            own = (len(self.mempool), len(rated), len(chosen), len(top), sum(top))
            self.truth[block, kind] = (x, *own, *behind)


def ancestors(mempool: dict[str, Tx], txid: str) -> set[str]:
    """Return the waiting ancestors of a transaction, itself included."""
    return {txid}.union(
        *(ancestors(mempool, parent) for parent in mempool[txid].parents if parent in mempool)
    )


def descendants(mempool: dict[str, Tx], txid: str) -> set[str]:
    """Return the waiting descendants of a transaction, itself included."""
    return {other for other in mempool if txid in ancestors(mempool, other)}


def own_feerate(mempool: dict[str, Tx], txid: str) -> Fraction:
    """Return the fee of a transaction divided by its size."""
    return Fraction(mempool[txid].fee_sat or 0, mempool[txid].vsize_vb)


def package_feerate(mempool: dict[str, Tx], txid: str) -> Fraction:
    """Return the highest mining score among a transaction and its descendants.

    A mining score is the lower of a transaction's own feerate and that of it with all its ancestors.
    """

    def score(one: str) -> Fraction:
        family = [mempool[other] for other in ancestors(mempool, one)]
        fees, sizes = sum(tx.fee_sat or 0 for tx in family), sum(tx.vsize_vb for tx in family)
        return min(own_feerate(mempool, one), Fraction(fees, sizes))

    return max(score(other) for other in descendants(mempool, txid))


def cluster_feerate(mempool: dict[str, Tx], txid: str) -> float:
    """Compute the feerate of a transaction's chunk, with the whole mempool as one cluster."""
    places = {name: place for place, name in enumerate(mempool)}
    fees = {places[name]: tx.fee_sat or 0 for name, tx in mempool.items()}
    sizes = {places[name]: tx.vsize_vb for name, tx in mempool.items()}
    parents = {
        places[name]: [places[parent] for parent in tx.parents if parent in places]
        for name, tx in mempool.items()
    }
    return chunk_feerates(fees, sizes, parents)[places[txid]]


picks = st.lists(st.integers(0, 30), max_size=4)
fees = st.sampled_from([100, 200, 300, 400, 1000, 5000])
additions = st.tuples(
    st.just("add"),
    fees | st.none(),
    st.sampled_from([100, 200, 300]),
    st.lists(st.integers(0, 9), max_size=2),
)
rated_additions = st.tuples(
    st.just("add"), fees, st.sampled_from([100, 200]), st.lists(st.integers(0, 9), max_size=2)
)
steps = st.one_of(
    rated_additions,
    rated_additions,
    additions,
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("mine"), picks, st.integers(0, 2), st.none() | st.integers(0, 9)),
    st.tuples(st.just("mine"), picks, st.just(0), st.none()),
    st.tuples(st.just("tick")),
    st.tuples(st.just("cover")),
    st.tuples(st.just("restart")),
)


def play(story: Sequence[tuple[Any, ...]]) -> World:
    """Play the steps of a story in a new world and end its observation."""
    world = World()
    for name, *arguments in story:
        if name == "tick":
            world.now += 1
        else:
            getattr(world, name)(*arguments)
    if world.covered_since is not None:
        world.cover()
    world.tables["nodes"] = [{"session": f"s{i}", "started_at": 0} for i in range(world.session + 1)]
    return world


def measured(world: World, shared: SharedBuild) -> dict[tuple[str, str], tuple[int | None, ...]]:
    """Build a world and return the counts that the mart has for every block and kind of feerate."""
    with shared.built(world.tables, ["feerate_strategy_block"]) as connection:
        rows = connection.execute(
            f"SELECT block_hash, feerate_kind, {', '.join(COUNTS)} FROM feerate_strategy_block"  # noqa: S608 - names above
        ).fetchall()
    return {(label_of(block), kind): tuple(counts) for block, kind, *counts in rows}


# Each example is a whole build, so a failing one is not shrunk: that would take longer than reading it.
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(steps, min_size=1, max_size=40))
def test_mart_agrees_with_a_count_by_hand(shared: SharedBuild, story: list[tuple[Any, ...]]) -> None:
    """In random worlds, each count of feerate_strategy_block equals the plain count."""
    world = play(story)
    assert measured(world, shared) == world.truth


@pytest.mark.parametrize("n_blocks", [300])
def test_spans_and_buckets_change_nothing(n_blocks: int, shared: SharedBuild) -> None:
    """Over 300 blocks, which the mart ranks in several spans of cuts, its counts equal the plain ones."""
    story: list[tuple[Any, ...]] = []
    for i in range(n_blocks):
        story += [
            ("add", 100 + i * 37 % 50, 100, [i * 3] * (i % 4 == 0)),
            ("add", 100 + i * 13 % 50, 200, []),
        ]
        story += [("mine", [i, 3 * i], i % 3 == 0, None)]
    world = play(story)

    assert measured(world, shared) == world.truth
