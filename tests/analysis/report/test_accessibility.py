"""Tests that people can use the report: axe-core finds nothing, and keys, scripts off and hover work."""

import json
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest

from tests.analysis.report.chromium import Tab, browser

pytestmark = pytest.mark.browser

PHONE_PX = 390
OPEN_ALL = "document.querySelectorAll('details').forEach(part => { part.open = true; });"
# Charts are images with a title and a description; test_browser checks the contrast of the text in them.
RUN_AXE = """
    axe.run({ exclude: [["svg > *"]] }, { resultTypes: ["violations"] })
        .then(result => JSON.stringify(result.violations.map(
            rule => rule.id + ': ' + rule.nodes.map(node => node.html.slice(0, 120)).join(' | '))))
"""
FIRST_CELLS = """
    return [...document.querySelectorAll('#share-table tbody tr')].map(row => row.cells[0].textContent);
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """Return the source of axe-core, the checker of accessibility rules."""
    return (resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Give a browser window that all tests of this module share."""
    with browser(tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.mark.parametrize(("width_px", "scheme"), [(1280, "light"), (PHONE_PX, "dark")])
def test_axe_finds_nothing(tab: Tab, filled_page: Path, axe: str, scheme: str, width_px: int) -> None:
    """The accessibility rules of axe-core hold, light and dark; on the phone with everything unfolded."""
    tab.show(filled_page, width_px=width_px, scheme=scheme)
    tab.run(OPEN_ALL if width_px == PHONE_PX else "")
    tab.evaluate(axe)

    assert json.loads(tab.evaluate(RUN_AXE)) == []


def test_a_click_on_a_head_sorts_the_table(tab: Tab, filled_page: Path) -> None:
    """The first click sorts by value, largest first, the second smallest first; the head says so."""
    tab.show(filled_page, width_px=1280)
    counts = (
        "return [...document.querySelectorAll('#share-table tbody tr')].map(r => +r.cells[1].textContent)"
    )

    tab.click("#share-table th[data-column='1'] button")
    down = tab.run(counts)
    tab.click("#share-table th[data-column='1'] button")
    up = tab.run(counts)

    assert len(set(down)) > 2
    assert down == sorted(down, reverse=True)
    assert up == sorted(up)
    assert tab.run("return document.querySelectorAll('#share-table [aria-sort=ascending]').length") == 1
    tab.click("#share-table th[data-column='0'] button")
    tab.click("#share-table th[data-column='0'] button")
    names = tab.run(FIRST_CELLS)
    assert names == sorted(names, key=str.lower)


def test_a_mark_shows_its_value_under_the_pointer(tab: Tab, filled_page: Path) -> None:
    """A pointer on a mark shows the value beside it; elsewhere nothing is shown."""
    tab.show(filled_page, width_px=1280)
    move = """
        const mark = document.querySelector('.card rect[data-value]');
        const box = mark.getBoundingClientRect();
        const at = { clientX: box.x + 2, clientY: box.y + 2, bubbles: true };
        mark.dispatchEvent(new PointerEvent('pointermove', at));
        const shown = document.getElementById('tip').hidden ? '' : document.getElementById('tip').textContent;
        document.querySelector('h1').dispatchEvent(new PointerEvent('pointermove', at));
        return [shown, mark.dataset.value, document.getElementById('tip').hidden];
    """
    shown, value, is_hidden = tab.run(move)

    assert shown == value != ""
    assert is_hidden


def test_a_link_to_a_method_opens_what_hides_it(tab: Tab, filled_page: Path) -> None:
    """A click on the name of a mart leads to its method, and opens the folded list that holds it."""
    tab.show(filled_page, width_px=1280)
    tab.run("document.querySelector('a[href=\"#method-pool_share\"]').click();")
    seen = (
        "const box = document.getElementById('method-pool_share').getBoundingClientRect(); return box.height"
    )

    assert tab.run(seen) > 20


def test_without_a_script_everything_still_reads(tab: Tab, filled_page: Path, tmp_path: Path) -> None:
    """With the script blocked the contents are open, the first rows are seen, and no button is drawn."""
    bare = tmp_path / "bare.html"
    text = filled_page.read_text(encoding="utf-8")
    bare.write_text(text.replace("script-src 'sha256-", "script-src 'sha256-AAAA"), encoding="utf-8")
    tab.show(bare, width_px=390)

    assert tab.run("return document.querySelectorAll('th button').length") == 0
    assert tab.run("return document.querySelector('nav ol').getBoundingClientRect().height") > 100
    assert tab.run("return document.querySelector('#share-table').getBoundingClientRect().height") > 100
    assert tab.console()  # the policy refused the script


def test_contents_are_folded_on_a_phone_and_stay_in_view(tab: Tab, filled_page: Path) -> None:
    """On a phone the contents are one line that stays at the top; on a wide window all links are seen."""
    place = "const nav = document.querySelector('nav').getBoundingClientRect(); return [nav.top, nav.height]"
    tab.show(filled_page, width_px=390)
    tab.run("scrollTo(0, 5000)")
    top, height = tab.run(place)
    assert (top, height < 60) == (0, True)

    tab.show(filled_page, width_px=1280)
    assert tab.run("return document.querySelector('nav li a').getBoundingClientRect().height") > 10


def test_on_a_phone_a_section_shows_its_findings_and_unfolds(tab: Tab, filled_page: Path) -> None:
    """The table comes with a tap or with a link to it; a wide window shows it at once, without a button."""
    table = "return document.querySelector('#share-table').getBoundingClientRect().height"
    button = "#share .unfold"
    tab.show(filled_page, width_px=390)
    folded_px = tab.run("return document.documentElement.scrollHeight")
    assert tab.run("return document.querySelector('#share .said').getBoundingClientRect().height") > 20
    assert tab.run(table) == 0

    tab.click(button)
    assert tab.run(table) > 100
    assert tab.run(f"return document.querySelector('{button}').getAttribute('aria-expanded')") == "true"
    tab.run("document.querySelectorAll('.folded .unfold').forEach(button => button.click());")
    assert tab.run("return document.documentElement.scrollHeight") > 2 * folded_px

    tab.show(filled_page, width_px=1280)
    assert tab.run(table) > 100
    assert tab.run(f"return document.querySelector('{button}').getBoundingClientRect().height") == 0


def test_what_scrolls_can_be_reached_by_key(tab: Tab, filled_page: Path) -> None:
    """Each frame of a table and each head that sorts takes the focus, and Enter on a head sorts."""
    tab.show(filled_page, width_px=1280)

    assert tab.run("return [...document.querySelectorAll('.scroll')].every(box => box.tabIndex === 0)")
    tab.run("document.querySelector('#share-table th[data-column=\"1\"] button').focus();")
    tab.press("\ue007")
    assert tab.run("return document.querySelectorAll('#share-table [aria-sort]').length") == 1
