"""Test that the dataset of a decade, in small, is one chain whose blocks and transactions agree."""

from collections import Counter
from pathlib import Path

from analysis.attribution.match import attribute
from analysis.attribution.rules import load_rules
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from tests.bench.decade_world import HALVING, write_decade
from tests.bench.planted_files import CHAIN, FIRST_HEIGHT
from tests.bench.planted_world import Size


def test_a_decade_is_one_chain_whose_blocks_hold_their_transactions(tmp_path: Path) -> None:
    """Each block names the one before, has as many transactions as it says, and their fees."""
    dataset = Dataset.open(write_decade(tmp_path, years=0.01, size=Size(4, 8, 6)), CHAIN)
    blocks = dataset.read(TABLES["blocks"]).to_pylist()
    history = {row["height"]: row for row in blocks if row["height"] < FIRST_HEIGHT}
    transactions = dataset.read(TABLES["transactions"]).to_pylist()
    n_tx = Counter(row["block_hash"] for row in transactions)
    fees: Counter[bytes] = Counter()
    for row in transactions:
        fees[row["block_hash"]] += row["fee_sat"] or 0

    assert len(history) > 500
    for row in blocks:
        if row["height"] - 1 in history:
            assert row["prev_hash"] == history[row["height"] - 1]["block_hash"]
    for height, row in history.items():
        assert (row["n_tx"], row["fees_sat"]) == (n_tx[row["block_hash"]], fees[row["block_hash"]])
        assert row["coinbase_value_sat"] == row["fees_sat"] + (5_000_000_000 >> height // HALVING)
    assert len({row["txid"] for row in transactions}) == len(transactions)


def test_most_blocks_of_a_decade_have_a_pool_by_the_rules(tmp_path: Path) -> None:
    """The tags are those of real pools; the blocks of one pool have none."""
    dataset = Dataset.open(write_decade(tmp_path, years=0.01, size=Size(2, 8, 6)), CHAIN)
    rules = load_rules(tmp_path / "pools")
    found = Counter(
        attribute(rules, height=row["height"], coinbase_script=row["coinbase_script"], outputs=[]).pool
        for row in dataset.read(TABLES["blocks"]).to_pylist()
    )

    assert found["antpool"] > 50
    assert 0 < found[None] < 50
