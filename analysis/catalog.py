"""Read the SQL files of the analysis and their heads, and sort them into an order in which they can be built.

One SELECT per file; the file name is the name of the relation. A block comment at the head of the file is
TOML:

    summary     one line, for people
    method      a paragraph: how the numbers come about, and the source of the method
    grain       the columns that identify a row (staging and marts); a stored mart is also sorted by them
    determined  columns that the grain determines; by them files are found that cannot share a key
    cost        only where a build takes longer than 30 plain scans of what the query reads: why
    is_view     true for a mart that is not stored; each query that reads it computes it
    [ranges]    by = "days", "mempool_days", "message_days" or "heights": made in ranges, which it sorts by;
                needs = "relation": where a range reads no row of it, the mart has none, and no part is made
    [ranges.reads]  relation = "condition": the rows of it that one range reads, all where it is not named
    [ranges.clips]  relation = {column = "expression"}: its value for one range, where it tells less than all
    severity    "fail" or "warn" (checks)
    [needs]     relation or "relation.column" = "what is missing" if it has no rows or values (checks)
    [parameters]  name = {value = 5, doc = "..."}; read in SQL as getvariable('name')
    [columns]   name = "TYPE  unit or meaning" (two spaces after the type), in the order of the SELECT

Staging reads the raw tables of the dataset, marts read staging, marts and the pool rules, checks read
anything. The syntax tree of a file says what it reads, so nobody keeps a list of the order.
"""

import graphlib
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from analysis.errors import CatalogError
from analysis.extents import asked_columns, bounded_columns
from analysis.query_facts import query_facts

Layer = Literal["staging", "marts", "checks"]
Severity = Literal["fail", "warn"]
LAYERS: Final[tuple[Layer, ...]] = ("staging", "marts", "checks")
MACROS: Final = "macros.sql"
HEAD_OPEN, HEAD_CLOSE = "/*", "*/"

# Relations that engine.py makes, not an SQL file: the pool rules, and the pools that they match per block.
INPUTS: Final = (
    *("pools", "pool_names", "entities", "pool_makers", "pool_candidates"),
    *("build_facts", "build_log"),
)
# What engine.py reads to make them.
READ_FOR_INPUTS: Final = ("stg_blocks", "stg_external_blocks")

# Types of which the least and the greatest value of a file can be kept.
ORDERED_TYPES: Final = ("INTEGER", "BIGINT", "DECIMAL(38,0)", "DATE", "TIMESTAMP WITH TIME ZONE")

NonEmpty = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class Parameter(BaseModel):
    """Holds one constant of a SQL query: its value and what it means."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    value: int | float | str
    doc: NonEmpty


class InRanges(BaseModel):
    """Describes how a mart is made in ranges, and which rows and values one range reads; see ranges.py."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    by: Literal["days", "mempool_days", "message_days", "heights"]
    reads: Mapping[str, NonEmpty]
    clips: Mapping[str, Mapping[str, NonEmpty]] = Field(default_factory=dict)
    needs: NonEmpty | None = None


class FilledLate(BaseModel):
    """Names columns that a mart takes unchanged from one relation by a key that both have; see late.py."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relation: NonEmpty
    key: NonEmpty
    columns: tuple[NonEmpty, ...]


class Head(BaseModel):
    """Holds the keys that the head of one SQL file has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    summary: NonEmpty
    method: NonEmpty | None = None
    cost: NonEmpty | None = None
    is_view: bool = False
    ranges: InRanges | None = None
    late: FilledLate | None = None
    grain: tuple[NonEmpty, ...] = ()
    determined: tuple[NonEmpty, ...] = ()
    severity: Severity | None = None
    needs: Mapping[str, NonEmpty] = Field(default_factory=dict)
    parameters: Mapping[str, Parameter] = Field(default_factory=dict)
    columns: Mapping[str, NonEmpty] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """Describes one column of a model: the type as DuckDB names it, and the unit or meaning."""

    name: str
    type: str
    doc: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """Describes one SQL file (staging view, mart or check): what its head says, and its query."""

    name: str
    layer: Layer
    summary: str
    method: str | None
    cost: str | None
    is_view: bool
    ranges: InRanges | None
    late: FilledLate | None
    grain: tuple[str, ...]
    determined: tuple[str, ...]
    severity: Severity | None
    needs: Mapping[str, str]
    parameters: Mapping[str, Parameter]
    columns: tuple[Column, ...]
    sql: str

    @property
    def references(self) -> frozenset[str]:
        """Return the names of the relations that the query reads, or that a check needs.

        Raises CatalogError where the query is not exactly one SELECT.
        """
        return query_facts(self._where, self.sql).reads | {need.partition(".")[0] for need in self.needs}

    @property
    def column_references(self) -> Mapping[str, frozenset[str]]:
        """Return the columns that the query reads of relations, by relation.

        A relation that is missing is one of which the query may read any column.
        """
        return query_facts(self._where, self.sql).columns

    @property
    def ordered_sql(self) -> str:
        """Return the query with an ORDER BY by which no two rows are equal: its own order, then the grain."""
        keys = ", ".join(str(self.column_names.index(name) + 1) for name in self.grain)
        is_ordered = query_facts(self._where, self.sql).is_ordered
        return f"{self.sql}\n, {keys}" if is_ordered else f"{self.sql}\norder by {keys}"

    @property
    def column_names(self) -> tuple[str, ...]:
        """Return the names of the model's columns, in the order of the SELECT."""
        return tuple(column.name for column in self.columns)

    @property
    def _where(self) -> str:
        return f"sql/{self.layer}/{self.name}.sql"


