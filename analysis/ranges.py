"""Make a mart in ranges: one part per UTC day or per 200 heights, each from only the rows it needs.

The head of such a mart has [ranges]: `by` names the kind of range (range_kinds.py says which there are). For
each relation of which a range needs only some rows, `reads` has the condition. While a range is made, a
temporary view with those rows stands in front of the relation. So the query itself is that of the whole mart,
and it sorts by range first.
`clips` makes values equal that a range cannot tell apart, such as all ends of a stay behind its last cut.

`needs` names a relation without whose rows a range has none: such a range is not made.

A range is made again where the rows that it reads changed, and no other: a new day costs its own range. Its
rows are looked at once: while the files that can hold them are the same (extents.py), so are the rows.
Where it may read every row of these files, they are not looked at. What is in memory at one time are the
rows of one range.
"""

import re
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Final, NamedTuple

import duckdb

from analysis.catalog import Catalog, InRanges, Model
from analysis.extents import (
    MEMBER,
    Known,
    asked_columns,
    bounds_of,
    extent_sql,
    joined,
    known_of,
    surely_admits,
    to_extent,
)
from analysis.fingerprints import READS, WORD, Fingerprints
from analysis.late import StandIns
from analysis.parts import Inputs, LookedAt, Part, digest
from analysis.range_kinds import (
    DAY_KEYS,
    DAY_US,
    FROM,
    FROM_AT,
    KINDS,
    TO,
    TO_AT,
    TO_POSITION,
    set_variables,
    variables_of,
)
from analysis.raw_contents import File
from analysis.stored import Stored

RANGE: Final = "its range"
RANGES: Final = "its ranges"
SMALL_ROWS: Final = 5_000_000  # of a relation of fewer rows, those of all ranges are looked at together
MOST_DAYS: Final = 31  # if a file reaches over more, a clock was wrong: it is asked on which days it has rows
LOOKED_AT_ALONE: Final = 4  # of so many new ranges, each is looked at by a query of its own files
SMALL_PAIRS: Final = 50_000_000  # so many pairs of a row and a range at most are compared for that
TABLE_ROWS: Final = 100_000  # so many rows of a relation at most are a table while a range is made
INTERVAL: Final = re.compile(r"(\w+) >= getvariable\('range_from'\) and \1 < getvariable\('range_to'\)")
OF_RANGE: Final = re.compile(r"getvariable\('(range_\w+)'\)")


@dataclass(frozen=True)
class RangeRows:
    """Says which rows one range of a mart reads, as far as that is known without a query.

    `variables` are the SQL variables of its conditions; one whose name ends in `_at` is a time in
    microseconds since 1970 UTC. `read` has the relations of which it reads only some rows, in the order of
    the head, and `stored` their files. `contents` has the hashes of relations, `inputs` those of the mart.
    `known` has what was found out of rows, by a hash of how they are selected. `unclipped` has what a look at
    all ranges told of relations that are clipped, for a process that cannot look at all of them.
    """

    variables: Mapping[str, int]
    read: Sequence["_Read"]
    stored: Mapping[str, Stored]
    contents: Mapping[str, str]
    inputs: Inputs
    known: Mapping[str, LookedAt]
    unclipped: Mapping[str, LookedAt] = field(default_factory=dict)

    @property
    def first_key(self) -> int:
        """Return the number of the first cut, or the first height, of the range."""
        return self.variables[FROM]


