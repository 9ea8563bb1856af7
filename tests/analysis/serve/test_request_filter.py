"""Test who is refused: other host names, other origins, other methods, strangers without the token."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from analysis.errors import ServeError
from analysis.serve.address import bound, read_token
from analysis.serve.app import application
from analysis.serve.bounded_server import BoundedServer
from analysis.serve.results import Results
from tests.analysis.serve.conftest import Site, copied

TOKEN = "a token of 24 letters ..."  # noqa: S105 - of a server that lives for one test


@pytest.fixture(scope="module")
def closed_site(served_database: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Serve a copy of the same world, with a token and a host name of its own."""
    results = Results(copied(served_database, tmp_path_factory.mktemp("closed")))
    app = application(results, hosts=["Pools.Example"], token=TOKEN)
    server = BoundedServer(app, bound("127.0.0.1:0", allow_remote=False, token=TOKEN))
    server.start()
    yield Site(server)
    server.close()
    results.close()


@pytest.mark.parametrize(
    "host",
    ["evil.example", "127.0.0.1.evil.example:9744", "192.168.1.20:9744", "", "[::1", "localhost@evil"],
)
def test_another_host_name_is_refused(site: Site, host: str) -> None:
    """A name that a stranger points at loopback (DNS rebinding) gets no answer."""
    assert site.get("/api/v1/pools", Host=host).status_code in (400, 421)


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "127.0.0.2:9744", "[::1]:9744"])
def test_loopback_names_are_served(site: Site, host: str) -> None:
    """The names of this machine are ours, at whatever port a tunnel has."""
    assert site.get("/api/v1/pools", Host=host).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "no-cors", "Sec_Fetch_Dest": "image"}, 403),
        ({"Sec_Fetch_Site": "same-site", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 403),
        ({"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document"}, 403),
        ({"Sec_Fetch_Site": "same-origin", "Sec_Fetch_Mode": "cors", "Sec_Fetch_Dest": "empty"}, 200),
    ],
)
def test_another_origin_is_refused(site: Site, headers: dict[str, str], status: int) -> None:
    """A page of another site gets nothing of the API; our own page does."""
    assert site.get("/api/v1/pools", **headers).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    """Only GET and HEAD are answered."""
    assert site._http.request(method, f"{site.url}/api/v1/pools", timeout=60).status_code == 405


def test_head_has_the_headers_and_no_body(site: Site) -> None:
    """HEAD is answered as GET is, without the content."""
    answer = site._http.head(f"{site.url}/pools.csv", timeout=60)

    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["etag"] == site.get("/pools.csv").headers["etag"]


def test_every_answer_forbids_foreign_content(site: Site) -> None:
    """The policy allows nothing from elsewhere, no frame and no inline script, on errors too."""
    for path in ("/api/v1/pools", "/api/v1/nothing", "/pools.csv"):
        policy = site.get(path).headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self';" in policy
        assert "frame-ancestors 'none'" in policy
        assert "http" not in policy


def test_a_token_is_needed_where_one_is_set(closed_site: Site) -> None:
    """Without it 401, with it as bearer token or as password 200; a wrong one is refused."""
    basic = closed_site._http.get(f"{closed_site.url}/api/v1/pools", auth=("anyone", TOKEN), timeout=60)

    assert closed_site.get("/api/v1/pools").status_code == 401
    assert closed_site.get("/api/v1/pools", Authorization="Bearer wrong").status_code == 401
    assert closed_site.get("/api/v1/pools", Authorization="Basic %%%").status_code == 401
    assert closed_site.get("/api/v1/pools", Authorization=f"Bearer {TOKEN}").status_code == 200
    assert basic.status_code == 200


def test_a_named_host_is_served(closed_site: Site) -> None:
    """The name of a reverse proxy that the user gave is ours."""
    authorised = {"Host": "pools.example", "Authorization": f"Bearer {TOKEN}"}

    assert closed_site.get("/api/v1/pools", **authorised).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [("192.168.1.20:9744", 200), ("[fd00::20]", 200), ("192.168.1.20.evil.example", 421), ("1.2.3", 421)],
)
def test_an_address_is_served_where_a_token_is_set(closed_site: Site, host: str, status: int) -> None:
    """A browser in the same house asks for an address, which no stranger can point elsewhere."""
    authorised = {"Host": host, "Authorization": f"Bearer {TOKEN}"}

    assert closed_site.get("/api/v1/pools", **authorised).status_code == status
    assert closed_site.get("/api/v1/pools", Host=host).status_code != 200


@pytest.mark.parametrize(
    ("address", "token", "words"),
    [
        ("0.0.0.0:0", "", "other machines"),
        ("0.0.0.0:0", TOKEN, "other machines"),
        ("127.0.0.1", "", "HOST:PORT"),
        ("127.0.0.1:\N{SUPERSCRIPT TWO}", "", "HOST:PORT"),
        ("127.0.0.1:99999", "", "cannot listen"),
    ],
)
def test_an_address_that_is_open_by_mistake_is_refused(address: str, token: str, words: str) -> None:
    """Other machines are let in only by the option and a token together."""
    with pytest.raises(ServeError, match=words):
        bound(address, allow_remote=False, token=token)
    with pytest.raises(ServeError, match="or set a token"):
        bound("0.0.0.0:0", allow_remote=True, token="")


def test_a_taken_port_is_named(site: Site) -> None:
    """The sentence has the address and says what to do."""
    with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1:{site.port}"):
        bound(f"127.0.0.1:{site.port}", allow_remote=False, token="")


def test_a_short_token_is_refused(tmp_path: Path) -> None:
    """A token that can be guessed, or a file that is not there, stops the start."""
    (tmp_path / "short").write_text("secret\n")

    with pytest.raises(ServeError, match="6 characters"):
        read_token(tmp_path / "short")
    with pytest.raises(ServeError, match="cannot be read"):
        read_token(tmp_path / "missing")


def test_a_request_without_end_is_refused(site: Site) -> None:
    """A header without end is cut off with an error, not gathered.

    It comes in one piece: bytes that the server does not read would reset the connection.
    """
    with socket.create_connection(("127.0.0.1", site.port), timeout=60) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 40_000)
        assert client.recv(100).startswith(b"HTTP/1.1 400")
