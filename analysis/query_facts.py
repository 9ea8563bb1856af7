"""Find out what a query reads and whether it has an order, and keep the answer for later processes.

Parsing all queries takes a second, longer than most commands. So the facts of each query are kept in a small
file below $XDG_CACHE_HOME or ~/.cache, named after the text of the query and the version of the parser. The
files can be removed at any time. Where none can be written, each process parses anew.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from analysis.errors import CatalogError

DIALECT: Final = "duckdb"
FORMAT: Final = "pool-analysis query facts 3"


class QueryFacts(NamedTuple):
    """Holds the names of the relations that a query reads, and whether it ends in an ORDER BY.

    `columns` has, for each relation, names of columns: the query reads no other of that relation. A relation
    whose columns it takes without naming them, as by `select *`, is not in `columns`.
    """

    reads: frozenset[str]
    columns: Mapping[str, frozenset[str]]
    is_ordered: bool


@cache
def query_facts(where: str, sql: str) -> QueryFacts:
    """Return which relations and columns a query reads, and whether it ends in an ORDER BY.

    `where` names the query's file in errors. The facts are cached on disk, so that each text is parsed once.
    Raises CatalogError where the text is not exactly one SELECT.
    """
    path = _kept_at(sql)
    facts = _kept(path) if path else None
    if facts is None:
        facts = _parsed(where, sql)
        if path:
            _keep(path, facts)
    return facts


def _parsed(where: str, sql: str) -> QueryFacts:
    import sqlglot  # noqa: PLC0415 - loads slowly, and only a new query is parsed
    from sqlglot import exp  # noqa: PLC0415 - as above
    from sqlglot.optimizer.scope import traverse_scope  # noqa: PLC0415 - as above

    try:
        statements: list[Any] = sqlglot.parse(sql, dialect=DIALECT)
    except sqlglot.ParseError as error:
        raise CatalogError(f"{where} cannot be parsed as SQL: {str(error).splitlines()[0]}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise CatalogError(f"{where} must hold exactly one SELECT")
    scopes = list(traverse_scope(statements[0]))
    # By alias, the relation that it stands for.
    sources = [
        {
            alias: table.name
            for alias, table in scope.sources.items()
            if isinstance(table, exp.Table) and table.name
        }
        for scope in scopes
    ]
    bare, qualified = _column_names(statements[0])
    # What stands before a dot is a source, or a column of type STRUCT.
    any_source = bare | qualified.keys()
    columns: dict[str, set[str]] = {}
    for alias, name in ((alias, name) for found in sources for alias, name in found.items()):
        columns.setdefault(name, set(any_source)).update(qualified.get(alias, ()))
    # A bare alias is a whole row, as in arg_min(alias, x).
    whole = {
        name
        for scope, found in zip(scopes, sources, strict=True)
        for alias, name in found.items()
        if alias in bare or _has_star(scope.expression, alias)
    }
    return QueryFacts(
        frozenset(columns),
        {name: frozenset(found) for name, found in columns.items() if name not in whole},
        is_ordered=bool(statements[0].args.get("order")),
    )


def _column_names(query: Any) -> tuple[set[str], dict[str, set[str]]]:
    """Return the column names without a table in a parsed query, and those with one by their table.

    For a column of type STRUCT, the column stands as the table and the field as the name.
    """
    from sqlglot import exp  # noqa: PLC0415 - loads slowly, and only a new query is parsed

    bare = {name.name for join in query.find_all(exp.Join) for name in join.args.get("using") or []}
    qualified: dict[str, set[str]] = {}
    for column in query.find_all(exp.Column):
        names = [part.name for part in column.parts]
        if len(names) == 1:
            bare.add(names[0])
        for before, after in pairwise(names):
            qualified.setdefault(before, set()).add(after)
    return bare, qualified


def _has_star(select: Any, alias: str) -> bool:
    """Return whether a parsed SELECT can read columns of the source `alias` without naming them."""
    from sqlglot import exp  # noqa: PLC0415 - loads slowly, and only a new query is parsed

    if any(isinstance(found, exp.Star) for found in select.expressions):
        return True
    if any(True for _ in select.find_all(exp.Columns, exp.Pivot)):
        return True
    if any(join.args.get("method") == "NATURAL" for join in select.args.get("joins") or []):
        return True
    return any(column.is_star and column.table == alias for column in select.find_all(exp.Column))


def _kept_at(sql: str) -> Path | None:
    """Return the path of the cache file for a query's facts; None where the user has no home folder."""
    base = os.environ.get("XDG_CACHE_HOME")
    key = hashlib.sha256(f"{FORMAT}\n{_parser()}\n{sql}".encode()).hexdigest()
    try:
        return (Path(base) if base else Path.home() / ".cache") / "pool-analysis" / f"{key}.json"
    except RuntimeError:
        return None


@cache
def _parser() -> str:
    return version("sqlglot")


def _kept(path: Path) -> QueryFacts | None:
    """Return a query's QueryFacts from a cache file; None if the file is missing, unreadable or damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        reads, columns, is_ordered = kept["reads"], kept["columns"], kept["is_ordered"]
        if not isinstance(is_ordered, bool) or not isinstance(reads, list):
            return None
        found = {name: frozenset(map(str, names)) for name, names in columns.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return QueryFacts(frozenset(map(str, reads)), found, is_ordered)


def _keep(path: Path, facts: QueryFacts) -> None:
    """Write a query's QueryFacts to a cache file by rename, so that no process reads half of the file.

    If the file cannot be written, no error is raised.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        columns = {name: sorted(found) for name, found in facts.columns.items()}
        kept = {"reads": sorted(facts.reads), "columns": columns, "is_ordered": facts.is_ordered}
        temporary.write_text(json.dumps(kept), encoding="utf-8")
        temporary.replace(path)
