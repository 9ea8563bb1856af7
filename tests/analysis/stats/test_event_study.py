"""Test that an event study finds a planted change, and finds none where nothing happened."""

import numpy as np
import pytest

from analysis.database import connect
from analysis.stats.event_study import event_effect

DAYS = np.arange(400.0) + 17_000


def walk(seed: int) -> np.ndarray:
    """Return prices of 400 days that follow a random walk."""
    return np.exp(np.random.default_rng(seed).normal(0, 0.02, len(DAYS)).cumsum())


def test_a_planted_change_is_measured_and_stands_out() -> None:
    """A series that is halved on one day changes by ln 0.5 there, more than at every placebo date."""
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal(0, 0.05, 400)) * np.where(DAYS < 17_200, 2.0, 1.0)

    effect = event_effect(DAYS, values, 17_200, 30)

    assert effect is not None
    assert effect.log_change == pytest.approx(np.log(0.5), abs=0.05)
    assert effect.placebo_low > effect.log_change
    # 24 of 30 days suffice on either side, and a placebo's windows end where the event's begin.
    assert effect.n_placebos == len([place for place in range(24, 376) if abs(place - 200) > 60])
    # No placebo change is as far; 30 placebo dates count as one.
    assert effect.p_value == pytest.approx(1 / (effect.n_placebos / 30 + 1))


def test_another_event_is_no_placebo() -> None:
    """A series falls to a half on one day and to an eighth on another; neither is a placebo of the other."""
    days = np.arange(800.0) + 17_000
    noise = np.random.default_rng(1).normal(0, 0.05, len(days))
    values = np.exp(noise) * 0.5 ** (1.0 * (days >= 17_200) + 3.0 * (days >= 17_500))

    alone = event_effect(days, values, 17_200, 30)
    both = event_effect(days, values, 17_200, 30, [17_200, 17_500])

    assert alone is not None
    assert both is not None
    assert alone.placebo_low < -0.5 < both.placebo_low
    assert alone.n_placebos - both.n_placebos == 121
    assert alone.p_value > both.p_value == pytest.approx(1 / (both.n_placebos / 30 + 1))


def test_the_effect_is_the_difference_of_the_two_means() -> None:
    """The effect compares the means of ten days before and after, without the day and missing days."""
    values = walk(2)
    values[205] = 0
    logs = np.log(np.where(values > 0, values, np.nan))

    effect = event_effect(DAYS, values, 17_200, 10)

    assert effect is not None
    assert effect.log_change == pytest.approx(np.nanmean(logs[201:211]) - logs[190:200].mean())


def test_standing_still_is_a_change_of_a_series_that_grows() -> None:
    """A pause of sixty days in a growth of 1 % a day is far from the change at every placebo date."""
    growth = np.where(abs(DAYS - 17_200) <= 30, 0.0, 0.01)

    effect = event_effect(DAYS, np.exp(growth.cumsum()), 17_200, 30)

    assert effect is not None
    assert effect.log_change == pytest.approx(0)
    assert effect.placebo_low > 0.2
    assert effect.p_value == pytest.approx(1 / (effect.n_placebos / 30 + 1))


@pytest.mark.parametrize("window_days", [14, 30])
def test_nothing_is_found_where_nothing_happened(window_days: int) -> None:
    """At most 9 of 100 random walks give a p-value below 0.05 (5 are expected)."""
    effects = [event_effect(DAYS, walk(seed), 17_200, window_days) for seed in range(100)]
    assert all(effects)
    assert sum(effect.p_value < 0.05 for effect in effects if effect) <= 9


@pytest.mark.parametrize("event", [16_000, 17_000, 17_020, 17_399, 18_000])
def test_no_effect_without_both_windows(event: float) -> None:
    """A date before, at or beyond the ends of the series gives None."""
    assert event_effect(DAYS, walk(3), event, 30) is None


def test_no_effect_without_placebos() -> None:
    """A series little longer than the two windows has no placebo dates and gives None."""
    assert event_effect(DAYS[:70], walk(4)[:70], 17_035, 30) is None
    assert event_effect(DAYS[:0], DAYS[:0], 17_035, 30) is None


def test_sql_gives_nulls_where_there_is_nothing() -> None:
    """The SQL function gives nulls without a series and without an event."""
    with connect() as connection:
        rows = connection.execute(
            "SELECT event_effect(NULL, NULL, 1.0, 30, NULL).p_value,"
            " event_effect([1.0], [1.0], NULL, 30, []).p_value"
        ).fetchall()
    assert rows == [(None, None)]