class OneRange:
    """Finds the rows that one range of a mart reads, and makes DuckDB queries see only these.

    `few` names the relations of which the last range read few rows; this class updates the set. `together`,
    if given, looks at all ranges at once, and can tell which rows this range reads.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        catalog: Catalog,
        model: Model,
        rows: RangeRows,
        few: set[str],
        *,
        together: "_Together | None" = None,
    ) -> None:
        self.rows = rows
        self.inputs: Inputs = {}
        self.looks: dict[str, LookedAt] = {}
        self._connection = connection
        self._few = few
        self._together = together
        needed = {each.relation: each.columns for each in rows.read}
        self._views = StandIns(connection, catalog, model, model.ranges, needed)
        self._are_variables_set = False
        self._begin()

    def _begin(self) -> None:
        self._files: dict[str, tuple[Stored, Sequence[File]]] = {}
        self._tables: set[str] = set()
        self._values: dict[str, int | None] = dict(self.rows.variables)

    @property
    def for_other_process(self) -> RangeRows:
        """Return what another process needs to go on: those files alone that can hold rows of the range."""
        stored = {
            each.relation: one.limited_to(one.admitting(each.bounds, self._values))
            for each in self.rows.read
            if (one := self.rows.stored.get(each.relation)) is not None
        }
        told = {each.relation: self._unclipped(each) for each in self.rows.read if each.is_told_unclipped}
        unclipped = {relation: looked for relation, looked in told.items() if looked is not None}
        return replace(self.rows, stored=stored, known=dict(self.looks), unclipped=unclipped)

    def look(self, *, may_query: bool = True) -> bool:
        """Find out which rows the range reads; return False where it reads none, and so is not made.

        Then `inputs` are those of its part, and `looks` has what was found out. Without `may_query` both are
        left incomplete, and `inputs` empty, where some rows have to be looked at.
        """
        self._begin()
        contents: dict[str, str] = {}  # of the rows that the range reads, by relation
        for each in self.rows.read:
            looked = self._looked(each, contents, may_query=may_query)
            if looked is None:
                return True
            contents[each.relation] = looked[0]
            self._values.update(known_of(each.relation, looked[1]))
            if self._note_rows(each.relation, n_rows_of(looked)):
                self._few.add(each.relation)
            else:
                self._few.discard(each.relation)
            if each.is_needed and looked == each.nothing:
                return False
        reads = {f"{READS}{relation}": content for relation, content in contents.items()}
        self.inputs = {**self.rows.inputs, **reads, RANGE: str(self.rows.first_key)}
        return True

    def narrow(self) -> None:
        """Make DuckDB queries see only the rows that the range reads, until `close`; `look` comes first."""
        self._put()

    def close(self) -> None:
        """End what `narrow` and `look` began: DuckDB queries see all rows again."""
        self._views.remove()

    def _looked(self, each: "_Read", contents: Mapping[str, str], *, may_query: bool) -> LookedAt | None:
        """Return what is known of the rows that the range reads of one relation; query them if need be.

        `contents` has those of the relations before. The result is None where `may_query` forbids the query.
        """
        stored = self.rows.stored.get(each.relation)
        held: object = self.rows.contents[each.relation]
        whole = None
        skips_files = False
        if stored is not None:
            files = stored.admitting(each.bounds, self._values)
            skips_files = len(files) < len(stored.files)
            self._note_files(each.relation, stored, files)
            whole = each.whole(stored, files, self._values)
            held = stored.held(files) if whole is None else whole.held
            if whole is None and each.is_told_unclipped:
                held = self._unclipped(each) or held
        others = {name: contents.get(name) or self.rows.contents[name] for name in each.mentioned}
        key = digest([each.reading, self.rows.variables, held, others])[:32]
        looked = self.looks.get(key) or self.rows.known.get(key)
        if looked is None and whole is not None:
            looked = whole.looked(key)
        elif looked is None and not each.is_clipped:
            looked = self._looked_together(each, skips_files=skips_files)
        if looked is None and may_query:
            self._put(until=each.relation)
            looked = each.look(self._connection)
        if looked is not None:
            self.looks[key] = looked
        return looked

    def _looked_together(self, each: "_Read", *, skips_files: bool) -> LookedAt | None:
        """Return what a look at all ranges at once told of this one, before clips; None if it told nothing.

        `skips_files` tells that the range reads fewer files than the relation has.
        """
        if self._together is None or not self._together.tells(
            each, self.rows.first_key, skips_files=skips_files
        ):
            return None
        return self._together.looked(each, self.rows.first_key, self._views.remove)

    def _unclipped(self, each: "_Read") -> LookedAt | None:
        """Return what the range reads of a relation before its values are clipped; None if it is not told.

        It is told of a relation of one file. Each new day changes that file, but few rows of older ranges.
        """
        stored = self.rows.stored.get(each.relation)
        if stored is None or len(stored.files) != 1:
            return None
        return self.rows.unclipped.get(each.relation) or self._looked_together(each, skips_files=False)

    def _note_files(self, relation: str, stored: Stored, files: Sequence[File]) -> None:
        """Note that the range reads a relation from these of its files alone."""
        if stored.is_limited or len(files) < len(stored.files):
            self._files[relation] = stored, files
        self._note_rows(relation, sum(file.n_rows for file in files))

    def _note_rows(self, relation: str, n_rows: int) -> bool:
        """Note that the range reads at most so many rows of a relation; return whether a table holds them."""
        are_few = n_rows <= TABLE_ROWS
        if are_few:
            self._tables.add(relation)
        return are_few

    def _put(self, until: str | None = None) -> None:
        """Put views and tables in front of relations, or of those until one, whose rows shall be looked at.

        If the range before read few rows of that one, a table of them is tried.
        """
        if not self._are_variables_set:
            set_variables(self._connection, self.rows.variables)
            self._are_variables_set = True
        sources = {relation: stored.query(files) for relation, (stored, files) in self._files.items()}
        self._views.put(sources, self._tables, until=until, few=TABLE_ROWS if until in self._few else None)


def make_range(
    one: OneRange, find: Callable[[Inputs], Part | None], make: Callable[[Inputs], Part]
) -> Part | None:
    """Return the part of one range, found by its inputs or made; None if the range reads no rows."""
    if not one.inputs and not one.look():
        return None
    part = find(one.inputs)
    if part is None:
        one.narrow()
        part = make(one.inputs)
    return part


def inputs_in_ranges(model: Model, found: Fingerprints) -> dict[str, str]:
    """Return a hash for each input of a mart, and one of how it is cut into ranges where it is."""
    inputs = found.of_model(model)
    if model.ranges is None:
        return inputs
    return inputs | {RANGES: digest([model.ranges.model_dump(), KINDS[model.ranges.by]])}


def n_rows_of(looked: LookedAt) -> int:
    """Return the number of rows that a range reads, from what was found out of them."""
    return int(looked[0].split()[0])


@dataclass
class Ranges:
    """Finds the ranges in which marts are made, and hashes of the rows that each range reads.

    `stored` has the files of the relations that have files, `n_rows` the number of rows of each relation.
    `rows` keeps what this build found out about the rows that ranges read; a key is a hash of what these rows
    are selected from, and how. Several threads may call `walk` at once, each for another mart.
    """

    catalog: Catalog
    stored: Mapping[str, Stored]
    n_rows: Mapping[str, int]
    rows: dict[str, LookedAt] = field(default_factory=dict)
    _small: dict[str, Mapping[int, LookedAt]] = field(default_factory=dict)
    _looking: dict[str, Lock] = field(default_factory=dict)  # so that of two threads one asks a query
    _firsts: dict[str, list[int]] = field(default_factory=dict)

    def walk(
        self,
        connection: duckdb.DuckDBPyConnection,
        model: Model,
        ranges: InRanges,
        found: Fingerprints,
        seen: Mapping[str, LookedAt],
        *,
        small_rows: int = SMALL_ROWS,
    ) -> Generator[OneRange]:
        """Yield each range of a mart, in order; at the next one, the one before is closed.

        `seen` has what an earlier build found out of rows. Of a relation of fewer than `small_rows` rows,
        those of all ranges are looked at together, unless few of the ranges are new.
        """
        known = {**seen, **self.rows}
        read = [_Read(self.catalog, model, ranges, relation, found) for relation in ranges.reads]
        inputs = found.of_model(model)
        kind = KINDS[ranges.by]
        firsts = self._first_keys(connection, ranges.by)
        queries = self._grouped(ranges, read, firsts, small_rows)
        together = _Together(partial(self._at_once, connection), queries, LOOKED_AT_ALONE if seen else 0)
        names = {name for each in read for name in (each.relation, *each.mentioned)}
        contents = {name: found.contents[name] for name in names}
        stored = {name: self.stored[name] for name in ranges.reads if name in self.stored}
        few: set[str] = set()
        for first in firsts:
            variables = variables_of(first, kind.width)
            rows = RangeRows(variables, read, stored, contents, inputs, known)
            with closing(OneRange(connection, self.catalog, model, rows, few, together=together)) as one:
                yield one

    def late_values(
        self, connection: duckdb.DuckDBPyConnection, model: Model, found: Fingerprints
    ) -> Mapping[str, str] | None:
        """Return a hash of the rows that give each range its late columns, by the range's first key as text.

        A range without such rows is missing. The result is None for a mart that is not made in ranges, and
        where the rows of all ranges cannot be looked at together.
        """
        late, ranges = model.late, model.ranges
        if late is None or ranges is None or late.relation not in ranges.reads:
            return None
        each = _Read(self.catalog, model, ranges, late.relation, found, (late.key, *late.columns))
        grouped = each.grouped(ranges, KINDS[ranges.by].width, [])
        if grouped is None:
            return None
        return {
            str(first): content for first, (content, _) in self._at_once(connection, each, grouped).items()
        }

    def _first_keys(self, connection: duckdb.DuckDBPyConnection, by: str) -> list[int]:
        """Return the first keys (numbers of cuts, or heights) of all ranges of one kind, sorted."""
        if by not in self._firsts:
            kind = KINDS[by]
            firsts = {first for (first,) in connection.execute(kind.query).fetchall()}
            for relation, column in kind.times:
                if relation not in self.stored:  # a build of some marts lacks what none of them reads
                    continue
                for file in self.stored[relation].files:
                    if both := file.extent.get(column):
                        days: Collection[int] = range(both[0] // DAY_US, both[1] // DAY_US + 1)
                        if len(days) > MOST_DAYS:
                            rows = self.stored[relation].query([file])
                            days = _days_of(connection, rows, column)
                        firsts.update(day * DAY_KEYS for day in days)
            self._firsts[by] = sorted(firsts)
        return self._firsts[by]

    def _grouped(
        self, ranges: InRanges, read: Sequence["_Read"], firsts: Sequence[int], small_rows: int
    ) -> dict[str, str]:
        """Return the query that looks at the rows of all ranges at once, by relation, where there is one."""
        found: dict[str, str] = {}
        for each in read:
            most_rows = SMALL_ROWS if each.is_told_unclipped else small_rows  # no worker finds it out
            n_rows = self.n_rows.get(each.relation, most_rows)
            if not firsts or n_rows >= most_rows:
                continue
            compared = firsts if n_rows * len(firsts) < SMALL_PAIRS else []
            grouped = each.grouped(ranges, KINDS[ranges.by].width, compared)
            if grouped is not None:
                found[each.relation] = grouped
        return found

    def _at_once(
        self,
        connection: duckdb.DuckDBPyConnection,
        each: "_Read",
        grouped: str,
        show_all: Callable[[], object] = lambda: None,
    ) -> Mapping[int, LookedAt]:
        """Run the query `grouped`; return what each range reads of a relation, by the range's first key.

        That is the content and the extent of the rows. The result is kept for other marts. `show_all` is
        called before the query, which must see the rows of all ranges.
        """
        with self._looking.setdefault(grouped, Lock()):
            if grouped not in self._small:
                show_all()
                rows = connection.execute(grouped).fetchall()
                self._small[grouped] = {
                    first: each.looked(n_rows, total, both) for first, n_rows, total, *both in rows
                }
        return self._small[grouped]


def _days_of(connection: duckdb.DuckDBPyConnection, rows: str, column: str) -> list[int]:
    """Return the UTC days since 1970 on which a column of a query's rows has a time."""
    days = f"SELECT DISTINCT epoch_us({column}) // {DAY_US} FROM ({rows}) WHERE {column} IS NOT NULL"  # noqa: S608 - our own heads
    return [day for (day,) in connection.execute(days).fetchall()]


