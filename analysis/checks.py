"""Run the checks of a build: the queries of sql/checks, and for each model a check that its grain is unique.

A check is a query that returns the rows which break a rule. The results are kept in the table `check_results`
of the database, so that the report can show them.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import duckdb

from analysis.catalog import Catalog, Model, Severity
from analysis.errors import DatabaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Tells how many rows broke the rule of one check. A check passes when `n_offending` is 0."""

    name: str
    severity: Severity
    summary: str
    n_offending: int

    @property
    def is_failure(self) -> bool:
        """Tell whether the results must not be used: the severity is `fail`, and rows broke the rule."""
        return self.severity == "fail" and self.n_offending > 0


def run_checks(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> tuple[CheckResult, ...]:
    """Run every check of the catalog and a check of each grain; store the results and return them."""
    results = tuple(
        CheckResult(name=name, severity=severity, summary=summary, n_offending=_count(connection, sql))
        for name, severity, summary, sql in _checks(catalog)
    )
    connection.execute(
        "CREATE TABLE check_results (name VARCHAR, severity VARCHAR, summary VARCHAR, n_offending BIGINT)"
    )
    connection.executemany("INSERT INTO check_results VALUES (?, ?, ?, ?)", [astuple(row) for row in results])
    return results


def read_results(connection: duckdb.DuckDBPyConnection) -> tuple[CheckResult, ...]:
    """Read the results of the checks from a built database. Raises DatabaseError where it has none."""
    try:
        rows = connection.execute("SELECT name, severity, summary, n_offending FROM check_results").fetchall()
    except duckdb.CatalogException:
        raise DatabaseError("the database has no check results; make it with pool-analysis build") from None
    return tuple(
        CheckResult(name=name, severity=severity, summary=summary, n_offending=n_offending)
        for name, severity, summary, n_offending in rows
    )


def duplicates(model: Model) -> str:
    """Write a query that finds the keys which more than one row of a model has."""
    keys = ", ".join(model.grain)
    return f"SELECT {keys} FROM {model.name} GROUP BY ALL HAVING count(*) > 1"  # noqa: S608 - names from our own heads


def _checks(catalog: Catalog) -> Iterator[tuple[str, Severity, str, str]]:
    """Yield name, severity, summary and query of every check: those of SQL files, then one per grain."""
    for check in catalog.layer("checks"):
        yield check.name, check.severity or "fail", check.summary, check.sql
    for model in catalog.models:
        if model.grain:
            summary = f"More than one row of {model.name} has the same {', '.join(model.grain)}."
            yield f"{model.name}_grain", "fail", summary, duplicates(model)


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    answer = connection.execute(f"SELECT count(*) FROM ({sql})").fetchone()  # noqa: S608 - a query from our own files
    return int(answer[0]) if answer else 0
