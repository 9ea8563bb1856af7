"""Find out which marts must be made again, say why, and make them as parts that the database names."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final, NamedTuple

import duckdb
import pyarrow as pa

from analysis.attribution.rules import RuleSet
from analysis.candidates import CANDIDATES, candidate_inputs, candidate_parts
from analysis.catalog import Catalog, FilledLate, InRanges, Model
from analysis.database import open_cursors
from analysis.fingerprints import (
    UNKNOWN,
    Fingerprints,
    is_known,
    table_content,
)
from analysis.late import EARLY, early_name, filling, stand_ins
from analysis.manifest import build_facts
from analysis.parts import Inputs, Part, PartsFolder, Rows, Types, digest
from analysis.plan import PlannedMart, planned
from analysis.ranges import RANGE, SMALL_ROWS, OneRange, Ranges, inputs_in_ranges, make_range
from analysis.raw_contents import Content
from analysis.schedule import Crew, Graph, Hands, Made, Task, graph_of, make_all, open_crew, urgencies
from analysis.stored import Stored, of_parts, of_staging
from collector.dataset.open import Dataset

GROUP_ROWS: Final = 500_000  # so many rows at least get their late columns together, if there are as many
LEAST_ROWS: Final = 10_000  # what reads fewer is made in less time than it takes to hand it out


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Says what a build makes next: mart `name`, as step `number` of at most `n_steps`.

    `left_s` is the time that the remaining steps took when they were last made, divided by how many are made
    at the same time; None where one is new.
    """

    name: str
    number: int
    n_steps: int
    left_s: float | None


def input_tables(
    rules: RuleSet, dataset: Dataset, contents: Mapping[str, Content], log: pa.Table
) -> dict[str, pa.Table]:
    """Return the tables that no SQL file makes, by name: the pool rules, the owners, facts on the build."""
    facts = build_facts(dataset, contents, rules.hash)
    return {**rules.tables(), "build_facts": facts, "build_log": log}