class _Together:
    """Tells what ranges of one mart read from a look at all of them at once, where several are new.

    `queries` has the query of that look by relation. Before it, `n_alone` ranges are looked at one by one.
    """

    def __init__(
        self,
        at_once: Callable[["_Read", str, Callable[[], object]], Mapping[int, LookedAt]],
        queries: Mapping[str, str],
        n_alone: int,
    ) -> None:
        self._at_once = at_once
        self._queries = queries
        self._n_alone = n_alone
        self._asked: dict[str, set[int]] = {}

    def tells(self, each: "_Read", first_key: int, *, skips_files: bool) -> bool:
        """Return whether `looked` tells what a range reads; else the range is better looked at alone.

        `skips_files` tells that the range reads fewer files than the relation has. A look at every file may
        as well be one at all ranges.
        """
        asked = self._asked.setdefault(each.relation, set())
        asked.add(first_key)
        return each.relation in self._queries and (not skips_files or len(asked) > self._n_alone)

    def looked(self, each: "_Read", first_key: int, show_all: Callable[[], object]) -> LookedAt:
        """Return what the range of this first key reads of a relation.

        `show_all` makes DuckDB show the rows of all ranges; it is called before a query.
        """
        return self._at_once(each, self._queries[each.relation], show_all).get(first_key, each.nothing)


