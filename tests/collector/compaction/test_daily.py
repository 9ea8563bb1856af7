"""Test the daily compaction in the background of a running collector."""

import datetime as dt
import time
from pathlib import Path

from collector.compaction.daily import Compactor, seconds_to_midnight
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from tests.collector.compaction.made_files import seen, write_events

DEADLINE_S = 60.0


def test_closed_days_are_compacted_in_the_background(tmp_path: Path) -> None:
    """The files of a past day become one file while the collector runs."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    write_events(dataset, 5, 10)
    before = seen(dataset, MEMPOOL_EVENTS)
    compactor = Compactor(dataset, delay_s=0)
    until_s = time.monotonic() + DEADLINE_S
    while len(dataset.paths(MEMPOOL_EVENTS)) > 1 and time.monotonic() < until_s:
        time.sleep(0.05)
    compactor.close()
    assert len(dataset.paths(MEMPOOL_EVENTS)) == 1
    assert seen(dataset, MEMPOOL_EVENTS) == before


def test_a_stop_does_not_wait_for_a_compaction(tmp_path: Path) -> None:
    """Closing kills a compaction that has just begun, and no row is lost."""
    dataset = Dataset.open(tmp_path / "dataset", "regtest", create=True)
    n_rows = write_events(dataset, 20, 10)
    compactor = Compactor(dataset, delay_s=0)
    time.sleep(0.5)
    compactor.close()
    assert len(seen(dataset, MEMPOOL_EVENTS)) == n_rows


def test_the_next_look_is_behind_midnight_utc() -> None:
    """One second before midnight UTC there is 1 s left, at midnight a whole day."""
    last = dt.datetime(2024, 10, 4, 23, 59, 59, tzinfo=dt.UTC)
    assert seconds_to_midnight(last) == 1
    assert seconds_to_midnight(last + dt.timedelta(seconds=1)) == 86_400
