"""Test that what a query reads is kept for later processes, and not believed when it is damaged."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.errors import CatalogError
from analysis.query_facts import QueryFacts, query_facts

SQL = "with a as (select x from b) select x from a join c using (x) order by x"
X = frozenset({"x"})
FACTS = QueryFacts(frozenset({"b", "c"}), {"b": X, "c": X}, is_ordered=True)


@pytest.fixture(autouse=True)
def cache_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep facts below the test's folder, and let this process remember none."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    query_facts.cache_clear()
    yield tmp_path
    query_facts.cache_clear()


def asked_anew(sql: str = SQL) -> QueryFacts:
    """Ask as a new process would."""
    query_facts.cache_clear()
    return query_facts("sql/x.sql", sql)


def kept(home: Path) -> Path:
    """Return the one file that is kept."""
    (path,) = home.rglob("*.json")
    return path


def test_kept_facts_are_those_of_the_parser(cache_home: Path) -> None:
    """The second call has the facts of the first, from the file: a changed file shows."""
    assert asked_anew() == FACTS
    assert asked_anew() == FACTS
    kept(cache_home).write_text('{"reads": ["d"], "columns": {"d": ["y"]}, "is_ordered": false}')
    assert asked_anew() == QueryFacts(frozenset({"d"}), {"d": frozenset({"y"})}, is_ordered=False)


def test_a_changed_query_is_parsed_anew() -> None:
    """Another text has facts of its own."""
    assert asked_anew() == FACTS
    assert asked_anew(SQL.replace("join c", "join e").removesuffix(" order by x")) == QueryFacts(
        frozenset({"b", "e"}), {"b": X, "e": X}, is_ordered=False
    )


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("select one.i from a as one join b as two on one.i = two.j", {"a": "i", "b": "j"}),
        ("with c as (select i, j from a) select c.* from c", {"a": "ij"}),
        ("select count(*) from a", {"a": ""}),
        ("select s.y.z, i from a as s", {"a": "iy"}),
        ("select y.z from a", {"a": "y"}),
        ("select one.i from a as one join b as two using (k)", {"a": "ik", "b": "k"}),
    ],
)
def test_columns_are_those_that_a_query_names(sql: str, columns: dict[str, str]) -> None:
    """Every column that a query takes is named, and none that it takes of another source alone.

    The names of sources stand among them, as a source can be called like a column of type STRUCT.
    """
    sources = {"a", "b", "c", "s", "one", "two"}
    found = {name: named - sources for name, named in asked_anew(sql).columns.items()}
    assert found == {name: set(letters) for name, letters in columns.items()}


@pytest.mark.parametrize(
    "sql",
    [
        "from a",
        "select * exclude (i) from a",
        "select a.*, b.i from a join b on a.i = b.i",
        "select b.i from b where exists (select * from a where a.i = b.i)",
        "select b.i from b union all by name select * from a",
        "select arg_min(one, i) from a as one",
        "select max(columns('x.*')) from a",
        "select list(a.*) from a",
        "select i from a natural join (select i from b)",
    ],
)
def test_a_relation_can_be_read_whole(sql: str) -> None:
    """Where a query can read a column that it does not name, nothing is said of the relation's columns."""
    facts = asked_anew(sql)
    assert "a" in facts.reads - facts.columns.keys()


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff",
        b"[]",
        b"3",
        b'{"reads": "b"}',
        b'{"reads": [], "columns": [1], "is_ordered": true}',
    ],
)
def test_a_damaged_file_is_not_believed(damage: bytes, cache_home: Path) -> None:
    """The query is parsed again, and the file is mended."""
    asked_anew()
    kept(cache_home).write_bytes(damage)
    assert asked_anew() == FACTS
    assert kept(cache_home).read_bytes() != damage


def test_a_query_that_is_refused_is_not_kept(cache_home: Path) -> None:
    """A text that is no single SELECT is refused each time."""
    for _ in range(2):
        with pytest.raises(CatalogError, match=r"sql/x.sql must hold exactly one SELECT"):
            asked_anew("drop table a")
    assert list(cache_home.rglob("*.json")) == []


def test_a_folder_that_cannot_be_made_changes_nothing(
    cache_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the cache cannot be written, the facts are the same."""
    (cache_home / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache_home / "file"))
    assert asked_anew() == FACTS
