"""Make a mart in ranges: one part per UTC day of cuts, or per 200 heights, each from only the rows it needs.

The head of such a mart has [ranges]: `by` names the kind of range, and for each relation of which a range
needs only some rows, `reads` has the condition. While a range is made, a temporary view with those rows
stands in front of the relation. So the query itself is that of the whole mart, and it sorts by range first.
`clips` makes values equal that a range cannot tell apart, such as all ends of a stay behind its last cut.

`needs` names a relation without whose rows a range has none: such a range is not made.

A range is made again where the rows that it reads changed, and no other: a new day costs its own range. Its
rows are looked at once: while the files that can hold them are the same (extents.py), so are the rows.
Where it may read every row of these files, they are not looked at. What is in memory at one time are the
rows of one range.
"""

import re
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, NamedTuple

import duckdb

from analysis.catalog import Catalog, InRanges, Model
from analysis.extents import (
    MEMBER,
    Known,
    asked_columns,
    bounds_of,
    joined,
    known_of,
    surely_admits,
)
from analysis.fingerprints import READS, WORD, Fingerprints
from analysis.late import StandIns, stand_ins
from analysis.parts import Inputs, LookedAt, digest
from analysis.raw_contents import File, extent_sql, to_extent
from analysis.stored import Stored

RANGE: Final = "its range"
RANGES: Final = "its ranges"
SMALL_ROWS: Final = 5_000_000  # of a relation of fewer rows, those of all ranges are looked at together
SMALL_PAIRS: Final = 50_000_000  # so many pairs of a row and a range at most are compared for that
TABLE_ROWS: Final = 100_000  # so many rows of a relation at most are a table while a range is made
INTERVAL: Final = re.compile(r"(\w+) >= getvariable\('range_from'\) and \1 < getvariable\('range_to'\)")
OF_RANGE: Final = re.compile(r"getvariable\('(range_\w+)'\)")
FROM, TO = "range_from", "range_to"
FROM_AT, TO_AT = "range_from_at", "range_to_at"  # the same as times, where a range is a day


class Kind(NamedTuple):
    """Describes a kind of range: the query of the first keys of all ranges, and the number of keys of one.

    A key is a number of a cut or a height. `times` are columns of staging models; each UTC day that their
    files reach has a range as well.
    """

    query: str
    width: int
    times: tuple[tuple[str, str], ...] = ()


DAY_KEYS: Final = 1_000_000_000  # keys begin anew with each day; see the macro window_key
DAY_US: Final = 86_400_000_000
CUT_DAYS: Final = "SELECT DISTINCT cut_no // 1000000000 * 1000000000 FROM mempool_cuts ORDER BY ALL"
NO_KEYS: Final = "SELECT 0 WHERE false"
MEMPOOL_TIMES: Final = (("stg_mempool_txs", "entered_at"), ("stg_mempool_events", "received_at"))
KINDS: Final[Mapping[str, Kind]] = {
    "days": Kind(CUT_DAYS, DAY_KEYS),
    # Days on which a mempool was observed, with or without a block; message_days do not depend on blocks.
    "mempool_days": Kind(CUT_DAYS, DAY_KEYS, MEMPOOL_TIMES),
    "message_days": Kind(NO_KEYS, DAY_KEYS, MEMPOOL_TIMES),
    # Only the blocks of this dataset have transactions; heights that others told make no range.
    "heights": Kind(
        "SELECT DISTINCT height // 200 * 200 FROM chain_blocks SEMI JOIN stg_blocks USING (block_hash)"
        " ORDER BY ALL",
        200,
    ),
}


@dataclass(frozen=True)
class Piece:
    """Describes one range of a mart: the SQL variables of its conditions, and the files from which it reads.

    A variable whose name ends in `_at` is a time in microseconds since 1970 UTC. `sources` has the query of
    the files that can hold its rows, for relations of which not all files can. `tables` are the relations of
    which it reads few rows.
    """

    variables: Mapping[str, int]
    sources: Mapping[str, str]
    tables: frozenset[str] = frozenset()

    @contextmanager
    def narrowing(
        self, connection: duckdb.DuckDBPyConnection, catalog: Catalog, model: Model
    ) -> Iterator[None]:
        """Make DuckDB queries see only the rows that this range is made of, in a `with` block."""
        _set(connection, self.variables)
        with stand_ins(connection, catalog, model, model.ranges, sources=self.sources, tables=self.tables):
            yield


