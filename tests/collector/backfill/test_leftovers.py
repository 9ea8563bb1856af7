"""Test what killed runs and lost files leave: transactions without blocks, blocks without transactions."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest
from rich.console import Console

from collector.backfill.progress import ProgressView
from collector.backfill.report import Report
from collector.backfill.run import from_node
from collector.backfill.selection import BlockSelection
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.journal.present_blocks import remove_orphaned_transactions
from collector.node.access import Access
from collector.regtest import RegtestNode
from tests.collector.backfill.conftest import Rows, rows_of

pytestmark = pytest.mark.bitcoind

Backfill = Callable[..., Report]
N_LOST = 31


@pytest.mark.parametrize("n_stored", [0, 3, 31], ids=["none", "some", "all"])
def test_what_a_killed_run_left_goes_except_for_stored_blocks(
    n_stored: int, blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Of transactions whose file of `blocks` was never written, those of blocks stored since stay."""
    backfill(blocks_dir, BlockSelection(last_height=30))
    (left,) = dataset.paths(BLOCKS)
    left.unlink()
    if n_stored:
        dataset.write(BLOCKS, expected.blocks.slice(31 - n_stored, n_stored), stem="live")
    remove_orphaned_transactions(dataset, is_backfill=True)

    kept = rows_of(dataset).transactions
    hashes = expected.blocks["block_hash"].slice(31 - n_stored, n_stored)
    of_stored = pc.is_in(expected.transactions["block_hash"], value_set=hashes.combine_chunks())
    assert kept == expected.transactions.filter(of_stored).combine_chunks()
    backfill(blocks_dir)
    rows = rows_of(dataset)
    assert rows.transactions == expected.transactions
    assert rows.blocks == expected.blocks


def test_a_kill_before_the_leftover_is_removed_costs_nothing(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """The leftover, and the file of what must stay of it, give the same rows once the next run has begun."""
    backfill(blocks_dir, BlockSelection(last_height=30))
    (left,) = dataset.paths(TRANSACTIONS)
    content = left.read_bytes()
    dataset.paths(BLOCKS)[0].unlink()
    dataset.write(BLOCKS, expected.blocks.slice(9, 2), stem="live")
    remove_orphaned_transactions(dataset, is_backfill=True)
    assert left not in dataset.paths(TRANSACTIONS)
    left.write_bytes(content)

    backfill(blocks_dir)

    rows = rows_of(dataset)
    assert rows.transactions == expected.transactions
    assert rows.blocks == expected.blocks


def test_stored_blocks_that_lost_their_transactions_get_them_from_files(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """A lost file of `transactions` is written again; the rows of `blocks` stay as they are."""
    lose_transactions(blocks_dir, dataset, backfill)

    report = backfill(blocks_dir)

    rows = rows_of(dataset)
    assert rows.transactions == expected.transactions
    assert rows.blocks == expected.blocks
    assert report.result.n_blocks == N_LOST


def test_stored_blocks_that_lost_their_transactions_get_them_from_a_node(
    node: RegtestNode, blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """A node's blocks serve as well as its files."""
    lose_transactions(blocks_dir, dataset, backfill)

    access = Access(node.rpc_url, node.cookie_path, None, None)
    with ProgressView(Console(quiet=True), 1) as progress:
        report = from_node(access, dataset, BlockSelection(), workers=1, progress=progress)

    rows = rows_of(dataset)
    assert rows.transactions == expected.transactions
    assert rows.blocks == expected.blocks
    assert report.result.n_blocks == N_LOST


def lose_transactions(blocks_dir: Path, dataset: Dataset, backfill: Backfill) -> None:
    """Store every block; then remove the file with the transactions of the first N_LOST blocks."""
    backfill(blocks_dir, BlockSelection(last_height=N_LOST - 1))
    (lost,) = dataset.paths(TRANSACTIONS)
    backfill(blocks_dir)
    lost.unlink()
