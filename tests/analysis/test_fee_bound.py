"""Compare the bound of a block's fees with a knapsack filled by sorting, in a world of many transactions."""

from typing import Any

import pytest

from tests.analysis.shared_build import SharedBuild
from tests.analysis.test_feerate_ages import EVERYTHING_SEEN, waiting_after
from tests.analysis.test_feerate_oracle import World, play
from tests.analysis.world import label_of


def filled_by_hand(world: World) -> dict[str, float]:
    """Compute the most fees that each block's weight could hold; a transaction may be taken in part."""
    events = world.tables["mempool_events"]
    txs = {row["txid"]: row for row in world.tables["mempool_txs"]}
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in world.tables["transactions"]:
        rows.setdefault(row["block_hash"], []).append(row)
    taken_by = {block: {row["txid"] for row in taken} for block, taken in rows.items()}
    bounds = {}
    for index, event in enumerate(events):
        if event["event"] != "C":
            continue
        room_wu = sum(row["weight_wu"] for row in rows.get(event["hash"], []))
        fees_sat = 0.0
        offers = [
            (txs[txid]["fee_sat"], 4 * txs[txid]["vsize_vb"] - 3)
            for txid in waiting_after(events[:index], taken_by)
        ]
        for fee_sat, weight_wu in sorted(offers, key=lambda offer: -offer[0] / offer[1]):
            part = max(0.0, min(1.0, room_wu / weight_wu))
            fees_sat += part * fee_sat
            room_wu -= weight_wu
        bounds[event["hash"]] = fees_sat
    return bounds


def test_bound_is_that_of_filling_by_hand(shared: SharedBuild) -> None:
    """The mart, which works in spans of cuts and buckets of feerates, gives the bound of a plain sort."""
    story: list[tuple[Any, ...]] = [("cover",)]  # ends coverage, so that the world skips its own slow count
    for i in range(140):
        story += [("add", 100 + (i * 37 + j * 101) % 900, 100 + 50 * (j % 3), []) for j in range(7)]
        story += [("mine", [i, 3 * i, 5 * i, 7 * i], i % 2, None), ("tick",)]
    world = play(story)
    for row in world.tables["transactions"]:
        row["weight_wu"] = 4 * row["vsize_vb"]
    tables = world.tables | {"coverage": [EVERYTHING_SEEN]}
    with shared.built(tables, ["fee_capture_block"]) as connection:
        rows = connection.execute(
            "SELECT block_hash, bound_same_weight_sat, captured_ratio FROM fee_capture_block"
        ).fetchall()
    expected = filled_by_hand(world)
    assert {label_of(block): bound for block, bound, _ in rows} == pytest.approx(expected)
    assert all(captured is None or captured <= 1 for *_, captured in rows)
