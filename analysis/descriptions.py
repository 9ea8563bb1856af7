"""Describe each relation in words: for `pool-analysis describe`, and as comments inside a built database.

The words come from the heads of the SQL files, and for raw tables from the dataset's contract. Any DuckDB
client shows the comments: `SELECT comment FROM duckdb_tables()`, and `duckdb_views()`, `duckdb_columns()`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from analysis.catalog import Column, Parameter, read_models
from analysis.relations import unknown_relation
from collector.terminal import text_width, wrapped

if TYPE_CHECKING:
    import duckdb

    from collector.dataset.schema import Table

COLUMNS: Final = ("relation", "column", "type", "meaning", "in_grain")


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """Holds all that is written about one relation: summary, method, grain, parameters, columns.

    `reads` names the relations that its query reads.
    """

    name: str
    layer: str
    summary: str
    method: str | None
    grain: tuple[str, ...]
    parameters: dict[str, Parameter]
    columns: tuple[Column, ...]
    reads: tuple[str, ...]

    @property
    def rows(self) -> list[tuple[str, str, str, str, bool]]:
        """Return a row per column of the relation: relation, column, type, meaning, is it in the grain."""
        return [(self.name, each.name, each.type, each.doc, each.name in self.grain) for each in self.columns]

    @property
    def text(self) -> str:
        """Return all that is written about the relation, except its columns, as one text of paragraphs.

        Where standard output is a terminal, they are wrapped to its width.
        """
        width = text_width()
        facts = {"grain": self.grain, "reads": self.reads}
        lines = [f"{word}: {', '.join(names)}" for word, names in facts.items() if names]
        lines += [
            f"parameter {name} = {parameter.value}: {parameter.doc}"
            for name, parameter in self.parameters.items()
        ]
        method = (self.method or "").strip().split("\n\n")
        if width is not None:
            method = [" ".join(part.split()) for part in method]
        parts = [f"{self.name} ({self.layer})", self.summary.strip(), *method]
        shown = [wrapped(part, "", width) for part in parts]
        shown.append("\n".join(wrapped(line, "  ", width) for line in lines))
        return "\n\n".join(part for part in shown if part)


def describe(name: str) -> Description:
    """Return the Description of a mart, staging view, check or raw table.

    Raises UnknownRelationError for another name.
    """
    models = {model.name: model for model in read_models()}
    model = models.get(name)
    if model is None:
        from collector.dataset.schema import TABLES  # noqa: PLC0415 - loads pyarrow, and a model needs none

        if name in TABLES:
            return _of_table(TABLES[name])
        raise unknown_relation(name, [*models, *TABLES])
    return Description(
        name=name,
        layer=model.layer,
        summary=model.summary,
        method=model.method,
        grain=model.grain,
        parameters=dict(model.parameters),
        columns=model.columns,
        reads=tuple(sorted(model.references)),
    )


def write_comments(connection: "duckdb.DuckDBPyConnection", names: Iterable[str]) -> None:
    """Store the descriptions of relations and of their columns as comments in the database."""
    kinds = connection.execute("SELECT table_name, table_type FROM information_schema.tables").fetchall()
    views = {name for name, kind in kinds if kind == "VIEW"}
    statements = (
        statement
        for name in names
        for statement in _statements("VIEW" if name in views else "TABLE", describe(name))
    )
    # One call for all of them takes two thirds of the time of a call for each.
    connection.execute(";\n".join(("BEGIN", *statements, "COMMIT")))


def _statements(kind: str, relation: Description) -> Iterator[str]:
    """Yield the SQL statements that store the comment of one view or table, and those of its columns."""
    words = " ".join(f"{relation.summary} {relation.method or ''}".split())
    yield f"COMMENT ON {kind} {relation.name} IS {_quoted(words)}"
    for column in relation.columns:
        yield f"COMMENT ON COLUMN {relation.name}.{column.name} IS {_quoted(column.doc)}"


def _quoted(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _of_table(table: "Table") -> Description:
    """Return the Description of a raw table of the dataset, made from the table's contract."""
    from collector.dataset.query import contract_types  # noqa: PLC0415 - loads DuckDB

    types = contract_types(table)
    return Description(
        name=table.name,
        layer="raw",
        summary=table.doc,
        method=None,
        grain=table.grain,
        parameters={},
        columns=tuple(
            Column(name=column.name, type=types[column.name], doc=column.doc) for column in table.columns
        ),
        reads=(),
    )
