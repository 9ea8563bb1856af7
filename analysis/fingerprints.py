"""Compute what each mart is made of, as named hashes: a mart whose hashes are equal is not made again.

The hashes cover the query, its parameters, the macros and functions that it uses, the versions of Python and
of the libraries that compute, and the content of each relation that it reads. The content of a stored mart is
a hash of the columns that are read, or of its files where the query does not name them. So a mart that is
made again causes no further work where it has the same values. The content of a view is a hash of all its
inputs.
"""

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata, resources
from typing import Final

import pyarrow as pa

from analysis.catalog import Catalog, FilledLate, Model
from analysis.late import filling
from analysis.manifest import LIBRARIES
from analysis.parts import digest
from analysis.stats import FUNCTIONS

READS: Final = "reads "
UNKNOWN: Final = ""  # the content of a mart that has not been made yet
MACRO: Final = re.compile(r"^create macro (\w+)\(", re.MULTILINE)
WORD: Final = re.compile(r"\w+")
EVERY: Final[Mapping[str, tuple[str, ...]]] = {}


@dataclass
class Fingerprints:
    """Computes for each model of a catalog a hash of every input that can change its rows.

    `contents` maps each raw table and each model that was already made to a hash of its content. `columns`
    maps stored marts to hashes of each of their columns.
    """

    catalog: Catalog
    contents: dict[str, str] = field(default_factory=dict)
    columns: dict[str, Mapping[str, str]] = field(default_factory=dict)

    def of_model(self, model: Model) -> dict[str, str]:
        """Return a hash for each input of a model: its head, its query, and each relation that it reads.

        Every relation that the model reads must be in `contents`.
        """
        query = model.sql if model.is_view else model.ordered_sql
        types = {column.name: column.type for column in model.columns}
        parameters = {name: parameter.value for name, parameter in model.parameters.items()}
        return {"its head": digest([types, parameters])} | self.of_query(
            query, model.references, {name: self.columns_read(model, name) for name in model.references}
        )

    def columns_read(self, model: Model, relation: str) -> tuple[str, ...]:
        """Return the columns of a relation on which the rows of a model depend, in the relation's order.

        A column that the model fills in late is not among them. For a relation that no SQL file makes, none
        is returned.
        """
        found = self.catalog.by_name.get(relation)
        if found is None:
            return ()
        late = model.late.columns if model.late is not None and model.late.relation == relation else ()
        known = model.column_references.get(relation)
        in_macros = map(_words, _macros_in(self.catalog.macros, model.sql).values())
        named = found.column_names if known is None else frozenset(known).union(*in_macros)
        return tuple(name for name in found.column_names if name in named and name not in late)

    def of_late(self, late: FilledLate, early: str, values: str | None = None) -> dict[str, str]:
        """Return a hash for each input of the step that fills in a mart's late columns.

        `early` is the content of the parts in which these columns are null. `values` is a hash of those rows
        of the relation that matter; without it, all of them do.
        """
        columns = {late.relation: (late.key, *late.columns)}
        inputs = self.of_query(filling(late, ""), [late.relation], columns) | {"its early parts": early}
        return inputs if values is None else inputs | {f"{READS}{late.relation}": values}

    def of_query(
        self, query: str, reads: Iterable[str], columns: Mapping[str, tuple[str, ...]] = EVERY
    ) -> dict[str, str]:
        """Return a hash for each input of a query: its text, macros, functions, versions, relations read.

        `columns` has the columns that it reads of a relation; a relation that is missing there counts as read
        whole.
        """
        macros = _macros_in(self.catalog.macros, query)
        words = _words(query).union(*map(_words, macros.values()))
        uses_functions = any(function.name in words for function in FUNCTIONS)
        return {
            "its query": digest(query),
            "a macro": digest(macros),
            "a function": package_hash("analysis.stats") if uses_functions else "",
            "a version": versions_hash(),
            **{f"{READS}{name}": self._read(name, columns.get(name, ())) for name in sorted(reads)},
        }

    def _read(self, relation: str, columns: tuple[str, ...]) -> str:
        """Return a hash of some columns of a relation, or of the whole where theirs are not known."""
        known = self.columns.get(relation)
        if not known or not columns:
            return self.contents[relation]
        return digest([known[name] for name in columns])


def _macros_in(macros: str, query: str) -> Mapping[str, str]:
    """Return the text of each SQL macro that a query uses, directly or through another macro, by its name."""
    known = _by_name(macros)
    found: dict[str, str] = {}
    texts = [query]
    while texts:
        for name in _words(texts.pop()) & known.keys() - found.keys():
            found[name] = known[name]
            texts.append(found[name])
    return found


@cache
def _by_name(macros: str) -> Mapping[str, str]:
    """Return the text of each `create macro` in a SQL text, by the name of the macro."""
    _, *pieces = MACRO.split(macros)
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


@cache
def _words(sql: str) -> frozenset[str]:
    """Return the set of words in a SQL text; it is cached, as a build asks several times for each text."""
    return frozenset(WORD.findall(sql))


def is_known(inputs: Mapping[str, str]) -> bool:
    """Return whether a hash is known for every relation that a model reads.

    `inputs` has the hash of each input of the model, by name; UNKNOWN stands for a mart that will be made.
    """
    return all(value != UNKNOWN for key, value in inputs.items() if key.startswith(READS))


def table_content(table: pa.Table) -> str:
    """Return the SHA-256, in hex, of an Arrow table: of its schema and of its rows in their order."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


@cache
def versions_hash() -> str:
    """Return a hash of the version of Python and of those of the libraries that compute results."""
    return digest([platform.python_version(), *(metadata.version(name) for name in LIBRARIES)])


@cache
def package_hash(package: str) -> str:
    """Return a hash of the names and contents of the Python files of one package, without its subpackages."""
    files = (path for path in resources.files(package).iterdir() if path.name.endswith(".py"))
    return digest({path.name: path.read_text(encoding="utf-8") for path in files})
