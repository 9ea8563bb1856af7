"""Say what each mart is made of, as named hashes: a mart whose hashes are equal is not made again.

The hashes cover the query, its parameters, the macros and functions that it uses, the versions of what
computes, and the content of each relation that it reads. The content of a stored mart is that of the columns
that are read, or its file where that is not known. So a mart that is made again causes no further work where
it has the same values. The content of a view is all that the view is made of.
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
        """Map each input of a model (its head, its query, a relation that it reads, …) to a hash.

        Every relation that the model reads must be in `contents`.
        """
        query = model.sql if model.is_view else model.ordered_sql
        types = {column.name: column.type for column in model.columns}
        parameters = {name: parameter.value for name, parameter in model.parameters.items()}
        return {"its head": digest([types, parameters])} | self.of_query(
            query, model.references, {name: self.columns_read(model, name) for name in model.references}
        )

    def columns_read(self, model: Model, relation: str) -> tuple[str, ...]:
        """Return the columns of a relation on which the rows of a model depend, in order.

        A column that the model fills in late is not among them. For what is no model, none is returned.
        """
        found = self.catalog.by_name.get(relation)
        if found is None:
            return ()
        late = model.late.columns if model.late is not None and model.late.relation == relation else ()
        known = model.column_references.get(relation)
        in_macros = map(_words, _macros_in(self.catalog.macros, model.sql).values())
        named = found.column_names if known is None else frozenset(known).union(*in_macros)
        return tuple(name for name in found.column_names if name in named and name not in late)

    def of_late(self, late: FilledLate, early: str) -> dict[str, str]:
        """Map each input of the step that fills in late columns to a hash; `early` is the content before."""
        columns = {late.relation: (late.key, *late.columns)}
        return self.of_query(filling(late, ""), [late.relation], columns) | {"its early parts": early}

    def of_query(
        self, query: str, reads: Iterable[str], columns: Mapping[str, tuple[str, ...]] = EVERY
    ) -> dict[str, str]:
        """Map each input of a query to a hash: its text, macros, functions, versions, relations read.

        `columns` has the columns that it reads of a relation; without them it counts as reading all.
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
        """Return the content of some columns of a relation, or of all where less is not known."""
        known = self.columns.get(relation)
        if not known or not columns:
            return self.contents[relation]
        return digest([known[name] for name in columns])


def _macros_in(macros: str, query: str) -> Mapping[str, str]:
    """Map the name of each SQL macro that a query uses, directly or by another macro, to its text."""
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
    """Map the name of each SQL macro to its text, which ends where the next macro starts."""
    _, *pieces = MACRO.split(macros)
    return dict(zip(pieces[::2], pieces[1::2], strict=True))


@cache
def _words(sql: str) -> frozenset[str]:
    """Return the words of a query or a macro; a build asks several times for those of each."""
    return frozenset(WORD.findall(sql))


def is_known(inputs: Mapping[str, str]) -> bool:
    """Return whether all inputs are known: no relation that is read has the content UNKNOWN.

    `inputs` maps each input of a model to a hash.
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