class OneRange:
    """Holds one range of a mart while a build looks at it; `inputs` are the inputs of its part."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, catalog: Catalog, model: Model, first: int, width: int
    ) -> None:
        self.variables = _variables(first, width)
        self.read: dict[str, tuple[Stored, Sequence[File]]] = {}
        self.tables: set[str] = set()
        self.inputs: Inputs = {}
        self._connection = connection
        self._views = StandIns(connection, catalog, model, model.ranges)
        self._is_set = False

    @property
    def sources(self) -> dict[str, str]:
        """Return the queries of the files to read, for relations of which not all are."""
        return {relation: stored.query(files) for relation, (stored, files) in self.read.items()}

    @property
    def piece(self) -> Piece:
        """Return which rows the range reads."""
        return Piece(self.variables, self.sources, frozenset(self.tables))

    def narrow(self, until: str | None = None, *, are_few: bool = False) -> None:
        """Make DuckDB queries see only the rows that this range reads, until `close`.

        This applies to all relations that the mart reads, or with `until` to those up to that one. `sources`
        must be known for these relations. `are_few` says that the last relation may well have few rows, so
        that a table of them is tried.
        """
        if not self._is_set:
            _set(self._connection, self.variables)
            self._is_set = True
        self._views.put(self.sources, self.tables, until=until, few=TABLE_ROWS if are_few else None)

    def note_files(self, relation: str, stored: Stored, files: Sequence[File]) -> Sequence[File]:
        """Note that the range reads a relation from these of its files alone; return the files."""
        if len(files) < len(stored.files):
            self.read[relation] = stored, files
        self.note_rows(relation, sum(file.n_rows for file in files))
        return files

    def note_rows(self, relation: str, n_rows: int) -> bool:
        """Note that the range reads at most so many rows of a relation; return whether a table holds them."""
        are_few = n_rows <= TABLE_ROWS
        if are_few:
            self.tables.add(relation)
        return are_few

    def close(self) -> None:
        """End what `narrow` began: DuckDB queries see all rows again."""
        self._views.remove()


def inputs_in_ranges(model: Model, found: Fingerprints) -> dict[str, str]:
    """Return a hash for each input of a mart, and one of how it is cut into ranges where it is."""
    inputs = found.of_model(model)
    if model.ranges is None:
        return inputs
    return inputs | {RANGES: digest([model.ranges.model_dump(), KINDS[model.ranges.by]])}


def is_counted(looked: LookedAt) -> bool:
    """Return whether what a build kept of rows has their number; an older version left it out."""
    return " " in looked[0]


def n_rows_of(looked: LookedAt) -> int:
    """Return the number of rows that a range reads, from what was found out of them."""
    return int(looked[0].split()[0])


def _variables(first: int, width: int) -> dict[str, int]:
    """Return the SQL variables of the range of a mart that starts at the key `first`: its bounds.

    For a day they are given as keys and as times.
    """
    found = {FROM: first, TO: first + width}
    if width == DAY_KEYS:
        found |= {FROM_AT: first // DAY_KEYS * DAY_US, TO_AT: (first // DAY_KEYS + 1) * DAY_US}
    return found


def _set(connection: duckdb.DuckDBPyConnection, variables: Mapping[str, int]) -> None:
    """Set the variables of a range in the DuckDB session."""
    for name, value in variables.items():
        shown = f"make_timestamptz({value})" if name in (FROM_AT, TO_AT) else str(value)
        connection.execute(f"SET VARIABLE {name} = {shown}")


@dataclass
class Ranges:
    """Finds the ranges of marts, and hashes of the rows that each range reads.

    `stored` has the files of those relations that have any, `n_rows` the number of rows of each relation.
    `rows` keeps the content and the extent of the rows that ranges read in this build, by a hash of how they
    are selected. Several threads may walk different marts.
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
        seen: dict[str, LookedAt],
    ) -> Generator[OneRange]:
        """Yield each range of a mart, in order, with the inputs of its part.

        Until the next range is asked for, `narrow` may be called on this one. `seen` comes with the entries
        of `rows` that an earlier build kept; at the end it has those that this mart used.
        """
        known = {key: looked for key, looked in seen.items() if is_counted(looked)} | self.rows
        seen.clear()
        read = [_Read(self.catalog, model, ranges, relation, found) for relation in ranges.reads]
        inputs = found.of_model(model)
        kind = KINDS[ranges.by]
        firsts = self._first_keys(connection, ranges.by)
        small = {
            each.relation: grouped
            for each in read
            if (n_rows := self.n_rows.get(each.relation, SMALL_ROWS)) < SMALL_ROWS
            and (
                grouped := each.grouped(
                    ranges, kind.width, firsts if n_rows * len(firsts) < SMALL_PAIRS else []
                )
            )
            is not None
        }
        for first in firsts:
            one = OneRange(connection, self.catalog, model, first, kind.width)
            try:
                contents = self._contents(connection, one, read, found, known, small)
                for key in contents.values():
                    if key in known:
                        seen[key] = self.rows[key] = known[key]
                if len(contents) < len(read):
                    continue
                rows = {
                    f"{READS}{relation}": known[key][0] if key in known else key
                    for relation, key in contents.items()
                }
                one.inputs = {**inputs, **rows, RANGE: str(first)}
                yield one
            finally:
                one.close()

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
                        days = range(both[0] // DAY_US, both[1] // DAY_US + 1)
                        firsts.update(day * DAY_KEYS for day in days)
            self._firsts[by] = sorted(firsts)
        return self._firsts[by]

    def _contents(  # noqa: PLR0917 - what one walk has at hand
        self,
        connection: duckdb.DuckDBPyConnection,
        one: OneRange,
        read: list["_Read"],
        found: Fingerprints,
        known: dict[str, LookedAt],
        small: Mapping[str, str],
    ) -> dict[str, str]:
        """Return, for each relation of which a range reads only some rows, the key of these rows in `known`.

        Missing rows are looked at and added to `known`. `small` has the query that looks at the rows of all
        ranges at once; the content of the rows stands in place of a key then. If there is no row of the
        relation that the mart needs, the relations after it are left out.
        """
        keys: dict[str, str] = {}
        read_before: dict[str, str] = {}  # content of what this range reads, of relations so far
        values: dict[str, int | None] = dict(one.variables)
        for each in read:
            stored = self.stored.get(each.relation)
            held: object = found.contents[each.relation]
            whole = None
            if stored is not None:
                files = one.note_files(each.relation, stored, stored.admitting(each.bounds, values))
                whole = each.whole(stored, files, values)
                held = stored.held(files) if whole is None else whole.held
            if whole is None and each.relation in small:
                if small[each.relation] not in self._small:
                    one.close()  # that query reads the rows of all ranges
                every = self._at_once(connection, each, small[each.relation])
                looked = every.get(one.variables[FROM], each.nothing)
                key = looked[0]
            else:
                others = {name: read_before.get(name) or found.contents[name] for name in each.mentioned}
                key = digest([each.reading, one.variables, held, others])[:32]
                if key not in known and whole is not None:
                    known[key] = whole.looked(key)
                elif key not in known:
                    one.narrow(each.relation, are_few=each.had_few)
                    known[key] = each.look(connection)
                looked = known[key]
            each.had_few = one.note_rows(each.relation, n_rows_of(looked))
            keys[each.relation], read_before[each.relation] = key, looked[0]
            values.update(known_of(each.relation, looked[1]))
            if each.is_needed and looked == each.nothing:
                break
        return keys

    def _at_once(
        self, connection: duckdb.DuckDBPyConnection, each: "_Read", grouped: str
    ) -> Mapping[int, LookedAt]:
        """Run the query `grouped`; return what each range reads of a relation, by the range's first key.

        That is the content and the extent of the rows. The result is kept for other marts.
        """
        with self._looking.setdefault(grouped, Lock()):
            if grouped not in self._small:
                rows = connection.execute(grouped).fetchall()
                self._small[grouped] = {
                    first: each.looked(n_rows, total, both) for first, n_rows, total, *both in rows
                }
        return self._small[grouped]


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

    These are the columns that the mart or another condition reads, or those in `columns`.
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
        condition, clips = ranges.reads[relation], ranges.clips.get(relation, {})
        self._condition = " ".join(condition.split())
        self.bounds = bounds_of(condition)
        self.had_few = False  # whether the range before read few rows of the relation
        own = set(WORD.findall(" ".join([condition, *clips.values()])))
        self.mentioned = sorted((own - {relation}) & found.contents.keys())
        # What other conditions read of this relation matters as well as what the query reads.
        others = [text for name, text in ranges.reads.items() if name != relation]
        words = {word for text in others if relation in WORD.findall(text) for word in WORD.findall(text)}
        named = catalog.by_name[relation].column_names if relation in catalog.by_name else ()
        read = found.columns_read(model, relation)
        self._columns = columns or tuple(name for name in named if name in read or name in words)
        self._asked = asked_columns(relation, others)
        self.reading = [relation, condition, clips, self._columns, self._asked]

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
        held = stored.values(files, self._columns)
        extent = joined((file.extent for file in files), self._asked)
        return None if held is None or extent is None else _Whole(held, n_rows, extent)

    def looked(self, n_rows: int, total: int, both: list[list[Any]]) -> LookedAt:
        """Return the content and extent of rows, as they are kept, from the columns of a query's answer."""
        return [f"{n_rows} {total}", to_extent(self._asked, both)]

    @property
    def nothing(self) -> LookedAt:
        """Return the content and the extent of no rows, in the same form as `looked`."""
        return ["0 0", dict.fromkeys(self._asked)]

    def grouped(self, ranges: InRanges, width: int, firsts: Sequence[int]) -> str | None:
        """Return the query that looks at the rows of all ranges at once.

        It has one group per range where the condition is an interval of keys, or membership in a relation
        with such a condition. Else each row is compared with the ranges that begin with `firsts`. The result
        is None where there are none, or where the condition reads another relation.
        """
        if self.relation in ranges.clips:
            return None
        sums = self._sums.removeprefix("SELECT ")
        if match := INTERVAL.fullmatch(self._condition):
            key = f"{self.relation}.{match[1]} // {width} * {width}"
            return f"SELECT {key}, {sums} FROM {self.relation} GROUP BY 1"  # noqa: S608 - our own heads
        match = MEMBER.fullmatch(self._condition)
        over = match and INTERVAL.fullmatch(" ".join(ranges.reads.get(match[3], "").split()))
        if match is None or over is None:
            return self._compared(width, firsts)
        key, own = f"{over[1]} // {width} * {width}", f"{self.relation}.{match[1]}"
        keys = f"SELECT DISTINCT {key} AS first_key, {match[2]} AS member FROM {match[3]}"  # noqa: S608 - as above
        return (
            f"SELECT first_key, {sums} FROM {self.relation} INNER JOIN ({keys}) ON {own} = member GROUP BY 1"  # noqa: S608 - as above
        )

    def _compared(self, width: int, firsts: Sequence[int]) -> str | None:
        """Return the query that compares each row with each range."""
        if not firsts or "select" in self._condition:
            return None
        of_ranges = {
            FROM: "first_key",
            TO: f"first_key + {width}",
            FROM_AT: f"make_timestamptz(first_key // {DAY_KEYS} * {DAY_US})",
            TO_AT: f"make_timestamptz((first_key // {DAY_KEYS} + 1) * {DAY_US})",
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
        named = ", ".join(f"{self.relation}.{name}" for name in self._columns)
        total = f"sum(hash({named}))" if named else "0"
        extents = "".join(f", {extent_sql(name)}" for name in self._asked)
        return f"SELECT count(*), coalesce({total}, 0){extents}"
