"""Transactions that a killed backfill left go once a collector has stored them, and no copy goes twice."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from collector.backfill.run import _remove_leftovers
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.journal.present_blocks import blocks_without_transactions, unit_stem
from tests.collector.compaction.made_files import block, transaction

N_TX = 2
LIVE = "00000001-0123456789abcdef"  # as a journal names its files


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


def name(height: int) -> bytes:
    """Return the hash of the block at a height."""
    return bytes(block(height)["block_hash"])


def write_blocks(dataset: Dataset, heights: Iterable[int], stem: str) -> None:
    """Write rows of blocks of N_TX transactions each."""
    dataset.write(BLOCKS, [block(height, n_tx=N_TX) for height in heights], stem=stem)


def write_transactions(dataset: Dataset, heights: Iterable[int], stem: str, n_tx: int = N_TX) -> Path:
    """Write the first `n_tx` transactions of each block; return the file."""
    rows = [transaction(height, index) for height in heights for index in range(n_tx)]
    return dataset.write(TRANSACTIONS, rows, stem=stem)[0]


def left_by_a_kill(dataset: Dataset, heights: Iterable[int]) -> Path:
    """Write the transactions of a unit whose blocks a killed backfill never wrote; return the file."""
    unit = list(heights)
    return write_transactions(dataset, unit, unit_stem(unit, map(name, unit)))


def begin_a_backfill(dataset: Dataset) -> None:
    """Do what each backfill does first."""
    with dataset.backfill_lock():
        _remove_leftovers(dataset)


def heights_of(dataset: Dataset) -> list[int]:
    """Return the height of each row of `transactions`, sorted."""
    return sorted(dataset.read(TRANSACTIONS)["height"].to_pylist())


def twice(heights: Iterable[int]) -> list[int]:
    """Return the heights of all rows if each block's transactions are there once."""
    return [height for height in heights for _ in range(N_TX)]


@pytest.mark.parametrize("stored", [range(10), range(4), range(0)], ids=["all", "some", "none"])
def test_what_a_collector_has_stored_since_is_there_once(dataset: Dataset, stored: range) -> None:
    """Its transactions stay, those of the killed backfill go."""
    write_blocks(dataset, [20], "other")
    write_transactions(dataset, [20], "other")
    left = left_by_a_kill(dataset, range(10))
    if stored:
        write_transactions(dataset, stored, LIVE)
        write_blocks(dataset, stored, LIVE)

    begin_a_backfill(dataset)

    assert heights_of(dataset) == twice([*stored, 20])
    assert not left.exists()
    assert not blocks_without_transactions(dataset)


def test_transactions_that_no_other_file_has_in_full_stay(dataset: Dataset) -> None:
    """A collector's file may lack some that did not fit, or be lost; nothing is removed for it."""
    left_by_a_kill(dataset, range(3))
    write_blocks(dataset, range(3), LIVE)
    write_transactions(dataset, [1], LIVE)
    write_transactions(dataset, [2], f"{LIVE}-2", n_tx=1)

    begin_a_backfill(dataset)

    assert heights_of(dataset) == [0, 0, 1, 1, 2, 2, 2]


@pytest.mark.parametrize("is_stored", [True, False])
@pytest.mark.parametrize("heights", [range(5), (9, 5)], ids=["first", "last"])
def test_a_copy_and_its_source_do_not_remove_each_other(
    dataset: Dataset, heights: Iterable[int], *, is_stored: bool
) -> None:
    """A kill after the copy leaves both; whatever a collector stores meanwhile, one copy stays."""
    kept = sorted(heights)
    source = left_by_a_kill(dataset, range(10))
    content = source.read_bytes()
    write_blocks(dataset, kept, LIVE)
    begin_a_backfill(dataset)
    assert heights_of(dataset) == twice(kept)
    source.write_bytes(content)
    if is_stored:
        write_transactions(dataset, kept, LIVE)

    for _ in range(2):
        begin_a_backfill(dataset)
        assert heights_of(dataset) == twice(kept)


def leftover(dataset: Dataset) -> None:
    """Leave transactions of a block that is stored too."""
    left_by_a_kill(dataset, [3])


def stored_twice(dataset: Dataset) -> None:
    """Store a block twice, as a collector and a backfill at once may."""
    write_transactions(dataset, [3], "again")
    write_blocks(dataset, [3], "again")


@pytest.mark.parametrize("write_double", [leftover, stored_twice])
def test_a_double_does_not_hide_a_loss(dataset: Dataset, write_double: Callable[[Dataset], Any]) -> None:
    """The number of rows is right where one block is there twice and another not at all."""
    write_blocks(dataset, range(10), LIVE)
    write_transactions(dataset, [height for height in range(10) if height != 5], LIVE)
    write_double(dataset)

    assert blocks_without_transactions(dataset) == {name(5)}
