"""Translate a model from DuckDB's SQL to Spark's: its syntax tree is rewritten step by step.

sqlglot translates most of the words. The rewrites of this package are for what it leaves as it is, or says
with another meaning. Each is about a piece of syntax, and none knows a model. A rewrite that cannot keep the
meaning raises CatalogError.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.errors import ErrorLevel, SqlglotError

from analysis.catalog import Catalog, Model, Parameter, load_catalog
from analysis.errors import CatalogError
from analysis.warehouse import aggregates, asof, lists, queries, scalars
from analysis.warehouse.functions import guarded, with_typed_arguments
from analysis.warehouse.macros import Macro, expand, read_macros
from analysis.warehouse.steps import steps
from analysis.warehouse.tree import Rewrite, bottom_up

SPARK_MACROS: Final = "macros_spark.sql"
DIALECT: Final = "spark"


class _Source(DuckDB):
    """Is DuckDB's dialect without sqlglot's shift of list indices: both engines' functions count from 1."""

    INDEX_OFFSET = 0


# Each is applied to every node, the inner nodes first.
REWRITES: Final[tuple[Rewrite, ...]] = (
    queries.unhinted,
    queries.by_name,
    queries.recursion,
    asof.asof,
    queries.qualify,
    aggregates.ranking,
    aggregates.best,
    aggregates.quantile,
    lists.gathered,
    lists.element,
    lists.function,
    lists.numbers,
    queries.unnest,
    scalars.time,
    scalars.text,
    scalars.row_value,
    scalars.wide_integer,
    scalars.literal,
    guarded,
    with_typed_arguments,
)


@dataclass(frozen=True, slots=True)
class Statement:
    """Holds the query that makes one relation, in Spark's SQL."""

    name: str
    sql: str


def translated(model: Model, catalog: Catalog | None = None) -> list[Statement]:
    """Return the statements of Spark's SQL that make a model, in order; the last makes the model itself.

    Raises CatalogError with the name of a model that cannot be translated.
    """
    try:
        tree = _for_spark(model.sql, model.parameters, (catalog or load_catalog()).macros)
        return [Statement(step.name, _written(step.query)) for step in steps(model.name, tree)]
    except (CatalogError, SqlglotError) as error:
        raise CatalogError(
            f"sql/{model.layer}/{model.name}.sql has no form in Spark's SQL: {error}"
        ) from None


def translated_query(sql: str, parameters: Mapping[str, Parameter], macro_text: str) -> str:
    """Return one query of DuckDB as one statement of Spark's SQL, without its ORDER BY.

    Raises CatalogError or SqlglotError where it cannot be translated.
    """
    return _written(_for_spark(sql, parameters, macro_text))


def _for_spark(sql: str, parameters: Mapping[str, Parameter], macro_text: str) -> exp.Query:
    """Return the syntax tree of one DuckDB query rewritten for Spark, with parameters and macros replaced."""
    own = _spark_macros()
    common = {name: macro for name, macro in read_macros(macro_text, "duckdb").items() if name not in own}
    tree: exp.Expr = expand(sqlglot.parse_one(sql, dialect=_Source), common)
    tree = bottom_up(tree, lambda node: _with_value(node, parameters))
    tree = queries.unordered(tree)
    for rewrite in REWRITES:
        tree = bottom_up(tree, rewrite)
    found = expand(tree, own)
    if not isinstance(found, exp.Query):
        raise CatalogError("it is no query")
    return found


def _written(tree: exp.Expr) -> str:
    """Return a syntax tree as SQL text for Spark. Raises SqlglotError for what Spark's SQL cannot say."""
    return tree.sql(dialect=DIALECT, pretty=True, unsupported_level=ErrorLevel.RAISE)


def _spark_macros() -> Mapping[str, Macro]:
    """Return the macros that have a definition of their own in Spark's SQL, by name."""
    text = (resources.files("analysis.warehouse") / SPARK_MACROS).read_text(encoding="utf-8")
    return read_macros(text, DIALECT)


def _with_value(node: exp.Expr, parameters: Mapping[str, Parameter]) -> exp.Expr:
    """Replace getvariable('name') by the parameter's value; return any other node as it is."""
    if not isinstance(node, exp.Anonymous) or node.name.lower() != "getvariable":
        return node
    value: Any = parameters[node.expressions[0].name].value
    return exp.cast(exp.convert(value), "double") if isinstance(value, float) else exp.convert(value)
