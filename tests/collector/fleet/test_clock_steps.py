"""A clock that was set, a member's or the first one's, is corrected on both sides of the step."""

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import COVERAGE, MEMBER_CLOCKS
from collector.fleet.clocks import ClockOffset, Gap, Gaps, MemberClock, steps_between
from collector.fleet.merge import merge_datasets
from tests.collector.fleet.test_merge import BEGIN_US, DAY_US, SESSION, Fleet, micros, rows_of

MINUTE_US = 60_000_000
HOUR_US = 60 * MINUTE_US
STEP_AT_US = BEGIN_US + 12 * HOUR_US + 10 * MINUTE_US


class SteppedFleet(Fleet):
    """A fleet in which Bob's clock is set by `by_us`, at ten past twelve or another moment."""

    def __init__(self, root: Path, by_us: int, first_us: int, step_at_us: int = STEP_AT_US) -> None:
        super().__init__(root, 1, ahead_us=first_us, drift=0.0)
        self.by_us, self.step_at_us = by_us, step_at_us

    def on_bobs_clock(self, at_us: int) -> int:
        """Return what Bob's clock shows at a moment."""
        return at_us + self.ahead_us + (self.by_us if at_us >= self.step_at_us else 0)

    def cover(self, *, is_seen: bool = True) -> None:
        """Write Bob's coverage: every interval ends at the step, and the next one begins after it.

        The step was seen in one session, or the clock was set between two.
        """
        reason, session = ("clock_step", SESSION) if is_seen else ("shutdown", "20241004T120000Z-1")
        rows: list[dict[str, Any]] = []
        for topic, quiet_us in (("sequence", MINUTE_US), ("rawtx", 1_000), ("rawblock", 10 * MINUTE_US)):
            row = {"node": "main", "session": SESSION, "topic": topic, "n_messages": 0}
            before_us = self.on_bobs_clock(self.step_at_us - 1)
            rows += [
                row | {"from_at": BEGIN_US, "to_at": before_us - quiet_us, "end_reason": reason},
                row
                | {"from_at": self.on_bobs_clock(self.step_at_us) + 50_000, "to_at": BEGIN_US + 30 * HOUR_US}
                | {"end_reason": "shutdown", "session": session},
            ]
        self.bob.write(COVERAGE, rows, stem="coverage")

    def errors_us(self, merged: Dataset) -> np.ndarray[Any, Any]:
        """Return how far each of Bob's merged times is from the true one, int64[n], microseconds."""
        rows = [row for row in rows_of(merged) if row["node"] == "bob.main"]
        return np.array([micros(row["entered_at"]) - self.true_us[row["txid"]] for row in rows])

    def alices_errors_us(self, merged: Dataset) -> np.ndarray[Any, Any]:
        """Return how far each of Alice's merged times is from Bob's clock, int64[n], microseconds."""
        alices = {row["txid"]: micros(row["entered_at"]) for row in rows_of(self.alice)}
        rows = [row for row in rows_of(merged) if row["node"] == "alice.main"]
        return np.array([micros(row["entered_at"]) - self.on_bobs_clock(alices[row["txid"]]) for row in rows])


def stated_error_us(merged: Dataset) -> int:
    """Return the largest error that `member_clocks` states."""
    return max(row["error_us"] for row in rows_of(merged, MEMBER_CLOCKS))


@pytest.mark.parametrize("by_us", [3 * HOUR_US, HOUR_US, 90 * MINUTE_US, 20_000_000])
@pytest.mark.parametrize("n_txs", [30, 2_400], ids=["offsets of days", "offsets of hours"])
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "between sessions"])
def test_times_are_right_on_both_sides_of_a_step(
    tmp_path: Path, by_us: int, n_txs: int, *, is_seen: bool
) -> None:
    """No time is farther off than `error_us` says, also in the minutes before and after the step."""
    fleet = SteppedFleet(tmp_path, by_us, first_us=-by_us)
    fleet.day(0, n_txs)
    fleet.cover(is_seen=is_seen)
    merged = fleet.merged()
    errors_us = fleet.errors_us(merged)
    assert len(errors_us) == n_txs
    assert stated_error_us(merged) < 2_000_000
    assert np.abs(errors_us).max() <= 2_000_000
    assert [each.n_written for each in merge_datasets(tmp_path / "merged", fleet.members)] == [0, 0]


