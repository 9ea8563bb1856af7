"""Test the pages in a real browser: hostile texts, accessibility, widths, keys; and what they say."""

import csv
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from xml.etree import ElementTree as ET

import duckdb
import pytest
from markupsafe import escape

from analysis.engine import build
from analysis.report.sections import TOPICS, policy
from analysis.report.text import NOTHING
from tests.analysis.report.chromium import Tab, browser
from tests.analysis.report.test_accessibility import PHONE_PX, RUN_AXE
from tests.analysis.serve.conftest import Site, copied, serving, wait_for
from tests.analysis.serve.hostile_world import EVIL, POOL_NAME, RULES
from tests.analysis.world import label_bytes, write_world

BLOCK = label_bytes("b2")[::-1].hex()
NEW = label_bytes("new")[::-1].hex()
SLOW = label_bytes("slow")[::-1].hex()
PAGES = (
    "/",
    "/pools?window=all",
    "/pools/alpha",
    "/blocks",
    f"/blocks/{BLOCK}",
    f"/tx/{SLOW}",
    "/mempool?at=2026-01-01T23:59:00Z",
    "/mempool?at=2020-01-01",
    "/coverage",
    "/questions",
    "/questions/share",
    "/findings",
    "/methods",
    f"/search?q={EVIL}",
)
MAX_PAGE_BYTES = 500_000


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    """Give a browser window that all tests of this module share."""
    with browser(tmp_path_factory.mktemp("profile")) as window:
        yield window


