"""Write the documents of a release: data package, methods and citation.

`datapackage.json` has the form of a Frictionless Data Package (version 1, specs.frictionlessdata.io), which
many tools read. `CITATION.cff` has the Citation File Format 1.2.0; its values are written as JSON, which YAML
includes.
"""

import datetime as dt
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from analysis.catalog import Column, Model
from analysis.descriptions import describe

# The type of Frictionless for each of DuckDB; `any` is for bytes.
TYPES: Final = {
    "VARCHAR": "string",
    "BOOLEAN": "boolean",
    "TINYINT": "integer",
    "SMALLINT": "integer",
    "INTEGER": "integer",
    "BIGINT": "integer",
    "UBIGINT": "integer",
    "DECIMAL(38,0)": "integer",
    "DOUBLE": "number",
    "DATE": "date",
    "TIMESTAMP": "datetime",
    "TIMESTAMP WITH TIME ZONE": "datetime",
    "BLOB": "any",
}
SOFTWARE: Final = "pool-measurement"
MEDIA_TYPE: Final = "application/vnd.apache.parquet"


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """Holds what the publisher of a release says about it: title, authors and licence, each optional."""

    title: str | None = None
    authors: Sequence[str] = ()
    licence: str | None = None  # SPDX identifier, as CC-BY-4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleasedFile:
    """Describes one Parquet file of a release: path, size, SHA-256, number of rows, and its mart.

    `path` is relative to the folder of the release, with slashes.
    """

    path: str
    n_bytes: int
    sha256: str
    n_rows: int
    model: Model


def title_of(about: About, facts: Mapping[str, str]) -> str:
    """Return the publisher's title of a release; without one, a title with the chain and the heights."""
    heights = f"heights {facts.get('height first')} to {facts.get('height last')}"
    return about.title or f"Measurements of Bitcoin mining pools, chain {facts['chain']}, {heights}"


def data_package(files: Sequence[ReleasedFile], facts: Mapping[str, str], about: About) -> str:
    """Return the text of datapackage.json (Frictionless Data), which describes every file of a release."""
    package: dict[str, Any] = {
        "profile": "data-package",
        "name": f"{SOFTWARE}-{facts['chain']}",
        "title": title_of(about, facts),
        "version": facts["analysis_version"],
    }
    if about.licence:
        package["licenses"] = [{"name": about.licence}]
    if about.authors:
        package["contributors"] = [{"title": author, "role": "author"} for author in about.authors]
    package["resources"] = [_resource(file) for file in files]
    return json.dumps(package, indent=2, ensure_ascii=False) + "\n"


def _resource(file: ReleasedFile) -> dict[str, Any]:
    """Return the entry for one Parquet file in the data package (Frictionless Data), as a dict for JSON."""
    return {
        "name": file.model.name.replace("_", "-"),
        "path": file.path,
        "title": file.model.name,
        "description": file.model.summary,
        "format": "parquet",
        "mediatype": MEDIA_TYPE,
        "bytes": file.n_bytes,
        "hash": f"sha256:{file.sha256}",
        "rows": file.n_rows,
        "grain": list(file.model.grain),
        "schema": {"fields": [_field(column) for column in file.model.columns]},
    }


def _field(column: Column) -> dict[str, str]:
    """Return the entry for one column in the data package: name, Frictionless type, description."""
    if column.type.endswith("[]"):
        type_ = "array"
    else:
        type_ = "object" if column.type.startswith("STRUCT") else TYPES[column.type]
    return {"name": column.name, "type": type_, "description": column.doc}


def methods(models: Sequence[Model], facts: Mapping[str, str]) -> str:
    """Return the text of METHODS.md: the facts on the build, then how each mart was made."""
    return "\n".join(_method_lines(models, facts)) + "\n"


def _method_lines(models: Sequence[Model], facts: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of METHODS.md: a table of the facts of the build, then a section for each mart."""
    yield from ("# Methods", "", "What the results rest on:", "", "| fact | value |", "|---|---|")
    yield from (f"| {_cell(key)} | {_cell(value)} |" for key, value in facts.items())
    for model in models:
        found = describe(model.name)
        yield from ("", f"## {model.name}", "", f"{found.summary} One row per {', '.join(found.grain)}.", "")
        if found.method:
            yield from (found.method.strip(), "")
        for name, parameter in found.parameters.items():
            yield from (f"Parameter `{name}` = {parameter.value}: {parameter.doc}", "")
        yield from ("| column | type | meaning |", "|---|---|---|")
        yield from (f"| `{each.name}` | {each.type} | {_cell(each.doc)} |" for each in found.columns)


def _cell(text: str) -> str:
    """Return text escaped for a cell of a Markdown table, on one line.

    A node's name may hold any character.
    """
    escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")
    return " ".join(escaped.split())


def citation(facts: Mapping[str, str], about: About, today: dt.date) -> str:
    """Return the text of CITATION.cff: the data, and the software that made them."""
    values: dict[str, Any] = {
        "cff-version": "1.2.0",
        "message": "If you use these data, please cite them as below.",
        "type": "dataset",
        "title": title_of(about, facts),
        "date-released": today.isoformat(),
        "authors": [{"name": author} for author in about.authors] or [{"name": "anonymous"}],
        "references": [
            {
                "type": "software",
                "title": SOFTWARE,
                "version": facts["analysis_version"],
                "authors": [{"name": "The pool-measurement contributors"}],
            }
        ],
    }
    if about.licence:
        values["license"] = about.licence
    return "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in values.items())
