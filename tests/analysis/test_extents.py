"""Test which files a range leaves out: none that can hold a row of it."""

from collections.abc import Iterable

import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from analysis.catalog import Model, load_catalog
from analysis.extents import SIGNS, Bound, Extent, Known, asked_columns, bounded_columns, bounds_of, known_of
from analysis.query_facts import DIALECT
from analysis.stored import Extents

DAY = "cut_no >= getvariable('range_from') and cut_no < getvariable('range_to')"
LATER = """
first_no < getvariable('range_to')
and (last_no >= getvariable('range_from') - 5 or left_no >= (select min(place) from moments))
"""
MEMBERS = "child_no in (select stay_no from stays) or parent_no in (select stay_no from stays)"
CATALOG = load_catalog()
RENAMING = [model for model in CATALOG.layer("staging") if len(model.references) == 1]


def admits(bounds: Iterable[Bound], extent: Extent, known: Known) -> bool:
    """Tell whether one file of this extent can have a row that keeps all bounds, as Extents does for many."""
    return bool(Extents([extent]).admitted(bounds, known)[0])


def admits_by_hand(bounds: Iterable[Bound], extent: Extent, known: Known) -> bool:
    """Tell the same with Python's own numbers, one comparison after the other."""

    def can_hold(column: str, sign: str, name: str, plus: int) -> bool:
        if column not in extent or name not in known:
            return True
        least_greatest, value = extent[column], known[name]
        if least_greatest is None or value is None:
            return False
        return bool(SIGNS[sign](least_greatest[1 if sign.startswith(">") else 0], value + plus))

    return all(any(all(can_hold(*each) for each in terms) for terms in bound) for bound in bounds)


@given(st.lists(st.integers(0, 40), min_size=1), st.integers(0, 40), st.integers(1, 10))
def test_a_file_with_a_row_of_the_range_is_read(values: list[int], first: int, width: int) -> None:
    """A file is left out only if none of its values is in the range."""
    extent = {"cut_no": [min(values), max(values)]}
    has_row = any(first <= value < first + width for value in values)

    is_read = admits(bounds_of(DAY), extent, {"range_from": first, "range_to": first + width})

    assert is_read or not has_row
    assert is_read == (min(values) < first + width and max(values) >= first)


@pytest.mark.parametrize(
    ("first", "last", "left", "is_read"),
    [
        (0, 6, 0, True),
        (0, 4, 0, False),
        (0, 4, 99, True),
        (20, 30, 99, False),
        (0, None, 99, True),
        (0, None, None, False),
    ],
)
def test_one_of_several_terms_is_enough(
    first: int, last: int | None, left: int | None, *, is_read: bool
) -> None:
    """Within parentheses any term may hold; a column that has only nulls meets no comparison."""
    extent = {
        name: None if value is None else [value, value]
        for name, value in {"first_no": first, "last_no": last, "left_no": left}.items()
    }
    known = {"range_from": 10, "range_to": 20} | known_of("moments", {"place": [50, 60]})

    assert admits(bounds_of(LATER), extent, known) == is_read


def test_members_lie_between_the_least_and_the_greatest() -> None:
    """A relation of which the range reads no row has no members."""
    bounds = bounds_of(MEMBERS)
    extent = {"child_no": [1, 3], "parent_no": [7, 9]}

    assert admits(bounds, extent, known_of("stays", {"stay_no": [3, 4]}))
    assert admits(bounds, extent, known_of("stays", {"stay_no": [5, 7]}))
    assert not admits(bounds, extent, known_of("stays", {"stay_no": [4, 6]}))
    assert not admits(bounds, extent, known_of("stays", {"stay_no": None}))
    assert admits(bounds, extent, {})
    assert asked_columns("stays", [MEMBERS]) == ["stay_no"]
    assert bounded_columns([MEMBERS, DAY]) == ["child_no", "cut_no", "parent_no"]


VALUE = st.integers(-(1 << 80), 1 << 80) | st.integers(0, 40)
EXTENT = st.dictionaries(
    st.sampled_from(["first_no", "last_no", "left_no"]),
    st.none() | st.lists(VALUE, min_size=1).map(lambda values: [min(values), max(values)]),
)
KNOWN = st.dictionaries(st.sampled_from(["range_from", "range_to", "min moments place"]), st.none() | VALUE)


@given(st.lists(EXTENT), KNOWN)
def test_many_files_are_judged_as_each_of_them(
    extents: list[dict[str, list[int] | None]], known: dict[str, int | None]
) -> None:
    """Whatever is missing, null or too large for 64 bits, each file is judged as by hand."""
    bounds = bounds_of(LATER)

    assert Extents(extents).admitted(bounds, known).tolist() == [
        admits_by_hand(bounds, extent, known) for extent in extents
    ]


@pytest.mark.parametrize(
    "condition", ["true", "a < getvariable('x') or b = 1 and c < 2", "a < b", "not (a < 1)"]
)
def test_what_is_not_understood_bounds_nothing(condition: str) -> None:
    """Every file is read then."""
    assert bounds_of(condition) == []


@pytest.mark.parametrize("model", RENAMING, ids=lambda model: model.name)
def test_a_staging_model_passes_on_what_bounds_its_files(model: Model) -> None:
    """The least and the greatest value of a raw column are those of the staging column of that name."""
    query = sqlglot.parse_one(model.sql, dialect=DIALECT)
    for column in CATALOG.bounded_columns(model.name):
        items = [item for select in query.find_all(exp.Select) for item in select.selects]
        for item in items:
            if item.alias_or_name == column:
                assert isinstance(item, exp.Column)
                assert item.name == column
