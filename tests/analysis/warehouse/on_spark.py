"""Compute a model on Spark from tables of DuckDB's results, and compare its rows with DuckDB's."""

import datetime as dt
import decimal
import math
import os
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import duckdb
import pyarrow as pa

from analysis.catalog import Model, load_catalog
from analysis.warehouse.session import data_frame
from analysis.warehouse.translate import Statement, translated

Row = Mapping[str, Any]
N_DRAWN: Final = 15
# The processes of one run of the suite must collect the same tests, so they draw by the run's name.
RUN: Final = os.environ.get("PYTEST_XDIST_TESTRUNUID")


def drawn(items: Sequence[Any]) -> list[Any]:
    """Return some of the items in their order, or all of them if the environment says so.

    Planning a query costs Spark most of a second of a processor.
    """
    if os.environ.get("POOL_TEST_SPARK") == "all":
        return list(items)
    chosen = random.Random(RUN).sample(range(len(items)), N_DRAWN)  # noqa: S311 - no secret
    return [items[number] for number in sorted(chosen)]


def read_relation(connection: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    """Read a relation as Arrow."""
    return connection.sql(f"FROM {name}").to_arrow_table()


def compute(spark: Any, model: Model, relation: Callable[[str], pa.Table]) -> pa.Table:
    """Compute a model on Spark; `relation` gives the rows of each relation that it reads."""
    for name in model.references:
        data_frame(spark, relation(name)).createOrReplaceTempView(name)
    *steps, last = _statements(model.name)
    for step in steps:
        found = spark.sql(step.sql).toArrow()
        data_frame(spark, found).createOrReplaceTempView(step.name)
    return spark.sql(last.sql).toArrow()


@cache
def _statements(name: str) -> list[Statement]:
    """Translate a model, once for all of its cases."""
    return translated(load_catalog().by_name[name])


def difference(expected: pa.Table, found: pa.Table, grain: tuple[str, ...]) -> str:
    """Say how two tables differ as multisets of rows, doubles to nine digits; empty where they are equal."""
    if expected.column_names != found.column_names:
        return f"columns {found.column_names}, expected {expected.column_names}"
    if len(expected) != len(found):
        return f"{len(found)} rows, expected {len(expected)}"
    for row, other in zip(_sorted(expected, grain), _sorted(found, grain), strict=True):
        for column, value in row.items():
            if not _same(value, other[column]):
                key = {name: row[name] for name in grain}
                return f"{column} of {key} is {other[column]!r}, expected {value!r}"
    return ""


def _sorted(table: pa.Table, grain: tuple[str, ...]) -> list[Row]:
    """Return the rows in the order of their keys; rows of one key are sorted by everything else."""
    rows = [{name: _plain(value) for name, value in row.items()} for row in table.to_pylist()]
    return sorted(rows, key=lambda row: ([str(row[name]) for name in grain], str(row)))


def _plain(value: Any) -> Any:
    """Return a value in the form in which both engines give it."""
    if isinstance(value, decimal.Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _same(expected: Any, found: Any) -> bool:
    """Tell whether two values are equal, doubles to nine digits."""
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_same, expected, found))
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(
            _same(expected[name], found[name]) for name in expected
        )
    if isinstance(expected, float) and isinstance(found, int | float) and not isinstance(found, bool):
        both_nan = math.isnan(expected) and math.isnan(found)
        return both_nan or math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-12)
    return type(expected) is type(found) and bool(expected == found)
