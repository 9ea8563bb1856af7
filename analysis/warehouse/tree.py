"""The few steps on syntax trees that every rewrite for another engine uses."""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

Rewrite = Callable[[exp.Expr], exp.Expr]


def call(name: str, *arguments: Any) -> exp.Anonymous:
    """Return the call of a function under exactly this name; a number or a text becomes a literal."""
    return exp.Anonymous(this=name, expressions=[exp.convert(argument) for argument in arguments])


def bottom_up(tree: exp.Expr, rewrite: Rewrite) -> exp.Expr:
    """Return a syntax tree in which `rewrite` has replaced each node, inner nodes first."""
    for node in reversed(list(tree.bfs())):
        new = rewrite(node)
        if new is node:
            continue
        if node is tree:
            tree = new
        else:
            node.replace(new)
    return tree


def in_parens(node: exp.Expr) -> exp.Expr:
    """Return an expression that can be an operand: in parentheses if it is an operation or CASE."""
    is_operation = isinstance(node, exp.Binary | exp.Unary | exp.Predicate | exp.Case)
    return exp.Paren(this=node) if is_operation else node


def lambda_over(name: str, body: exp.Expr) -> exp.Lambda:
    """Return the SQL lambda `name -> body` as a node of the syntax tree."""
    return exp.Lambda(this=body, expressions=[exp.to_identifier(name)])
