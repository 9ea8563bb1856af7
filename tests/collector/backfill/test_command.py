"""Test `pool-collector backfill` as a command: from a node, beside files, killed, stopped, misused."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from collector.backfill.report import Report
from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, NODES
from collector.errors import DatasetError
from collector.journal.present_blocks import running_collector_tip
from collector.regtest import RegtestNode
from gpuhash.reference import sha256d
from tests.collector.backfill import made_files
from tests.collector.backfill.conftest import Rows, rows_of
from tests.collector.backfill.made_chain import node_rows

pytestmark = pytest.mark.bitcoind

Backfill = Callable[..., Report]


def command(*options: object) -> list[str]:
    """Return the command line of a backfill with these options."""
    return [sys.executable, "-m", "collector", "backfill", *map(str, options)]


def run(*options: object) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return subprocess.run(command(*options), capture_output=True, text=True, check=False, timeout=120)


def node_options(node: RegtestNode) -> Sequence[object]:
    """Return the options that name a node's RPC."""
    return ("--node", "--chain", "regtest", "--rpc-url", node.rpc_url, "--cookie-file", node.cookie_path)


def test_a_node_gives_the_same_rows_as_its_files(node: RegtestNode, dataset: Dataset, tmp_path: Path) -> None:
    """A backfill by RPC gives every block of the node's chain, and its report as JSON."""
    rpc = node.client()
    height = rpc.call("getblockcount")
    hashes = [rpc.call("getblockhash", i) for i in range(height + 1)]
    expected = Rows(*node_rows(rpc, hashes, height_source="rpc", source="rpc"))
    report = tmp_path / "report.json"

    where = ("--dataset", dataset.root, "--report", report)
    result = run(*node_options(node), *where, "--workers", 2, "--to", height + 5)

    assert result.returncode == 0, result.stderr
    assert rows_of(dataset) == Rows(*(each.combine_chunks() for each in expected))
    facts = json.loads(report.read_text())
    assert (facts["n_blocks"], facts["tip_height"], facts["tip_hash"]) == (height + 1, height, hashes[-1])
    assert f"wrote {height + 1:,} blocks" in result.stdout
    assert f"no block found for heights {height + 1}-{height + 5}" in result.stdout


def test_a_day_without_blocks_gives_none(node: RegtestNode, dataset: Dataset) -> None:
    """A range of days before the first header time, in UTC, gives no block."""
    result = run(*node_options(node), "--dataset", dataset.root, "--to", "2009-01-02", "--workers", 1)

    assert result.returncode == 0, result.stderr
    assert len(dataset.read(BLOCKS)) == 0


def test_a_node_beside_files_gives_the_fees_that_they_lack(
    node: RegtestNode, blocks_dir: Path, dataset: Dataset, expected: Rows
) -> None:
    """Without undo files every row is the same, when the node may be asked."""
    for path in blocks_dir.glob("rev*.dat"):
        path.unlink()

    result = run(*node_options(node), "--blocks-dir", blocks_dir, "--dataset", dataset.root, "--workers", 1)

    assert result.returncode == 0, result.stderr
    found = rows_of(dataset)
    assert found.transactions == expected.transactions
    assert found.blocks == expected.blocks


def test_blocks_that_a_node_does_not_have_are_named(
    node: RegtestNode, blocks_dir: Path, dataset: Dataset, tmp_path: Path
) -> None:
    """Blocks of a branch that the node has left are named in the report."""
    rpc = node.client()
    stale = [tip for tip in rpc.call("getchaintips") if tip["status"] != "active"]
    stale_hashes = {bytes.fromhex(tip["hash"])[::-1] for tip in stale}
    tip = rpc.call("getbestblockhash")
    blocks = made_files.read_blocks(blocks_dir)
    fork_height = min(each["height"] for each in stale)
    kept = [block for block in blocks if height_of(rpc, block) < fork_height or is_among(block, stale_hashes)]
    folder = made_files.write_files(tmp_path / "left", [kept])
    report = tmp_path / "report.json"

    where = ("--blocks-dir", folder, "--dataset", dataset.root, "--report", report)
    result = run(*node_options(node), *where, "--workers", 1)

    assert result.returncode == 0, result.stderr
    named = json.loads(report.read_text())["unknown_to_node"]
    assert named
    assert tip not in named
    assert {bytes.fromhex(each)[::-1] for each in named} <= stale_hashes


