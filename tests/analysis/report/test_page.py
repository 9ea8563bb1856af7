"""Tests the report page: its parts, the page without data, refused databases, and harmless foreign text."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import duckdb
import pytest

from analysis import report
from analysis.catalog import load_catalog
from analysis.errors import ReportError
from analysis.report.data import COLUMNS, OPTIONAL_COLUMNS, UNKNOWN
from tests.analysis.report import report_marts

SECTIONS = (
    *(
        "headline",
        "share",
        "concentration",
        "luck",
        "hashrate",
        "revenue",
        "halving",
        "empty",
        "feerate",
        "audit",
        "policy",
    ),
    *("users", "network", "attribution", "coverage", "methods", "run"),
)
Attributes = dict[str, str | None]


class Page(HTMLParser):
    """Parses a page: its elements in order, as (tag, attributes), and its texts."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.elements: list[tuple[str, Attributes]] = []
        self.texts: list[str] = []
        self.feed(self.source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag and the attributes of an element."""
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep a text of the page."""
        self.texts.append(data)

    @property
    def text(self) -> str:
        """Return all text of the page, with single spaces."""
        return " ".join(" ".join(self.texts).split())

    def all(self, *tags: str) -> list[Attributes]:
        """Return the attributes of every element that has one of the tags."""
        return [attributes for tag, attributes in self.elements if tag in tags]


def made(folder: Path, world: report_marts.World) -> Page:
    """Write the report of a world into a folder, and return the parsed page."""
    folder.mkdir(exist_ok=True)
    database = report_marts.write(folder / "analysis.duckdb", world)
    return Page(report.write(database, folder / "report.html"))


@pytest.fixture(scope="module")
def full(filled_page: Path) -> Page:
    """Give the parsed report with data in every section."""
    return Page(filled_page)


@pytest.fixture(scope="module")
def hostile(hostile_page: Path) -> Page:
    """Give the parsed report of a database whose texts are hostile."""
    return Page(hostile_page)


def test_sections_stand_in_the_order_of_the_questions(full: Page) -> None:
    """The findings come first, then a section per question, then methods and manifest; each has a link."""
    assert tuple(section["id"] for section in full.all("section")) == SECTIONS
    links = [link["href"] for link in full.all("a")]
    assert {f"#{section}" for section in SECTIONS} <= set(links)


def test_headings_form_one_tree(full: Page) -> None:
    """The page has one h1, and no level of headings is skipped."""
    levels = [int(tag[1]) for tag, _ in full.elements if re.fullmatch(r"h[1-6]", tag)]

    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(below - above <= 1 for above, below in pairwise(levels))


def test_the_page_is_whole_in_itself(full: Page) -> None:
    """The page loads nothing; its security policy allows one script, which it names by its hash."""
    policies = [meta["content"] for meta in full.all("meta") if "http-equiv" in meta]
    sources = [value for _, attributes in full.elements for key, value in attributes.items() if key == "src"]
    links = [attributes["href"] for attributes in full.all("a", "link")]

    assert len(policies) == 1
    assert policies[0] is not None
    assert policies[0].startswith("default-src 'none';")
    script = full.source.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policies[0]
    assert full.all("script") == [{}]
    assert full.all("iframe", "object", "embed", "form", "base") == []
    assert sources == []
    assert all(link is not None and link.startswith(("#", "data:")) for link in links)
    assert "@import" not in full.source
    assert "@font-face" not in full.source


def test_no_two_elements_share_an_id(full: Page) -> None:
    """Ids are unique on the page, and every reference inside a chart leads to an id that exists."""
    ids = [attributes["id"] for _, attributes in full.elements if "id" in attributes]
    referred = re.findall(r"url\(#([^)]+)\)", full.source)
    labels = [
        name for _, attributes in full.elements for name in (attributes.get("aria-labelledby") or "").split()
    ]

    assert [name for name, times in Counter(ids).items() if times > 1] == []
    assert referred
    assert set(referred) | set(labels) <= set(ids)


def test_every_chart_has_words_for_those_who_do_not_see_it(full: Page) -> None:
    """Each SVG has the role of an image, and a description for screen readers."""
    charts = full.all("svg")

    assert len(charts) > 10
    assert all(chart["role"] == "img" for chart in charts)
    assert len(full.all("desc")) == len(charts)


def test_every_table_has_a_caption_and_scoped_heads(full: Page) -> None:
    """Each table has a caption, and each head says whether it belongs to a row or to columns."""
    assert len(full.all("caption")) == len(full.all("table")) >= 9
    assert all(head.get("scope") in {"col", "row", "colgroup"} for head in full.all("th"))


def test_numbers_of_the_marts_stand_in_the_page(full: Page) -> None:
    """The page has the count and share of the largest pool that follow from its blocks."""
    world = report_marts.mainnet_like()
    count = sum(block.pool == "foundry" for block in world.blocks)
    ratio = 100 * count / len(world.blocks)

    assert f"Foundry USA mined the most: {count} of 900 blocks, {ratio:.1f}\N{NO-BREAK SPACE}%" in " ".join(
        full.texts
    )


def test_methods_are_those_of_the_sql(full: Page) -> None:
    """The page quotes the method of each mart from the head of its SQL file."""
    for mart in COLUMNS:
        method = load_catalog().by_name[mart].method
        assert method
        assert " ".join(method.replace("`", "").split())[:80] in full.text


def test_marts_have_what_the_report_reads() -> None:
    """The heads of the SQL files name every column that the report reads, also the optional columns."""
    models = load_catalog().by_name
    for mart, names in [*COLUMNS.items(), *OPTIONAL_COLUMNS.items()]:
        assert set(names) <= {column.name for column in models[mart].columns}


def test_unknown_is_last_and_has_no_colour_of_a_pool(full: Page) -> None:
    """Unknown blocks are the last row of the share table, in a colour that no pool has."""
    table = full.source.split('id="share-table"')[1].split("</table>")[0]
    heads = re.findall(r'scope="row">.*?background:(.*?)".*?<bdi>(.*?)</bdi>', table)

    assert heads[0] == ("var(--pool-1)", "Foundry USA")
    assert heads[-1] == ("var(--unknown)", "Unknown")


def test_the_same_marts_give_the_same_page(tmp_path: Path) -> None:
    """Two reports of the same marts are equal, so neither the time nor earlier charts change a page."""
    world = report_marts.mainnet_like(20)

    assert made(tmp_path / "once", world).source == made(tmp_path / "twice", world).source


def test_charts_of_many_pools_say_what_they_leave_out(tmp_path: Path) -> None:
    """A chart draws the first pools, twelve or fifteen, and unknown; the table has all pools."""
    whole = report_marts.mainnet_like(400)
    pools = [f"pool-{number}" for number in range(20)]
    blocks = tuple(
        replace(block, pool=UNKNOWN if index % 40 == 0 else pools[index % 20])
        for index, block in enumerate(whole.blocks)
    )
    names = {pool: pool for pool in (*pools, UNKNOWN)}
    page = made(tmp_path, replace(whole, blocks=blocks, names=names))

    assert page.text.count("5 pools with fewer blocks: in the table only.") == 2
    assert "8 smaller pools: in the table only." in page.text
    assert "12 pools with fewer blocks: in the table only." in page.text
    table = page.source.split('id="share-table"')[1].split("</table>")[0]
    assert table.count("<bdi>pool-") == 20


def test_scarce_data_is_said_instead_of_drawn(tmp_path: Path) -> None:
    """Three blocks give shares with wide intervals, and one line for each question that needs more."""
    page = made(tmp_path, report_marts.scarce())
    ids = {attributes.get("id") for attributes in page.all("figure")}

    assert ids == {"share-chart", "empty-rate-chart"}
    assert page.text.count("are needed") >= 4
    assert page.text.count("one UTC day") == 1


def test_a_dataset_without_blocks_gives_a_page_that_says_so(tmp_path: Path) -> None:
    """A report without blocks has no section with data, and says once that there is no block."""
    page = made(tmp_path, report_marts.nothing())

    assert [section["id"] for section in page.all("section")] == ["headline", "unanswered", "methods", "run"]
    assert page.all("figure") == []
    assert page.text.count("The dataset has no block.") == 1


def test_moments_without_length_are_drawn(tmp_path: Path) -> None:
    """Intervals of 0 s and below, and a coverage of one instant, give a page with charts and no error."""
    whole = report_marts.mainnet_like(12)
    blocks = tuple(
        replace(block, interval_s=-1.0 if block.height % 2 else 0.0, is_empty=block.height % 3 == 0)
        for block in whole.blocks
    )
    instant = {"from_at": report_marts.START, "to_at": report_marts.START, "observed_ratio": None}
    coverage = tuple({**row, **instant} for row in whole.coverage)
    page = made(tmp_path, replace(whole, blocks=blocks, coverage=coverage))

    assert {"empty-curve-chart", "coverage-chart"} <= {figure["id"] for figure in page.all("figure")}


def test_text_of_strangers_stays_text(hostile: Page) -> None:
    """Tags in names, nodes, coinbases and the manifest are shown as text, and make no element."""
    assert hostile.all("script") == [{}]
    assert hostile.all("img") == []
    assert not [a for _, a in hostile.elements if any(key.startswith("on") for key in a)]
    assert report_marts.HOSTILE_TAG in hostile.text
    assert report_marts.HOSTILE_IMAGE in hostile.text
    assert "{{7*7}}" in hostile.text
    assert "WWW…" in hostile.text


def test_control_characters_become_visible(hostile: Page) -> None:
    """Control characters, also those that change the direction, are shown as signs in the page."""
    assert not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", hostile.source
    )
    assert "␛[31mred␛]0;title␇␀⟨U+009B⟩2J" in hostile.text
    assert "⟨U+202E⟩gnorw⟨U+2066⟩" in hostile.text


