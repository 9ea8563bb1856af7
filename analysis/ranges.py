"""Make a mart in ranges: one part per UTC day of cuts, or per 200 heights, each from only the rows it needs.

The head of such a mart has [ranges]: `by` names the kind of range, and for each relation of which a range
needs only some rows, `reads` has the condition. While a range is made, a temporary view with those rows
stands in front of the relation. So the query itself is that of the whole mart, and it sorts by range first.
`clips` makes values equal that a range cannot tell apart, such as all ends of a stay behind its last cut.

A range is made again where the rows that it reads changed, and no other: a new day costs its own range. Its
rows are looked at once: while the files that can hold them are the same (extents.py), so are the rows. What
is in memory at one time are the rows of one range.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import duckdb

from analysis.catalog import Catalog, InRanges, Model
from analysis.extents import (
    MEMBER,
    Extent,
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
SMALL_ROWS: Final = 5_000_000  # of a relation of fewer rows, those of all ranges are looked at together
INTERVAL: Final = re.compile(r"(\w+) >= getvariable\('range_from'\) and \1 < getvariable\('range_to'\)")
FROM, TO = "range_from", "range_to"
FROM_AT, TO_AT = "range_from_at", "range_to_at"  # the same as times, where a range is a day


class Kind(NamedTuple):
    """Holds the query of the first keys of ranges, and how many keys a range has.

    `times` are columns of staging models; each UTC day that their files reach has a range as well.
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
    # Days of which a mempool tells, also those without a block; then the same without looking at blocks.
    "mempool_days": Kind(CUT_DAYS, DAY_KEYS, MEMPOOL_TIMES),
    "message_days": Kind(NO_KEYS, DAY_KEYS, MEMPOOL_TIMES),
    # Only our own blocks have transactions; a chain of which others tell costs no range.
    "heights": Kind(
        "SELECT DISTINCT height // 200 * 200 FROM chain_blocks SEMI JOIN stg_blocks USING (block_hash)"
        " ORDER BY ALL",
        200,
    ),
}


@dataclass(frozen=True)
class Piece:
    """Says which rows one range reads: the variables of its conditions, and where relations are read.

    A variable whose name ends in `_at` is a time in microseconds since 1970 UTC. `sources` has the query of
    the files that can hold its rows, for relations of which not all files can.
    """

    variables: Mapping[str, int]
    sources: Mapping[str, str]

    @contextmanager
    def narrowing(
        self, connection: duckdb.DuckDBPyConnection, catalog: Catalog, model: Model
    ) -> Iterator[None]:
        """Let the query of a mart read only the rows of this range, until the `with` block ends."""
        _set(connection, self.variables)
        with stand_ins(connection, catalog, model, model.ranges, self.sources):
            yield


class OneRange:
    """Is a range that is looked at; `inputs` are those of its part."""

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, catalog: Catalog, model: Model, first: int, width: int
    ) -> None:
        self.variables = _variables(first, width)
        self.sources: dict[str, str] = {}
        self.inputs: Inputs = {}
        self._connection = connection
        self._views = StandIns(connection, catalog, model, model.ranges)
        self._is_set = False

    @property
    def piece(self) -> Piece:
        """Return which rows the range reads."""
        return Piece(self.variables, self.sources)

    def narrow(self, until: str | None = None) -> None:
        """Let queries read only the rows of this range until `close`: of all relations, or until one of them.

        The sources of these relations must be known.
        """
        if not self._is_set:
            _set(self._connection, self.variables)
            self._is_set = True
        self._views.put(self.sources, until=until)

    def close(self) -> None:
        """Let queries read all rows again."""
        self._views.remove()


