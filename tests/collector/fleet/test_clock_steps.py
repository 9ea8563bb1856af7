"""A member's clock that was set while it collected is corrected on both sides of the step."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.dataset.schema import COVERAGE, MEMBER_CLOCKS
from collector.fleet.clocks import ClockOffset, MemberClock
from collector.fleet.merge import merge_datasets
from tests.collector.fleet.test_merge import BEGIN_US, DAY_US, SESSION, Fleet, micros, rows_of

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
STEP_AT_US = BEGIN_US + 12 * HOUR_US + 10 * MINUTE_US


class SteppedFleet(Fleet):
    """A fleet in which Bob's clock is set at ten past twelve, by `by_us`."""

    def __init__(self, root: Path, by_us: int, first_us: int) -> None:
        super().__init__(root, 1, ahead_us=first_us, drift=0.0)
        self.by_us = by_us

    def on_bobs_clock(self, at_us: int) -> int:
        """Return what Bob's clock shows at a moment."""
        return at_us + self.ahead_us + (self.by_us if at_us >= STEP_AT_US else 0)

    def cover(self) -> None:
        """Write Bob's coverage: every interval ends at the step, and the next one begins after it."""
        rows: list[dict[str, Any]] = []
        for topic, quiet_us in (("sequence", MINUTE_US), ("rawtx", 1_000), ("rawblock", 10 * MINUTE_US)):
            row = {"node": "main", "session": SESSION, "topic": topic, "n_messages": 0}
            before_us = self.on_bobs_clock(STEP_AT_US - 1)
            rows += [
                row | {"from_at": BEGIN_US, "to_at": before_us - quiet_us, "end_reason": "clock_step"},
                row
                | {"from_at": self.on_bobs_clock(STEP_AT_US) + 50_000, "to_at": BEGIN_US + 30 * HOUR_US}
                | {"end_reason": "shutdown"},
            ]
        self.bob.write(COVERAGE, rows, stem="coverage")


@pytest.mark.parametrize("by_us", [3 * HOUR_US, HOUR_US, 90 * MINUTE_US, 20_000_000])
@pytest.mark.parametrize("n_txs", [30, 2_400], ids=["offsets of days", "offsets of hours"])
def test_times_are_right_on_both_sides_of_a_step(tmp_path: Path, by_us: int, n_txs: int) -> None:
    """No time is farther off than `error_us` says, also in the minutes before and after the step."""
    fleet = SteppedFleet(tmp_path, by_us, first_us=-by_us)
    fleet.day(0, n_txs)
    fleet.cover()
    merged = fleet.merged()
    errors_us = [
        micros(row["entered_at"]) - fleet.true_us[row["txid"]]
        for row in rows_of(merged)
        if row["node"] == "bob.main"
    ]
    stated_us = max(row["error_us"] for row in rows_of(merged, MEMBER_CLOCKS))
    assert len(errors_us) == n_txs
    assert stated_us < 2_000_000
    assert np.abs(errors_us).max() <= 2_000_000
    assert [each.n_written for each in merge_datasets(tmp_path / "merged", fleet.members)] == [0, 0]


def test_offsets_before_a_step_say_nothing_about_the_time_after_it() -> None:
    """Between two offsets with a step between them the clock does not drift; a part without any takes all."""
    day_us = 20_000 * DAY_US
    offsets = [
        ClockOffset(day_us + at_us, offset_us, 1, 9) for at_us, offset_us in ((10, 0), (20, 0), (90, 50))
    ]
    clock = MemberClock(offsets, [day_us + 80])
    asked = np.array([15, 79, 80, 95]) + day_us
    assert (asked - clock.reference_us(asked)).tolist() == [0, 0, 50, 50]
    around = clock.around(dt.date(2024, 10, 4))
    assert around == [day_us + 80, *offsets]
    later = clock.around(dt.date(2024, 10, 5))
    assert later == [offsets[2]]
    bare = MemberClock(offsets, [day_us + 80, day_us + 92])
    assert (asked - bare.reference_us(asked)).tolist() == [0, 0, 50, 50]
