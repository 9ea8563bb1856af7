"""Run the checks of a build: the queries of sql/checks, and for each model a check that its grain is unique.

A check is a query that returns the rows which break a rule. Its head says which data it needs. Where the
dataset lacks them, the check is not applicable: it neither passes nor fails. The results are kept in the
table `check_results` of the database, so that the report can show them.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol, get_args

import duckdb

from analysis.catalog import Catalog, Model, Severity
from analysis.database import in_threads
from analysis.errors import DatabaseError
from analysis.fingerprints import Fingerprints
from analysis.parts import digest
from analysis.raw_contents import File
from analysis.stored import Stored

Outcome = Literal["passed", "warned", "failed", "not applicable"]
COLUMNS: Final = ("name", "outcome", "n_offending", "reason")
GRAIN_CHECK: Final = "_grain"
TOGETHER_ROWS: Final = 1_000_000  # of files that one query looks at for equal keys

# Returns the number of rows of each query.
Count = Callable[[Sequence[str]], list[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """Holds the result of one check of the data: how many rows broke its rule.

    If the check could not run, `missing` says which data the dataset lacks for the check.
    """

    name: str
    severity: Severity
    summary: str
    n_offending: int
    missing: str | None = None

    @property
    def outcome(self) -> Outcome:
        """Return how the check ended: `passed`, `failed`, `warned` or `not applicable`.

        A check of severity `warn` is `warned` where rows broke its rule. `not applicable` means that the data
        for the check are missing.
        """
        if self.missing is not None:
            return "not applicable"
        if not self.n_offending:
            return "passed"
        return "failed" if self.severity == "fail" else "warned"

    @property
    def row(self) -> tuple[str, Outcome, int, str | None]:
        """Return the check as a row: name, outcome, number of offending rows, reason (None if passed)."""
        return (
            self.name,
            self.outcome,
            self.n_offending,
            self.missing or (self.summary if self.n_offending else None),
        )

    @property
    def is_failure(self) -> bool:
        """Return whether the results must not be used: the severity is `fail`, and rows broke the rule."""
        return self.severity == "fail" and self.n_offending > 0


@dataclass(frozen=True)
class EarlierChecks:
    """Keeps the results of earlier checks, so that a check whose inputs did not change is not run again.

    `known` maps the name of a check to a list: a hash of its inputs, the number of offending rows, what was
    missing, and for each group of files that was checked by itself the number of offending rows, by a hash of
    the group. `stored` has the files of relations.
    """

    fingerprints: Fingerprints
    known: dict[str, list[Any]]
    stored: Mapping[str, Stored] = field(default_factory=dict)


class Others(Protocol):
    """Is the interface by which checks have other processes count rows; IncrementalMarts implements it."""

    def counted(self, check: str, reads: frozenset[str], queries: Sequence[str]) -> list[int] | None:
        """Return the number of rows of each query of a check; None where this process is quicker."""

    def drop_waiting(self) -> None:
        """Cancel the queries that were not begun, after an error."""


def run_checks(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    earlier: EarlierChecks | None = None,
    *,
    n_at_once: int = 1,
    others: Others | None = None,
) -> tuple[CheckResult, ...]:
    """Run every check of the catalog, and for each model a check that its grain is unique.

    `n_at_once` of them run at the same time, but one by one where memory runs out. `others` may count their
    rows.

    The results are returned, and stored in the table `check_results`. With `earlier`, a check whose inputs
    did not change is not run: its earlier result is used. The results of this run are then written into
    `earlier`.
    """

    def result(check: _Check, own: duckdb.DuckDBPyConnection) -> CheckResult:
        def count(queries: Sequence[str]) -> list[int]:
            found = None if others is None else others.counted(check.name, check.reads, queries)
            return [n_rows_of(own, query) for query in queries] if found is None else found

        return _run(own, check, count) if earlier is None else _run_if_changed(own, check, earlier, count)

    if n_at_once == 1:
        results = tuple(result(check, connection) for check in _checks(catalog))
    else:
        try:
            give_up = (lambda: None) if others is None else others.drop_waiting
            results = tuple(in_threads(connection, n_at_once, result, _checks(catalog), give_up))
        except duckdb.OutOfMemoryException:
            return run_checks(connection, catalog, earlier)
    connection.execute(
        "CREATE TABLE check_results"
        " (name VARCHAR, severity VARCHAR, summary VARCHAR, n_offending BIGINT, missing VARCHAR)"
    )
    rows = ", ".join(["(?, ?, ?, ?, ?)"] * len(results))
    connection.execute(  # one statement, as `executemany` takes a millisecond per row
        f"INSERT INTO check_results VALUES {rows}",  # noqa: S608 - placeholders only
        [value for row in results for value in astuple(row)],
    )
    return results


def read_results(connection: duckdb.DuckDBPyConnection) -> tuple[CheckResult, ...]:
    """Return the results of the checks that a built database has. Raises DatabaseError if it has none."""
    try:
        rows = connection.execute(
            "SELECT name, severity, summary, n_offending, missing FROM check_results"
        ).fetchall()
    except (duckdb.CatalogException, duckdb.BinderException):
        raise DatabaseError("the database has no check results; make it with pool-analysis build") from None
    return tuple(
        CheckResult(name=name, severity=severity, summary=summary, n_offending=n_offending, missing=missing)
        for name, severity, summary, n_offending, missing in rows
    )


def counted(results: Iterable[CheckResult]) -> str:
    """Return one line that says how many checks had each outcome.

    An outcome that no check had is left out.
    """
    outcomes = Counter(result.outcome for result in results)
    parts = [f"{outcomes[outcome]} {outcome}" for outcome in get_args(Outcome) if outcomes[outcome]]
    return f"{outcomes.total()} checks: {', '.join(parts)}"


def why_not_applicable(results: Iterable[CheckResult]) -> list[str]:
    """Return one line per missing thing: which checks could not run because the dataset lacks it.

    The checks that the grain of an empty relation is unique share one line.
    """
    names: dict[str, list[str]] = defaultdict(list)
    n_empty = 0
    for result in results:
        if result.missing and result.name.endswith(GRAIN_CHECK):
            n_empty += 1
        elif result.missing:
            names[result.missing].append(result.name)
    lines = [f"not applicable: {', '.join(checks)}: {reason}" for reason, checks in names.items()]
    return lines + ([f"not applicable: the grain of relations without rows: {n_empty}"] if n_empty else [])


def duplicates(model: Model, rows: str | None = None) -> str:
    """Return the SQL that selects the keys (values of the grain) which more than one row of a model has.

    With `rows`, a query, only these rows of the model are looked at.
    """
    keys = ", ".join(model.grain)
    source = model.name if rows is None else f"({rows})"
    return f"SELECT {keys} FROM {source} GROUP BY ALL HAVING count(*) > 1"  # noqa: S608 - names from our own heads


class _Check(NamedTuple):
    """Holds one check that is to be run: its query, and which data the query needs.

    `needs` maps a relation or column that must have rows or values to a text that says what is missing.
    `keyed` is the model whose grain the check tests; None for a check of an SQL file.
    """

    name: str
    severity: Severity
    summary: str
    needs: Mapping[str, str]
    sql: str
    reads: frozenset[str]
    keyed: Model | None = None

    def result(self, n_offending: int, missing: str | None) -> CheckResult:
        """Return the CheckResult of this check, given the number of offending rows and what was missing."""
        return CheckResult(
            name=self.name,
            severity=self.severity,
            summary=self.summary,
            n_offending=n_offending,
            missing=missing,
        )


def _checks(catalog: Catalog) -> Iterator[_Check]:
    """Yield every check to run: those of the SQL files, then one per model that its grain is unique."""
    for check in catalog.layer("checks"):
        yield _Check(
            check.name, check.severity or "fail", check.summary, check.needs, check.sql, check.references
        )
    for model in catalog.models:
        if model.grain and not (model.layer == "marts" and model.is_view):  # what it is made of has checks
            summary = f"More than one row of {model.name} has the same {', '.join(model.grain)}."
            needs = {model.name: f"{model.name} has no rows"}
            yield _Check(
                f"{model.name}{GRAIN_CHECK}",
                "fail",
                summary,
                needs,
                duplicates(model),
                frozenset({model.name}),
                model,
            )


def _run_if_changed(
    connection: duckdb.DuckDBPyConnection, check: _Check, earlier: EarlierChecks, count: Count
) -> CheckResult:
    """Return the earlier result of a check; run the check if something that it reads has changed."""
    inputs = digest(earlier.fingerprints.of_query(check.sql, check.reads) | dict(check.needs))
    known = earlier.known.get(check.name)
    if known is not None and known[0] == inputs:
        return check.result(known[1], known[2])
    stored = None if check.keyed is None else earlier.stored.get(check.keyed.name)
    groups = {} if check.keyed is None or stored is None else _groups(check.sql, check.keyed, stored)
    if check.keyed is None or stored is None or len(groups) == 1:
        result = _run(connection, check, count)
        earlier.known[check.name] = [inputs, result.n_offending, result.missing, {}]
        return result
    before = {} if known is None else known[3]
    found = {key: before[key] for key in groups if key in before}
    new = {key: files for key, files in groups.items() if key not in before}
    found |= _counted_apart(check.keyed, stored, new, count)
    n_offending = sum(found.values())
    earlier.known[check.name] = [inputs, n_offending, None, found]
    return check.result(n_offending, None)


def _groups(sql: str, model: Model, stored: Stored) -> dict[str, list[File]]:
    """Return the groups of a model's files in which keys can be checked apart, by a hash of what is in them.

    Rows with equal keys are in one group; so are rows with equal values of a column that the key determines.
    `sql` is the query of the check.
    """
    meaning = digest([sql, stored.meaning])
    return {
        digest([meaning, *(file.content for file in files)])[:32]: files
        for files in stored.apart([*model.grain, *model.determined])
    }


def _counted_apart(
    model: Model, stored: Stored, groups: Mapping[str, list[File]], count: Count
) -> dict[str, int]:
    """Return how many rows of each group break the rule that keys of a model are unique.

    One query looks at many groups. Only where it finds such a row, each of them is looked at alone.
    """

    def counted(several: Iterable[Iterable[str]]) -> list[int]:
        every = [[file for key in keys for file in groups[key]] for keys in several]
        return count([duplicates(model, stored.query(files)) for files in every])

    batches = list(_batches(groups))
    found: dict[str, int] = {}
    for together, n_offending in zip(batches, counted(batches), strict=True):
        if n_offending and len(together) > 1:
            found |= dict(zip(together, counted([key] for key in together), strict=True))
        else:
            found |= dict.fromkeys(together, n_offending)
    return found


def _batches(groups: Mapping[str, list[File]]) -> Iterator[list[str]]:
    """Yield the groups, several of few rows together."""
    batch: list[str] = []
    n_rows = 0
    for key, files in groups.items():
        n_own = sum(file.n_rows for file in files)
        if batch and n_rows + n_own > TOGETHER_ROWS:
            yield batch
            batch, n_rows = [], 0
        batch.append(key)
        n_rows += n_own
    if batch:
        yield batch


def _run(connection: duckdb.DuckDBPyConnection, check: _Check, count: Count) -> CheckResult:
    """Run one check and return its result; the check is not run if the dataset lacks what its query needs."""
    missing = next((reason for need, reason in check.needs.items() if not _has(connection, need)), None)
    return check.result(0 if missing else count([check.sql])[0], missing)


def _has(connection: duckdb.DuckDBPyConnection, need: str) -> bool:
    """Return whether a relation has a row, or whether a column, as "relation.column", has a value."""
    relation, _, column = need.partition(".")
    condition = f"WHERE {column} IS NOT NULL" if column else ""
    return bool(connection.execute(f"SELECT 1 FROM {relation} {condition} LIMIT 1").fetchall())  # noqa: S608 - our own heads


def n_rows_of(connection: duckdb.DuckDBPyConnection, sql: str) -> int:
    """Return the number of rows of a query."""
    answer = connection.execute(f"SELECT count(*) FROM ({sql})").fetchone()  # noqa: S608 - a query from our own files
    return int(answer[0]) if answer else 0
