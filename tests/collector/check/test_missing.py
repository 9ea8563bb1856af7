"""Test missing blocks, and paths that are named like files of the dataset but are no files."""

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from collector.blocks.stored import read_stored_blocks
from collector.check.model import BREACH, NOTE, OK
from collector.dataset.schema import MEMPOOL_EVENTS, UNKNOWN_PARENT, hash_hex
from collector.errors import DatasetError
from collector.journal.segment import journal_folder
from collector.status.gather import gather
from tests.collector.check.made_dataset import at_us, make_rows, name, write
from tests.collector.check.test_check import breaches, results


def test_block_0_is_a_height_like_any_other(tmp_path: Path) -> None:
    """A stored block 0 makes all heights between it and the next stored block missing."""
    rows = make_rows()
    for table in ("blocks", "transactions", "block_arrivals"):
        rows[table].append({**rows[table][0], "height": 0, "block_hash": name("b0")})
    found = results(write(tmp_path / "d", rows))["heights"]
    assert (found.n_found, found.findings[0].what) == (99, "heights 1 to 99 are missing")


@pytest.mark.parametrize("height", [103, None])
def test_a_block_that_was_connected_and_is_not_there_is_missing(tmp_path: Path, height: int | None) -> None:
    """A connected block above all stored ones is missing, unless it was disconnected again."""
    rows = make_rows()
    arrival = {**rows["block_arrivals"][1], "height": height, "block_hash": name("b103")}
    rows["block_arrivals"].append({**arrival, "event_at": at_us(7)})
    missing = results(write(tmp_path / "connected", rows))["heights"]
    rows["block_arrivals"].append({**arrival, "event_at": at_us(8), "event": "disconnected"})
    stale = results(write(tmp_path / "stale", rows))["heights"]
    assert (missing.status, missing.n_found, stale.status) == (BREACH, 1, OK)
    assert "is missing" in missing.findings[0].what


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """A broken link is named as a breach, not taken for a file that compaction has moved."""
    dataset = write(tmp_path / "d", make_rows())
    link = next(dataset.folder.glob("blocks/*")) / "z.parquet"
    link.symlink_to("nowhere")
    assert breaches(dataset) == {"files": f"{link} is a link to a file that is not there"}


def test_a_pipe_is_named_and_never_opened(tmp_path: Path) -> None:
    """`check`, `status` and readers name a pipe instead of opening it, which would wait for ever."""
    dataset = write(tmp_path / "d", make_rows())
    pipe = next(dataset.folder.glob("blocks/*")) / "z.parquet"
    os.mkfifo(pipe)
    assert breaches(dataset) == {"files": f"{pipe} is no file but a pipe, device or folder"}
    assert gather(dataset).unreadable == [str(pipe)]
    with pytest.raises(DatasetError, match="a pipe, device or folder; move it out of the dataset"):
        read_stored_blocks(dataset)


def test_a_file_that_unfolds_to_more_rows_than_it_has_bytes_is_named_and_not_read(tmp_path: Path) -> None:
    """A small file with a huge number of rows is refused, because reading it could take hours."""
    dataset = write(tmp_path / "d", make_rows())
    (path,) = dataset.paths(MEMPOOL_EVENTS)
    one = dataset.read(MEMPOOL_EVENTS).slice(0, 1)
    bomb = path.with_name("bomb.parquet")
    with pq.ParquetWriter(bomb, one.schema, compression="zstd") as writer:
        for _ in range(10):
            writer.write_table(one.take([0] * 1_000_000))
    assert breaches(dataset)["files"].startswith(f"{bomb}: ")
    assert "more rows (10,000,000) than bytes" in breaches(dataset)["files"]


def test_a_parent_that_the_node_has_forgotten_is_no_breach(tmp_path: Path) -> None:
    """A missing parent of a stale block is a note; one on the active chain is a breach."""
    rows = make_rows()
    stale = {**rows["blocks"][1], "block_hash": name("stale"), "prev_hash": name("forgotten")}
    rows["blocks"].append(stale)
    result = results(write(tmp_path / "stale", rows))["parents"]
    assert (result.status, result.n_found) == (NOTE, 1)
    assert hash_hex(name("forgotten")) in result.findings[0].what
    rows["blocks"][-1] = {**stale, "height": 102}  # as high as the highest: it may become active
    result = results(write(tmp_path / "tip", rows))["parents"]
    assert (result.status, result.n_found) == (BREACH, 1)
    answer = {"node": "n", "session": "s", "received_at": at_us(7), "topic": "rpc", "reason": UNKNOWN_PARENT}
    rows["rejects"] = [*rows.get("rejects", []), answer | {"body": name("forgotten")}]
    result = results(write(tmp_path / "asked", rows))["parents"]
    assert (result.status, result.n_found) == (NOTE, 1)


def test_a_folder_in_a_journal_is_no_segment(tmp_path: Path) -> None:
    """A folder inside a journal is not read as a segment, whatever its name."""
    dataset = write(tmp_path / "d", make_rows())
    folder = journal_folder(dataset.root, "regtest", "n") / "00000001-0123456789abcdef.journal"
    folder.mkdir(parents=True)
    assert breaches(dataset) == {}


def test_a_backfill_brings_the_transactions_that_a_stored_block_lacks(tmp_path: Path) -> None:
    """A block without any transaction is a breach whose mend is a backfill of its height, and no more."""
    rows = make_rows()
    rows["transactions"] = [row for row in rows["transactions"] if row["height"] != 101]
    found = results(write(tmp_path / "d", rows))["transactions"]
    assert (found.status, found.n_found) == (BREACH, 1)
    assert found.findings[0].what.endswith("none in transactions")
    assert found.findings[0].mend.startswith("pool-collector backfill --node ")
    assert "--from 101 --to 101" in found.findings[0].mend