def _variables(first: int, width: int) -> dict[str, int]:
    """Return the variables of the range that begins with a key."""
    found = {FROM: first, TO: first + width}
    if width == DAY_KEYS:
        found |= {FROM_AT: first // DAY_KEYS * DAY_US, TO_AT: (first // DAY_KEYS + 1) * DAY_US}
    return found


def _set(connection: duckdb.DuckDBPyConnection, variables: Mapping[str, int]) -> None:
    """Make the variables of a range those of the DuckDB session."""
    for name, value in variables.items():
        shown = f"make_timestamptz({value})" if name in (FROM_AT, TO_AT) else str(value)
        connection.execute(f"SET VARIABLE {name} = {shown}")


@dataclass
class Ranges:
    """Walks through the ranges of marts.

    `stored` tells the files of relations that have any, `n_rows` how many rows relations have. `rows` keeps
    what was found out of the rows of ranges in this build, by what they were selected from.
    """

    catalog: Catalog
    stored: Mapping[str, Stored]
    n_rows: Mapping[str, int]
    rows: dict[str, LookedAt] = field(default_factory=dict)
    _small: dict[str, Mapping[int, LookedAt]] = field(default_factory=dict)
    _firsts: dict[str, list[int]] = field(default_factory=dict)

    def walk(
        self,
        connection: duckdb.DuckDBPyConnection,
        model: Model,
        ranges: InRanges,
        found: Fingerprints,
        seen: dict[str, LookedAt],
    ) -> Iterator[OneRange]:
        """Yield each range with its inputs, in order; until the next one is asked for, it can be narrowed.

        `seen` has what is known of rows from an earlier build, as `rows` has it; in its place comes what this
        mart used.
        """
        known = {**seen, **self.rows}
        seen.clear()
        read = [_Read(self.catalog, model, ranges, relation, found) for relation in ranges.reads]
        inputs = found.of_model(model)
        kind = KINDS[ranges.by]
        small = {
            each.relation: self._at_once(connection, each, grouped)
            for each in read
            if self.n_rows.get(each.relation, SMALL_ROWS) < SMALL_ROWS
            and (grouped := each.grouped(ranges, kind.width)) is not None
        }
        for first in self._first_keys(connection, ranges.by):
            one = OneRange(connection, self.catalog, model, first, kind.width)
            try:
                contents = self._contents(connection, one, read, found, known, small)
                for key in contents.values():
                    if key in known:
                        seen[key] = self.rows[key] = known[key]
                rows = {
                    f"{READS}{relation}": known[key][0] if key in known else key
                    for relation, key in contents.items()
                }
                one.inputs = {**inputs, **rows, RANGE: str(first)}
                yield one
            finally:
                one.close()

    def _first_keys(self, connection: duckdb.DuckDBPyConnection, by: str) -> list[int]:
        """Return the first keys of all ranges of a kind, in order."""
        if by not in self._firsts:
            kind = KINDS[by]
            firsts = {first for (first,) in connection.execute(kind.query).fetchall()}
            for relation, column in kind.times:
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
        small: Mapping[str, Mapping[int, LookedAt]],
    ) -> dict[str, str]:
        """Map each relation of which a range reads some rows to the key of these rows in `known`.

        Of a relation that was looked at for all ranges at once (`small`) it is the content itself.
        """
        keys: dict[str, str] = {}
        read_before: dict[str, str] = {}  # the contents of what this range reads of the relations before
        values: dict[str, int | None] = dict(one.variables)
        for each in read:
            if each.relation in small:
                looked = small[each.relation].get(one.variables[FROM]) or each.nothing
                keys[each.relation] = read_before[each.relation] = looked[0]
                values.update(known_of(each.relation, looked[1]))
                continue
            stored = self.stored.get(each.relation)
            held: object = found.contents[each.relation]
            extent = None
            if stored is not None:
                files = stored.admitting(each.bounds, values)
                held = [stored.meaning, *stored.contents(files)]
                if stored.is_summed:  # else columns that nobody reads would count
                    extent = each.extent_of_all(files, values)
                if len(files) < len(stored.files):
                    one.sources[each.relation] = stored.query(files)
            others = {name: read_before.get(name) or found.contents[name] for name in each.mentioned}
            key = digest([each.reading, one.variables, held, others])[:32]
            if key not in known and extent is not None:
                known[key] = [key, dict(extent)]
            elif key not in known:
                one.narrow(each.relation)
                known[key] = each.look(connection)
            keys[each.relation] = key
            read_before[each.relation] = known[key][0]
            values.update(known_of(each.relation, known[key][1]))
        return keys

    def _at_once(
        self, connection: duckdb.DuckDBPyConnection, each: "_Read", grouped: str
    ) -> Mapping[int, LookedAt]:
        """Return what all ranges read of a relation, by the first key of the range."""
        if grouped not in self._small:
            rows = connection.execute(grouped).fetchall()
            self._small[grouped] = {
                first: each.looked(n_rows, total, both) for first, n_rows, total, *both in rows
            }
        return self._small[grouped]


