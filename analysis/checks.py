"""Run the checks: each SQL file of sql/checks returns offending rows, and every grain must be unique.

The results stay in the database as table `check_results`, so that the report can say what was found.
"""

from collections.abc import Iterator
from dataclasses import astuple, dataclass

import duckdb

from analysis.catalog import Catalog, Model, Severity
from analysis.errors import DatabaseError


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """What one check found; `n_offending` = 0 is a pass."""

    name: str
    severity: Severity
    summary: str
    n_offending: int

    @property
    def is_failure(self) -> bool:
        """True when the results must not be used."""
        return self.severity == "fail" and self.n_offending > 0


def run_checks(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> tuple[CheckResult, ...]:
    """Run every check of the catalog and those that the grains imply; store and return the results."""
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
    """Read what the checks of a build found. Raises DatabaseError for a file that no build has made."""
    try:
        rows = connection.execute("SELECT name, severity, summary, n_offending FROM check_results").fetchall()
    except duckdb.CatalogException:
        raise DatabaseError("the database has no check results; make it with pool-analysis build") from None
    return tuple(
        CheckResult(name=name, severity=severity, summary=summary, n_offending=n_offending)
        for name, severity, summary, n_offending in rows
    )


def duplicates(model: Model) -> str:
    """Query for the keys of a model that more than one row has."""
    keys = ", ".join(model.grain)
    return f"SELECT {keys} FROM {model.name} GROUP BY ALL HAVING count(*) > 1"  # noqa: S608 - names from our own heads


def _checks(catalog: Catalog) -> Iterator[tuple[str, Severity, str, str]]:
    """Give name, severity, summary and query of every check: the files, then one per grain."""
    for check in catalog.layer("checks"):
        yield check.name, check.severity or "fail", check.summary, check.sql
    for model in catalog.models:
        if model.grain:
            summary = f"More than one row of {model.name} has the same {', '.join(model.grain)}."
            yield f"{model.name}_grain", "fail", summary, duplicates(model)


def _count(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    answer = connection.execute(f"SELECT count(*) FROM ({sql})").fetchone()  # noqa: S608 - a query from our own files
    return int(answer[0]) if answer else 0
