"""Test the charts that can be zoomed, in a real browser, and the still ones that they stand for."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.analysis.report.chromium import Tab, browser
from tests.analysis.serve.conftest import Site, wait_for

PAGE = "/pools/alpha"
SHOWN = "return document.querySelector('[data-plot]')?.dataset.shown ?? ''"


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Give a browser window that all tests of this module share."""
    with browser(tmp_path_factory.mktemp("profile")) as window:
        yield window


def plots(page: str) -> list[dict[str, Any]]:
    """Return the numbers of all charts in a page."""
    return [json.loads(html.unescape(found)) for found in re.findall(r'data-plot="([^"]*)"', page)]


def reach(tab: Tab) -> tuple[float, float]:
    """Return the ends of the x axis that the first chart of the page shows."""
    low, high = wait_for(tab, SHOWN, " ").split()
    return float(low), float(high)


@pytest.mark.browser
def test_a_chart_zooms_and_comes_back(site: Site, tab: Tab) -> None:
    """Buttons show a half, then the later half, then all again; the page's policy has nothing to refuse."""
    tab.visit(site.url + PAGE, width_px=1280)
    low, high = reach(tab)
    tab.click("[aria-label='Zoom in']")
    half = reach(tab)
    tab.click("[aria-label='Later']")
    tab.click("[aria-label='Later']")
    later = reach(tab)
    words = tab.run("return document.querySelector('.plot-shown').textContent")
    tab.click(".plot-tools button:last-of-type")

    assert half == pytest.approx((low + (high - low) / 4, high - (high - low) / 4))
    assert later == pytest.approx((low + (high - low) / 2, high))
    assert " to " in words
    assert reach(tab) == (low, high)
    assert tab.console() == []


@pytest.mark.browser
def test_a_drag_zooms(site: Site, tab: Tab) -> None:
    """What lies between the ends of a drag fills the chart."""
    tab.visit(site.url + PAGE, width_px=1280)
    low, high = reach(tab)
    tab.run("document.querySelector('.u-over').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, width = tab.run(
        "const box = document.querySelector('.u-over').getBoundingClientRect();"
        "return [box.left, box.top + 60, box.width]"
    )
    tab.drag((left + width / 4, top), (left + width / 2, top))

    wait_for(tab, "return document.querySelector('.plot-shown').textContent", " to ")
    assert reach(tab) == pytest.approx((low + (high - low) / 4, (low + high) / 2), abs=(high - low) / 100)


@pytest.mark.browser
def test_a_pointer_shows_the_value(site: Site, tab: Tab) -> None:
    """The words under the pointer are those of the nearest value."""
    tab.visit(site.url + PAGE, width_px=1280)
    reach(tab)
    tab.run("document.querySelector('.u-over').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top = tab.run(
        "const box = document.querySelector('.u-over').getBoundingClientRect();"
        "return [box.left + 3, box.top + 60]"
    )
    tab.hover(left, top)
    (plot,) = plots(site.get(PAGE).text)

    wait_for(tab, "return document.getElementById('tip').textContent", plot["words"][0][2])


@pytest.mark.browser
def test_the_still_drawing_gives_way_and_is_there_without_the_library(site: Site, tab: Tab) -> None:
    """Where the library is not loaded, the drawing of the server is seen; where it is, only the new one."""
    seen = "return document.querySelector('svg.course').checkVisibility()"
    tab.visit(site.url + PAGE, width_px=390)
    reach(tab)
    assert tab.run(seen) is False
    with tab.blocking("*uPlot.iife.min.js"):
        tab.visit(site.url + PAGE, width_px=390)
        assert tab.run(seen) is True
        assert tab.run("return document.querySelectorAll('.plot').length") == 0
    tab.console()


@pytest.mark.parametrize("page", ["/pools?window=all", "/questions/share", "/questions/empty", PAGE])
def test_numbers_of_a_chart_lie_inside_its_page(site: Site, page: str) -> None:
    """Each chart over time has its numbers in order of x, and says each of them."""
    found = plots(site.get(page).text)

    assert found
    for plot in found:
        assert plot["label"]
        assert plot["words"]
        for series in plot["series"]:
            places = [point[0] for point in series["points"]]
            assert places == sorted(places)


def test_the_report_is_one_file_without_the_library(site: Site) -> None:
    """A page without charts over time loads no library for them."""
    for page in ("/", "/blocks", "/coverage", "/methods"):
        assert "uPlot" not in site.get(page).text