@pytest.mark.browser
@pytest.mark.parametrize(
    ("page", "width_px", "scheme"),
    [(page, *((1280, "light") if number % 2 else (PHONE_PX, "dark"))) for number, page in enumerate(PAGES)],
)
def test_a_page_is_harmless_and_can_be_used(
    site: Site, tab: Tab, page: str, width_px: int, scheme: str
) -> None:
    """No hostile text runs, the policy has nothing to refuse, axe finds nothing, and nothing is cut off."""
    tab.visit(site.url + page, width_px=width_px, scheme=scheme)

    assert tab.run("return document.title").endswith("Bitcoin mining pools")
    assert [line for line in tab.console() if "status of 404" not in line] == []
    assert tab.run("return document.querySelectorAll('main script, main img').length") == 0
    assert tab.run("const page = document.documentElement; return page.scrollWidth <= page.clientWidth")
    tab.evaluate((resources.files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8"))
    assert json.loads(tab.evaluate(RUN_AXE)) == []


@pytest.mark.browser
def test_the_search_leads_to_the_page_by_keys(site: Site, tab: Tab) -> None:
    """A height typed into the search and Enter open the page of that block."""
    tab.visit(f"{site.url}/coverage", width_px=1280)
    tab.run("document.getElementById('q').value = '3'; document.getElementById('q').focus();")
    tab.press("\ue007")

    wait_for(tab, "return document.querySelector('h1').textContent", "Block 3")


@pytest.mark.browser
def test_a_replay_steps_from_change_to_change(site: Site, tab: Tab) -> None:
    """From before `quick` and `slow` entered, each step forward shows what waited then, and back again."""
    tab.visit(f"{site.url}/mempool?at=2026-01-01T23:58:00Z", width_px=1280)
    on, back = "[aria-label=Forward] li:first-child a", "[aria-label=Back] li:last-child a"
    fees = (
        "return [...document.querySelectorAll('#waiting-table tbody tr')].map(row => row.cells[3].innerText)"
    )
    shown = []
    for step in (on, on, on, back):
        tab.click(step)
        shown.append(tab.run(fees))

    # `new` replaces `old` in the third step: it entered a moment after the removal.
    assert shown == [["4,000", "300"], ["4,000", "500", "300"], ["4,000", "300"], ["4,000", "500", "300"]]


def test_a_mempool_that_fits_into_a_block_asks_for_no_feerate(site: Site) -> None:
    """A few small transactions all fit, so the card names no feerate of the last that fits."""
    page = site.get("/mempool?at=2026-01-01T23:59:00Z").text

    assert "all that waits fits into one block, so the node&#39;s minimum feerate is enough" in page
    assert "chunk feerate of the last that fits" not in page


@pytest.mark.browser
def test_a_table_sorts_by_value(site: Site, tab: Tab) -> None:
    """A click on a head of the table of pools sorts it, as in the report."""
    tab.visit(f"{site.url}/pools?window=all", width_px=1280)
    tab.click("#pools-table th[data-column='4'] button")
    tab.click("#pools-table th[data-column='4'] button")

    counts = (
        "return [...document.querySelectorAll('#pools-table tbody tr')].map(row => +row.cells[4].textContent)"
    )
    assert tab.run(counts) == [1, 3]


@pytest.mark.browser
@pytest.mark.parametrize("times", [1, 2])
def test_a_missing_number_sorts_last(site: Site, tab: Tab, times: int) -> None:
    """Blocks without a number stand behind all others, whichever way the table is sorted."""
    tab.visit(f"{site.url}/blocks", width_px=1280)
    columns = range(4, 9)
    missing = {}
    for column in columns:
        for _ in range(times):
            tab.click(f"#blocks-table th[data-column='{column}'] button")
        cells = tab.run(
            "return [...document.querySelectorAll('#blocks-table tbody tr')]"
            f".map(row => row.cells[{column}].textContent.trim())"
        )
        missing[column] = [cell == NOTHING for cell in cells]

    assert [column for column in columns if missing[column] != sorted(missing[column])] == []
    assert any(True in found and False in found for found in missing.values())


@pytest.mark.browser
def test_a_number_sorts_as_it_is_shown(site: Site, tab: Tab) -> None:
    """Where a cell has no value beside its text, commas, a sign and % do not hide the number."""
    tab.visit(f"{site.url}/pools?window=all", width_px=1280)
    texts = ["9", "1,234", "\u22125", "12.5\u00a0%", "\u2013", "100"]
    tab.run(
        f"const texts = {json.dumps(texts)};"
        "const body = document.querySelector('#pools-table').tBodies[0];"
        "body.replaceChildren(...texts.map(text => {"
        "  const row = body.insertRow();"
        "  for (let cell = 0; cell < 9; cell++) row.insertCell().textContent = text;"
        "  return row;"
        "}));"
    )
    tab.click("#pools-table th[data-column='4'] button")

    shown = (
        "return [...document.querySelectorAll('#pools-table tbody tr')].map(row => row.cells[4].textContent)"
    )
    assert tab.run(shown) == ["1,234", "100", "12.5\u00a0%", "9", "\u22125", "\u2013"]


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_light_and_asks_nobody_else(site: Site, page: str) -> None:
    """All that a page loads weighs at most 500 kB, not even compressed, and nothing comes from elsewhere."""
    answer = site.get(page, Accept_Encoding="identity")
    files = re.findall(r'(?:src|href)="(/static/[^"]+)"', answer.text)

    assert len(answer.content) + sum(len(site.get(name).content) for name in files) < MAX_PAGE_BYTES
    for attribute in ('src="http', 'href="http', "url(http", "@import"):
        assert attribute not in answer.text
    assert answer.text.count("<script") == sum(name.endswith(".js") for name in files)
    assert EVIL not in answer.text


@pytest.mark.parametrize("topic", [topic.section_id for topic in TOPICS])
def test_every_question_has_its_page(site: Site, topic: str) -> None:
    """Also in a world that lacks much, as prices and difficulties. Its tables are there as JSON, too."""
    answer = site.get(f"/questions/{topic}")
    links = set(re.findall(r'href="(/api/v1/marts/[^"]+)">JSON', answer.text))

    assert answer.status_code == 200
    assert len(links) == len(
        set(re.findall(r'href="/methods#method-[^"]+">\w+</a>(?= <a class="download")', answer.text))
    )
    for link in links:
        assert site.get(link).status_code == 200


def test_a_block_is_explained(site: Site) -> None:
    """The page of a block has its coinbase in three forms, its rule, and each difference with its reason."""
    page = site.get("/blocks/2").text

    for said in ("&lt;script&gt;", r"\x1B[31m", "1b5b33316d", "No rule matches", "unseen", "tail"):
        assert said in page
    (counts,) = site.data("/api/v1/blocks/2")["templates"]
    promised = f"{counts['n_missing']} missing, {counts['n_missing_unexplained']} without excuse"
    assert promised in page


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve a build of three blocks of which only a list of labels tells: alpha, a strange name, unknown."""
    folder = tmp_path_factory.mktemp("listed")
    rules = folder / "pools"
    rules.mkdir()
    (rules / "alpha.toml").write_text(RULES)
    labels = [
        {"source": "list", "height": height, "label": label}
        for height, label in ((1, "ALPHA"), (2, f"No{EVIL}"), (3, "unknown"))
    ]
    write_world(folder / "dataset", {"external_pool_labels": labels, "coverage": []})
    with serving(build(folder / "dataset", rules, folder / "listed.duckdb").database) as served:
        yield served


@pytest.mark.parametrize(
    ("height", "said", "card"),
    [
        (
            1,
            "<bdi>list</bdi> labels the block <bdi>ALPHA</bdi>.",
            "no rule matches; <bdi>list</bdi> names it",
        ),
        (
            2,
            f"<bdi>list</bdi> labels the block <bdi>No{escape(EVIL)}</bdi>, a name that we do not know.",
            "no rule matches</p>",
        ),
        (3, "the pool is unknown.", "no rule matches</p>"),
    ],
)
def test_a_label_is_said_to_be_one(listed: Site, height: int, said: str, card: str) -> None:
    """The page of a block without a coinbase says who names its pool and how, and no amount of nothing."""
    page = listed.get(f"/blocks/{height}").text

    assert f"No rule matches; {said}" in page
    assert card in page
    assert f"{NOTHING} BTC" not in page


def test_a_hash_that_nobody_knows_is_not_made_up(listed: Site) -> None:
    """A block of which only the height is known has no hash on a page, in JSON or in CSV; links work."""
    pages = [listed.get(path).text for path in ("/", "/blocks", "/blocks/2", "/blocks.csv")]
    rows = listed.data("/api/v1/blocks")
    (record, *_) = csv.DictReader(pages[-1].splitlines())

    assert [(row["height"], row["block_hash"], row["prev_hash"]) for row in rows] == [
        (height, None, None) for height in (3, 2, 1)
    ]
    assert (record["height"], record["block_hash"]) == ("3", "")
    assert not [page for page in pages if "ffffffffffff" in page]
    assert "hash not known" in pages[2]
    links = re.findall(r'href="((?:/api/v1)?/blocks/[^"]+)"', "".join(pages))
    assert {"/blocks/3", "/blocks/1", "/api/v1/blocks/2"} <= set(links)
    assert {listed.get(link).status_code for link in set(links)} == {200}


def test_a_header_time_is_not_called_an_arrival(served_database: Path, tmp_path: Path) -> None:
    """The time of a block that no node saw arrive is marked, or, if that is all of them, is a header time."""
    unseen = "SELECT * REPLACE (CASE WHEN height {} THEN NULL ELSE arrived_at END AS arrived_at) FROM {{0}}"
    heads, marks = [], []
    for name, which in (("some", "= 3"), ("all", "> 0")):
        folder = tmp_path / name
        folder.mkdir()
        changes = replaced("chain_blocks", unseen.format(which))
        with changed_site(served_database, folder, changes) as site:
            page = site.get("/blocks").text
        heads.append(">Arrived</th>" in page)
        marks.append(page.count(">header time</span>"))

    assert heads == [True, False]
    assert marks == [1, 0]
    assert ">Header time</th>" in page


def test_a_subsidy_has_every_digit(served_database: Path, tmp_path: Path) -> None:
    """The subsidy of 2024 is 3.125 BTC, and not 3.12."""
    changes = replaced("chain_blocks", "SELECT * REPLACE (312500000 AS subsidy_sat) FROM {0}")
    with changed_site(served_database, tmp_path, changes) as site:
        assert "subsidy 3.125 BTC" in site.get("/blocks/2").text


def test_a_block_below_the_weight_limit_is_not_full(served_database: Path, tmp_path: Path) -> None:
    """A block of 3,999,999 weight units takes 99.9 % of the limit, and not 100.0 %."""
    changes = replaced("chain_blocks", "SELECT * REPLACE (3999999 AS weight_wu) FROM {0}")
    with changed_site(served_database, tmp_path, changes) as site:
        assert "99.9\N{NO-BREAK SPACE}% of the weight limit" in site.get("/blocks/2").text


def test_the_page_of_a_pool_says_what_it_runs(site: Site) -> None:
    """The page says in words what the answer of the API has as rows."""
    facts = site.data("/api/v1/pools/alpha")
    marts = {
        "pool_policy": "policy",
        "signalling": "signalling",
        "pool_clock": "header_times",
        "pool_algorithm": "algorithms",
        "out_of_band": "out_of_band",
        "sub_pool": "makers",
    }
    said = policy.in_words({mart: facts[part] for mart, part in marts.items()})

    assert f"This pool {said}." in site.get("/pools/alpha").text


def test_a_score_of_what_is_left_of_a_template_is_not_shown(served_database: Path, tmp_path: Path) -> None:
    """Where nearly all that was promised is excused, a pool's page says what was found, and no score."""
    excused = (
        "SELECT * REPLACE ('alpha' AS pool, 103 AS n_promised, 15 AS n_matched, 0.0 AS unexplained_ratio,"
        " 1.0 AS score_ratio) FROM {0}"
    )
    changes = replaced("template_audit", excused)
    with changed_site(served_database, tmp_path, changes) as site:
        page = site.get("/pools/alpha").text

    (table,) = re.findall(r'<table id="templates-table">.*?</table>', page, re.DOTALL)
    heads = re.findall(r"<th [^>]*data-column[^>]*>(.*?)</th>", table)
    assert heads.index("Found of all promised") < heads.index("Template followed")
    assert "14.6\N{NO-BREAK SPACE}%" in table
    assert ">not judged<" in table
    assert "100\N{NO-BREAK SPACE}%" not in table


def test_blocks_that_no_rule_names_are_no_pool(site: Site) -> None:
    """Their page does not say what they run or how they order, because they are of several miners."""
    page = site.get("/pools/unknown").text
    assert "This pool" not in page
    assert "Orders by" not in page
    assert "No rule names the miners of these blocks" in page
    assert "This pool" in site.get("/pools/alpha").text

    (unknown,) = [row for row in site.data("/api/v1/pools?window=all") if row["pool"] == "unknown"]
    assert unknown["last_height"] == 2
    assert unknown["last_day"] == "2026-01-02"


@contextmanager
def changed_site(database: Path, folder: Path, changes: str) -> Iterator[Site]:
    """Serve a copy of a database in which SQL statements have replaced some marts."""
    copy = copied(database, folder)
    with duckdb.connect(str(copy)) as connection:
        connection.execute(changes)
    with serving(copy) as site:
        yield site


def replaced(mart: str, query: str) -> str:
    """Return SQL that puts a query of a mart's rows, `{0}` in it, in the place of the mart."""
    rows = query.format(f"kept_{mart}")
    return f"CREATE TABLE kept_{mart} AS FROM {mart}; DROP TABLE {mart}; CREATE TABLE {mart} AS {rows};"


def test_a_pool_that_was_not_judged_is_not_acquitted(served_database: Path, tmp_path: Path) -> None:
    """Where no block was judged, the page says so instead of counting 0 candidates."""
    changes = replaced("out_of_band", "SELECT * REPLACE ('alpha' AS pool) FROM {0} WHERE pool = 'unknown'")
    with changed_site(served_database, tmp_path, changes) as site:
        page = site.get("/pools/alpha").text
        judged = [row["n_judged"] for row in site.data("/api/v1/pools/alpha")["out_of_band"]]

    assert judged == [0]
    assert "No block of this pool was judged for transactions that pay far less" in page
    assert "0 in 0" not in page


def test_a_pool_that_was_not_looked_at_is_not_called_ordinary(served_database: Path, tmp_path: Path) -> None:
    """Where nothing was measured, the page says this and shows no card of 0 blocks."""
    marts = ("pool_policy", "signalling", "pool_algorithm", "sub_pool", "out_of_band", "pool_clock")
    changes = "".join(replaced(mart, "FROM {0} WHERE false") for mart in marts)
    changes += replaced("feerate_strategy", "SELECT * REPLACE (0 AS n_blocks) FROM {0}")
    with changed_site(served_database, tmp_path, changes) as site:
        page = site.get("/pools/alpha").text

    assert "Nothing was measured that could tell this pool from others." in page
    assert "shows nothing that tells it from others" not in page
    assert "in 0 blocks" not in page


def test_the_best_payers_taken_are_those_of_the_report(served_database: Path, tmp_path: Path) -> None:
    """One name has one number, here and in the report: that by package feerate."""
    query = "SELECT * REPLACE (if(feerate_kind = 'package', 0.123, 0.9) AS top_x_ratio) FROM {0}"
    with changed_site(served_database, tmp_path, replaced("feerate_strategy", query)) as site:
        page = site.get("/pools/alpha").text

    assert "12.3\u00a0%" in page
    assert "90.0\u00a0%" not in page


def test_pools_have_their_names(served_database: Path, tmp_path: Path) -> None:
    """A reorganisation, a conflict and a rule that matches name a pool as people do, not by its slug."""
    changes = replaced(
        "stale_branches",
        "SELECT * REPLACE (1 AS followed_depth, false AS is_open, ['alpha', 'unknown'] AS pools) FROM {0}",
    ) + replaced(
        "attribution_conflict",
        "FROM {0} UNION ALL BY NAME SELECT 'alpha' AS pool, 'alpha' AS other, 'tag' AS method,"
        " 'payout' AS other_method, 7 AS block_count",
    )
    with changed_site(served_database, tmp_path, changes) as site:
        (event,) = [each for each in site.data("/api/v1/events") if each["kind"] == "reorganisation"]
        pool, block = site.get("/pools/alpha").text, site.get("/blocks/3").text

    assert event["sentence"] == f"A node left a branch of 1 block at height 4, by {POOL_NAME}, unknown."
    assert f'In 7 blocks a rule of <a href="/pools/alpha"><bdi>{escape(POOL_NAME)}</bdi></a>' in pool
    assert f'<a href="/pools/alpha"><bdi>{escape(POOL_NAME)}</bdi></a></th><td>tag' in block


def test_a_build_without_blocks_says_what_to_do(tmp_path: Path) -> None:
    """Who builds before the first seal reads that, and no count of nothing."""
    rules = tmp_path / "pools"
    rules.mkdir()
    (rules / "alpha.toml").write_text(RULES)
    write_world(tmp_path / "dataset", {"nodes": [{"node": "n", "started_at": 0}], "coverage": []})
    with serving(build(tmp_path / "dataset", rules, tmp_path / "a.duckdb").database) as site:
        page = site.get("/").text

    assert "<b>Nothing in the database yet.</b>" in page
    assert "Not watching" not in page
    assert "of the newest 0 blocks" not in page


def test_what_is_not_known_is_not_counted_as_none(served_database: Path, tmp_path: Path) -> None:
    """Where no source gives sizes, no block is said to be full; where one is known, it alone is counted."""
    query = "SELECT * REPLACE (CASE WHEN {} THEN is_empty END AS is_empty) FROM {{0}}"
    said = []
    for name, known in (("none", "false"), ("one", "height = 3")):
        folder = tmp_path / name
        folder.mkdir()
        changes = replaced("chain_blocks", query.format(known))
        with changed_site(served_database, folder, changes) as site:
            said.append(site.get("/").text)
            n_blocks = len(site.data("/api/v1/blocks"))

    assert f"no source tells how many transactions are in the newest {n_blocks} blocks" in said[0]
    assert f"of 1 of the newest {n_blocks} blocks; of the others it is not known" in said[1]


def test_results_of_the_past_are_not_called_now(served_database: Path, tmp_path: Path) -> None:
    """Without a node, the first page says to when its blocks reach, a card to when its window does."""
    changes = replaced("coverage_summary", "FROM {0} WHERE false") + replaced(
        "pool_share_window",
        "SELECT * REPLACE ('day' AS time_window, timestamptz '2024-02-26 01:36:51+00' AS to_time) FROM {0}",
    )
    with changed_site(served_database, tmp_path, changes) as site:
        page = re.sub("</?time[^>]*>", "", site.get("/").text)
        blocks = site.get("/api/v1/blocks").json()["data"]

    date, clock = max(block["header_time"] for block in blocks)[:19].split("T")
    assert f'<h1 id="now-title">Up to {date}</h1>' in page
    assert f"from third parties and reach to {date}\N{NO-BREAK SPACE}{clock}, " in page
    assert "Largest pool, 24 hours to 2024-02-26" in page
    assert "Blocks, 24 hours to 2024-02-26" in page


AT_TWO_NODES = "FROM {0} UNION ALL SELECT * REPLACE ('other' AS node) FROM {0}"
AT_MANY_NODES = """
    FROM {0} UNION ALL
    SELECT {0}.* REPLACE ('other ' || number AS node) FROM {0}, range(250) AS numbers (number)
"""


@pytest.mark.parametrize(
    ("nodes", "n_rows", "said"),
    [
        (AT_TWO_NODES, 4, "2 blocks, a row for each of our nodes at which it waited"),
        (AT_MANY_NODES, 200, "2 blocks, a row for each of our nodes at which it waited, the first 200"),
    ],
    ids=["two nodes", "more rows than the table has"],
)
def test_the_card_counts_blocks_that_passed_over(
    served_database: Path, tmp_path: Path, nodes: str, n_rows: int, said: str
) -> None:
    """The table has a row for each node, and says where it ends; the card counts every block once."""
    changes = replaced("mempool_cuts", nodes) + replaced("mempool_residence", nodes)
    with changed_site(served_database, tmp_path, changes) as site:
        facts = site.data(f"/api/v1/transactions/{SLOW}")
        page = site.get(f"/tx/{SLOW}").text

    assert len(facts["passed_over"]) == n_rows
    assert facts["n_blocks_passed_over"] == 2
    assert said in page


def test_a_replacement_at_two_nodes_counts_once(served_database: Path, tmp_path: Path) -> None:
    """The card counts the earlier transactions, not the nodes that saw them go."""
    changes = replaced("replacement_chain", AT_TWO_NODES)
    with changed_site(served_database, tmp_path, changes) as site:
        facts = site.data(f"/api/v1/transactions/{NEW}")
        page = site.get(f"/tx/{NEW}").text

    assert len(facts["replaces"]) == 2
    assert re.search(r"Replaces</?[^0-9]*1<", page)


def test_a_transaction_is_explained(site: Site) -> None:
    """The page of a transaction says who mined it, and which blocks passed it over."""
    page = site.get(f"/tx/{SLOW}").text

    assert "<b>Mined</b>" in page
    assert page.count('href="/blocks/') == 3


def test_the_source_of_a_block_is_said_in_words(site: Site) -> None:
    """A page of a block says in words who reported the block; the column told_by has a code for it."""
    assert "<bdi>observed by our nodes</bdi>" in site.get("/blocks/2").text


def test_what_is_not_watched_is_said(site: Site) -> None:
    """The observation of this world ended long ago, and the page of now says so first."""
    page = site.get("/").text

    assert "<b>Not watching.</b> The newest observation in this database is from" in page
    assert page.index("Not watching") < page.index("Newest block")


def test_a_window_that_the_dataset_lacks_is_said(site: Site) -> None:
    """The dataset spans 3 days, so a year shows all blocks and says so; the page begins with a day."""
    assert "The dataset does not hold the last year" in site.get("/pools?window=1y").text

    first = site.get("/pools").text
    assert '<a href="/pools?window=24h" aria-current="page">' in first
    assert "does not hold the last" not in first


@pytest.mark.parametrize(
    "path",
    [
        "/pools/",
        "/blocks/?page=2",
        "/blocks/77",
        "/blocks?pool=nobody",
        "/pools/nobody",
        "/nothing",
        "/tx/xyz",
        f"/search?q={EVIL}",
    ],
)
def test_a_page_that_is_not_there_says_so(site: Site, path: str) -> None:
    """The answer is a page with one sentence, and status 404."""
    answer = site.get(path)

    assert answer.status_code == 404
    assert "<h1" in answer.text
    assert EVIL not in answer.text


@pytest.mark.parametrize(
    ("query", "target"),
    [("2", "/blocks/2"), (BLOCK, f"/blocks/{BLOCK}"), (SLOW, f"/tx/{SLOW}"), ("ALPHA", "/pools/alpha")],
)
def test_a_search_finds_what_is_meant(site: Site, query: str, target: str) -> None:
    """Heights, hashes, txids and names of pools lead to their pages."""
    assert site.get(f"/search?q={query}").headers["location"] == target


def test_the_feed_has_an_entry_per_question(site: Site) -> None:
    """The Atom feed parses, and its entries are the findings of the API."""
    feed = ET.fromstring(site.get("/findings.atom").content)  # noqa: S314 - written by us
    names = {"a": "http://www.w3.org/2005/Atom"}
    titles = [each.text for each in feed.findall("a:entry/a:title", names)]

    assert titles == [each["question"] for each in site.data("/api/v1/findings")]
    assert feed.find("a:updated", names) is not None


def test_names_of_strangers_are_escaped(site: Site) -> None:
    """The name of a pool stands in the page as text."""
    page = site.get("/pools?window=all").text

    assert POOL_NAME not in page
    assert "&lt;img src=x onerror=" in page


def test_static_files_are_ours_alone(site: Site) -> None:
    """No path leads to another file."""
    for name in ("../app.py", "%2e%2e%2fapp.py", "base.html.j2"):
        assert site.get(f"/static/{name}").status_code == 404


def test_no_answer_tells_where_the_database_lies(site: Site, served_database: Path) -> None:
    """No page, answer, mart or feed names a folder of the server."""
    answers = [path.split("{")[0] for path in site.get("/api/v1/openapi.json").json()["paths"]]
    marts = [f"/api/v1/marts/{mart['name']}" for mart in site.data("/api/v1/marts")]
    for path in [*PAGES, *answers, *marts, "/findings.atom", "/api/v1/openapi.json"]:
        assert str(served_database.parent) not in site.get(path).text, path
    assert "dataset_hash" in site.data("/api/v1/build")
