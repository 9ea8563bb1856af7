"""Find what a query reads and whether it has an order, and keep that for later processes.

Parsing all queries takes a second, longer than most commands. So the facts of each query are kept in a small
file below $XDG_CACHE_HOME or ~/.cache, named after the text of the query and the version of the parser. The
files can be removed at any time. Where none can be written, each process parses anew.
"""

import hashlib
import json
import os
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

from analysis.errors import CatalogError

DIALECT: Final = "duckdb"
FORMAT: Final = "pool-analysis query facts 1"


class QueryFacts(NamedTuple):
    """Holds the names of the relations that a query reads, and whether it ends in an order of its own."""

    reads: frozenset[str]
    is_ordered: bool


@cache
def query_facts(where: str, sql: str) -> QueryFacts:
    """Return which relations a query reads and whether its rows are ordered.

    `where` names its file in errors. They are kept in a cache on disk, so that each text is parsed once.
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
    reads = frozenset(
        source.name
        for scope in traverse_scope(statements[0])
        for source in scope.sources.values()
        if isinstance(source, exp.Table) and source.name
    )
    return QueryFacts(reads, is_ordered=bool(statements[0].args.get("order")))


def _kept_at(sql: str) -> Path | None:
    """Return the path of the cache file for a query; None where the user has no home folder."""
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
    """Read the facts on a query from a cache file; None where the file is missing or damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        reads, is_ordered = kept["reads"], kept["is_ordered"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not isinstance(is_ordered, bool) or not isinstance(reads, list):
        return None
    return QueryFacts(frozenset(map(str, reads)), is_ordered)


def _keep(path: Path, facts: QueryFacts) -> None:
    """Write the facts on a query to a cache file by rename, so that no process reads half of the file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"reads": sorted(facts.reads), "is_ordered": facts.is_ordered})
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
