"""Fixtures of the backfill tests: a chain on a real node, its files, and the rows that they give."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest
from rich.console import Console

from collector.backfill.blockfiles import BlockFolder
from collector.backfill.progress import ProgressView
from collector.backfill.report import Report
from collector.backfill.run import from_files
from collector.backfill.selection import BlockSelection
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.regtest import RegtestNode, find_bitcoind
from tests.collector.backfill.made_chain import all_hashes, make_chain, node_rows

SMALL_FILES = "-fastprune"  # block files of 64 KiB


class Rows(NamedTuple):
    """Holds the rows of `blocks` and `transactions`, sorted as in the files."""

    blocks: pa.Table
    transactions: pa.Table


@pytest.fixture(scope="session")
def node() -> Iterator[RegtestNode]:
    """Start a node whose chain has everything, in several small obfuscated block files."""
    with RegtestNode(find_bitcoind(), options=[SMALL_FILES, "-blockmaxweight=4000000"]) as running:
        make_chain(running)
        yield running


@pytest.fixture(scope="session")
def expected(node: RegtestNode) -> Rows:
    """Make the rows of every block, stale ones included, from the node's RPC answers."""
    rpc = node.client()
    return Rows(*node_rows(rpc, all_hashes(rpc)))


@pytest.fixture
def blocks_dir(node: RegtestNode, tmp_path: Path) -> Path:
    """Copy the node's block files into a folder of the test."""
    target = tmp_path / "blocks"
    shutil.copytree(
        node.datadir / "regtest" / "blocks", target, ignore=shutil.ignore_patterns("index", ".lock")
    )
    return target


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Create an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


@pytest.fixture
def backfill(dataset: Dataset) -> Callable[..., Report]:
    """Run a backfill from a folder into the dataset."""

    def run(
        path: Path,
        selection: BlockSelection | None = None,
        *,
        workers: int = 1,
        chain: str = "regtest",
        into: Dataset = dataset,
    ) -> Report:
        if chain != "regtest":
            into = Dataset.open(dataset.root, chain)
        with ProgressView(Console(quiet=True), workers) as progress:
            return from_files(
                BlockFolder(path, chain),
                into,
                selection or BlockSelection(),
                workers=workers,
                progress=progress,
            )

    return run


def rows_of(dataset: Dataset) -> Rows:
    """Read the rows that a dataset holds, in the order of its files."""
    ordering = [("height", "ascending"), ("block_hash", "ascending")]
    return Rows(
        dataset.read(BLOCKS).sort_by(ordering).combine_chunks(),
        dataset.read(TRANSACTIONS).sort_by([*ordering, ("tx_index", "ascending")]).combine_chunks(),
    )