class _Read:
    """Tells how a range selects its rows of one relation, and which of its columns matter."""

    def __init__(
        self, catalog: Catalog, model: Model, ranges: InRanges, relation: str, found: Fingerprints
    ) -> None:
        self.relation = relation
        condition, clips = ranges.reads[relation], ranges.clips.get(relation, {})
        self._condition = " ".join(condition.split())
        self.bounds = bounds_of(condition)
        own = set(WORD.findall(" ".join([condition, *clips.values()])))
        self.mentioned = sorted((own - {relation}) & found.contents.keys())
        # What other conditions read of this relation matters as well as what the query reads.
        others = [text for name, text in ranges.reads.items() if name != relation]
        words = {word for text in others if relation in WORD.findall(text) for word in WORD.findall(text)}
        named = catalog.by_name[relation].column_names if relation in catalog.by_name else ()
        read = found.columns_read(model, relation)
        self._columns = tuple(name for name in named if name in read or name in words)
        self._asked = asked_columns(relation, others)
        self.reading = [relation, condition, clips, self._columns, self._asked]

    def look(self, connection: duckdb.DuckDBPyConnection) -> LookedAt:
        """Return the content and the extent of the rows that a range reads.

        The content is their number and the sum of their hashes.
        """
        ((n_rows, total, *both),) = connection.execute(f"{self._sums} FROM {self.relation}").fetchall()
        return self.looked(n_rows, total, both)

    def extent_of_all(self, files: Sequence[File], values: Known) -> Extent | None:
        """Return the extent of all rows of files, where the range reads all of them; else None.

        Then what is in the files is what the range reads, and nobody needs to look at the rows.
        """
        if not files or not all(surely_admits(self.bounds, file.extent, values) for file in files):
            return None
        return joined((file.extent for file in files), self._asked)

    def looked(self, n_rows: int, total: int, both: list[list[Any]]) -> LookedAt:
        """Return what was found out of rows as it is kept."""
        return [f"{n_rows} {total}", to_extent(self._asked, both)]

    @property
    def nothing(self) -> LookedAt:
        """Return what is kept of no rows."""
        return ["0 0", dict.fromkeys(self._asked)]

    def grouped(self, ranges: InRanges, width: int) -> str | None:
        """Return the query that looks at the rows of all ranges at once.

        The result is None where the condition has another form than an interval of keys, or than membership
        in a relation with such a condition.
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
            return None
        key, own = f"{over[1]} // {width} * {width}", f"{self.relation}.{match[1]}"
        keys = f"SELECT DISTINCT {key} AS first_key, {match[2]} AS member FROM {match[3]}"  # noqa: S608 - as above
        return (
            f"SELECT first_key, {sums} FROM {self.relation} INNER JOIN ({keys}) ON {own} = member GROUP BY 1"  # noqa: S608 - as above
        )

    @property
    def _sums(self) -> str:
        named = ", ".join(f"{self.relation}.{name}" for name in self._columns)
        total = f"sum(hash({named}))" if named else "0"
        extents = "".join(f", {extent_sql(name)}" for name in self._asked)
        return f"SELECT count(*), coalesce({total}, 0){extents}"
