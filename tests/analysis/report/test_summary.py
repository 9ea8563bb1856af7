"""Tests the terminal summary: its width, its colours, and foreign text that could act on a terminal."""

import io
import re
from pathlib import Path

import duckdb
import pytest
from rich.console import Console

from analysis.report.page import page
from analysis.report.sections import read_marts
from analysis.terminal_summary import print_summary
from tests.analysis.report import report_marts


def printed(folder: Path, world: report_marts.World, *, is_terminal: bool = False) -> str:
    """Return the summary of a database with the blocks of `world`, printed on 80 columns."""
    database = report_marts.write(folder / "analysis.duckdb", world)
    out = io.StringIO()
    marts = read_marts(database)
    print_summary(page(marts), marts, Console(file=out, width=80, force_terminal=is_terminal))
    return out.getvalue()


@pytest.fixture(scope="module")
def of_mainnet(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the summary of 900 blocks, which takes seconds to make."""
    return printed(tmp_path_factory.mktemp("mainnet"), report_marts.mainnet_like())


def test_findings_and_one_row_per_pool_fit_eighty_columns(of_mainnet: str) -> None:
    """No line has more than 80 columns, and output that is not a terminal gets no colours."""
    assert "Foundry USA mined the most" in of_mainnet
    assert re.search(r"^OCEAN +\d+ +\d\.\d.%", of_mainnet, re.MULTILINE)
    assert max(len(line) for line in of_mainnet.splitlines()) <= 80
    assert "\x1b" not in of_mainnet


def test_the_table_says_what_x_is(of_mainnet: str) -> None:
    """The words of its last two columns are explained below it, each on a line of its own."""
    table = of_mainnet[of_mainnet.index("Outside 2X\n") :]

    assert re.search(r"^ *X = the number of transactions in the block *$", table, re.MULTILINE)


def test_a_terminal_gets_colours(tmp_path: Path) -> None:
    """The questions are printed in colour on a terminal."""
    assert "\x1b[1;36mWho mines the blocks?" in printed(
        tmp_path, report_marts.mainnet_like(60), is_terminal=True
    )


def test_text_of_strangers_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """Escape sequences, markup of rich, and characters that change the direction are printed harmlessly."""
    text = printed(tmp_path, report_marts.hostile())

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
    assert "␛[31mred" in text
    assert "[red]{{7*7}}" in text


def test_the_table_says_of_how_many_blocks_emptiness_is_known(tmp_path: Path, of_mainnet: str) -> None:
    """Of most blocks only a label is known, so the share of empty ones says of how many blocks it is."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.mainnet_like(60))
    with duckdb.connect(str(database)) as connection:
        connection.execute("UPDATE empty_intervals SET n_blocks = n_blocks // 2")
        (known,) = connection.execute(
            "SELECT n_blocks FROM empty_intervals WHERE pool = 'all'"
        ).fetchone() or (0,)
    out, marts = io.StringIO(), read_marts(database)
    print_summary(page(marts), marts, Console(file=out, width=80))

    assert f"Empty: of the {known} of 60 blocks of which this is known" in out.getvalue()
    assert "of which this is known" not in of_mainnet


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    """For a dataset without blocks the summary says once that there is none, and prints no table."""
    text = printed(tmp_path, report_marts.nothing())

    assert text.count("The dataset has no block.") == 1
    assert "Outside 2X" not in text


def test_dates_and_sources_of_the_blocks_are_printed(of_mainnet: str) -> None:
    """The first lines say from when the blocks are, how many there are, and who tells of them."""
    text = " ".join(of_mainnet.replace("\N{NO-BREAK SPACE}", " ").split())

    assert "900 blocks of Bitcoin mainnet, found 2026-03-02" in text
    assert "900 blocks observed by our nodes: heights 941,000 to 941,899, header times 2026-03-02" in text
