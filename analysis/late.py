"""Fill in columns of a mart last, so that a changed pool rule makes no mart of transactions again.

The head of such a mart has `late`: `columns` that its query takes unchanged from `relation`, by the `key`
that both have. The mart is made in two steps. The first step makes early parts, in which these columns are
null: meanwhile a temporary view without values stands in front of the relation, so early parts do not depend
on its values. The second step copies the rows and fills in the columns.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import duckdb

from analysis.catalog import Catalog, FilledLate, InRanges, Model

EARLY: Final = ".early"
EVERY_ROW: Final = "true"
NO_SOURCES: Final[Mapping[str, str]] = {}


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
    """Puts temporary views in front of the relations that a mart reads.

    Such a view has nulls in the mart's late columns and, given `ranges`, only the rows that one range reads,
    with the values of some columns clipped. A condition may read the relations before it.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        catalog: Catalog,
        model: Model,
        ranges: InRanges | None,
    ) -> None:
        self._connection = connection
        self._catalog = catalog
        self._late = model.late
        self._conditions = {} if ranges is None else dict(ranges.reads)
        self._clips = {} if ranges is None else ranges.clips
        if model.late is not None:
            self._conditions.setdefault(model.late.relation, EVERY_ROW)
        self._made: dict[str, str | None] = {}

    def put(self, sources: Mapping[str, str] = NO_SOURCES, *, until: str | None = None) -> None:
        """Create a temporary view in front of each relation, or with `until` of the relations up to that one.

        `sources` has, for a relation of which only some files are read, the query of these files. A view that
        is there already and reads the same files stays.
        """
        for relation in self._conditions:
            source = sources.get(relation)
            if relation not in self._made or self._made[relation] != source:
                self._put(relation, source)
                self._made[relation] = source
            if relation == until:
                break

    def remove(self) -> None:
        """Drop the temporary views, so that queries read the relations themselves again."""
        for relation in self._made:
            self._connection.execute(f"DROP VIEW IF EXISTS temp.{relation}")
        self._made.clear()

    def _put(self, relation: str, source: str | None) -> None:
        ((database,),) = self._connection.execute("SELECT current_database()").fetchall()
        replaced = {**self._clips.get(relation, {}), **_emptied(self._catalog, self._late, relation)}
        columns = ", ".join(f"{value} AS {name}" for name, value in replaced.items())
        every = f"* REPLACE ({columns})" if replaced else "*"
        rows = f'"{database}".main.{relation}' if source is None else f"({source})"
        self._connection.execute(
            f"CREATE OR REPLACE TEMP VIEW {relation} AS"  # noqa: S608 - our own files
            f" SELECT {every} FROM {rows} AS {relation} WHERE {self._conditions[relation]}"
        )


@contextmanager
def stand_ins(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    model: Model,
    ranges: InRanges | None,
    sources: Mapping[str, str] = NO_SOURCES,
) -> Iterator[None]:
    """Create all temporary views of StandIns for one mart; drop them when the `with` block ends."""
    views = StandIns(connection, catalog, model, ranges)
    try:
        views.put(sources)
        yield
    finally:
        views.remove()


def _emptied(catalog: Catalog, late: FilledLate | None, relation: str) -> dict[str, str]:
    """Return the SQL of a typed null for each late column that a relation gives; empty for another one."""
    if late is None or late.relation != relation:
        return {}
    types = {column.name: column.type for column in catalog.by_name[relation].columns}
    return {name: f"CAST(NULL AS {types[name]})" for name in late.columns}