@dataclass(frozen=True)
class Catalog:
    """Holds all models in an order in which they can be built, and the text of macros.sql as `macros`.

    Staging comes first, then marts, then checks; each model comes after the models that it reads.
    """

    models: tuple[Model, ...]
    macros: str

    @cached_property
    def by_name(self) -> Mapping[str, Model]:
        """Return each model of this catalog (staging view, mart or check) by its name."""
        return {model.name: model for model in self.models}

    def layer(self, layer: Layer) -> tuple[Model, ...]:
        """Return the models of one layer (staging, marts, checks) in an order in which they can be built."""
        return tuple(model for model in self.models if model.layer == layer)

    def bounded_columns(self, name: str) -> list[str]:
        """Return the columns of a relation whose least and greatest value is kept for each of its files.

        By them ranges find the files that they read, and checks the files that can hold rows of one key.
        """
        reads = [model.ranges.reads for model in self.models if model.ranges is not None]
        own = [conditions[name] for conditions in reads if name in conditions]
        every = [condition for conditions in reads for condition in conditions.values()]
        model = self.by_name[name]
        asked = {*bounded_columns(own), *asked_columns(name, every), *model.grain, *model.determined}
        return sorted(
            column.name for column in model.columns if column.name in asked and column.type in ORDERED_TYPES
        )

    def stored_below(self, name: str) -> list[str]:
        """Return the stored relations that a model reads, directly or through views, each once."""
        found: dict[str, None] = {}
        names = list(self.by_name[name].references)
        while names:
            read = names.pop()
            model = self.by_name.get(read)
            if model is not None and model.is_view:
                names += model.references
            else:
                found[read] = None
        return list(found)

    def restricted_to(self, marts: Iterable[str]) -> "Catalog":
        """Return a smaller catalog: the given marts, and every model that they or the pool rules read.

        It keeps those checks that read nothing else. Raises CatalogError for a name that is not a mart.
        """
        wanted: set[str] = set()
        left = set(marts)
        unknown = sorted(left - {model.name for model in self.layer("marts")})
        if unknown:
            raise CatalogError(f"there is no mart {', '.join(unknown)}; pool-analysis list names all")
        left |= self.by_name.keys() & READ_FOR_INPUTS
        while left:
            name = left.pop()
            wanted.add(name)
            left |= (self.by_name[name].references & self.by_name.keys()) - wanted
        kept = (
            model
            for model in self.models
            if model.name in wanted
            or (model.layer == "checks" and model.references & self.by_name.keys() <= wanted)
        )
        return Catalog(models=tuple(kept), macros=self.macros)


@cache
def load_catalog() -> Catalog:
    """Read every SQL file of this package; return them as a Catalog, in an order in which they can be built.

    The files are read once per process. Raises CatalogError with the name of a faulty file.
    """
    macros = resources.files("analysis") / "sql" / MACROS
    return Catalog(models=tuple(_ordered(read_models())), macros=macros.read_text(encoding="utf-8"))


@cache
def read_models() -> tuple[Model, ...]:
    """Return a Model for every SQL file of this package, sorted by layer and name; no query is parsed.

    Raises CatalogError with the name of a file whose head is faulty.
    """
    root = resources.files("analysis") / "sql"
    return tuple(
        read_model(layer, file.name, file.read_text(encoding="utf-8"))
        for layer in LAYERS
        for file in sorted((root / layer).iterdir(), key=lambda entry: entry.name)
        if file.name.endswith(".sql")
    )


def find_model(name: str) -> Model | None:
    """Read the SQL file of one relation alone; return None if there is none of this name.

    Raises CatalogError if its head is faulty.
    """
    root = resources.files("analysis") / "sql"
    for layer in LAYERS:
        file = root / layer / f"{name}.sql"
        if file.is_file():
            return read_model(layer, file.name, file.read_text(encoding="utf-8"))
    return None


def reading_order(name: str) -> str:
    """Return the ORDER BY with which to read a relation; empty for a stored mart, which is in order.

    A view has no order of its own, so its rows are sorted by its grain.
    """
    model = find_model(name)
    return f" ORDER BY {', '.join(model.grain)}" if model is not None and model.is_view else ""


