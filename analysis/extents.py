"""Decide which files can hold rows that a range reads, from the least and greatest values in each file.

A condition of [ranges.reads] bounds columns by what is known of the range: by its variables, as in `height >=
getvariable('range_from')`, and by the rows of other relations that it reads, as in `taken_at in (select
taken_at from stg_templates)` or `last_cut_no >= (select min(cut_no) from mempool_cuts)`. A file whose values
lie outside has no such row, so it is not read, and its content does not matter for the range. A term of a
condition that has another form bounds nothing.
"""

import datetime as dt
import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    import duckdb  # loads slowly, and most commands do not need it

EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
VARIABLE: Final = re.compile(
    r"(\w+) (>=|<=|<|>) getvariable\('(\w+)'\)(?: ([+-]) (?:interval (\d+) (hour|day)s?|(\d+)))?"
)
UNITS_US: Final = {"hour": 3_600_000_000, "day": 86_400_000_000}
LEAST: Final = re.compile(r"(\w+) (>=|<=|<|>) \(select (min|max)\((\w+)\) from (\w+)\)(?: ([+-]) (\d+))?")
MEMBER: Final = re.compile(r"(\w+) in \(select (\w+) from (\w+)\)")
CONJUNCTION, DISJUNCTION = "and", "or"
SIGNS: Final = {">=": operator.ge, ">": operator.gt, "<=": operator.le, "<": operator.lt}

# The least and the greatest value of columns; None where a column has only nulls.
Extent = Mapping[str, list[int] | None]
# What is known of a range, by the name of a variable, or by `min` or `max`, a relation and its column.
Known = Mapping[str, int | None]


class Comparison(NamedTuple):
    """Compares a column with a value known of the range: `column` `sign` known[`name`] + `plus`."""

    column: str
    sign: str
    name: str
    plus: int = 0

    def surely_admits(self, extent: Extent, known: Known) -> bool:
        """Return whether the comparison holds for all rows of a file; False if that is not known.

        `extent` has the least and greatest values in the file. Rows with nulls are not considered.
        """
        least_greatest, value = extent.get(self.column), known.get(self.name)
        if least_greatest is None or value is None:
            return False
        return all(self._holds(number, value) for number in least_greatest)

    def _holds(self, number: int, value: int) -> bool:
        return bool(SIGNS[self.sign](number, value + self.plus))


# Lists of comparisons. A row keeps the bound if all comparisons of at least one list hold.
Bound = list[list[Comparison]]


def surely_admits(bounds: Iterable[Bound], extent: Extent, known: Known) -> bool:
    """Return whether the least and greatest values in a file show that each of its rows keeps all bounds.

    `extent` has these values; `known` has the values with which the bounds compare them. False means that
    they do not show it. A null counts as if it kept the bound, but a column of only nulls shows nothing.
    """
    return all(
        any(all(each.surely_admits(extent, known) for each in comparisons) for comparisons in bound)
        for bound in bounds
    )


def joined(extents: Iterable[Extent], columns: Iterable[str]) -> dict[str, list[int] | None] | None:
    """Return the extent (least and greatest values) of several files together; None if one is not known."""
    every = list(extents)
    found: dict[str, list[int] | None] = {}
    for name in columns:
        if not all(name in extent for extent in every):
            return None
        both = [value for extent in every if (value := extent[name]) is not None]
        found[name] = [min(low for low, _ in both), max(high for _, high in both)] if both else None
    return found


@cache
def bounds_of(condition: str) -> list[Bound]:
    """Parse an SQL condition; return its bounds on columns. A row that meets the condition keeps them all.

    Only a term that compares a column with a value known of the range, or joins such comparisons by `or`,
    gives a bound.
    """
    found = []
    for term in _terms(" ".join(condition.split()), CONJUNCTION):
        bound = [_comparisons(each) for each in _terms(_inside(term), DISJUNCTION)]
        if all(bound):
            found.append(bound)
    return found


def bounded_columns(conditions: Iterable[str]) -> list[str]:
    """Return the names of the columns that SQL conditions bound, each once, sorted."""
    return sorted({each.column for each in _all_comparisons(conditions)})


def asked_columns(relation: str, conditions: Iterable[str]) -> list[str]:
    """Return the columns of `relation` whose least or greatest value is a bound in SQL conditions, sorted."""
    names = {each.name for each in _all_comparisons(conditions)}
    prefixes = (f"min {relation} ", f"max {relation} ")
    return sorted({name.rpartition(" ")[2] for name in names if name.startswith(prefixes)})


