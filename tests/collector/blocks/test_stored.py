"""Which blocks a dataset holds and should hold: from what is present, never from the greatest height."""

from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks, stored_blocks
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS

DEFAULTS = {"binary": b"", "bool": False, "fixed_size_binary[32]": bytes(32), "string": "x"}


def name(height: int, branch: int = 0) -> bytes:
    """Make the hash of a block."""
    return bytes([branch]) + height.to_bytes(31, "big")


def block(height: int, branch: int = 0, parent: int = 0) -> dict[str, Any]:
    """Make a row of `blocks`; what is not about its place is the same in all."""
    row: dict[str, Any] = {column.name: None for column in BLOCKS.columns}
    for column in BLOCKS.columns:
        if not column.nullable:
            row[column.name] = DEFAULTS.get(str(column.type), 0)
    values = {column.name: column.values[0] for column in BLOCKS.columns if column.values}
    links = {"block_hash": name(height, branch), "prev_hash": name(height - 1, parent), "height": height}
    return row | values | {"coinbase_outputs": []} | links


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


def test_an_empty_dataset_wants_nothing_yet(dataset: Dataset) -> None:
    """It begins with the first block that it sees come."""
    stored = stored_blocks(dataset)
    assert (stored.floor, stored.holes) == (None, ())
    stored.begin_at(500)
    stored.begin_at(700)
    stored.begin_at(400)
    assert stored.floor == 400


def test_every_hole_is_found_however_deep_and_on_stale_branches(dataset: Dataset) -> None:
    """A block's parent that is missing is a hole, thousands of blocks down too; the lowest has none."""
    heights = [*range(100, 110), *range(115, 120), *range(5000, 5003)]
    rows = [block(height) for height in heights] + [block(118, branch=1, parent=1)]
    dataset.write(BLOCKS, rows, stem="a")
    stored = stored_blocks(dataset)
    assert stored.floor == 100
    assert set(stored.holes) == {name(114), name(4999), name(117, branch=1)}
    assert name(105) in stored
    assert name(110) not in stored


def test_a_block_is_claimed_once_and_given_back_by_a_failed_session() -> None:
    """What the failed node's session had stored after all stays; another node's blocks are not touched.

    What it had not is a hole until it is claimed again.
    """
    stored = StoredBlocks([name(1)], 1)
    assert not stored.claim(name(1), "a")
    assert stored.claim(name(2), "a")
    assert stored.claim(name(3), "a")
    assert not stored.claim(name(3), "b")
    assert stored.claim(name(4), "b")
    stored.release("a", {name(1), name(2)})
    assert [name(height) in stored for height in (1, 2, 3, 4)] == [True, True, False, True]
    assert set(stored.holes) == {name(3)}
    assert stored.claim(name(3), "b")
    assert not stored.holes


def transactions(height: int, branch: int = 0) -> list[dict[str, Any]]:
    """Make the row of a block's only transaction."""
    row = {column.name: DEFAULTS.get(str(column.type), 0) for column in TRANSACTIONS.columns}
    row |= {column.name: None for column in TRANSACTIONS.columns if column.nullable}
    lists = {column.name: [] for column in TRANSACTIONS.columns if str(column.type).startswith("list")}
    return [row | lists | {"block_hash": name(height, branch), "height": height}]


def test_what_a_lost_file_of_blocks_leaves_of_them_is_found(dataset: Dataset) -> None:
    """A file of blocks was moved away; its transactions are there, of the tip and of a stale branch too."""
    heights = {"a": range(100, 105), "b": range(105, 110), "c": range(110, 112)}
    for stem, span in heights.items():
        dataset.write(BLOCKS, [block(height) for height in span], stem=stem)
        dataset.write(TRANSACTIONS, [row for height in span for row in transactions(height)], stem=stem)
    dataset.write(BLOCKS, [block(104, branch=1, parent=1)], stem="d")
    dataset.write(TRANSACTIONS, transactions(103, branch=1), stem="d")
    stored = stored_blocks(dataset)
    assert stored.rowless == {name(103, branch=1)}
    for path in dataset.paths(BLOCKS):
        if path.stem in {"b", "c"}:
            path.unlink()
    stored = stored_blocks(dataset)
    lost = {name(height) for height in (*heights["b"], *heights["c"])}
    assert stored.rowless == lost | {name(103, branch=1)}
    damaged = dataset.paths(TRANSACTIONS)[0]
    damaged.write_bytes(damaged.read_bytes()[:-9])
    assert stored_blocks(dataset).rowless == stored.rowless
