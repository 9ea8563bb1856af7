"""Builds the hostile world once per run, and serves it over a real socket."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from analysis.engine import build
from analysis.serve.address import bound
from analysis.serve.app import application
from analysis.serve.bounded_server import BoundedServer
from analysis.serve.results import Results
from tests.analysis.report.chromium import Tab
from tests.analysis.serve.hostile_world import RULES, tables
from tests.analysis.world import write_world

WAIT_S: Final = 60.0


@pytest.fixture(scope="session")
def served_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the hostile world, and return the path of its database."""
    folder = tmp_path_factory.mktemp("served")
    rules = folder / "pools"
    rules.mkdir()
    (rules / "alpha.toml").write_text(RULES)
    write_world(folder / "dataset", tables())
    return build(folder / "dataset", rules, folder / "served.duckdb").database


def copied(database: Path, folder: Path) -> Path:
    """Copy a database into a folder, because a process can open each file only once; return its path."""
    return Path(shutil.copy(database, folder))


class Site:
    """Is one running server, and a client that asks it."""

    def __init__(self, server: BoundedServer) -> None:
        self.port = server.port
        self.url = f"http://127.0.0.1:{server.port}"
        self._http = requests.Session()
        self._http.trust_env = False

    def get(self, path: str, **headers: str) -> requests.Response:
        """Ask for a path; an underscore in the name of a header stands for a hyphen."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self._http.get(self.url + path, headers=named, timeout=60, allow_redirects=False)

    def data(self, path: str) -> Any:
        """Ask for a path that answers with JSON, and return its data."""
        answer = self.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]


@contextmanager
def serving(database: Path) -> Iterator[Site]:
    """Serve a database while the `with` block runs."""
    results = Results(database, question_s=60)  # on a busy machine a page takes long
    server = BoundedServer(application(results), bound("127.0.0.1:0", allow_remote=False, token=""))
    server.start()
    yield Site(server)
    server.close()
    results.close()


@pytest.fixture(scope="session")
def site(served_database: Path) -> Iterator[Site]:
    """Serve the hostile world for the whole run."""
    with serving(served_database) as served:
        yield served


def wait_for(tab: Tab, script: str, words: str) -> str:
    """Wait until a script of the page returns a text with these words, and return the text."""
    end_s = time.monotonic() + WAIT_S
    while words not in (text := tab.run(script)):
        assert time.monotonic() < end_s, text
        time.sleep(0.05)
    return str(text)
