"""Compare the feerate marts by template age with a plain replay of the node's stream, in random worlds."""

from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tests.analysis.shared_build import SharedBuild
from tests.analysis.test_feerate_oracle import World, additions, picks, play, rated_additions
from tests.analysis.world import label_of

MARTS = ("feerate_age_block", "feerate_strategy_block")
COUNTS = ("x", "n_ranked", "n_top", "n_top_taken", "n_outside", "n_outside_taken")
EVERYTHING_SEEN = {"from_at": -1000, "to_at": 10_000, "end_reason": "shutdown", "session": "s0"}
Counts = tuple[int | None, ...]

# Time passes between the steps, so that the ages differ.
steps = st.one_of(
    rated_additions,
    additions,
    st.tuples(st.just("remove"), st.integers(0, 9)),
    st.tuples(st.just("mine"), picks, st.integers(0, 1), st.none() | st.integers(0, 9)),
    *[st.tuples(st.just("tick"))] * 3,
)


def replayed(world: World, ages_s: list[float]) -> dict[tuple[str, float], Counts]:
    """Count the top X for every block and age by plain feerates, from the messages before that moment."""
    events = world.tables["mempool_events"]
    txs = {row["txid"]: row for row in world.tables["mempool_txs"]}
    entered = {txid: i for i, txid in enumerate(txs)}
    taken_by: dict[str, set[str]] = {}
    for row in world.tables["transactions"]:
        taken_by.setdefault(row["block_hash"], set()).add(row["txid"])
    truth: dict[tuple[str, float], Counts] = {}
    parent = -1
    for index, event in enumerate(events):
        if event["event"] != "C":
            continue
        taken = taken_by.get(event["hash"], set())
        for age_s in ages_s:
            moment = event["received_at"] - age_s
            stop = next((i for i, each in enumerate(events) if each["received_at"] >= moment), index)
            waiting = waiting_after(events[: max(stop, parent + 1)], taken_by)
            rated = [txid for txid in waiting if "fee_sat" in txs[txid]]
            # Equals share what is left of the places: those that the block took fill them first.
            rated.sort(key=lambda t: (-txs[t]["fee_sat"] / txs[t]["vsize_vb"], t not in taken, entered[t]))
            truth[event["hash"], age_s] = counted(rated, taken)
        parent = index
    return truth


def waiting_after(events: list[dict[str, Any]], taken_by: dict[str, set[str]]) -> set[str]:
    """Return the transactions that are in the mempool after these messages."""
    waiting: set[str] = set()
    for event in events:
        if event["event"] == "A":
            waiting.add(event["hash"])
        elif event["event"] == "R":
            waiting.discard(event["hash"])
        else:
            waiting -= taken_by.get(event["hash"], set())
    return waiting


def counted(ranked: list[str], taken: set[str]) -> Counts:
    """Count the best X and those behind 2 X in a ranking, and how many of each the block took."""
    x = len(taken)
    is_taken = [txid in taken for txid in ranked]
    outside = is_taken[2 * x :] if x else None
    behind = (None, None) if outside is None else (len(outside), sum(outside))
    return (x, len(ranked), min(x, len(ranked)), sum(is_taken[:x]), *behind)


# Each example is a whole build, so a failing one is not shrunk: that would take longer than reading it.
@settings(max_examples=12, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.lists(steps, min_size=15, max_size=60))
def test_every_age_agrees_with_a_replay(shared: SharedBuild, story: list[tuple[Any, ...]]) -> None:
    """At each age the counts are those of the replay; at age 0 they are those of feerate_strategy_block."""
    world = play([("tick",), *story])
    ages_s = [2.0, 5.0, 15.0]
    tables = world.tables | {"coverage": [EVERYTHING_SEEN]}
    with shared.built(tables, MARTS) as connection:
        rows = connection.execute(
            f"SELECT block_hash, age_s, {', '.join(COUNTS)} FROM feerate_age_block"  # noqa: S608 - names above
            " WHERE feerate_kind = 'plain' AND age_s IN (2, 5, 15)"
        ).fetchall()
        at_block = connection.execute(
            f"SELECT block_hash, node, feerate_kind, {', '.join(COUNTS)} FROM feerate_age_block"  # noqa: S608 - names above
            " WHERE age_s = 0 EXCEPT "
            f"SELECT block_hash, node, feerate_kind, {', '.join(COUNTS)} FROM feerate_strategy_block"
        ).fetchall()

    assert {(label_of(block), age_s): tuple(counts) for block, age_s, *counts in rows} == replayed(
        world, ages_s
    )
    assert at_block == []