@pytest.mark.parametrize("by_us", [HOUR_US, 20_000_000])
@pytest.mark.parametrize("minute", [10, 50])
@pytest.mark.parametrize("is_seen", [True, False], ids=["seen", "between sessions"])
def test_the_first_clock_may_be_set(tmp_path: Path, by_us: int, minute: int, *, is_seen: bool) -> None:
    """The times of a member whose clock was right jump as the first clock does, at the same moment."""
    fleet = SteppedFleet(tmp_path, by_us, 0, BEGIN_US + 12 * HOUR_US + minute * MINUTE_US)
    fleet.day(0, 2_400)
    fleet.cover(is_seen=is_seen)
    members = fleet.members[::-1]
    merged = fleet.merged(members=members)
    errors_us = fleet.alices_errors_us(merged)
    assert len(errors_us) == 2_400
    assert np.abs(errors_us).max() <= stated_error_us(merged) < 500_000
    assert [each.n_written for each in merge_datasets(tmp_path / "merged", members)] == [0, 0]


def test_many_sessions_leave_an_offset(tmp_path: Path) -> None:
    """Where no session saw three things that the other member saw, the day has one offset all the same."""
    fleet = SteppedFleet(tmp_path, 0, first_us=HOUR_US)
    fleet.day(0, 5)
    seen_us = sorted(micros(row["entered_at"]) for row in rows_of(fleet.bob))
    row = {"node": "main", "topic": "rawtx", "n_messages": 1, "end_reason": "killed"}
    sessions = [
        row | {"session": f"s{number}", "from_at": at_us - 1, "to_at": at_us + 1}
        for number, at_us in enumerate(seen_us)
    ]
    fleet.bob.write(COVERAGE, sessions, stem="coverage")
    merged = fleet.merged()
    assert sum(row["n_shared"] for row in rows_of(merged, MEMBER_CLOCKS)) == 5
    assert np.abs(fleet.errors_us(merged)).max() < 2_000_000


@pytest.mark.parametrize("by_us", [20_000_000, -20_000_000])
def test_a_step_that_nothing_tells_is_an_error(tmp_path: Path, by_us: int) -> None:
    """Without coverage the moment of the step is not known: the stated error is as large as the step."""
    fleet = SteppedFleet(tmp_path, by_us, first_us=0)
    fleet.day(0, 2_400)
    merged = fleet.merged()
    assert 2_000_000 < np.abs(fleet.errors_us(merged)).max() <= stated_error_us(merged) < 21_000_000


def test_only_offsets_that_contradict_each_other_part_a_clock() -> None:
    """A pause or a step of the first clock counts where the offset changes by more than errors and drift."""
    offsets = [
        ClockOffset(1_000_000, 100, 40, 9),
        ClockOffset(2_000_000, 220, 40, 9),
        ClockOffset(3_000_000, 500_220, 40, 9),
        ClockOffset(4_000_000, 220, 40, 9),
    ]
    own = Gaps(
        steps=[Gap(1_400_000, 1_600_000)], pauses=[Gap(1_700_000, 1_800_000), Gap(2_500_000, 2_600_000)]
    )
    # On the first clock the offsets are at 999,900, 1,999,780, 2,499,780 and 3,999,780. Its step is at
    # 2,600,000 + 500,220 on the member's clock before it, and at 3,100,000 + 220 after it.
    first = Gaps(steps=[Gap(2_600_000, 3_100_000)], pauses=[Gap(1_200_000, 1_300_000)])

    assert steps_between(offsets, Gaps(), Gaps()) == []
    # The first two differ by 120, which errors of 80 and a drift of 50 explain.
    assert steps_between(offsets, own, first) == [1_500_000, 2_550_000, 3_100_220]


def test_offsets_that_contradict_each_other_have_the_error_of_the_jump() -> None:
    """A jump at one known moment changes no error; at none, or at one of two, it is not known where it is."""
    offsets = [
        ClockOffset(1_000_000, 100, 40, 9),
        ClockOffset(2_000_000, 220, 40, 9),
        ClockOffset(3_000_000, 820, 40, 9),
    ]

    def errors_us(*steps: int) -> list[int]:
        return [each.error_us for each in MemberClock(offsets, steps).offsets]

    assert errors_us() == [40, 600, 600]
    assert errors_us(2_500_000) == [40, 40, 40]
    assert errors_us(2_500_000, 2_600_000) == [40, 600, 600]


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
