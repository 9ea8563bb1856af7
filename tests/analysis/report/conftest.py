"""Makes reports that several test modules look at, once per run, because drawing one takes seconds."""

from pathlib import Path

import pytest

from analysis import report
from analysis.report.data import Marts
from analysis.report.model import Page
from analysis.report.page import page, render
from analysis.report.sections import read_marts
from tests.analysis.report import report_marts


@pytest.fixture(scope="session")
def filled_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a database with rows for every section of the report, and return its path."""
    folder = tmp_path_factory.mktemp("filled")
    return report_marts.write(folder / "analysis.duckdb", report_marts.filled())


@pytest.fixture(scope="session")
def marts(filled_database: Path) -> Marts:
    """Return the rows that the report reads from `filled_database`: some for every section."""
    return read_marts(filled_database)


@pytest.fixture(scope="session")
def filled_content(filled_database: Path) -> Page:
    """Return the content of the report of `filled_database`, before it becomes HTML."""
    return page(read_marts(filled_database))


@pytest.fixture(scope="session")
def filled_page(filled_database: Path, filled_content: Page) -> Path:
    """Write the report of `filled_database` as an HTML file, and return its path."""
    path = filled_database.with_name("report.html")
    path.write_text(render(filled_content), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the report of a database whose texts are hostile as an HTML file, and return its path."""
    folder = tmp_path_factory.mktemp("hostile")
    database = report_marts.write(folder / "analysis.duckdb", report_marts.hostile())
    return report.write(database, folder / "report.html")