def test_a_killed_run_goes_on_and_every_row_is_there_once(
    blocks_dir: Path, dataset: Dataset, expected: Rows
) -> None:
    """After SIGKILL and then SIGTERM in the middle of runs, the next run leaves every row there once."""
    for ending in (signal.SIGKILL, signal.SIGTERM):
        before = files_of(dataset)
        process = subprocess.Popen(
            command("--blocks-dir", blocks_dir, "--dataset", dataset.root, "--workers", 2),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        while not files_of(dataset) - before and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(ending)
        process.wait()
        hashes = dataset.read(BLOCKS)["block_hash"].to_pylist()
        assert len(hashes) == len(set(hashes))

    result = run("--blocks-dir", blocks_dir, "--dataset", dataset.root, "--workers", 2)

    assert result.returncode == 0, result.stderr
    assert rows_of(dataset) == expected


def files_of(dataset: Dataset) -> set[tuple[Path, int]]:
    """Return every Parquet file of a dataset, with the time at which it was written.

    A running backfill may remove a file while we look.
    """
    found = set()
    for path in dataset.folder.rglob("*.parquet"):
        with suppress(FileNotFoundError):
            found.add((path, path.stat().st_mtime_ns))
    return found


def test_what_a_kill_leaves_between_two_files_is_made_again(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """Transactions without the rows of their blocks are removed, and both are written again."""
    backfill(blocks_dir)
    dataset.paths(BLOCKS)[0].unlink()

    backfill(blocks_dir)

    assert rows_of(dataset) == expected


def test_files_that_were_put_together_since_are_no_leftovers(
    blocks_dir: Path, dataset: Dataset, backfill: Backfill, expected: Rows
) -> None:
    """After a compaction of `blocks`, a second run removes nothing and writes nothing again."""
    backfill(blocks_dir)
    for path in dataset.paths(BLOCKS):
        path.unlink()
    dataset.write(BLOCKS, expected.blocks, stem="together")

    backfill(blocks_dir)

    assert rows_of(dataset) == expected
    assert len(dataset.paths(BLOCKS)) == 1


def test_one_backfill_at_a_time(dataset: Dataset) -> None:
    """A second backfill of the same dataset is refused with the reason."""
    with (
        dataset.backfill_lock(),
        pytest.raises(DatasetError, match="another backfill or import"),
        dataset.backfill_lock(),
    ):
        pass


def test_what_a_live_collector_will_store_is_left_to_it(
    dataset: Dataset, blocks_dir: Path, backfill: Backfill, expected: Rows
) -> None:
    """Blocks above the tip at the start of a running collector are left to that collector."""
    folder = dataset.root / "journal" / "regtest" / "live"
    folder.mkdir(parents=True)
    dataset.write(NODES, [session("live", tip_height=90)], stem="one")
    assert running_collector_tip(dataset) is None
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)

    report = backfill(blocks_dir)
    os.close(handle)

    assert max(rows_of(dataset).blocks["height"].to_pylist()) == 90
    assert report.n_left_to_collector == len(expected.blocks) - 91
    assert any("left to the running collector" in line for line in report.lines())


@pytest.mark.parametrize(
    ("options", "status", "message"),
    [
        ((), 2, "--blocks-dir"),
        (("--blocks-dir", "BLOCKS", "--from", "yesterday"), 2, "neither a height nor a date"),
        (("--blocks-dir", "BLOCKS", "--from", "9", "--to", "8"), 2, "is after"),
        (("--blocks-dir", "BLOCKS", "--from", "2020-01-02", "--to", "2020-01-01"), 2, "is after"),
        (("--blocks-dir", "BLOCKS", "--workers", "0"), 2, "workers"),
        (("--blocks-dir", "BLOCKS", "--chain", "moon"), 2, "no chain 'moon'"),
        (("--blocks-dir", "BLOCKS", "--chain", "main"), 1, "is of chain regtest, not of main"),
        (("--blocks-dir", "BLOCKS", "--report", "nowhere/report.json"), 2, "--report"),
        (("--blocks-dir", "BLOCKS", "--report", "BLOCKS"), 2, "--report"),
        (("--blocks-dir", "nowhere"), 1, "set --blocks-dir"),
        (("--node", "--rpc-url", "http://127.0.0.1:1", "--cookie-file", "nowhere"), 1, "cookie"),
    ],
)
def test_misuse_is_one_sentence(  # noqa: PLR0917 - pytest passes fixtures by name
    options: Sequence[str],
    status: int,
    message: str,
    blocks_dir: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Wrong options lead to a sentence that says what to set, and nothing is written."""
    given = [str(blocks_dir) if option == "BLOCKS" else option for option in options]
    monkeypatch.setattr(
        sys, "argv", ["pool-collector", "backfill", "--dataset", str(tmp_path / "new"), *given]
    )

    with pytest.raises(SystemExit) as ended:
        main()

    assert ended.value.code == status
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "new").rglob("*.parquet"))


def session(node: str, *, tip_height: int) -> dict[str, object]:
    """Return a row of `nodes`."""
    row: dict[str, object] = {column.name: "" for column in NODES.columns}
    return row | {
        "node": node,
        "session": "one",
        "started_at": 0,
        "chain": "regtest",
        "node_version": 290000,
        "tip_height": tip_height,
        "tip_hash": bytes(32),
        "n_mempool_at_start": 0,
        "clock_offset_us": None,
    }


def height_of(rpc, block: bytes) -> int:  # noqa: ANN001 - any client
    """Return a block's height as the node has it."""
    return int(rpc.call("getblockheader", sha256d(block[:80])[::-1].hex())["height"])


def is_among(block: bytes, hashes: set[bytes]) -> bool:
    """Return whether a block is one of these."""
    return sha256d(block[:80]) in hashes
