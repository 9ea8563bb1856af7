"""Test the site's pages without mkdocs: every page is in the menu, and every link leads to something."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.site.__main__ import CONFIG, LINK, PAGE_PICTURES, PICTURE, REPORT_PICTURE, ROOT, gather, pages


def entries(menu: Any) -> list[str]:
    """Return the pages of a menu, in order."""
    if isinstance(menu, str):
        return [menu]
    parts = menu.values() if isinstance(menu, dict) else menu
    return [page for part in parts for page in entries(part)]


def anchors(text: str) -> set[str]:
    """Return the anchors of a page's headings, as mkdocs and GitHub make them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[\s]+", "-", re.sub(r"[^\w\s-]", "", heading.lower()).strip()) for heading in headings}


def test_the_menu_has_every_page_once() -> None:
    """A page that nobody can find is as bad as an entry without a page."""
    menu = entries(yaml.safe_load(CONFIG.read_text())["nav"])

    assert sorted(menu) == sorted(pages())


def test_every_link_leads_to_something(tmp_path: Path) -> None:
    """After gathering, each link between pages has its file, and its heading where it names one."""
    gather(tmp_path, None)

    broken = []
    for page in tmp_path.rglob("*.md"):
        for link in LINK.finditer(page.read_text()):
            target = (page.parent / link["path"]).resolve()
            if not target.is_file():
                broken.append((page.name, link[0]))
            elif link["anchor"] and target.suffix == ".md":
                found = anchors(target.read_text())
                broken += [] if link["anchor"][1:] in found else [(page.name, link[0])]
    assert broken == []


def test_the_tutorial_shows_the_report_and_the_pages(tmp_path: Path) -> None:
    """Every picture that is taken is shown once, and every one that a page asks for is taken."""
    taken = [REPORT_PICTURE, *PAGE_PICTURES]
    asked = [match["file"] for path in pages().values() for match in PICTURE.finditer(path.read_text())]
    for name in taken:
        (tmp_path / name).write_bytes(b"a picture")
    gather(tmp_path / "docs", tmp_path)

    assert sorted(asked) == sorted(taken)
    tutorial = (tmp_path / "docs" / "tutorial.md").read_text()
    for name in taken:
        assert f"]({name})" in tutorial
        assert (tmp_path / "docs" / name).is_file()


def test_the_site_asks_nobody_else() -> None:
    """No font, script, style or image from another host: the theme's are files of the site."""
    config = yaml.safe_load(CONFIG.read_text())
    assert config["theme"]["font"] is False
    assert not {"extra_css", "extra_javascript"} & config.keys()
    images = [name for name, path in pages().items() if re.search(r"!\[[^\]]*\]\(https?:", path.read_text())]
    assert images == []
    assert (ROOT / "tests" / "site" / "requirements.txt").read_text().count("--hash=sha256:") > 0