def create_input(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Store an Arrow table in the database under a name, for the marts to read."""
    connection.register("input_table", table)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM input_table")  # noqa: S608 - a name of ours
    connection.unregister("input_table")


def create_model(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Create the view or table of one model; its parameters become variables of the DuckDB session."""
    set_parameters(connection, model)
    kind, query = ("VIEW", model.sql) if model.is_view else ("TABLE", model.ordered_sql)
    connection.execute(f"CREATE {kind} {model.name} AS {query}")


def create_staging(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
    """Create the SQL macros and the staging views in DuckDB, which must have the raw tables."""
    connection.execute(catalog.macros)
    for model in catalog.layer("staging"):
        create_model(connection, model)


def set_parameters(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Set each parameter of a model as a variable of the DuckDB session."""
    for name, parameter in model.parameters.items():
        connection.execute(f"SET VARIABLE {name} = ?", [parameter.value])


@dataclass
class IncrementalMarts:
    """Decides in the order of a build which marts must be made (`plan`), and makes those (`make`).

    Without `is_cut` every mart is made as a whole, also where its head has ranges or late columns.
    `n_at_once` marts are made at the same time. With `hands` the parts are made by other processes, except
    those that are quicker made than handed out.
    """

    catalog: Catalog
    rules: RuleSet
    parts: PartsFolder
    dataset: Dataset
    raw: Mapping[str, Content]
    inputs: Mapping[str, pa.Table]
    is_cut: bool = True
    n_at_once: int = 1
    hands: Hands | None = None
    used: list[Part] = field(default_factory=list)
    made: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored: dict[str, Stored] = {}
        self._rows: dict[str, Rows] = {}  # by mart that is done
        self._n_rows = {name: content.n_rows for name, content in self.raw.items()}  # and of stored marts
        self._walker = Ranges(self.catalog, self.stored, self._n_rows)
        self._crew: Crew | None = None
        self._counters: ThreadPoolExecutor | None = None
        self._telling = threading.Lock()
        self._is_given_up = False

    @property
    def rows_of_stored(self) -> Mapping[str, int]:
        """Return the number of rows of each raw table and of each stored mart that is up to date."""
        return self._n_rows

    def fingerprints(self) -> Fingerprints:
        """Return the hashes of all that is known before a mart is made: raw tables, input tables, staging."""
        found = Fingerprints(self.catalog)
        found.contents.update(
            {name: f"{content.n_rows} {content.total}" for name, content in self.raw.items()}
        )
        found.contents.update({name: table_content(table) for name, table in self.inputs.items()})
        for model in self.catalog.layer("staging"):
            found.contents[model.name] = digest(found.of_model(model))
        return found

    def plan(self) -> list[PlannedMart]:
        """Return what `make` would do with each stored mart, and why; nothing is made."""
        found = self.fingerprints()
        plan = [self._planned(CANDIDATES, candidate_inputs(self.rules, found), found, in_ranges=True)]
        for model in self._marts():
            inputs = inputs_in_ranges(model, found)
            if model.is_view:
                found.contents[model.name] = digest(inputs) if is_known(inputs) else UNKNOWN
                continue
            is_ranged = model.ranges is not None
            if model.late is None:
                plan.append(self._planned(model.name, inputs, found, in_ranges=is_ranged))
                continue
            early = self._planned(early_name(model.name), inputs, found, in_ranges=is_ranged)
            if early.action == "keep":
                inputs = found.of_late(model.late, found.contents[early.name])
                plan.append(self._planned(model.name, inputs, found, in_ranges=True))
            else:
                found.contents[model.name] = UNKNOWN
                plan.append(replace(early, name=model.name))
        return plan

    def make(
        self,
        connection: duckdb.DuckDBPyConnection,
        inside_bytes: int,
        progress: Callable[[Step], None],
    ) -> Fingerprints:
        """Make the parts that are missing, and create every mart in the database; return all content hashes.

        A mart of at most `inside_bytes` becomes a table of the database, a larger one a view on its parts.
        Where memory runs out for marts made at the same time, those that are left are made one by one.
        """
        steps = _Steps([mart for mart in self.plan() if mart.action != "keep"], self.n_at_once, progress)
        found = self.fingerprints()
        self.parts.save()
        meanings = {
            model.name: digest(found.of_query(model.sql, ())) for model in self.catalog.layer("staging")
        }
        self.stored.update(of_staging(self.catalog, self.dataset, self.raw, meanings))
        self._make_candidates(connection, found, steps, inside_bytes)
        models = {model.name: model for model in self._marts()}
        graph = graph_of(models.values())
        crews = (
            nullcontext() if self.hands is None else open_crew(self.hands, urgencies(graph), self.parts.add)
        )
        done: set[str] = set()

        def make_mart(name: str, cursor: duckdb.DuckDBPyConnection) -> None:
            self._make_mart(cursor, found, steps, inside_bytes, models[name])
            done.add(name)

        with crews as self._crew:
            try:
                self._make_all(connection, graph, self.n_at_once, make_mart)
            except duckdb.OutOfMemoryException:
                if self.n_at_once == 1 or self.hands is not None:
                    raise
                left = graph.keys() - done  # each alone may fit
                self._make_all(connection, {name: graph[name] & left for name in left}, 1, make_mart)
        return found

    def _make_all(
        self,
        connection: duckdb.DuckDBPyConnection,
        graph: Graph,
        n_at_once: int,
        make: Callable[[str, duckdb.DuckDBPyConnection], None],
    ) -> None:
        """Call `make` with each mart of a graph and a connection that no other mart uses meanwhile."""
        self._is_given_up = False
        with open_cursors(connection, n_at_once) as cursors:

            def make_mart(name: str) -> None:
                with cursors.lent() as cursor:
                    make(name, cursor)

            def give_up() -> None:
                self._is_given_up = True
                if self._crew is not None:
                    self._crew.drop_waiting()
                cursors.interrupt()

            make_all(graph, make_mart, n_at_once, give_up)

    def _make_mart(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: Fingerprints,
        steps: "_Steps",
        inside_bytes: int,
        model: Model,
    ) -> None:
        """Make one mart and create it in the database."""
        if model.is_view:
            create_model(connection, model)
            found.contents[model.name] = digest(found.of_model(model))
            return
        types = {column.name: column.type for column in model.columns}
        bounded = self.catalog.bounded_columns(model.name)
        recipe = _Recipe(model.name, inputs_in_ranges(model, found), model.ordered_sql, types, bounded)
        if model.late is None:
            parts = self._parts(connection, model, recipe, found, steps)
        else:
            early = recipe._replace(name=early_name(model.name))
            early_parts = self._parts(connection, model, early, found, steps)
            recipe = recipe._replace(inputs=found.of_late(model.late, _content(early_parts)))
            filled = self._filled(connection, model, model.late, recipe, early_parts, found, steps)
            parts = self._several(connection, recipe, filled)
        self._create(connection, parts, types, inside_bytes)
        _note(found, model.name, parts)
        steps.leave(model.name)

    def _marts(self) -> Iterator[Model]:
        """Yield the models of marts in build order; without `is_cut` they have no ranges or late columns."""
        for model in self.catalog.layer("marts"):
            yield model if self.is_cut else replace(model, ranges=None, late=None)

    def _make_candidates(
        self,
        connection: duckdb.DuckDBPyConnection,
        found: Fingerprints,
        steps: "_Steps",
        inside_bytes: int,
    ) -> None:
        """Match the coinbases with the pool rules, where that is not known, and create what was found."""
        inputs = candidate_inputs(self.rules, found)
        parts = self.parts.find_ranges(CANDIDATES, inputs)
        if parts is None:
            begun_s = time.monotonic()
            self._begin(CANDIDATES, steps)
            parts = list(candidate_parts(connection, self.rules, self.parts, inputs))
            self.parts.keep_ranges(CANDIDATES, inputs, parts, time.monotonic() - begun_s, {})
        self.used += parts
        self._create(connection, parts, {}, inside_bytes)
        _note(found, CANDIDATES, parts)
        steps.leave(CANDIDATES)

    def _planned(
        self, name: str, inputs: Inputs, found: Fingerprints, *, in_ranges: bool = False
    ) -> PlannedMart:
        """Return the plan for one stored mart, and note the hash of its rows in `found`.

        The hash is UNKNOWN for a mart that would be made.
        """
        parts = self._found(name, inputs, in_ranges=in_ranges) if is_known(inputs) else None
        if parts is None:
            found.contents[name] = UNKNOWN
        else:
            _note(found, name, parts)
        return planned(name, inputs, self.parts.latest(name), is_made=parts is not None)

    def _parts(
        self,
        connection: duckdb.DuckDBPyConnection,
        model: Model,
        recipe: "_Recipe",
        found: Fingerprints,
        steps: "_Steps",
    ) -> list[Part]:
        """Return all parts of a mart, whose late columns are null; make those that are missing."""
        set_parameters(connection, model)
        if model.ranges is not None:
            return self._several(
                connection, recipe, self._ranges(connection, model, model.ranges, recipe, found, steps)
            )
        return self._whole(connection, model, recipe, steps)

    def _whole(
        self, connection: duckdb.DuckDBPyConnection, model: Model, recipe: "_Recipe", steps: "_Steps"
    ) -> list[Part]:
        """Return the single part of a mart that has no ranges; make it if it is missing."""
        part = self.parts.find(recipe.name, recipe.inputs)
        if part is None:
            self._begin(recipe.mart, steps)
            crew = self._crew_for(
                sum(self._n_rows.get(name, 0) for name in self.catalog.stored_below(model.name))
            )
            if crew is not None:
                part = crew.begin(self._task(recipe)).result().part
            else:
                with stand_ins(connection, self.catalog, model):
                    part = self.parts.make(connection, *recipe)
        parts = [] if part is None else [part]
        self.used += parts
        return parts

    def _several(
        self,
        connection: duckdb.DuckDBPyConnection,
        recipe: "_Recipe",
        making: Iterator["Made | Future[Made]"],
    ) -> list[Part]:
        """Return the parts of a mart that has several; where one is missing, those that `making` yields."""
        parts = self.parts.find_ranges(recipe.name, recipe.inputs)
        if parts is None:
            begun_s = time.monotonic()
            every = [each.result() if isinstance(each, Future) else each for each in list(making)]
            looks = {key: looked for made in every for key, looked in made.looks.items()}
            self._walker.rows.update(looks)
            parts = [made.part for made in every if made.part is not None]
            if not parts:  # the mart is made as a whole, and has no row
                parts = [self.parts.make(connection, *recipe)]
            self.parts.keep_ranges(recipe.name, recipe.inputs, parts, time.monotonic() - begun_s, looks)
        self.used += parts
        return parts

    def _ranges(  # noqa: PLR0917 - what one mart has at hand
        self,
        connection: duckdb.DuckDBPyConnection,
        model: Model,
        ranges: InRanges,
        recipe: "_Recipe",
        found: Fingerprints,
        steps: "_Steps",
    ) -> Iterator["Made | Future[Made]"]:
        """Yield each range of a mart, made here, or the future of one that another process makes."""
        latest = self.parts.state.in_ranges.get(recipe.name)
        seen = {} if latest is None else latest.rows
        hand_out = None if self._crew is None else self._handing_out(self._crew, recipe)
        # Where a build before this one looked, one query tells which ranges are new.
        small_rows = SMALL_ROWS if hand_out is None or seen else LEAST_ROWS
        walk = self._walker.walk(connection, model, ranges, found, seen, small_rows=small_rows)
        self._begin(recipe.mart, steps)
        with closing(walk):  # while the connection is open, also after an error
            for one in walk:
                self._begin(recipe.mart, steps)
                has_rows = one.look(may_query=False)
                part = self.parts.find(recipe.name, one.inputs) if one.inputs else None
                if part is not None or not has_rows:
                    yield Made(part, one.looks)
                elif hand_out is not None:
                    yield hand_out(one)
                else:
                    yield self._made_range(connection, recipe, one)

    def _made_range(self, connection: duckdb.DuckDBPyConnection, recipe: "_Recipe", one: OneRange) -> Made:
        """Make one range of a mart in this process."""
        part = make_range(
            one,
            lambda inputs: self.parts.find(recipe.name, inputs),
            lambda inputs: self.parts.make(connection, *recipe._replace(inputs=inputs)),
        )
        return Made(part, one.looks)

    def _handing_out(self, crew: Crew, recipe: "_Recipe") -> Callable[[OneRange], Future[Made]]:
        """Return a function that has another process make a range of a mart."""
        task = self._task(recipe)
        before: dict[str, list[Part]] = {}  # by the first key of the range
        for part in self.parts.whole_parts(recipe.name):
            before.setdefault(part.inputs.get(RANGE, ""), []).append(part)

        def hand_out(one: OneRange) -> Future[Made]:
            made_before = before.get(str(one.rows.first_key), ())
            return crew.begin(replace(task, range_rows=one.for_other_process, made_before=made_before))

        return hand_out

    def _filled(  # noqa: PLR0917 - what one mart has at hand
        self,
        connection: duckdb.DuckDBPyConnection,
        model: Model,
        late: FilledLate,
        recipe: "_Recipe",
        early: list[Part],
        found: Fingerprints,
        steps: "_Steps",
    ) -> Iterator["Made | Future[Made]"]:
        """Yield the parts of a mart with its late columns filled in, or futures of those made elsewhere.

        Each is made of several early parts together, of which a new day changes the last ones only.
        """
        values = self._walker.late_values(connection, model, found)
        for group in _groups(early) if values is not None else [early]:
            one = recipe._replace(inputs=found.of_late(late, _content(group), _values_of(group, values)))
            part = self.parts.find(one.name, one.inputs)
            if part is not None:
                yield Made(part, {})
                continue
            self._begin(one.mart, steps)
            rows = self.parts.rows_sql(group, recipe.types)
            crew = self._crew_for(sum(each.n_rows for each in group))
            if crew is not None:
                yield crew.begin(self._task(one, early=rows))
            else:
                yield Made(self.parts.make(connection, *one._replace(query=filling(late, rows))), {})

    def _crew_for(self, n_rows: int) -> Crew | None:
        """Return the crew that makes a part from `n_rows` rows; None where this process is quicker."""
        return self._crew if n_rows >= LEAST_ROWS else None

    def counted(self, check: str, reads: frozenset[str], queries: Sequence[str]) -> list[int] | None:
        """Have other processes count the rows of each query of a check; None where this one is quicker."""
        if self.hands is None or self._counters is None or self.n_rows_below(reads) < LEAST_ROWS:
            return None
        rows = {name: self._rows[name] for name in self._below(reads) if name in self._rows}
        count = partial(self.hands.counted, check, reads, rows)
        return [future.result() for future in [self._counters.submit(count, query) for query in queries]]

    def drop_waiting(self) -> None:
        """Cancel the queries of checks that other processes have not begun."""
        if self._counters is not None:
            self._counters.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def counting(self) -> Iterator["IncrementalMarts"]:
        """Let `counted` have as many queries run as there are other processes, in a `with` block."""
        if self.hands is None:
            yield self
            return
        with ThreadPoolExecutor(self.hands.n_at_once) as self._counters:
            yield self
        self._counters = None

    def n_rows_below(self, relations: Collection[str]) -> int:
        """Return the number of rows of some relations, of views those of the stored relations below them."""
        return sum(self._n_rows.get(name, 0) for name in self._below(relations))

    def _below(self, relations: Collection[str]) -> set[str]:
        models = (self.catalog.by_name.get(name) for name in relations)
        views = [model.name for model in models if model is not None and model.is_view]
        return {*relations, *(name for view in views for name in self.catalog.stored_below(view))}

    def _task(self, recipe: "_Recipe", early: str | None = None) -> Task:
        """Return the task of making one part elsewhere; `early` is the query that reads early parts."""
        rows = self._rows_below(recipe.mart)
        return Task(mart=recipe.mart, name=recipe.name, inputs=recipe.inputs, rows=rows, early=early)

    def _rows_below(self, mart: str) -> dict[str, Rows]:
        """Return how to read each stored mart that a mart reads, directly or through views, by name."""
        return {name: self._rows[name] for name in self.catalog.stored_below(mart) if name in self._rows}

    def _begin(self, mart: str, steps: "_Steps") -> None:
        """Tell that a mart is made now, once; call it before each part.

        Raises GivenUpError after an error in another mart.
        """
        if self._is_given_up:
            raise GivenUpError(mart)
        with self._telling:
            if mart not in self.made:
                steps.tell(mart)
                self.made.append(mart)

    def _found(self, name: str, inputs: Inputs, *, in_ranges: bool) -> list[Part] | None:
        """Return the parts of a mart that were made of exactly these inputs; None if any is missing."""
        if in_ranges:
            return self.parts.find_ranges(name, inputs)
        part = self.parts.find(name, inputs)
        return None if part is None else [part]

    def _create(
        self, connection: duckdb.DuckDBPyConnection, parts: list[Part], types: Types, inside_bytes: int
    ) -> None:
        kind = "TABLE" if sum(part.n_bytes for part in parts) <= inside_bytes else "VIEW"
        rows = self.parts.rows_sql(parts, types)
        connection.execute(f"CREATE {kind} {parts[0].name} AS {rows}")
        self._rows[parts[0].name] = Rows(kind, rows)
        self._n_rows[parts[0].name] = sum(part.n_rows for part in parts)
        self.stored[parts[0].name] = of_parts(self.parts, parts, types)


class GivenUpError(Exception):
    """Ends the making of a mart after an error in another one, which is the one that is raised."""


class _Recipe(NamedTuple):
    """Holds what is needed to make one part of a mart: name, inputs, query, and types of the columns.

    `bounded` are the columns whose least and greatest values the part records.
    """

    name: str
    inputs: Inputs
    query: str
    types: Types
    bounded: Sequence[str]

    @property
    def mart(self) -> str:
        """Return the name of the part's mart, without the suffix of early parts."""
        return self.name.removesuffix(EARLY)


class _Steps:
    """Counts the marts that a build may have to make, and reports to a callback how far it is."""

    def __init__(self, planned: list[PlannedMart], n_at_once: int, progress: Callable[[Step], None]) -> None:
        self._last_s = {mart.name: mart.last_s for mart in planned}
        self._left = set(self._last_s)
        self._n_at_once = n_at_once
        self._progress = progress

    def leave(self, name: str) -> None:
        """Note that this mart is begun or need not be made, so that it no longer counts among those left."""
        self._left.discard(name)

    def tell(self, name: str) -> None:
        """Report to the callback that this mart is made now, and about how many seconds are left."""
        self.leave(name)
        seconds = [self._last_s.get(each) for each in (name, *self._left)]
        known = [second for second in seconds if second is not None]
        left_s = sum(known) / self._n_at_once if len(known) == len(seconds) else None
        n_steps = len(self._last_s)
        self._progress(Step(name=name, number=n_steps - len(self._left), n_steps=n_steps, left_s=left_s))


def _groups(early: list[Part]) -> Iterator[list[Part]]:
    """Yield early parts in groups of at least GROUP_ROWS rows; the last group may have fewer."""
    group: list[Part] = []
    for part in early:
        group.append(part)
        if sum(each.n_rows for each in group) >= GROUP_ROWS:
            yield group
            group = []
    if group:
        yield group


def _values_of(group: list[Part], values: Mapping[str, str] | None) -> str | None:
    """Return a hash of what fills in the late columns of a group's ranges; None where it is not known."""
    return None if values is None else digest([values.get(part.inputs.get(RANGE, ""), "") for part in group])


def _content(parts: list[Part]) -> str:
    """Return a hash that identifies the rows of a mart: that of its only part, or one over all its parts."""
    return parts[0].content if len(parts) == 1 else digest([part.content for part in parts])


def _note(found: Fingerprints, name: str, parts: list[Part]) -> None:
    """Record in `found` the hash of a mart's rows, and that of each column."""
    found.contents[name] = _content(parts)
    found.columns[name] = {
        column: digest([part.columns[column] for part in parts]) for column in parts[0].columns
    }
