"""Test the pages over more days and intervals than one answer has rows."""

import re
from pathlib import Path

from tests.analysis.serve.test_pages import changed_site, replaced


def test_a_pool_of_many_days_has_a_course(served_database: Path, tmp_path: Path) -> None:
    """More days than an answer has leave its months in it, and the page draws these."""
    query = """
        SELECT kept.* REPLACE (
            if(i < 900, 'day', 'month') AS period_kind,
            CAST(
                DATE '2020-01-01' + if(i < 900, to_days(i::INTEGER), to_months(i::INTEGER - 900)) AS DATE
            ) AS from_day
        )
        FROM range(930) AS each(i), (FROM {0} WHERE pool = 'alpha' LIMIT 1) AS kept
    """
    with changed_site(served_database, tmp_path, replaced("pool_share_period", query)) as site:
        page = site.get("/pools/alpha").text
        periods = site.data("/api/v1/pools/alpha")["periods"]

    assert "Share over time" in page
    assert sum(row["period_kind"] == "month" for row in periods) == 30
    assert max(row["from_day"] for row in periods) == "2022-06-18"


def test_all_that_was_observed_is_drawn(served_database: Path, tmp_path: Path) -> None:
    """More intervals than an answer lists make one bar without a hole; a hole that can be seen stays."""
    changes = replaced(
        "coverage_intervals",
        """
        SELECT kept.* REPLACE (begin + to_hours(i) AS from_at, begin + to_seconds(3600 * i + 3595) AS to_at)
        FROM
            (FROM {0} WHERE topic = 'rawtx' LIMIT 1) AS kept, range(2000) AS each(i),
            (SELECT TIMESTAMPTZ '2026-01-01 00:00Z' AS begin)
        WHERE i NOT BETWEEN 500 AND 999
        """,
    ) + replaced(
        "coverage_summary",
        "SELECT * EXCLUDE (begin) REPLACE (begin AS from_at, begin + to_hours(2000) AS to_at)"
        " FROM {0}, (SELECT TIMESTAMPTZ '2026-01-01 00:00Z' AS begin) WHERE topic = 'rawtx' LIMIT 1",
    )
    with changed_site(served_database, tmp_path, changes) as site:
        page = site.get("/coverage").text
        listed = site.data("/api/v1/coverage")["intervals"]

    (bar,) = re.findall('<svg class="cover".*?</svg>', page)
    drawn = re.findall('x="([0-9]+)[0-9.]*" y="0" width="([0-9]+)', bar)
    assert drawn == [("0", "180"), ("360", "360")]
    assert "but for 499 short holes" in bar
    assert len(listed) == 500
