"""The terminal summary: narrow, colourless where nobody watches, inert."""

import io
import re
from pathlib import Path

import pytest
from rich.console import Console

from analysis.errors import ReportError
from analysis.terminal_summary import print_summary
from tests.analysis.report import report_marts


def printed(folder: Path, world: report_marts.World, *, is_terminal: bool = False) -> str:
    """Print the summary of a world on 80 columns."""
    database = report_marts.write(folder / "analysis.duckdb", world)
    out = io.StringIO()
    print_summary(database, Console(file=out, width=80, force_terminal=is_terminal))
    return out.getvalue()


def test_findings_and_one_row_per_pool_fit_eighty_columns(tmp_path: Path) -> None:
    """No line is longer, and a file gets no colours."""
    text = printed(tmp_path, report_marts.mainnet_like())

    assert "Foundry USA mined the most" in text
    assert re.search(r"^OCEAN +\d+ +\d\.\d.%", text, re.MULTILINE)
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


def test_a_terminal_gets_colours(tmp_path: Path) -> None:
    """Questions stand out where somebody watches."""
    assert "\x1b[1;36mWho mines the blocks?" in printed(
        tmp_path, report_marts.mainnet_like(60), is_terminal=True
    )


def test_text_of_strangers_cannot_act_on_the_terminal(tmp_path: Path) -> None:
    """Neither escape sequences nor markup of rich nor controls of direction pass."""
    text = printed(tmp_path, report_marts.hostile())

    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", text)
    assert "␛[31mred" in text
    assert "[red]{{7*7}}" in text


def test_nothing_measured_is_said(tmp_path: Path) -> None:
    """A dataset without blocks has sentences and no table."""
    text = printed(tmp_path, report_marts.nothing())

    assert text.count("Not enough data") == 12
    assert "Outside 2X" not in text


def test_a_missing_database_is_an_error_of_ours(tmp_path: Path) -> None:
    """It says what to run."""
    with pytest.raises(ReportError, match="run pool-analysis build"):
        print_summary(tmp_path / "none.duckdb", Console(file=io.StringIO()))