def test_a_missing_database_names_the_command_that_makes_it(tmp_path: Path) -> None:
    """The error about a missing database says which command to run, and no report is written."""
    with pytest.raises(ReportError, match=r"none\.duckdb.*run pool-analysis build"):
        report.write(tmp_path / "none.duckdb", tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    """The error about a text file in place of the database names the file."""
    (tmp_path / "text.duckdb").write_text("no database " * 1000)

    with pytest.raises(ReportError, match=r"text\.duckdb is no DuckDB database; name the file that"):
        report.write(tmp_path / "text.duckdb", tmp_path / "report.html")


def test_a_database_from_a_stranger_reads_no_other_file(tmp_path: Path) -> None:
    """A mart that is a view of a file beside the database is refused, and no report appears."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.nothing())
    (tmp_path / "secret").write_text("secret")
    with duckdb.connect(str(database)) as connection:
        connection.execute("ALTER TABLE pool_share RENAME TO kept")
        connection.execute(
            f"CREATE VIEW pool_share AS SELECT kept.* FROM kept, read_text('{tmp_path}/secret')"  # noqa: S608 - our own folder
        )

    with pytest.raises(ReportError, match=r"analysis\.duckdb cannot be read \(Permission Error"):
        report.write(database, tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_missing_marts_are_named(tmp_path: Path) -> None:
    """A database without some marts or columns gives an error that names them."""
    database = tmp_path / "analysis.duckdb"
    with duckdb.connect(str(database)) as connection:
        connection.execute("CREATE TABLE pool_share (pool VARCHAR)")
    with pytest.raises(ReportError, match="has no mart pool_share_day, block_owner, block_pool"):
        report.write(database, tmp_path / "report.html")

    database.unlink()
    report_marts.write(database, report_marts.nothing())
    with duckdb.connect(str(database)) as connection:
        connection.execute("ALTER TABLE pool_share DROP COLUMN share_low_ratio")
    with pytest.raises(ReportError, match="pool_share has no column share_low_ratio"):
        report.write(database, tmp_path / "report.html")


def test_a_report_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """If the report cannot be written, the error names the file, and no half-written file is left."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.nothing())
    (tmp_path / "report.html").mkdir()

    with pytest.raises(ReportError, match=r"report\.html cannot be written"):
        report.write(database, tmp_path / "report.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["analysis.duckdb", "report.html"]


@pytest.mark.parametrize("name", ["analysis.duckdb", "thesis.md"])
def test_a_file_that_is_no_page_is_not_replaced(tmp_path: Path, name: str) -> None:
    """A report that is told to replace a file of another kind fails, and the file stays."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.nothing())
    (tmp_path / "thesis.md").write_text("# Chapter 1\n")
    before = (tmp_path / name).read_bytes()

    with pytest.raises(ReportError, match="is no HTML page, so it is not replaced"):
        report.write(database, tmp_path / name)
    assert (tmp_path / name).read_bytes() == before


def test_a_new_report_replaces_the_old_one(tmp_path: Path) -> None:
    """Missing folders are made, and a second report replaces the first."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.nothing())
    out = tmp_path / "a" / "b" / "report.html"

    assert report.write(database, out) == out
    out.write_text("<!DOCTYPE html>old")
    report.write(database, out)
    assert out.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]
