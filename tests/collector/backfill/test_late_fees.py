"""Fees that arrive later: undo data that appears, or a node that is asked, fills what was null."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow.compute as pc
import pytest

from collector.backfill.report import Report
from collector.backfill.selection import BlockSelection
from collector.check.run import check
from collector.dataset.files import lock_taken, make_folder
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TRANSACTIONS
from collector.regtest import RegtestNode
from tests.collector.backfill.conftest import Rows, rows_of

pytestmark = pytest.mark.bitcoind

Backfill = Callable[..., Report]


@pytest.fixture
def undo(blocks_dir: Path, tmp_path: Path) -> Callable[[], None]:
    """Take the undo files away; return what brings them back."""
    away = tmp_path / "undo"
    away.mkdir()
    paths = list(blocks_dir.glob("rev*.dat"))
    for path in paths:
        path.rename(away / path.name)

    def bring_back() -> None:
        for path in paths:
            (away / path.name).rename(path)

    return bring_back


def test_undo_data_that_appears_later_fills_the_fees(
    blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill, expected: Rows
) -> None:
    """After the second run every row is as if the undo data had always been there; a third finds nothing."""
    first = backfill(blocks_dir)
    assert rows_of(dataset) != expected
    undo()

    second = backfill(blocks_dir)
    third = backfill(blocks_dir)

    found = rows_of(dataset)
    assert found.transactions == expected.transactions
    assert found.blocks == expected.blocks
    assert second.n_lacked_fees == second.n_fees_filled == first.result.n_without_fees > 0
    assert second.result.n_blocks == third.n_lacked_fees == 0
    assert f"filled now: {second.n_fees_filled}" in "\n".join(second.lines())


def test_a_run_without_undo_data_changes_nothing(
    blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill
) -> None:
    """The files of the dataset stay the same, byte by byte."""
    backfill(blocks_dir)
    before = {path: path.stat().st_ino for path in dataset.paths(BLOCKS) + dataset.paths(TRANSACTIONS)}

    report = backfill(blocks_dir)

    assert {path: path.stat().st_ino for path in before} == before
    assert report.n_lacked_fees == 0
    undo()


def test_only_the_selected_heights_are_filled(
    blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill
) -> None:
    """--from and --to bound the fees too."""
    backfill(blocks_dir)
    lacking = sorted(row["height"] for row in dataset.read(BLOCKS).to_pylist() if row["fees_sat"] is None)
    undo()

    backfill(blocks_dir, BlockSelection(last_height=lacking[0]))

    rows = dataset.read(BLOCKS).to_pylist()
    assert min(row["height"] for row in rows if row["fees_sat"] is None) > lacking[0]


def test_a_node_tells_the_fees_that_files_lack(
    node: RegtestNode, blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill
) -> None:
    """`backfill --node` fills the blocks of the node's chain; where the rows came from stays as it was."""
    backfill(blocks_dir)
    before = dataset.read(BLOCKS)
    command = [sys.executable, "-P", "-m", "collector", "backfill", "--node", "--chain", "regtest"]
    command += ["--rpc-url", node.rpc_url, "--cookie-file", str(node.cookie_path), "--workers", "1"]

    result = subprocess.run(
        [*command, "--dataset", str(dataset.root)], capture_output=True, text=True, check=False
    )

    assert result.returncode == 0, result.stderr
    rpc = node.client()
    height = rpc.call("getblockcount")
    active = {rpc.call("getblockhash", i) for i in range(height + 1)}
    after = dataset.read(BLOCKS)
    for row in after.to_pylist():
        if row["block_hash"][::-1].hex() in active:
            assert row["fees_sat"] is not None, row["height"]
    assert set(after["source"].to_pylist()) == set(before["source"].to_pylist()) == {"blkfile"}
    report = json.loads((dataset.root / "backfill-regtest.json").read_text())
    assert report["n_fees_filled"] > 0
    undo()


def test_check_names_the_heights_and_the_command(
    blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill
) -> None:
    """A note and no breach, with ranges that cover every block without fees; none is left afterwards."""
    backfill(blocks_dir)
    rows = dataset.read(BLOCKS)
    lacking = set(rows.filter(pc.is_null(rows["fees_sat"]))["height"].to_pylist())

    [before] = [result for result in check(dataset) if result.name == "block_fees"]
    undo()
    backfill(blocks_dir)
    [after] = [result for result in check(dataset) if result.name == "block_fees"]

    assert before.status == "note"
    assert before.n_found == len(lacking)
    assert f"{min(lacking)}" in before.findings[0].what
    assert (
        f"pool-collector backfill --node --chain regtest --dataset {dataset.root}" in before.findings[0].mend
    )
    assert after.status == "ok"


def test_a_running_compaction_is_not_disturbed(
    blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill, expected: Rows
) -> None:
    """The report says why nothing was filled; the next run fills it."""
    backfill(blocks_dir)
    undo()
    work = dataset.root / ".compaction" / "regtest"
    make_folder(work)
    with lock_taken(work / "lock", "held"):
        report = backfill(blocks_dir)
    assert "another compaction" in report.fees_problem
    assert "were not filled" in "\n".join(report.lines())

    backfill(blocks_dir)

    assert rows_of(dataset).blocks == expected.blocks


DIES = """
import os, signal
from collector.backfill import late_fees
from collector.cli import main
from collector.dataset.schema import BLOCKS

fill = late_fees._Filler.fill

def fill_and_die(filler, table, folder):
    if table is BLOCKS:
        os.kill(os.getpid(), signal.SIGKILL)
    fill(filler, table, folder)

late_fees._Filler.fill = fill_and_die
main()
"""


def test_a_kill_between_transactions_and_blocks_costs_only_work(
    blocks_dir: Path, dataset: Dataset, undo: Callable[[], None], backfill: Backfill, expected: Rows
) -> None:
    """A process killed after the transactions leaves sound tables, and the next run completes them."""
    backfill(blocks_dir)
    undo()
    options = ("--blocks-dir", str(blocks_dir), "--dataset", str(dataset.root), "--workers", "1")
    killed = subprocess.run([sys.executable, "-P", "-c", DIES, "backfill", *options], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert rows_of(dataset).transactions == expected.transactions
    assert rows_of(dataset).blocks != expected.blocks

    backfill(blocks_dir)

    assert rows_of(dataset).blocks == expected.blocks
    assert all(result.status != "breach" for result in check(dataset))
