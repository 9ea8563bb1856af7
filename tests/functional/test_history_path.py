"""Go the README's way for those without a node: `make history` on real data from a server of our own.

A server on loopback has the files of POOL_TEST_DATA; the list names them, and one file that is not there.
"""

import os
import re
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

from analysis.database import open_database

pytestmark = [pytest.mark.data, pytest.mark.timeout(900)]

LABELS = "pool-labels-610683-699999.parquet"
DAYS = [f"blockchair-2025-03/blockchair_bitcoin_blocks_2025030{day}.tsv" for day in range(1, 8)]
HEAD = """
[[data_set]]
name = "{name}"
what = "{name}"
publisher = "somebody"
homepage = "https://example.org"
licence = "see the homepage"
feeds = "shares"
size = "small"
history = true
{how}
"""
SETS = {
    "pool-labels": ('kind = "labels"\nsource = "sorukumar"', [LABELS]),
    "blocks": ('from = "blockchair"', DAYS),
    "prices": ('kind = "prices"\nsource = "brk"', ["brk/date_price_ohlc.json"]),
    "arrivals": ('from = "bitcoin-data"', ["block-arrival-times/offing-gcp.csv"]),
    "gone": ('kind = "labels"\nsource = "gone"', ["gone.csv"]),
}


class Quiet(SimpleHTTPRequestHandler):
    """Serves a folder and says nothing."""

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class History(NamedTuple):
    """Holds what `make history` left: its output, the database and the report."""

    output: str
    database: Path
    report: str

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return what a query finds in the database."""
        with open_database(self.database) as connection:
            return connection.execute(query).fetchall()


@pytest.fixture(scope="module")
def server(data_dir: Path) -> Iterator[str]:
    """Serve the real data on a free loopback port."""
    serving = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=data_dir))
    thread = threading.Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_address[1]}"
    finally:
        serving.shutdown()
        serving.server_close()


@pytest.fixture(scope="module")
def history(server: str, repo_root: Path, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Run `make history` once, with a list of our own."""
    folder = tmp_path_factory.mktemp("history")
    entries = [
        HEAD.format(name=name, how=how)
        + "".join(f'[[data_set.file]]\nurl = "{server}/{path}"\n' for path in paths)
        for name, (how, paths) in SETS.items()
    ]
    (folder / "list.toml").write_text("".join(entries))
    result = subprocess.run(
        # With the commands of this environment; nothing is installed.
        [
            *("make", "history", f"LIST={folder / 'list.toml'}", f"HISTORY={folder}"),
            *(f"BIN={Path(sys.executable).parent}", "READY=Makefile"),
        ],
        cwd=repo_root,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    report = (folder / "report.html").read_text()
    return History(result.stdout + result.stderr, folder / "history.duckdb", report)


def slugs(rules: Path) -> dict[str, str]:
    """Return the slug of a pool by each name of it, in lower case, read from the rules as plain TOML."""
    found = {}
    for path in rules.glob("*.toml"):
        pool = tomllib.loads(path.read_text())
        if "rules" in pool:
            found |= {
                name.casefold(): path.stem for name in (path.stem, pool["name"], *pool.get("aliases", []))
            }
    return found


def test_what_cannot_be_fetched_is_named_and_the_rest_goes_on(history: History) -> None:
    """Four data sets come, with every row new; the fifth is named with its address and status."""
    assert re.search(r"gone: http://127\.0\.0\.1:\d+/gone\.csv answered HTTP 404", history.output)
    assert "pool-labels: 1 file, 759,715 bytes; 89,317 rows, 89,317 of them new" in history.output
    assert re.search(r"blocks: 7 files, [\d,]+ bytes; 1,012 rows, 1,012 of them new", history.output)
    assert "5,695 rows" in history.output
    assert "10,927 rows" in history.output


def test_shares_by_label_equal_a_plain_count(history: History, data_dir: Path, repo_root: Path) -> None:
    """Every block from 610683 to 699999 counts once, for the pool of its label."""
    names = slugs(repo_root / "data" / "pools")
    labels = pd.read_parquet(data_dir / LABELS)
    counted = labels["pool_slug"].map(lambda label: names.get(label.casefold(), "unknown")).value_counts()

    found = history.rows(
        "SELECT pool, count(*) FROM block_pool WHERE height BETWEEN 610683 AND 699999 AND is_attributable "
        "GROUP BY pool"
    )

    assert dict(found) == counted.to_dict()
    assert sum(count for _, count in found) == len(labels) == 89_317
    shares = history.rows("SELECT pool, block_count, share_ratio, total_block_count FROM pool_share")
    assert len(shares) > 20
    for _, count, ratio, total in shares:
        assert ratio == pytest.approx(count / total)
        assert total == 89_317 + 1012


def test_blocks_of_march_2025_are_named_by_our_rules(history: History) -> None:
    """At least 98.9 % of the coinbases that the import brought, by tag or payout and not by a label."""
    [(n_blocks, n_named)] = history.rows(
        "SELECT count(*), count(*) FILTER (NOT is_unknown AND method IN ('tag', 'payout')) FROM block_pool "
        "WHERE height BETWEEN 885784 AND 886795"
    )

    assert n_blocks == 1012
    assert n_named / n_blocks >= 0.989


def test_every_result_says_whose_word_it_is(history: History) -> None:
    """Shares, concentration, empty blocks, hashrate and revenue have rows and name their sources."""
    for mart in ("pool_share", "concentration_index", "empty_rate", "hashrate", "revenue"):
        [(n_rows,)] = history.rows(f"SELECT count(*) FROM {mart}")  # noqa: S608 - names above
        assert n_rows > 0, mart
    told = {source for (source,) in history.rows("SELECT DISTINCT unnest(told_by) FROM pool_share")}
    assert told == {"sorukumar", "blockchair"}


def test_empty_blocks_of_march_2025_equal_a_plain_count(history: History, data_dir: Path) -> None:
    """A block with one transaction is empty, in the file and in the mart."""
    days = pd.concat(pd.read_csv(data_dir / path, sep="\t", usecols=["transaction_count"]) for path in DAYS)

    [(n_empty,)] = history.rows("SELECT count(*) FROM block_facts WHERE n_tx = 1 AND told_by = 'blockchair'")

    assert n_empty == int((days["transaction_count"] == 1).sum())


def test_intervals_use_the_arrivals_of_the_volunteer(history: History) -> None:
    """The blocks that its node saw have intervals on its clock."""
    [(n_intervals,)] = history.rows(
        "SELECT count(*) FROM block_intervals WHERE told_by = 'bitcoin-data.offing-gcp'"
    )

    assert n_intervals > 10_000


def test_the_first_screen_of_the_report_has_the_findings(history: History) -> None:
    """The headline block has the largest pool and its share: 14,866 of 90,329 blocks."""
    headline = re.search(r'<section[^>]* id="headline".*?</section>', history.report, re.DOTALL)

    assert headline is not None
    text = re.sub(r"<[^>]+>", " ", headline[0])
    assert "F2Pool" in text
    assert re.search(r"16\.5\s?%", text)


def test_the_lead_says_what_has_no_pool_and_lists_of_arrivals_have_dates(history: History) -> None:
    """10,927 blocks are known by arrival alone: they count in no share, and their arrivals give the dates."""
    text = " ".join(re.sub(r"<[^>]+>", " ", history.report).split())

    assert "101,256 blocks of Bitcoin mainnet" in text
    assert "Of 10,927 of them only a header or an arrival is known, not who mined it" in text
    assert "offing-gcp heights 703,067 to 713,993; arrivals 2021-10-01 19:37 to 2021-12-13" in text
