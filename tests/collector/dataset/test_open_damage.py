"""Test that a Parquet file damaged after it was written is named and kept aside, never silently used."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.errors import DatasetError
from collector.journal.journal import Journal
from tests.collector.journal.journal_files import message, row, sealed

ROWS = 2000


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


def write(dataset: Dataset) -> Path:
    """Write one file of a table; return its path."""
    (path,) = dataset.write(MEMPOOL_EVENTS, [row(message(number)) for number in range(ROWS)], stem="x")
    return path


@pytest.mark.parametrize("kept_ratio", [0.0, 0.01, 0.5, 0.9, 0.999])
def test_a_truncated_file_is_written_anew(dataset: Dataset, kept_ratio: float) -> None:
    """A second write of the same rows replaces a truncated file, as a seal after a kill needs."""
    path = write(dataset)
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * kept_ratio)])
    with pytest.raises(DatasetError, match=r"x\.parquet.*move it away"):
        dataset.read(MEMPOOL_EVENTS)
    with capture_logs() as logs:
        assert write(dataset) == path
    assert sealed(dataset) == list(range(ROWS))
    assert [entry["event"] for entry in logs] == ["dataset.damaged"]
    assert path.with_name("x.parquet.damaged").read_bytes() == content[: int(len(content) * kept_ratio)]


@pytest.mark.parametrize("position_ratio", [0.1, 0.25, 0.4])
def test_a_flipped_bit_in_a_page_is_found(dataset: Dataset, position_ratio: float) -> None:
    """A flipped bit is found by the page checksum, even where the page still decompresses."""
    path = write(dataset)
    content = bytearray(path.read_bytes())
    content[int(len(content) * position_ratio)] ^= 4
    path.write_bytes(content)
    with capture_logs() as logs:
        write(dataset)
    assert [entry["event"] for entry in logs] == ["dataset.damaged"]
    assert sealed(dataset) == list(range(ROWS))


def test_a_file_that_is_whole_is_left_as_it_is(dataset: Dataset) -> None:
    """A second write of the same rows leaves a whole file untouched."""
    path = write(dataset)
    before = path.stat()
    with capture_logs() as logs:
        write(dataset)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert logs == []


def test_a_kill_while_the_folder_was_made_a_dataset_is_no_hindrance(tmp_path: Path) -> None:
    """A folder that holds only a half-written marker can still become a dataset."""
    root = tmp_path / "fresh"
    root.mkdir()
    (root / ".dataset.json.tmp").write_bytes(b'{"form')
    dataset = Dataset.open(root, "regtest", create=True)
    with Journal(root / "journal") as journal:
        assert journal.recover(dataset) == []
