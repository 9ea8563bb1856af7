"""Test StoredBlocks: it finds the blocks that a dataset lacks by their hashes, not by the greatest height."""

from pathlib import Path
from typing import Any

import pytest

from collector.blocks.stored import StoredBlocks, read_stored_blocks
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.journal.present_blocks import unit_stem
from tests.collector.compaction.made_files import flip_a_bit_unseen_by_duckdb

DEFAULTS = {"binary": b"", "bool": False, "fixed_size_binary[32]": bytes(32), "string": "x"}


def name(height: int, branch: int = 0) -> bytes:
    """Return the hash of a made-up block."""
    return bytes([branch]) + height.to_bytes(31, "big")


def block(height: int, branch: int = 0, parent: int = 0) -> dict[str, Any]:
    """Return a row of `blocks`; all rows differ only by their place in the chain."""
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
    """A first height must be set; a lower one replaces it later and a higher one does not."""
    stored = read_stored_blocks(dataset)
    assert (stored.first_wanted_height, stored.missing) == (None, ())
    stored.want_from(500)
    stored.want_from(700)
    stored.want_from(400)
    assert stored.first_wanted_height == 400


def test_every_missing_parent_is_found_however_deep_and_on_stale_branches(dataset: Dataset) -> None:
    """A missing parent is found thousands of blocks down too; the lowest block needs no parent."""
    heights = [*range(100, 110), *range(115, 120), *range(5000, 5003)]
    rows = [block(height) for height in heights] + [block(118, branch=1, parent=1)]
    dataset.write(BLOCKS, rows, stem="a")
    stored = read_stored_blocks(dataset)
    assert stored.first_wanted_height == 100
    assert set(stored.missing) == {name(114), name(4999), name(117, branch=1)}
    assert name(105) in stored
    assert name(110) not in stored


@pytest.mark.parametrize("column", ["prev_hash", "height"])
def test_a_flipped_bit_in_an_old_file_does_not_stop_the_start(dataset: Dataset, column: str) -> None:
    """Without its collector the mempool of that time would be lost; `check` names the file."""
    dataset.write(BLOCKS, [block(height) for height in range(100, 110)], stem="a")
    dataset.write(BLOCKS, [block(height) for height in range(110, 120)], stem="b")
    flip_a_bit_unseen_by_duckdb(dataset.paths(BLOCKS)[0], column)

    stored = read_stored_blocks(dataset)

    assert all(name(height) in stored for height in range(100, 120))


def test_a_block_is_reserved_once_and_given_back_by_a_failed_session() -> None:
    """What a failed session had stored stays reserved, and so do the blocks of other nodes.

    What it had not stored is missing until it is reserved again.
    """
    stored = StoredBlocks([name(1)], 1)
    assert not stored.reserve(name(1), "a")
    assert stored.reserve(name(2), "a")
    assert stored.reserve(name(3), "a")
    assert not stored.reserve(name(3), "b")
    assert stored.reserve(name(4), "b")
    stored.cancel_reservations("a", {name(1), name(2)})
    assert [name(height) in stored for height in (1, 2, 3, 4)] == [True, True, False, True]
    assert set(stored.missing) == {name(3)}
    assert stored.reserve(name(3), "b")
    assert not stored.missing


def transactions(height: int, n_tx: int, branch: int = 0) -> list[dict[str, Any]]:
    """Return the rows of a block's transactions."""
    row = {column.name: DEFAULTS.get(str(column.type), 0) for column in TRANSACTIONS.columns}
    row |= {column.name: None for column in TRANSACTIONS.columns if column.nullable}
    row |= {column.name: [] for column in TRANSACTIONS.columns if str(column.type).startswith("list")}
    row |= {"block_hash": name(height, branch), "height": height}
    return [row | {"tx_index": index} for index in range(n_tx)]


def test_transactions_of_a_lost_block_are_known_unless_a_backfill_wrote_them(dataset: Dataset) -> None:
    """A collector that fetches the block again must not store them twice; a damaged file is passed over."""
    heights = {"a": range(100, 105), "b": range(105, 110), "c": range(1110, 1112)}
    for stem, span in heights.items():
        dataset.write(BLOCKS, [block(height) | {"n_tx": 2} for height in span], stem=stem)
        dataset.write(TRANSACTIONS, [row for height in span for row in transactions(height, 2)], stem=stem)
    dataset.write(TRANSACTIONS, transactions(103, 3, branch=1), stem="d")
    left = unit_stem([104], [name(104, branch=1)])
    dataset.write(TRANSACTIONS, transactions(104, 2, branch=1), stem=left)

    stored = read_stored_blocks(dataset)
    assert stored.has_transactions(name(103, branch=1), 3)
    assert not stored.has_transactions(name(103, branch=1), 4)
    assert not stored.has_transactions(name(104, branch=1), 2)
    assert not stored.has_transactions(name(105), 2)

    for path in dataset.paths(BLOCKS):
        if path.stem in {"b", "c"}:
            path.unlink()
    (damaged,) = (path for path in dataset.paths(TRANSACTIONS) if path.stem == "a")
    damaged.write_bytes(damaged.read_bytes()[:-9])
    stored = read_stored_blocks(dataset)
    lost = [*heights["b"], *heights["c"]]
    assert all(stored.has_transactions(name(height), 2) for height in lost)
    assert not any(stored.has_transactions(name(height), 2) for height in heights["a"])
