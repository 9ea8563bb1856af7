"""Tests the way from a dataset to the page: the report shows what the engine builds."""

import html
import io
from pathlib import Path

import pytest
from rich.console import Console

from analysis import report
from analysis.engine import build
from analysis.report.page import page
from analysis.report.sections import read_marts
from analysis.terminal_summary import print_summary
from tests.analysis.world import read_csv, write_world

CASES = Path(__file__).parents[1] / "cases"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the planted dataset of empty blocks, with one block of an unknown pool at its end."""
    folder = tmp_path_factory.mktemp("engine")
    blocks = read_csv(CASES / "empty_intervals" / "empty_blocks_follow_fast" / "blocks.csv")
    last = {
        "block_hash": "b14",
        "prev_hash": "b13",
        "height": "14",
        "coinbase_script": HOSTILE,
        "n_tx": "1",
        "arrived_at": "225",
    }
    dataset = write_world(folder / "dataset", {"blocks": [*blocks, last]})
    return build(dataset, CASES / "pools", folder / "analysis.duckdb").database


def test_planted_numbers_reach_the_page(database: Path, tmp_path: Path) -> None:
    """The sentences have the planted shares, empty blocks and medians; a hostile coinbase is only text."""
    source = report.write(database, tmp_path / "report.html").read_text(encoding="utf-8")
    text = source.replace("\N{NO-BREAK SPACE}", " ")

    assert "14 blocks of regtest, a private test chain, found " in text
    assert "; watched through the node n." in text
    assert "Alpha mined the most: 10 of 14 blocks, 71.4 %" in text
    assert "No rule names the pool of 1 block, 7.1 %" in text
    assert "7 of 14 blocks were empty, 50.0 %" in text
    assert "7 empty and 6 other blocks" in text
    assert "median 4.00 s (1.00 s to 1 min 40 s) after the parent against 12.5 s (10.0 s to 20.0 s)" in text
    assert html.escape(HOSTILE) in text
    assert HOSTILE not in text


def test_the_same_numbers_reach_the_terminal(database: Path) -> None:
    """The terminal summary has the same sentence as the page."""
    out = io.StringIO()
    marts = read_marts(database)
    print_summary(page(marts), marts, Console(file=out, width=80))

    assert "Alpha mined the most: 10 of 14 blocks" in out.getvalue()


def test_labels_without_times_have_no_place_on_an_axis(tmp_path: Path) -> None:
    """A list names a block on each of 130 days, and a later one without a time: it counts, undrawn."""
    labels: list[dict[str, object]] = [
        {"source": "list", "height": height, "label": "Alpha", "header_time": 86_400 * height}
        for height in range(130)
    ]
    labels.append({"source": "list", "height": 5000, "label": "Beta"})
    dataset = write_world(tmp_path / "dataset", {"external_pool_labels": labels})
    built = build(dataset, CASES / "pools", tmp_path / "analysis.duckdb").database

    text = report.write(built, tmp_path / "report.html").read_text(encoding="utf-8")

    assert "130 of 131 blocks" in text.replace("\N{NO-BREAK SPACE}", " ")
