"""Tell which files can hold the rows that a range reads, from the least and the greatest of their values.

A condition of [ranges.reads] bounds columns by what is known of the range: by its variables, as in
`height >= getvariable('range_from')`, and by the rows of other relations that it reads, as in
`taken_at in (select taken_at from stg_templates)` or `last_cut_no >= (select min(cut_no) from mempool_cuts)`.
A file whose values lie outside has no such row, so it is not read, and its content does not matter for the
range. A term of a condition that has another form bounds nothing.
"""

import operator
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Final, NamedTuple

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
    """Compares a column with something known of the range, to which `plus` is added."""

    column: str
    sign: str
    name: str
    plus: int = 0

    def surely_admits(self, extent: Extent, known: Known) -> bool:
        """Tell whether the comparison is true for every row of a file of this extent, as far as it tells."""
        least_greatest, value = extent.get(self.column), known.get(self.name)
        if least_greatest is None or value is None:
            return False
        return all(self._holds(number, value) for number in least_greatest)

    def _holds(self, number: int, value: int) -> bool:
        return bool(SIGNS[self.sign](number, value + self.plus))


# One of several lists of comparisons, of which all in the list hold.
Bound = list[list[Comparison]]


def surely_admits(bounds: Iterable[Bound], extent: Extent, known: Known) -> bool:
    """Tell whether every row of a file of this extent keeps all bounds; a null counts as if it did."""
    return all(
        any(all(each.surely_admits(extent, known) for each in comparisons) for comparisons in bound)
        for bound in bounds
    )


def joined(extents: Iterable[Extent], columns: Iterable[str]) -> dict[str, list[int] | None] | None:
    """Return the extent of the rows of several files together; None where one does not tell of a column."""
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
    """Return the bounds that every row which meets a condition keeps."""
    found = []
    for term in _terms(" ".join(condition.split()), CONJUNCTION):
        bound = [_comparisons(each) for each in _terms(_inside(term), DISJUNCTION)]
        if all(bound):
            found.append(bound)
    return found


def bounded_columns(conditions: Iterable[str]) -> list[str]:
    """Return the columns that any of these conditions bounds, each once and in order."""
    return sorted({each.column for each in _all_comparisons(conditions)})


def asked_columns(relation: str, conditions: Iterable[str]) -> list[str]:
    """Return the columns of a relation by whose least or greatest value conditions bound others."""
    names = {each.name for each in _all_comparisons(conditions)}
    prefixes = (f"min {relation} ", f"max {relation} ")
    return sorted({name.rpartition(" ")[2] for name in names if name.startswith(prefixes)})


def known_of(relation: str, extent: Extent) -> dict[str, int | None]:
    """Return what the extent of the rows of a relation tells, by the names that comparisons have for it."""
    found: dict[str, int | None] = {}
    for column, both in extent.items():
        least, greatest = (None, None) if both is None else both
        found[f"min {relation} {column}"] = least
        found[f"max {relation} {column}"] = greatest
    return found


def _all_comparisons(conditions: Iterable[str]) -> Iterator[Comparison]:
    for condition in conditions:
        for bound in bounds_of(condition):
            for comparisons in bound:
                yield from comparisons


def _comparisons(term: str) -> list[Comparison]:
    """Return the comparisons that a term without `and` and `or` means; none where it has another form."""
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
    """Yield what stands between a word on the top level of a condition; `and` binds closer than `or`."""
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
    """Return a term without the parentheses around all of it."""
    is_wrapped = term.startswith("(") and set(_outline(term)[1:-1]) == {"\0"}
    return term[1:-1].strip() if is_wrapped else term


def _outline(condition: str) -> str:
    """Return a condition with a null character for every letter inside of parentheses."""
    depth, letters = 0, []
    for letter in condition:
        depth -= letter == ")"
        letters.append(letter if depth == 0 else "\0")
        depth += letter == "("
    return "".join(letters)
