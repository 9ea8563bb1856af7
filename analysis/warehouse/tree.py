"""Provide the few steps on syntax trees that every rewrite for another engine uses."""

from collections.abc import Callable
from typing import Any

from sqlglot import exp

Rewrite = Callable[[exp.Expr], exp.Expr]


def call(name: str, *arguments: Any) -> exp.Anonymous:
    """Return the syntax tree of a call to the function of this name; numbers and texts become literals."""
    return exp.Anonymous(this=name, expressions=[exp.convert(argument) for argument in arguments])


def bottom_up(tree: exp.Expr, rewrite: Rewrite) -> exp.Expr:
    """Apply `rewrite` to each node of a syntax tree, inner nodes first; return the changed tree."""
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
    """Return an expression as an operand: in parentheses if it is an operation or CASE."""
    is_operation = isinstance(node, exp.Binary | exp.Unary | exp.Predicate | exp.Case)
    return exp.Paren(this=node) if is_operation else node


def lambda_over(name: str, body: exp.Expr) -> exp.Lambda:
    """Return the SQL lambda `name -> body` as a node of the syntax tree."""
    return exp.Lambda(this=body, expressions=[exp.to_identifier(name)])
