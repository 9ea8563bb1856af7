"""Replace calls of the SQL macros in macros.sql by the expressions that define them.

A macro whose text says what only DuckDB understands has a second text for the other engine, in a file of the
same form: `create macro name(parameters) as expression;` and after that a test.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import sqlglot
from sqlglot import exp

from analysis.errors import CatalogError
from analysis.warehouse.tree import bottom_up, in_parens

MACRO: Final = re.compile(r"^create macro (\w+)\(([^)]*)\) as\s+(.*?);$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Macro:
    """Describes a SQL macro: the names of its parameters, and the expression that replaces a call."""

    parameters: tuple[str, ...]
    body: exp.Expr


@cache
def read_macros(text: str, dialect: str) -> Mapping[str, Macro]:
    """Return the Macro of each `create macro` in a SQL text, by its name.

    `dialect` is sqlglot's name of the SQL in which the expressions are written.
    """
    return {
        name: Macro(
            parameters=tuple(parameter.strip() for parameter in parameters.split(",")),
            body=sqlglot.parse_one(f"select {body}", dialect=dialect, into=exp.Select).selects[0],
        )
        for name, parameters, body in MACRO.findall(text)
    }


def expand(tree: exp.Expr, macros: Mapping[str, Macro]) -> exp.Expr:
    """Return a syntax tree in which each call of a macro is replaced by its expression, also inside macros.

    Raises CatalogError for a call with another number of arguments than the macro has parameters.
    """

    def expanded(node: exp.Expr) -> exp.Expr:
        macro = macros.get(node.name.lower()) if isinstance(node, exp.Anonymous) else None
        if macro is None:
            return node
        if len(node.expressions) != len(macro.parameters):
            raise CatalogError(
                f"macro {node.name} has {len(macro.parameters)} parameters, not {len(node.expressions)}"
            )
        arguments = dict(zip(macro.parameters, node.expressions, strict=True))
        return in_parens(expand(_with_arguments(macro.body, arguments), macros))

    return bottom_up(tree, expanded)


def _with_arguments(body: exp.Expr, arguments: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return the expression of a macro with its parameters replaced by arguments."""

    def replaced(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and not node.table and node.name in arguments:
            return in_parens(arguments[node.name].copy())
        return node

    return bottom_up(body.copy(), replaced)
