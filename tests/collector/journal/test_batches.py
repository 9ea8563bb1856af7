"""Test that batches commit rows with the mark of their messages, from the oldest batch on."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.dataset.open import Dataset
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from tests.collector.journal.journal_files import message, row, sealed


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """Make an empty dataset."""
    return Dataset.open(tmp_path / "dataset", "regtest", create=True)


@pytest.fixture
def journal(tmp_path: Path, dataset: Dataset) -> Iterator[Journal]:
    """Open a new journal."""
    with Journal(tmp_path / "journal") as opened:
        opened.recover(dataset)
        yield opened


def test_an_open_batch_holds_back_the_later_ones(journal: Journal, dataset: Dataset) -> None:
    """A complete batch waits until the batch before it is complete; then both are written."""
    batches = Batches(journal)
    first, second = (batches.begin([message(number)]) for number in (1, 2))
    first.n_pending_rows = 1
    second.add("mempool_events", [row(message(2))])
    assert batches.commit() == {}
    assert batches.n_messages == 2
    assert [each.sequence for each in batches.first_uncommitted.values()] == [1]
    first.add("mempool_events", [row(message(1))])
    first.n_pending_rows = 0
    assert batches.commit() == {"mempool_events": 2}
    assert not batches.first_uncommitted
    journal.seal(dataset)
    assert sealed(dataset) == [1, 2]


def test_a_row_too_many_is_an_error(journal: Journal) -> None:
    """A batch that gets more rows than it waited for raises an error, because it could never be committed."""
    batches = Batches(journal)
    batches.begin([message(1)]).n_pending_rows = -1
    with pytest.raises(RuntimeError, match="did not wait for"):
        batches.commit()


def test_rows_made_of_a_state_survive_a_kill(tmp_path: Path, dataset: Dataset) -> None:
    """A state stays in the journal until the rows made of it are complete; no other batch waits for them."""
    with Journal(tmp_path / "killed") as journal:
        journal.recover(dataset)
        batches = Batches(journal)
        from_state = batches.begin_from_state("listed/s/1", b"what was there")
        from_state.n_pending_rows = 1
        batches.begin([message(1)]).add("mempool_events", [row(message(1))])
        assert batches.commit() == {"mempool_events": 1}
    with Journal(tmp_path / "killed") as journal:
        assert journal.recover(dataset) == []
        assert journal.states == {"listed/s/1": b"what was there"}
        batches = Batches(journal)
        batches.begin_from_state("listed/s/1", b"what was there").add("mempool_events", [row(message(2))])
        assert batches.commit() == {"mempool_events": 1}
        assert journal.states == {}
        journal.seal(dataset)
    assert sealed(dataset) == [1, 2]
