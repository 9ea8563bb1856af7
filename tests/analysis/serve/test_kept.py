"""Answers that are kept in memory: given again to those who may ask, and never past their build."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from analysis.serve.address import bound
from analysis.serve.app import Revalidation, application
from analysis.serve.bounded_server import BoundedServer
from analysis.serve.kept import ENTRY_BYTES, MOMENTARY, KeptAnswers
from analysis.serve.results import Results
from tests.analysis.serve.conftest import Site, copied
from tests.analysis.serve.test_api import shown
from tests.analysis.serve.test_results import rebuilt

LATER: Final = "2030-01-01T00:00:00+00:00"
TOKEN: Final = "a word of the test"  # noqa: S105 - opens nothing


@contextmanager
def serving(database: Path, *, token: str = "") -> Iterator[Site]:
    """Serve a database on a port of its own."""
    results = Results(database)
    server = BoundedServer(
        application(results, token=token), bound("127.0.0.1:0", allow_remote=False, token=token)
    )
    server.start()
    yield Site(server)
    server.close()
    results.close()


def counting(
    results: Results, headers: list[tuple[bytes, bytes]], first: Callable[[], None] = lambda: None
) -> tuple[Revalidation, Callable[[], int]]:
    """Return an application whose answers are numbered, and what tells the last number.

    `first` is called before the first answer.
    """
    n_answers = 0

    async def answered(_scope: Any, _receive: Any, send: Any) -> None:
        nonlocal n_answers
        n_answers += 1
        if n_answers == 1:
            first()
        await send({"type": "http.response.start", "status": 200, "headers": list(headers)})
        await send({"type": "http.response.body", "body": str(n_answers).encode()})

    return Revalidation(answered, results), lambda: n_answers


def asked(app: Revalidation) -> bytes:
    """Ask an application for its first page, and return the body of the answer."""
    messages: list[Any] = []

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {"path": "/", "query_string": b"", "headers": [], "method": "GET"}
    asyncio.run(app(scope, None, send))  # type: ignore[arg-type]
    return bytes(messages[-1]["body"])


def test_kept_answers_have_a_bound_and_forget_the_oldest() -> None:
    """What was asked for again stays, a large answer is not kept, and the bytes stay below the limit."""
    kept = KeptAnswers(max_bytes=250 + 2 * ENTRY_BYTES)
    answers = {name: [{"type": "http.response.body", "body": name.encode() * 100}] for name in "abc"}
    kept.keep(("a",), answers["a"])
    kept.keep(("b",), answers["b"])
    assert kept.find(("a",)) == answers["a"]
    kept.keep(("c",), answers["c"])
    kept.keep(("d",), [{"type": "http.response.body", "body": bytes(251 + 2 * ENTRY_BYTES)}])

    assert [name for name in "abcd" if kept.find((name,))] == ["a", "c"]


def test_an_answer_is_given_again_until_the_next_build(served_database: Path, tmp_path: Path) -> None:
    """The second answer is the first, as large and as compressed; a new build is answered anew."""
    database = copied(served_database, tmp_path)
    with serving(database) as site:
        first, second = (site.get("/api/v1/build") for _ in range(2))
        plain = site.get("/api/v1/build", Accept_Encoding="identity")
        same = site.get("/api/v1/build", If_None_Match=first.headers["etag"])
        rebuilt(database, LATER)
        third = site.get("/api/v1/build", If_None_Match=first.headers["etag"])

    assert first.content == second.content
    assert dict(first.headers) | {"date": ""} == dict(second.headers) | {"date": ""}
    assert (plain.content, plain.headers.get("content-encoding")) == (first.content, None)
    assert (same.status_code, same.content) == (304, b"")
    assert third.json()["built_at"] == LATER


def test_a_kept_answer_is_refused_like_any_other(served_database: Path, tmp_path: Path) -> None:
    """Without the token, under a strange host name or from another origin nobody gets what is kept."""
    with serving(copied(served_database, tmp_path), token=TOKEN) as site:
        allowed = {"Authorization": f"Bearer {TOKEN}"}
        assert [site.get("/pools.csv", **allowed).status_code for _ in range(2)] == [200, 200]
        refused = (
            site.get("/pools.csv"),
            site.get("/pools.csv", Host="attacker.example", **allowed),
            site.get("/pools.csv", Origin="http://attacker.example", **allowed),
        )

    assert [answer.status_code for answer in refused] == [401, 421, 403]
    assert not any(b"pool_name" in answer.content for answer in refused)


def test_a_kept_answer_ends_with_its_time() -> None:
    """The first who asks after the end makes an answer anew, and meanwhile others get the old one."""
    kept = KeptAnswers()
    kept.keep(("over",), [{"type": "http.response.body"}], for_s=0)
    kept.keep(("fresh",), [{"type": "http.response.body"}], for_s=3600)

    assert [kept.find(("over",)) for _ in range(2)] == [None, [{"type": "http.response.body"}]]
    assert kept.find(("fresh",)) == [{"type": "http.response.body"}]


def test_the_page_of_now_is_kept_for_seconds(served_database: Path, tmp_path: Path) -> None:
    """It tells the age of the newest observation, so it has no tag that would keep it for longer."""
    with serving(copied(served_database, tmp_path)) as site:
        page = site.get("/")

    assert (page.headers["cache-control"], page.headers.get("etag")) == (MOMENTARY, None)


def test_what_holds_for_a_moment_is_made_anew_after_it(served_database: Path, tmp_path: Path) -> None:
    """The second answer is the first; a later one is another."""
    headers = [(b"cache-control", MOMENTARY.encode())]
    results = Results(copied(served_database, tmp_path))
    app, n_made = counting(results, headers)
    found = [asked(app), asked(app)]
    while found[-1] == b"1":
        found.append(asked(app))

    assert (found[1], found[-1], n_made()) == (b"1", b"2", 2)
    results.close()


def test_an_error_is_not_kept(
    served_database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A database that cannot be read for a moment is asked again; its path is for the owner alone."""
    database = copied(served_database, tmp_path)
    good = database.read_bytes()
    with serving(database) as site:
        database.with_suffix(".bad").write_text("no database")
        database.with_suffix(".bad").replace(database)
        answers = [site.get("/pools") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [503, 503]
        assert "The server cannot read its database" in answers[0].text
        assert str(tmp_path) not in answers[0].text
        assert f"'/pools': {database} is no DuckDB database" in capsys.readouterr().err
        assert ">Not now<" in answers[0].text
        database.with_suffix(".good").write_bytes(good)
        database.with_suffix(".good").replace(database)
        assert site.get("/pools").status_code == 200


def test_an_answer_without_its_dataset_is_not_kept(served_database: Path, tmp_path: Path) -> None:
    """The list of differences is there again when the dataset is."""
    dataset = served_database.parent / "dataset"
    with serving(copied(served_database, tmp_path)) as site:
        path = f"/api/v1/blocks/{shown('b2')}"
        away = dataset.rename(tmp_path / "away")
        try:
            without = site.get(path)
        finally:
            away.rename(dataset)
        with_it = site.get(path)

    assert (without.headers["cache-control"], with_it.headers["cache-control"]) == ("no-store", "no-cache")
    assert without.json()["data"]["differences"] is None
    assert with_it.json()["data"]["differences"] is not None


def test_a_server_that_starts_without_its_dataset_answers(served_database: Path, tmp_path: Path) -> None:
    """It says that the dataset is gone, as for one that goes later; it reads the dataset that is put back."""
    dataset = served_database.parent / "dataset"
    named = (f"blocks/{shown('b2')}", f"transactions/{shown('slow')}")
    paths = (f"/{named[0]}", *(f"/api/v1/{name}" for name in named))
    away = dataset.rename(tmp_path / "away")
    try:
        with serving(copied(served_database, tmp_path)) as site:
            page, block, transaction = (site.get(path) for path in paths)
            away.rename(dataset)
            page_after, block_after, transaction_after = (site.get(path) for path in paths)
    finally:
        if away.exists():
            away.rename(dataset)

    assert "The dataset is not where it was at the build" in page.text
    assert block.json()["data"]["differences"] is None
    assert transaction.json()["data"]["mined"] is None
    assert page.headers["cache-control"] == "no-store"
    assert "The dataset is not where it was" not in page_after.text
    assert [row["txid"] for row in block_after.json()["data"]["differences"]] != []
    assert [row["height"] for row in transaction_after.json()["data"]["mined"]] == [4]


def test_an_answer_that_a_newer_build_gave_is_not_kept_as_the_older_one(
    served_database: Path, tmp_path: Path
) -> None:
    """A build that comes between the request and its answer leaves nothing under the old version."""
    database = copied(served_database, tmp_path)
    results = Results(database)
    app, _ = counting(results, [], first=lambda: rebuilt(database, LATER))

    assert [asked(app) for _ in range(3)] == [b"1", b"2", b"2"]
    results.close()
