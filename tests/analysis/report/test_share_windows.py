"""Tests what the report says and draws of pool shares per time window."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.report import share_windows, time_marks
from analysis.report.data import Marts
from analysis.report.pools import prominent_pools
from analysis.report.sections import read_marts
from tests.analysis.report.charts import drawings

POOLS = [f"pool{number}" for number in range(12)]


@pytest.fixture(scope="module")
def marts(filled_database: Path) -> Marts:
    """Return the rows of the filled database; its smallest pool has risen in the last day."""
    return read_marts(filled_database)


def with_rows(marts: Marts, **tables: list[dict[str, object]]) -> Marts:
    """Return the marts with other rows in some of the tables that sections read."""
    return replace(marts, tables={**marts.tables, **tables})


def share(pool: str, window: str, blocks: int, gained: float, p_value: float | None) -> dict[str, object]:
    """Return a row of pool_share_window with the columns that a sentence needs."""
    return {
        "pool": pool,
        "time_window": window,
        "is_unknown": False,
        "rank": 1,
        "block_count": blocks,
        "share_ratio": 0.2,
        "gained_share": gained,
        "gained_low_share": gained - 0.02,
        "gained_high_share": gained + 0.02,
        "adjusted_p_value": p_value,
        "told_by": ["observed"],
    }


def test_a_pool_that_has_risen_is_shown_although_it_is_small_over_all(marts: Marts) -> None:
    """The last of twelve pools over all is the first of the last month, so it is one of the eight shown."""
    rows = [share("pool11", "month", 50, 0.1, 0.001), share("pool0", "month", 40, 0.0, 1.0)]
    shares = [{"pool": pool, "is_unknown": False, "block_count": 100} for pool in POOLS]
    shown = prominent_pools(with_rows(replace(marts, shares=shares), pool_share_window=rows))

    assert shown == ["pool0", "pool11", *POOLS[1:7]]


def test_only_a_change_that_a_test_shows_is_said(marts: Marts) -> None:
    """Of a gain with p = 0.001, a loss with p = 0.4 and a gain without a p value, the first is said."""
    rows = [
        share("antpool", "month", 50, 0.1, 0.001),
        share("viabtc", "month", 40, -0.1, 0.4),
        share("f2pool", "month", 40, 0.3, None),
    ]
    said = share_windows.risers(with_rows(marts, pool_share_window=rows))

    assert len(said) == 1
    assert said[0].startswith("AntPool gained most in the last 30 days: +10.0 points")
    assert "+8.0 to +12.0" in said[0]


def test_the_arrow_marks_the_pool_whose_change_is_shown_by_a_test(marts: Marts) -> None:
    """The panel of the last day has one arrow, that of the planted riser; that of all blocks has none."""
    figure = share_windows.window_figure(marts)

    day, whole = (
        [text for text in drawings.texts(panel.wide) if share_windows.UP in text] for panel in figure.panels
    )
    assert [panel.title for panel in figure.panels] == ["1 day", "All"]
    assert len(day) == 1
    assert whole == []


def test_the_stack_says_its_shares_and_its_events(marts: Marts) -> None:
    """A pointer reads the shares of each day with their blocks, and every planted event in words."""
    figure = share_windows.stack_figure(marts)

    assert figure is not None
    shown = drawings.values_shown(figure.panels[0].wide)
    days = {row["day"] for row in marts.day_shares}
    assert all(any(words.startswith(f"{day} (") for words in shown) for day in days)
    first = next(words for words in shown if words.startswith(f"{min(days)} ("))
    assert "only a part of it" in first
    text = " ".join(shown)
    for words in (
        "halving, block 941,200",
        "difficulty up 3.1",
        "AntPool belongs to Letters Inc.",
        "3\u00a0h of mempool of main",
    ):
        assert words in text
    assert {"hatch", "frame"} <= {key.shape for key in figure.legend}


def test_a_month_of_a_few_timed_blocks_is_not_drawn(marts: Marts) -> None:
    """Of three months, that with two of its blocks is left out; one that is whole stays, however small."""
    months = [(1, False, 2), (2, True, 2), (3, False, 4000)]
    rows = [
        {"period_kind": "month", "from_day": dt.date(2016, month, 1), "is_complete": is_complete}
        | {"pool": pool, "is_unknown": False, "block_count": blocks // 2, "total_block_count": blocks}
        | {"share_ratio": 0.5, "share_low_ratio": 0.4, "share_high_ratio": 0.6}
        for month, is_complete, blocks in months
        for pool in ("antpool", "f2pool")
    ]
    days = [marts.day_shares[0] | {"day": dt.date(year, 1, 1)} for year in (2010, 2020)]
    long = with_rows(replace(marts, day_shares=days), share_of_months=rows)
    figure = share_windows.stack_figure(long)

    assert figure is not None
    shown = drawings.values_shown(figure.panels[-1].wide)
    months_shown = {words[:7] for words in shown if words.startswith("2016-")}
    assert months_shown == {"2016-02", "2016-03"}


def test_new_difficulties_are_not_marked_on_a_chart_of_years(marts: Marts) -> None:
    """On a chart of more than 120 days only rarer events are marked."""
    first = dt.date(2026, 3, 1)

    assert "D" in {event.label for event in time_marks.events(marts, first, first + dt.timedelta(days=30))}
    assert "D" not in {
        event.label for event in time_marks.events(marts, first, first + dt.timedelta(days=365))
    }


def test_the_pool_that_leads_of_late_is_named_if_another_leads_over_all(marts: Marts) -> None:
    """The newest month has a leader of its own; with the same leader as over all nothing is said."""
    ends = {"share_low_ratio": 0.15, "share_high_ratio": 0.25}
    month, whole = share("f2pool", "month", 50, 0.1, 0.001), share("antpool", "all", 400, 0.0, None)

    (said,) = share_windows.recent_leader(with_rows(marts, pool_share_window=[month | ends, whole]))
    same = share_windows.recent_leader(
        with_rows(marts, pool_share_window=[month, whole | {"pool": "f2pool"}])
    )

    assert said.replace("\u00a0", " ") == (
        "In the last 30 days F2Pool led with 20.0 % (95 % interval 15.0 to 25.0 %)."
    )
    tied = share_windows.recent_leader(
        with_rows(marts, pool_share_window=[month, month | {"pool": "antpool"}, whole])
    )
    assert (same, tied) == ([], [])
