"""Tests the report in a real browser: charts, widths, dark mode, downloads, and harmless foreign text."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.report.model import Table
from tests.analysis.report import report_marts
from tests.analysis.report.chromium import Tab, browser

pytestmark = pytest.mark.browser

VISIBLE_CHARTS = """
    return [...document.querySelectorAll('.panel svg')]
        .map(svg => svg.getBoundingClientRect())
        .filter(box => box.width > 0 && box.height > 0)
        .map(box => [box.left, box.right]);
"""
# On a phone each section shows its charts and tables only after a tap.
# How much wider the page is than the window beside its scroll bar.
OVERFLOW_PX = "const page = document.documentElement; return page.scrollWidth - page.clientWidth;"
UNFOLD = "document.querySelectorAll('.folded .unfold').forEach(button => button.click());"
# Every text against the page's background, as WCAG 2 counts contrast.
LOW_CONTRAST = """
    const numbers = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
    const light = colour => numbers(colour)
        .map(part => part / 255)
        .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
        .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
    const paper = light(getComputedStyle(document.body).backgroundColor);
    const contrast = colour => {
        const ink = light(colour);
        return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    };
    const own = element => [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    return [...document.querySelectorAll('body *:not(title, desc)')].filter(own).filter(element => {
        const style = getComputedStyle(element);
        const colour = element.closest('svg') ? style.fill : style.color;
        return colour.startsWith('rgb') && contrast(colour) < 4.5;
    }).map(element => element.tagName + ': ' + element.textContent.slice(0, 40));
"""


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Give a browser window that all tests of this module share."""
    with browser(tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.mark.parametrize("width_px", [1280, 390])
def test_every_panel_shows_one_chart_within_the_window(tab: Tab, filled_page: Path, width_px: int) -> None:
    """On wide and narrow windows each panel has exactly one visible chart, inside the window."""
    tab.show(filled_page, width_px=width_px).run(UNFOLD)
    boxes = tab.run(VISIBLE_CHARTS)

    shown = """
        const panels = [...document.querySelectorAll('.panel')];
        return panels.filter(panel => getComputedStyle(panel).display !== 'none').length;
    """
    assert len(boxes) == tab.run(shown) > 10
    assert all(left >= 0 and right <= width_px for left, right in boxes)


def test_a_reader_switches_between_time_windows(tab: Tab, filled_page: Path) -> None:
    """Of a figure with several time windows one panel is seen; a click on another window shows that one."""
    script = """
        return [...document.querySelectorAll('#share-chart .panel')].map(panel => panel.checkVisibility());
    """
    tab.show(filled_page, width_px=1280)
    before = tab.run(script)
    tab.click("#share-chart label")

    assert before == [False, True]
    assert tab.run(script) == [True, False]


@pytest.mark.parametrize("width_px", [1280, 390, 320])
def test_the_page_never_scrolls_sideways(tab: Tab, filled_page: Path, width_px: int) -> None:
    """A table that is wider than the window scrolls in a frame of its own, and the page does not."""
    tab.show(filled_page, width_px=width_px)
    assert tab.run(OVERFLOW_PX) == 0

    tab.run(UNFOLD)
    assert tab.run(OVERFLOW_PX) == 0


def test_a_command_is_not_parted_within_a_word(tab: Tab, filled_page: Path) -> None:
    """A narrow window breaks a line of code between words, and not after a hyphen inside a word."""
    script = """
        return [...document.querySelectorAll('code span')]
            .map(word => word.offsetHeight / parseFloat(getComputedStyle(word).fontSize));
    """
    heights_em = tab.show(filled_page, width_px=390).run(script)

    assert heights_em
    assert max(heights_em) < 2


def test_the_head_of_a_row_stays_together_on_a_phone(tab: Tab, filled_page: Path) -> None:
    """The colour of a pool stands before its name, not above it, and a day is on one line."""
    script = """
        const heads = [...document.querySelectorAll('tbody th[scope=row]')].filter(head => head.offsetHeight);
        const rects = head => head.querySelector('bdi').getClientRects();
        const end = head => head.querySelector('.swatch').getBoundingClientRect().bottom;
        const above = head => rects(head)[0].top > end(head);
        return {
            n_colours: heads.filter(head => head.querySelector('.swatch')).length,
            apart: heads.filter(head => head.querySelector('.swatch') && above(head)).map(h => h.textContent),
            n_days: heads.filter(head => /^[-0-9]{10}$/.test(head.textContent)).length,
            broken: heads.filter(head => /^[-0-9]{10}$/.test(head.textContent) && rects(head).length > 1)
                .map(head => head.textContent),
        };
    """
    tab.show(filled_page, width_px=360).run(UNFOLD)
    tab.run("document.querySelectorAll('details').forEach(each => each.open = true);")
    found = tab.run(script)

    assert found["n_colours"] > 0
    assert found["apart"] == []
    assert found["n_days"] > 0
    assert found["broken"] == []


def test_nothing_is_said_on_the_console_and_nothing_is_fetched(tab: Tab, filled_page: Path) -> None:
    """The page loads no other file, and the browser's console stays empty."""
    tab.show(filled_page, width_px=1280)

    assert tab.console() == []
    assert tab.run("return performance.getEntriesByType('resource').map(entry => entry.name)") == []


def test_a_click_saves_the_csv_of_a_table(tab: Tab, filled_page: Path, tmp_path: Path) -> None:
    """The link saves a file with all rows of the table, without a network and without a message."""
    tab.save_downloads(tmp_path)
    tab.show(filled_page, width_px=1280)
    tab.click('a[download="share-table.csv"]')

    rows = list(csv.DictReader(io.StringIO(tab.saved(tmp_path / "share-table.csv"))))

    heads = tab.run("return [...document.querySelectorAll('#share-table tbody th')].map(h => h.textContent)")
    assert [row["pool_name"] for row in rows] == heads
    assert sum(int(row["block_count"]) for row in rows) == 900
    assert tab.console() == []


def test_a_printed_page_has_no_contents_list_and_no_links_to_files(tab: Tab, filled_page: Path) -> None:
    """The printed page leaves out the navigation and the download links."""
    script = """
        const shown = element => getComputedStyle(element).display !== 'none';
        return [shown(document.querySelector('nav')), shown(document.querySelector('.download'))];
    """
    assert tab.show(filled_page, width_px=1280, medium="print").run(script) == [False, False]


def test_a_long_table_shows_its_first_rows_and_the_others_when_asked_or_printed(
    tab: Tab, filled_page: Path
) -> None:
    """Of a long table six rows are seen; a click on the line beneath it, or printing, shows all."""
    rows = "return [...document.querySelectorAll('#share-table tbody tr')].filter(r => r.offsetHeight).length"

    assert tab.show(filled_page, width_px=1280).run(rows) == Table.n_shown == 6
    tab.click("#share .first details.more summary")
    assert tab.run(rows) == 8
    assert tab.show(filled_page, width_px=1280, medium="print").run(rows) == 8


def test_dark_mode_changes_paper_and_charts(tab: Tab, filled_page: Path) -> None:
    """The browser's colour scheme changes the background of the page and the text inside the charts."""
    script = """
        const bright = colour => colour.match(/\\d+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) > 382;
        const text = document.querySelector('svg text');
        return [bright(getComputedStyle(document.body).backgroundColor), bright(getComputedStyle(text).fill)];
    """
    assert tab.show(filled_page, width_px=1280, scheme="light").run(script) == [True, False]
    assert tab.show(filled_page, width_px=1280, scheme="dark").run(script) == [False, True]


def test_a_table_that_is_cut_shows_its_shadow(tab: Tab, filled_page: Path) -> None:
    """The cover that hides the shadow at a table's end is narrower than the part that the window cuts off."""
    script = """
        return [...document.querySelectorAll('.scroll')]
            .map(box => [box.scrollWidth - box.clientWidth, parseFloat(getComputedStyle(box).backgroundSize)])
            .filter(([cut, cover]) => cut > 0);
    """
    tab.show(filled_page, width_px=390).run(UNFOLD)
    cuts = tab.run(script)

    assert cuts
    assert all(cut > cover > 0 for cut, cover in cuts)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read(tab: Tab, filled_page: Path, scheme: str) -> None:
    """Every text has a contrast of at least 4.5 to the background of the page, as WCAG AA asks."""
    assert tab.show(filled_page, width_px=1280, scheme=scheme).run(LOW_CONTRAST) == []


def test_text_of_strangers_is_inert(tab: Tab, hostile_page: Path) -> None:
    """Markup in names, coinbases and details is shown as text: it makes no element, dialog or request."""
    tab.show(hostile_page, width_px=390)

    assert not tab.has_dialog()
    assert tab.run("return document.querySelectorAll('script').length") == 1
    assert tab.run("return document.querySelectorAll('img, iframe, object, bdi b').length") == 0
    assert tab.run("return document.querySelectorAll('[onerror], [onload], [onclick]').length") == 0
    assert tab.console() == []
    text = tab.run("return document.querySelector('#share-table').textContent")
    assert report_marts.HOSTILE_TAG in text
    assert tab.run(OVERFLOW_PX) == 0