def catalog_of(texts: Mapping[tuple[Layer, str], str], macros: str = "") -> Catalog:
    """Return the Catalog of SQL texts, which are keyed by layer and file name.

    Raises CatalogError with the name of a faulty file.
    """
    models = [read_model(layer, name, text) for (layer, name), text in texts.items()]
    return Catalog(models=tuple(_ordered(models)), macros=macros)


def read_model(layer: Layer, file_name: str, text: str) -> Model:
    """Return the Model of the text of one SQL file. Raises CatalogError if its head breaks a rule."""
    where = f"sql/{layer}/{file_name}"
    head_text, sql = _split(where, text)
    try:
        head = Head.model_validate(tomllib.loads(head_text))
    except tomllib.TOMLDecodeError as error:
        raise CatalogError(f"{where}: the head is not TOML: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise CatalogError(f"{where}: {key} in the head: {first['msg']}") from None
    columns = tuple(_column(where, name, line) for name, line in head.columns.items())
    _check_head(where, layer, head)
    return Model(
        name=file_name.removesuffix(".sql"),
        layer=layer,
        summary=head.summary,
        method=head.method,
        cost=head.cost,
        is_view=layer == "staging" or head.is_view,
        ranges=head.ranges,
        late=head.late,
        grain=head.grain,
        determined=head.determined,
        severity=head.severity,
        needs=head.needs,
        parameters=head.parameters,
        columns=columns,
        sql=sql,
    )


def _split(where: str, text: str) -> tuple[str, str]:
    """Split the text of an SQL file into its head and its query; `where` names the file in errors."""
    head, close, sql = text.lstrip().partition(HEAD_CLOSE)
    if not head.startswith(HEAD_OPEN) or not close:
        raise CatalogError(
            f"{where} does not begin with a head; write one between {HEAD_OPEN} and {HEAD_CLOSE}"
        )
    return head.removeprefix(HEAD_OPEN), sql.strip()


def _column(where: str, name: str, line: str) -> Column:
    """Return the Column of one line of [columns], which has the type, two spaces and the meaning."""
    type_, gap, doc = line.partition("  ")
    if not gap or not doc.strip():
        raise CatalogError(f"{where}: column {name} must read 'TYPE  meaning', with two spaces, not {line!r}")
    return Column(name=name, type=type_, doc=doc.strip())


def _check_head(where: str, layer: Layer, head: Head) -> None:
    """Raise CatalogError if the head of a SQL file lacks a key that every file of its layer must have."""
    if layer == "checks":
        if head.severity is None or not head.needs:
            raise CatalogError(f"{where}: a check needs severity = 'fail' or 'warn' and [needs] in its head")
        return
    if not head.columns or not head.grain:
        raise CatalogError(f"{where}: the head needs grain and [columns]")
    if layer == "marts" and head.method is None:
        raise CatalogError(f"{where}: the head of a mart needs method: how its numbers come about")
    if head.ranges is not None and not head.ranges.clips.keys() <= head.ranges.reads.keys():
        raise CatalogError(f"{where}: ranges.clips names a relation that ranges.reads does not")
    if head.ranges is not None and head.ranges.needs not in {None, *head.ranges.reads}:
        raise CatalogError(f"{where}: ranges.needs names a relation that ranges.reads does not")
    late = () if head.late is None else (head.late.key, *head.late.columns)
    for key, names in {"grain": head.grain, "determined": head.determined, "late": late}.items():
        unknown = [name for name in names if name not in head.columns]
        if unknown:
            raise CatalogError(f"{where}: {key} names {', '.join(unknown)}, which is not among the columns")


def _ordered(models: Iterable[Model]) -> list[Model]:
    """Sort models by layer, and within a layer so that each comes after the models that it reads.

    Raises CatalogError for two relations of one name, for a relation that is read but does not exist, and for
    models that read each other in a circle.
    """
    from collector.dataset.schema import TABLES  # noqa: PLC0415 - loads pyarrow, and only a build needs it

    by_name: dict[str, Model] = {}
    for model in models:
        if model.name in by_name or model.name in TABLES or model.name in INPUTS:
            raise CatalogError(
                f"sql/{model.layer}/{model.name}.sql: another relation has that name; rename the file"
            )
        by_name[model.name] = model
    relations = by_name.keys() | TABLES.keys() | set(INPUTS)
    for model in by_name.values():
        missing = sorted(model.references - relations)
        if missing:
            raise CatalogError(
                f"sql/{model.layer}/{model.name}.sql reads {', '.join(missing)}, which no SQL file makes;"
                " correct the name"
            )
    # Sorted, as the order of a set differs from run to run.
    graph = {name: sorted(model.references & by_name.keys()) for name, model in sorted(by_name.items())}
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        raise CatalogError(f"SQL files read each other in a circle: {' -> '.join(error.args[1])}") from None
    return sorted((by_name[name] for name in order), key=lambda model: LAYERS.index(model.layer))
