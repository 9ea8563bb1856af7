"""Fill in columns of a mart last, so that a changed pool rule makes no mart of transactions again.

The head of such a mart has `late`: `columns` that its query takes unchanged from `relation`, by the `key`
that both have. The mart is made in two steps. The first step makes early parts, in which these columns are
null: meanwhile a temporary view without values stands in front of the relation, so early parts do not depend
on its values. The second step copies the rows and fills in the columns.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Final

import duckdb

from analysis.catalog import Catalog, FilledLate, InRanges, Model

EARLY: Final = ".early"
EVERY_ROW: Final = "true"
NO_SOURCES: Final[Mapping[str, str]] = {}
NOT_KNOWN: Final[Mapping[str, Sequence[str]]] = {}


def early_name(name: str) -> str:
    """Return the name under which early parts of a mart, whose late columns are null, are stored."""
    return f"{name}{EARLY}"


def filling(late: FilledLate, rows: str) -> str:
    """Return the SQL that fills in a mart's late columns, which are null in the rows of the query `rows`.

    The values come from the relation and by the key that `late` names. The order of the rows stays.
    """
    values = ", ".join(f"{late.relation}.{name} AS {name}" for name in late.columns)
    numbered = f'SELECT *, row_number() OVER () AS "its row" FROM ({rows})'  # noqa: S608 - names and queries of ours
    return (
        f'SELECT early.* EXCLUDE ("its row") REPLACE ({values}) FROM ({numbered}) AS early'  # noqa: S608 - as above
        f' INNER JOIN {late.relation} USING ({late.key}) ORDER BY early."its row"'
    )


class StandIns:
    """Puts temporary views or tables in front of relations that a mart reads, to limit rows and values.

    `ranges` gives a condition per relation, which may read the relations before it, and SQL that replaces the
    values of some columns (`clips`). Late columns are null. DuckDB applies a view's condition wherever the
    query reads the relation, which takes a query of few rows most of its time; that of a table is applied
    once. `needed` names the columns that are read of a relation; a table has these and the late ones alone.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        catalog: Catalog,
        model: Model,
        ranges: InRanges | None,
        needed: Mapping[str, Sequence[str]] = NOT_KNOWN,
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._late = model.late
        self._needed = needed
        self._conditions = {} if ranges is None else dict(ranges.reads)
        self._clips = {} if ranges is None else ranges.clips
        if model.late is not None:
            self._conditions.setdefault(model.late.relation, EVERY_ROW)
        self._made: dict[str, tuple[str, str | None]] = {}  # kind and source

    def put(
        self,
        sources: Mapping[str, str] = NO_SOURCES,
        tables: Collection[str] = (),
        *,
        until: str | None = None,
        few: int | None = None,
    ) -> None:
        """Put a view in front of each relation, or of those until one of them; a table for one of `tables`.

        `sources` has the query of the files to read, for relations of which not all are. What is there
        already and reads the same files stays. With `few`, the relation `until` gets a table if its condition
        leaves at most so many rows, so that they are searched for once.
        """
        for relation in self._conditions:
            source = sources.get(relation)
            kind = "TABLE" if relation in tables else "VIEW"
            if self._made.get(relation) != (kind, source):
                self._drop(relation)
                if few is not None and relation == until and self._has_table(relation, source, few):
                    kind = "TABLE"
                else:
                    self._put(kind, relation, source)
                self._made[relation] = kind, source
            if relation == until:
                break

    def remove(self) -> None:
        """Let queries read the relations themselves again."""
        for relation in list(self._made):
            self._drop(relation)

    def _drop(self, relation: str) -> None:
        if relation in self._made:
            kind, _ = self._made.pop(relation)
            self._connection.execute(f"DROP {kind} IF EXISTS temp.{relation}")

    @cached_property
    def _database(self) -> str:
        ((name,),) = self._connection.execute("SELECT current_database()").fetchall()
        return str(name)

    def _has_table(self, relation: str, source: str | None, few: int) -> bool:
        """Put a table in front of a relation; return whether it stays, as it does with at most `few` rows."""
        if self._put("TABLE", relation, source, f" LIMIT {few + 1}") <= few:
            return True
        self._connection.execute(f"DROP TABLE temp.{relation}")
        return False

    def _put(self, kind: str, relation: str, source: str | None, limit: str = "") -> int:
        """Put a view or a table in front of a relation; return the number of rows of the table."""
        late = _emptied(self._catalog, self._late, relation)
        replaced = {**self._clips.get(relation, {}), **late}
        values = {name: f"{value} AS {name}" for name, value in replaced.items()}
        needed = self._needed.get(relation)
        if needed and kind == "TABLE":  # of a view, DuckDB reads no more than is asked for
            shown = ", ".join(values.get(name, name) for name in dict.fromkeys((*needed, *late)))
        else:
            shown = f"* REPLACE ({', '.join(values.values())})" if values else "*"
        rows = f'"{self._database}".main.{relation}' if source is None else f"({source})"
        answer = self._connection.execute(
            f"CREATE TEMP {kind} {relation} AS"  # noqa: S608 - our own files
            f" SELECT {shown} FROM {rows} AS {relation} WHERE {self._conditions[relation]}{limit}"
        ).fetchall()
        return sum(n_rows for (n_rows,) in answer)


@contextmanager
def stand_ins(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    model: Model,
) -> Iterator[None]:
    """Put a view in front of the relation that gives a mart its late columns: they are null in the block."""
    views = StandIns(connection, catalog, model, None)
    try:
        views.put()
        yield
    finally:
        views.remove()


def _emptied(catalog: Catalog, late: FilledLate | None, relation: str) -> dict[str, str]:
    """Return the SQL of a typed null for each late column that a relation gives; empty for another one."""
    if late is None or late.relation != relation:
        return {}
    types = {column.name: column.type for column in catalog.by_name[relation].columns}
    return {name: f"CAST(NULL AS {types[name]})" for name in late.columns}
