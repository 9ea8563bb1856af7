"""Make a mart in ranges: one part per UTC day of cuts, or per 200 heights, each from only the rows it needs.

The head of such a mart has [ranges]: `by` names the kind of range, and for each relation of which a range
needs only some rows, `reads` has the condition. While a range is made, a temporary view with those rows
stands in front of the relation. So the query itself is that of the whole mart, and it sorts by range first.
`clips` makes values equal that a range cannot tell apart, such as all ends of a stay behind its last cut.

A range is made again where the rows that it reads changed, and no other: a new day costs its own range. What
is in memory at one time are the rows of one range.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import duckdb

from analysis.catalog import Catalog, InRanges, Model
from analysis.fingerprints import Fingerprints
from analysis.late import stand_ins
from analysis.parts import Inputs

RANGE: Final = "its range"


class Kind(NamedTuple):
    """Holds the query of the first keys of all ranges, in order, and how many keys a range has."""

    query: str
    width: int


KINDS: Final[Mapping[str, Kind]] = {
    # Keys are cut_no, which begins anew with each day; see the macro window_key.
    "days": Kind(
        "SELECT DISTINCT cut_no // 1000000000 * 1000000000 FROM mempool_cuts ORDER BY ALL", 1_000_000_000
    ),
    # Only our own blocks have transactions; a chain of which others tell costs no range.
    "heights": Kind(
        "SELECT DISTINCT height // 200 * 200 FROM chain_blocks SEMI JOIN stg_blocks USING (block_hash)"
        " ORDER BY ALL",
        200,
    ),
}


def set_range(connection: duckdb.DuckDBPyConnection, ranges: InRanges, first: int) -> None:
    """Make the range that begins with the key `first` the one which the conditions of `ranges` select."""
    connection.execute("SET VARIABLE range_from = ?", [first])
    connection.execute("SET VARIABLE range_to = ?", [first + KINDS[ranges.by].width])


@dataclass
class Ranges:
    """Walks through the ranges of marts; `contents` keeps what was found out of rows in this build."""

    catalog: Catalog
    contents: dict[tuple[str, str, int, tuple[str, ...]], str] = field(default_factory=dict)

    def walk(
        self, connection: duckdb.DuckDBPyConnection, model: Model, ranges: InRanges, found: Fingerprints
    ) -> Iterator[Inputs]:
        """Yield the inputs of each range in order; meanwhile the query of the mart reads the range's rows."""
        kind = KINDS[ranges.by]
        firsts = [first for (first,) in connection.execute(kind.query).fetchall()]
        for first in firsts:
            set_range(connection, ranges, first)
            with stand_ins(connection, self.catalog, model, ranges):
                contents = {
                    relation: self._content(
                        connection,
                        relation,
                        f"{condition} {ranges.clips.get(relation)}",
                        first,
                        found.columns_read(model, relation),
                    )
                    for relation, condition in ranges.reads.items()
                }
                narrow = Fingerprints(
                    self.catalog,
                    contents={**found.contents, **contents},
                    columns={name: one for name, one in found.columns.items() if name not in contents},
                )
                yield narrow.of_model(model) | {RANGE: str(first)}

    def _content(
        self,
        connection: duckdb.DuckDBPyConnection,
        relation: str,
        reading: str,
        first: int,
        columns: tuple[str, ...],
    ) -> str:
        """Return the content of the rows that a range reads: their number and the sum of their hashes.

        `reading` tells how they are selected and clipped.
        """
        key = relation, reading, first, columns
        if key not in self.contents:
            total = f"sum(hash({', '.join(columns)}))" if columns else "0"
            query = f"SELECT count(*), coalesce({total}, 0) FROM {relation}"  # noqa: S608 - names of ours
            n_rows, total = connection.execute(query).fetchall()[0]
            self.contents[key] = f"{n_rows} {total}"
        return self.contents[key]
