"""Leave the names of nodes and the addresses of hosts out of published results.

A node becomes `node-1`, `node-2`, ... in the order of the names. Texts for people may hold addresses, so they
become null. A node's user agent loses the comment that its owner may have put there. What is left still tells
when a node was watched and what it saw: two releases of one node can be recognised as such.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

import duckdb

from analysis.catalog import Model

NODE: Final = "node"
FREE_TEXT: Final = ("detail",)
# A column that names pools or nodes: the condition under which it is a node.
SOMETIMES_NODE: Final = {("dated_change", "subject"): "kind = 'hole'"}
SESSION: Final = re.compile(r"session (?P<node>.*) (?P<session>\S+)")
COMMENT: Final = re.compile(r"\([^)]*\)")


def node_names(connection: duckdb.DuckDBPyConnection, models: Iterable[Model]) -> list[str]:
    """Return the names of all nodes that the marts of a database or its run_manifest mention, sorted."""
    marts = [model.name for model in models if NODE in model.column_names]
    names = {
        name
        for mart in marts
        for (name,) in connection.execute(f"SELECT DISTINCT node FROM {mart}").fetchall()  # noqa: S608 - a file name of ours
        if name is not None
    }
    keys = connection.execute("SELECT key FROM run_manifest").fetchall()
    sessions = (SESSION.fullmatch(key) for (key,) in keys)
    return sorted(names | {session["node"] for session in sessions if session})


def selected(model: Model, column: str) -> str:
    """Return the SQL expression for one column of a mart, with names of nodes and free text hidden.

    A node's name becomes `node-` and its number in the list of names, which is parameter 1 of the query; free
    text becomes NULL.
    """
    replaced = f"'node-' || list_position($1, {column})"
    condition = SOMETIMES_NODE.get((model.name, column))
    if condition is not None:
        return f"CASE WHEN {condition} THEN {replaced} ELSE {column} END AS {column}"
    if column == NODE:
        return f"CASE WHEN {column} IS NOT NULL THEN {replaced} END AS {column}"
    return f"CAST(NULL AS VARCHAR) AS {column}" if column in FREE_TEXT else column


def anonymous_facts(facts: dict[str, str], names: Sequence[str]) -> dict[str, str]:
    """Return the facts on a build with the nodes renamed, and without comments in user agents.

    Facts are the keys and values of `run_manifest`.
    """
    return {_key(key, names): COMMENT.sub("", value) for key, value in facts.items()}


def _key(key: str, names: Sequence[str]) -> str:
    session = SESSION.fullmatch(key)
    return f"session node-{names.index(session['node']) + 1} {session['session']}" if session else key
