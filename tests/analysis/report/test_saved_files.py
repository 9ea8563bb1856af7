"""Tests the files that readers save: CSV that parses back to the marts, and SVG and PNG that stand alone."""

import csv
import datetime as dt
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from xml.etree import ElementTree as ET

import duckdb
import pytest

from analysis import report, row_output
from analysis.errors import ReportError
from analysis.report import saved_files
from analysis.report.model import Figure, Page, Table
from tests.analysis.report import report_marts, section_rows

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def tables(content: Page) -> Iterator[Table]:
    """Yield every table of a page."""
    for section in content.sections:
        yield from (part for part in section.parts if isinstance(part, Table))


def figures(content: Page) -> Iterator[Figure]:
    """Yield every figure of a page."""
    for section in content.sections:
        yield from (part for part in section.parts if isinstance(part, Figure))


def downloaded(table: Table) -> list[dict[str, str]]:
    """Parse the CSV that the link of a table holds, and return its rows."""
    link = saved_files.csv_download(table)
    assert link is not None
    head, text = link.uri.split(",", 1)
    assert head == "data:text/csv;charset=utf-8"
    return list(csv.DictReader(io.StringIO(unquote(text))))


def same(shown: str, value: Any) -> bool:
    """Tell whether a CSV field shows exactly the value from the mart."""
    match value:
        case bool() | None:
            expected = {"" if value is None else str(value).lower()}
        case int() | float():
            return float(shown) == value
        case bytes():
            expected = {value.hex(), value[::-1].hex()}
        case dt.datetime():
            return dt.datetime.fromisoformat(shown) == value
        case list():
            return bool(json.loads(shown) == row_output.plain(value))
        case _:
            expected = {str(value), f"'{value}"}
    return shown in expected


def test_every_table_parses_back_to_the_rows_of_its_mart(filled_content: Page) -> None:
    """The CSV of a table rounds nothing, turns no null into a zero, and loses no row."""
    found = list(tables(filled_content))

    assert len(found) > 40
    for table in found:
        rows = downloaded(table)
        assert len(rows) == len(table.records)
        for row, record in zip(rows, table.records, strict=True):
            assert list(row) == list(record)
            assert all(same(row[name], value) for name, value in record.items()), table.table_id


def test_numbers_of_a_csv_are_those_of_the_database(filled_content: Page, filled_database: Path) -> None:
    """The hashrate in the CSV is exactly the double that the mart holds."""
    table = next(table for table in tables(filled_content) if table.table_id == "hashrate-table")
    with duckdb.connect(str(filled_database), read_only=True) as connection:
        found = connection.execute(
            "SELECT period, observed_hashes_per_s FROM hashrate WHERE grouped_by = 'network'"
        ).fetchall()

    shown = {row["period"]: float(row["observed_hashes_per_s"]) for row in downloaded(table)}

    assert shown == dict(found)
    assert shown["all"] == section_rows.OBSERVED_HASHES_PER_S


def test_a_csv_of_the_report_has_the_fields_of_show() -> None:
    """The CSV is the one that `show` writes: strangers' texts are harmless, and numbers stay numbers."""
    row = {
        "label": "=HYPERLINK(1)",
        "tag": "@x",
        "tab": "\t=1",
        "full_width": "\uff1d1",
        "rate": -0.25,
        "amount": Decimal("-0.5"),
        "esc": "a\x1b[2J",
        "direction": "a\u202eb",
        "list": ["=1", "a\x1b"],
        "is_empty": True,
        "none": None,
    }
    shown = io.StringIO()
    row_output.write_csv(list(row), [list(row.values())], shown)

    text, n_rows = saved_files.csv_text([row])

    assert (text, n_rows) == (shown.getvalue(), 1)
    assert next(csv.DictReader(io.StringIO(text))) == {
        "label": "'=HYPERLINK(1)",
        "tag": "'@x",
        "tab": "'\ufffd=1",
        "full_width": "'\uff1d1",
        "rate": "-0.25",
        "amount": "-0.5",
        "esc": "a\ufffd[2J",
        "direction": "a\ufffdb",
        "list": '["=1", "a\\u001b"]',
        "is_empty": "true",
        "none": "",
    }


def test_a_long_csv_is_cut_at_a_row_and_says_so() -> None:
    """A CSV that is too long ends after a whole row, and its link says how many rows it has."""
    rows: list[Mapping[str, Any]] = [{"number": number, "text": "x" * 90} for number in range(10_000)]
    table = Table(
        table_id="t", caption="", head="", columns=[], rows=[], mart="m", records=rows, n_records=12_000
    )

    kept = downloaded(table)

    assert [int(row["number"]) for row in kept] == list(range(len(kept)))
    assert 1000 < len(kept) < len(rows)
    link = saved_files.csv_download(table)
    assert link is not None
    assert link.label == f"CSV, the first {len(kept):,} of 12,000 rows"


def test_every_figure_stands_alone(filled_content: Page) -> None:
    """An SVG has a title and a background, and needs no CSS variable and nothing outside the file."""
    found = list(figures(filled_content))

    assert len(found) > 20
    for figure in found:
        svg = unquote(saved_files.svg_download(figure).uri.split(",", 1)[1])
        root = ET.fromstring(svg)  # noqa: S314 - our own drawing
        assert "var(" not in svg
        assert root.findtext("{http://www.w3.org/2000/svg}title") == figure.title
        assert root[2].get("fill") == "#fcfcfb"
        assert not re.search(r"(href|src)=|@import|<script", svg)
        ids = re.findall(r' id="([^"]+)"', svg)
        assert len(ids) == len(set(ids))
        assert set(re.findall(r"url\(#([^)]+)\)", svg)) <= set(ids)


def test_a_text_may_look_like_a_css_variable(filled_content: Page) -> None:
    """A name that the style sheet does not have stays as it is in a saved figure."""
    figure = replace(next(figures(filled_content)), title="pool var(--x)")

    svg = unquote(saved_files.svg_download(figure).uri.split(",", 1)[1])

    assert "pool var(--x)" in svg


def test_every_figure_says_what_it_rests_on_and_by_which_method(filled_content: Page) -> None:
    """Every figure has a sentence on its basis, and the methods describe every mart that it names."""
    methods = next(section for section in filled_content.methods if section.section_id == "methods")
    known = {term.anchor for part in methods.parts for term in getattr(part, "terms", ())}

    for figure in figures(filled_content):
        assert figure.rests_on
        assert {f"method-{mart}" for mart in figure.marts} <= known
    for table in tables(filled_content):
        assert not table.mart or f"method-{table.mart}" in known


def test_a_folder_of_figures_has_svg_png_and_csv(tmp_path: Path) -> None:
    """The folder has each figure as SVG and as PNG, and each table as CSV."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.mainnet_like(12))

    report.write(database, tmp_path / "report.html", figures=tmp_path / "figures")

    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"share-chart.svg", "share-chart.png", "share-table.csv"} <= names
    assert (tmp_path / "figures" / "share-chart.png").read_bytes().startswith(PNG_SIGNATURE)
    assert {name.removesuffix(".svg") for name in names if name.endswith(".svg")} == {
        name.removesuffix(".png") for name in names if name.endswith(".png")
    }


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """If a file is in the place of the folder, the error says which option to change."""
    database = report_marts.write(tmp_path / "analysis.duckdb", report_marts.nothing())
    (tmp_path / "figures").write_text("")

    with pytest.raises(ReportError, match=r"figures cannot be written .* choose another --figures"):
        report.write(database, tmp_path / "report.html", figures=tmp_path / "figures")