def known_of(relation: str, extent: Extent) -> dict[str, int | None]:
    """Return the least and greatest values of a relation's columns under the names that comparisons use.

    Such a name is `min`, the relation and the column, as in `min mempool_cuts cut_no`.
    """
    found: dict[str, int | None] = {}
    for column, both in extent.items():
        least, greatest = (None, None) if both is None else both
        found[f"min {relation} {column}"] = least
        found[f"max {relation} {column}"] = greatest
    return found


def extent_of(connection: "duckdb.DuckDBPyConnection", rows: str, columns: Iterable[str]) -> Extent:
    """Return the least and the greatest value of some columns of rows, by column; see `to_extent`.

    `rows` is the SQL source of the rows.
    """
    names = list(columns)
    if not names:
        return {}
    both = ", ".join(map(extent_sql, names))
    (found,) = connection.execute(f"SELECT {both} FROM {rows}").fetchall()  # noqa: S608 - names of ours
    return to_extent(names, found)


def extent_sql(column: str) -> str:
    """Return the SQL expression for the list [least, greatest] of a column's values."""
    return f"[min({column}), max({column})]"


def to_extent(columns: Iterable[str], found: Iterable[list[Any]]) -> dict[str, list[int] | None]:
    """Return the least and greatest values that `extent_sql` gave for columns as integers, by column.

    A time becomes microseconds since 1970 UTC, a date days since then. A column that has only nulls is None;
    one with values of another type is left out.
    """
    extent: dict[str, list[int] | None] = {}
    for name, both in zip(columns, found, strict=True):
        if both[0] is None:
            extent[name] = None
        elif isinstance(both[0], dt.datetime):
            extent[name] = [(moment - EPOCH) // dt.timedelta(microseconds=1) for moment in both]
        elif isinstance(both[0], dt.date):
            extent[name] = [(day - EPOCH.date()).days for day in both]
        elif isinstance(both[0], int | Decimal):
            extent[name] = [int(number) for number in both]
    return extent


def _all_comparisons(conditions: Iterable[str]) -> Iterator[Comparison]:
    for condition in conditions:
        for bound in bounds_of(condition):
            for comparisons in bound:
                yield from comparisons


def _comparisons(term: str) -> list[Comparison]:
    """Return the comparisons that a term of an SQL condition means; none for a term of another form.

    The term has no `and` and no `or`.
    """
    if match := VARIABLE.fullmatch(term):
        column, sign, name, plus_minus, n_units, unit, number = match.groups()
        plus = int(n_units) * UNITS_US[unit] if unit else int(number or 0)
        return [Comparison(column, sign, name, -plus if plus_minus == "-" else plus)]
    if match := LEAST.fullmatch(term):
        column, sign, which, other, relation, plus_minus, number = match.groups()
        plus = int(f"{plus_minus or ''}{number or 0}")
        return [Comparison(column, sign, f"{which} {relation} {other}", plus)]
    if match := MEMBER.fullmatch(term):
        column, other, relation = match.groups()
        return [
            Comparison(column, ">=", f"min {relation} {other}"),
            Comparison(column, "<=", f"max {relation} {other}"),
        ]
    return []


def _terms(condition: str, word: str) -> Iterator[str]:
    """Split an SQL condition at the word `and` or `or` where it stands outside of parentheses; yield terms.

    A condition that has `or` there is not split at `and`, which binds closer.
    """
    outline = _outline(condition)
    if word == CONJUNCTION and re.search(rf"\b{DISJUNCTION}\b", outline):
        yield condition
        return
    begin = 0
    for match in re.finditer(rf" {word} ", outline):
        yield condition[begin : match.start()]
        begin = match.end()
    yield condition[begin:]


def _inside(term: str) -> str:
    """Return a term of an SQL condition without the pair of parentheses that encloses it, if one does."""
    is_wrapped = term.startswith("(") and set(_outline(term)[1:-1]) == {"\0"}
    return term[1:-1].strip() if is_wrapped else term


def _outline(condition: str) -> str:
    """Return an SQL condition with each character inside of parentheses replaced by a null character."""
    depth, letters = 0, []
    for letter in condition:
        depth -= letter == ")"
        letters.append(letter if depth == 0 else "\0")
        depth += letter == "("
    return "".join(letters)
