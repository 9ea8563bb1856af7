"""What is missing above or below all that is there, and files that are none."""

from pathlib import Path

import pytest

from collector.check.model import BREACH, OK
from collector.journal.segment import journal_folder
from tests.collector.check.made_dataset import at_us, make_rows, name, write
from tests.collector.check.test_check import breaches, results


def test_block_0_is_a_height_like_any_other(tmp_path: Path) -> None:
    """A node that was emptied announces it; then all heights up to what was there before are missing."""
    rows = make_rows()
    for table in ("blocks", "transactions", "block_arrivals"):
        rows[table].append({**rows[table][0], "height": 0, "block_hash": name("b0")})
    found = results(write(tmp_path / "d", rows))["heights"]
    assert (found.n_found, found.findings[0].what) == (99, "heights 1 to 99 are missing")


@pytest.mark.parametrize("height", [103, None])
def test_a_block_that_was_connected_and_is_not_there_is_missing(tmp_path: Path, height: int | None) -> None:
    """Above all that are stored no gap shows it; a block that was disconnected again need not be there."""
    rows = make_rows()
    arrival = {**rows["block_arrivals"][1], "height": height, "block_hash": name("b103")}
    rows["block_arrivals"].append({**arrival, "event_at": at_us(7)})
    missing = results(write(tmp_path / "connected", rows))["heights"]
    rows["block_arrivals"].append({**arrival, "event_at": at_us(8), "event": "disconnected"})
    stale = results(write(tmp_path / "stale", rows))["heights"]
    assert (missing.status, missing.n_found, stale.status) == (BREACH, 1, OK)
    assert "is missing" in missing.findings[0].what


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    """It is none of the files that compaction takes away while they are read."""
    dataset = write(tmp_path / "d", make_rows())
    link = next(dataset.folder.glob("blocks/*")) / "z.parquet"
    link.symlink_to("nowhere")
    assert breaches(dataset) == {"files": f"{link} is a link to a file that is not there"}


def test_a_folder_in_a_journal_is_no_segment(tmp_path: Path) -> None:
    """Whatever its name is."""
    dataset = write(tmp_path / "d", make_rows())
    folder = journal_folder(dataset.root, "regtest", "n") / "00000001-0123456789abcdef.journal"
    folder.mkdir(parents=True)
    assert breaches(dataset) == {}
