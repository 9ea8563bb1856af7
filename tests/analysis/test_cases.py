"""Test each mart on small worlds whose answers can be worked out by hand: one folder per mart and case.

A world is built once in DuckDB, compared with the answer, and then computed on Spark.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pytest

from analysis.attribution.rules import load_rules
from analysis.catalog import Model, load_catalog
from analysis.checks import duplicates
from analysis.database import open_database
from analysis.engine import build
from collector.dataset.schema import TABLES
from tests.analysis.shared_build import RULES, SharedBuild
from tests.analysis.warehouse.on_spark import compute, difference, drawn, read_relation
from tests.analysis.world import START, label_of, read_csv, write_world

CASES = Path(__file__).parent / "cases"
NUMBERS_PER_WINDOW = 1_000_000_000  # macro window_key
FIRST_WINDOWS = {int(START.timestamp()) // 86_400, int(START.timestamp()) // 21_600}
FOLDERS = sorted(path.parent for path in CASES.glob("*/*/expected.csv"))


def as_text(value: Any) -> str:
    """Return a value as it is written in an expected.csv.

    Times are seconds after the start of the world. Keys that are numbered by day, or by quarter of a day, are
    written without the window of the start.
    """
    if value is None:
        return ""
    if isinstance(value, bytes):
        return label_of(value)
    if isinstance(value, list):
        return " ".join(map(as_text, value))
    if isinstance(value, int) and value // NUMBERS_PER_WINDOW in FIRST_WINDOWS:
        return str(value % NUMBERS_PER_WINDOW)
    if hasattr(value, "tzinfo"):
        return f"{(value - START).total_seconds():g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def same(expected: str, found: str) -> bool:
    """Tell whether two fields are equal: numbers to nine digits, everything else as text."""
    try:
        return math.isclose(float(expected), float(found), rel_tol=1e-9, abs_tol=1e-12)
    except ValueError:
        return expected == found


def name_of(folder: Path) -> str:
    """Return the name of a case: its mart, and what is special about it."""
    return f"{folder.parent.name}-{folder.name}"


@dataclass(frozen=True)
class Case:
    """Holds a case whose world is built: its folder, its mart, and the database."""

    folder: Path
    model: Model
    connection: duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def case(request: pytest.FixtureRequest, shared: SharedBuild) -> Iterator[Case]:
    """Build the world of one case; no check fails. The chain is that of the nodes, or regtest."""
    folder: Path = request.param
    model = load_catalog().by_name[folder.parent.name]
    tables = {path.stem: read_csv(path) for path in folder.glob("*.csv") if path.stem in TABLES}
    chain = next((node["chain"] for node in tables.get("nodes", ()) if "chain" in node), "regtest")
    with shared.built(tables, [model.name], chain) as connection:
        yield Case(folder, model, connection)


@pytest.mark.parametrize("case", FOLDERS, ids=name_of, indirect=True)
def test_mart_gives_the_planted_truth(case: Case) -> None:
    """The mart of a case has exactly the rows of expected.csv."""
    text = (case.folder / "expected.csv").read_text()
    columns, *lines = [line.split(",") for line in text.splitlines() if not line.startswith("#")]
    expected = sorted(lines)

    select = f"SELECT {', '.join(columns)} FROM {case.model.name}"  # noqa: S608 - names from the case
    rows = case.connection.sql(select).to_arrow_table().to_pylist()
    found = sorted([as_text(row[column]) for column in columns] for row in rows)

    assert case.connection.sql(duplicates(case.model)).fetchall() == []
    assert len(found) == len(expected), found
    for expected_row, found_row in zip(expected, found, strict=True):
        pairs = zip(columns, expected_row, found_row, strict=True)
        wrong = [(name, a, b) for name, a, b in pairs if not same(a, b)]
        assert not wrong, f"{found_row}: column, expected, found = {wrong}"


@pytest.mark.parametrize("case", drawn(FOLDERS), ids=name_of, indirect=True)
def test_case_has_the_rows_of_duckdb_on_spark(spark: Any, case: Case) -> None:
    """The mart of a case on Spark, made of the relations that DuckDB made, equals that in DuckDB.

    Some cases are drawn anew in each run; POOL_TEST_SPARK=all takes all of them.
    """
    found = compute(spark, case.model, lambda name: read_relation(case.connection, name))

    assert difference(read_relation(case.connection, case.model.name), found, case.model.grain) == ""


def test_every_mart_has_a_case() -> None:
    """Each mart of the catalog has at least one folder of cases."""
    marts = {model.name for model in load_catalog().layer("marts")}

    assert marts == {folder.parent.name for folder in FOLDERS} | {"run_manifest"}


def test_the_manifest_says_what_was_run(tmp_path: Path) -> None:
    """The run manifest has versions, chain, rule-set hash, sessions and the window of blocks, each once."""
    tables = {
        "nodes": [{"session": session, "subversion": "/Node:1/", "started_at": 60} for session in "st"],
        "blocks": [
            {"block_hash": "a1", "height": 7, "header_time": 0, "arrived_at": 1},
            {"block_hash": "a2", "prev_hash": "a1", "height": 8, "header_time": 600},
        ],
    }
    dataset = write_world(tmp_path / "dataset", tables)
    result = build(dataset, RULES, tmp_path / "analysis.duckdb", marts=["run_manifest"])

    with open_database(result.database) as connection:
        manifest = dict(connection.execute("SELECT key, value FROM run_manifest").fetchall())
    assert manifest["rules_hash"] == load_rules(RULES).hash == result.rules_hash
    assert manifest["chain"] == "regtest"
    assert manifest["session n s"].startswith("/Node:1/, collector ")
    assert "started 2026-01-01 00:01:00" in manifest["session n t"]
    assert (manifest["blocks"], manifest["blocks seen arriving"]) == ("2", "1")
    assert (manifest["height first"], manifest["height last"]) == ("7", "8")
    assert manifest["header time last"] == "2026-01-01 00:10:00"
    assert {
        "analysis_version",
        "duckdb_version",
        "scipy_version",
        "commit",
        "dataset_hash",
    } <= manifest.keys()