class _Whole(NamedTuple):
    """Holds what identifies all rows of some files, their number, and their least and greatest values."""

    held: Sequence[object]
    n_rows: int
    extent: dict[str, list[int] | None]

    def looked(self, key: str) -> LookedAt:
        """Return the content and extent of the rows, as they are kept; `key` stands for the content."""
        return [f"{self.n_rows} {key if self.n_rows else 0}", self.extent]


class _Read:
    """Describes which rows of one relation the ranges of a mart read, and which of their columns matter.

    These are `columns`, or without them what the mart, another condition or the clip of another relation
    reads. Columns that the mart fills in late are not among them.
    """

    def __init__(  # noqa: PLR0917 - what one walk has at hand
        self,
        catalog: Catalog,
        model: Model,
        ranges: InRanges,
        relation: str,
        found: Fingerprints,
        columns: tuple[str, ...] = (),
    ) -> None:
        self.relation = relation
        self.is_needed = ranges.needs == relation
        self.is_clipped = relation in ranges.clips
        condition, clips = ranges.reads[relation], ranges.clips.get(relation, {})
        self._condition = " ".join(condition.split())
        self.bounds = bounds_of(condition)
        own = set(WORD.findall(" ".join([condition, *clips.values()])))
        self.mentioned = sorted((own - {relation}) & found.contents.keys())
        # What others say of this relation matters as well as what the query reads.
        others = [text for name, text in ranges.reads.items() if name != relation]
        clips_of_others = [
            text for name, own in ranges.clips.items() if name != relation for text in own.values()
        ]
        every = map(WORD.findall, (*others, *clips_of_others))
        words = {word for each in every if relation in each for word in each}
        named = catalog.by_name[relation].column_names if relation in catalog.by_name else ()
        read = found.columns_read(model, relation)
        self.columns = columns or tuple(name for name in named if name in read or name in words)
        # Unclipped rows tell what they are when clipped if all that clips read of them is among `columns`.
        of_clips = {word for text in clips.values() for word in WORD.findall(text)}
        self.is_told_unclipped = self.is_clipped and of_clips.intersection(named) <= set(self.columns)
        self._asked = asked_columns(relation, others)
        self.reading = [relation, condition, clips, self.columns, self._asked]

    def look(self, connection: duckdb.DuckDBPyConnection) -> LookedAt:
        """Query the rows that a range reads of its relation; return their content and their extent.

        DuckDB must show only these rows. The content is their number and the sum of their hashes, the extent
        the least and greatest values.
        """
        ((n_rows, total, *both),) = connection.execute(f"{self._sums} FROM {self.relation}").fetchall()
        return self.looked(n_rows, total, both)

    def whole(self, stored: Stored, files: Sequence[File], values: Known) -> "_Whole | None":
        """Return what is known of `files` if a mart's range may read every row of them; None otherwise.

        Then the values in the files identify what the range reads, and no rows need to be looked at.
        """
        n_rows = sum(file.n_rows for file in files)
        if not all(surely_admits(self.bounds, file.extent, values) for file in files if file.n_rows):
            return None
        held = stored.values(files, self.columns)
        extent = joined((file.extent for file in files), self._asked)
        return None if extent is None else _Whole(held, n_rows, extent)

    def looked(self, n_rows: int, total: int, both: list[list[Any]]) -> LookedAt:
        """Return the content and extent of rows, as they are kept, from the columns of a query's answer."""
        return [f"{n_rows} {total}", to_extent(self._asked, both)]

    @property
    def nothing(self) -> LookedAt:
        """Return the content and the extent of no rows, in the same form as `looked`."""
        return ["0 0", dict.fromkeys(self._asked)]

    def grouped(self, ranges: InRanges, width: int, firsts: Sequence[int]) -> str | None:
        """Return the query that looks at the rows of all ranges at once; it does not clip them.

        It has one group per range where the condition is an interval of keys, or membership in relations
        with such conditions. Else each row is compared with the ranges that begin with `firsts`. The result
        is None where there are none, or where the condition reads another relation.
        """
        sums = self._sums.removeprefix("SELECT ")
        if match := INTERVAL.fullmatch(self._condition):
            key = f"{self.relation}.{match[1]} // {width} * {width}"
            return f"SELECT {key}, {sums} FROM {self.relation} GROUP BY 1"  # noqa: S608 - our own heads
        keys = self._member_keys(ranges, width)
        if keys is None:
            return self._compared(width, firsts)
        own, members = keys
        joined_rows = f"{self.relation} INNER JOIN ({members}) ON {own} = member"
        return f"SELECT first_key, {sums} FROM {joined_rows} GROUP BY 1"  # noqa: S608 - as above

    def _member_keys(self, ranges: InRanges, width: int) -> tuple[str, str] | None:
        """Return the column that must be a member of other relations, and the query of (range, member).

        The result is None unless the condition is one or several such memberships, joined by `or`, in
        relations whose conditions are intervals of keys.
        """
        terms = [MEMBER.fullmatch(term) for term in self._condition.split(" or ")]
        queries, own = [], ""
        for match in terms:
            over = match and INTERVAL.fullmatch(" ".join(ranges.reads.get(match[3], "").split()))
            if match is None or over is None or own not in ("", match[1]):
                return None
            own = match[1]
            key = f"{over[1]} // {width} * {width}"
            queries.append(f"SELECT DISTINCT {key} AS first_key, {match[2]} AS member FROM {match[3]}")  # noqa: S608 - as above
        return f"{self.relation}.{own}", " UNION ".join(queries)

    def _compared(self, width: int, firsts: Sequence[int]) -> str | None:
        """Return the query that compares each row with each range."""
        if not firsts or "select" in self._condition:
            return None
        of_ranges = {
            FROM: "first_key",
            TO: f"first_key + {width}",
            FROM_AT: f"make_timestamptz(first_key // {DAY_KEYS} * {DAY_US})",
            TO_AT: f"make_timestamptz((first_key // {DAY_KEYS} + 1) * {DAY_US})",
            TO_POSITION: f"stream_position(make_timestamptz((first_key // {DAY_KEYS} + 1) * {DAY_US}), 0)",
        }
        shown = ", ".join(f"{value} AS {name}" for name, value in of_ranges.items())
        ranges = f"SELECT {shown} FROM (SELECT unnest({list(firsts)}) AS first_key)"  # noqa: S608 - numbers
        condition = OF_RANGE.sub(r"its_range.\1", self._condition)
        return (
            f"SELECT its_range.{FROM}, {self._sums.removeprefix('SELECT ')} FROM {self.relation}"  # noqa: S608 - our own heads
            f" INNER JOIN ({ranges}) AS its_range ON {condition} GROUP BY 1"
        )

    @property
    def _sums(self) -> str:
        named = ", ".join(f"{self.relation}.{name}" for name in self.columns)
        total = f"sum(hash({named}))" if named else "0"
        extents = "".join(f", {extent_sql(name)}" for name in self._asked)
        return f"SELECT count(*), coalesce({total}, 0){extents}"
