"""Results without this software: any DuckDB reads them, `sql` asks them, a notebook starts from a dataset."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from analysis.catalog import load_catalog
from analysis.engine import build
from tests.analysis.test_cli import run
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

NOTEBOOK = Path(__file__).resolve().parents[2] / "analysis" / "notebooks" / "start.ipynb"
SIZE = Size(n_blocks=40, entering=64, taken=48)
MARTS = [model.name for model in load_catalog().layer("marts")]
VIEWS = [model.name for model in load_catalog().layer("staging")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with a dataset, its rules and the database `a.duckdb`."""
    folder = tmp_path_factory.mktemp("shell")
    build(write_world(simulate(SIZE), folder), folder / "pools", folder / "a.duckdb")
    return folder


def client() -> str:
    """Path of the plain client, on PATH or beside the Python that runs the tests."""
    found = shutil.which("duckdb") or shutil.which("duckdb", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("no duckdb client: python -m pip install duckdb-cli")
    return found


def test_every_relation_is_read_by_duckdb_without_our_functions(folder: Path) -> None:
    """Each mart and view has the same rows for a DuckDB that knows nothing of this package."""
    with duckdb.connect(str(folder / "a.duckdb"), read_only=True) as connection:
        counts = {name: len(connection.sql(f"FROM {name}").to_arrow_table()) for name in MARTS + VIEWS}

    assert counts["pool_share"] == 6
    assert counts["stg_blocks"] == counts["chain_blocks"] >= SIZE.n_blocks


def test_every_mart_is_read_by_the_plain_client(folder: Path) -> None:
    """The documented command shows each mart, in a client that is older than our library."""
    asked = [f"SELECT '{name}' AS name, count(*) AS n_rows FROM (FROM {name})" for name in MARTS + VIEWS]  # noqa: S608 - names of files
    result = subprocess.run(
        [client(), "-readonly", "-json", folder / "a.duckdb", " UNION ALL ".join(asked)],
        capture_output=True,
        text=True,
        check=True,
    )

    rows = {row["name"]: row["n_rows"] for row in json.loads(result.stdout)}
    assert rows.keys() == {*MARTS, *VIEWS}
    assert rows["pool_share"] == 6


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "stg_transactions"],
        ["sql", "SELECT txid, n FROM stg_blocks, range(9) t(n), stg_transactions"],
    ],
)
def test_compaction_waits_while_rows_of_a_view_are_written(folder: Path, arguments: list[str]) -> None:
    """The files that staging reads stay where they are until the last row is out."""
    (lock,) = folder.rglob(".write.lock")
    command = [sys.executable, "-m", "analysis", *arguments, "--format", "csv"]
    with (
        lock.open("rb") as handle,
        subprocess.Popen([*command, "--database", folder / "a.duckdb"], stdout=subprocess.PIPE) as process,
    ):
        assert process.stdout is not None
        assert b"txid" in process.stdout.readline()
        # More rows are to come than a pipe holds, so it is not done.
        with pytest.raises(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert process.stdout.read()
        assert process.wait() == 0
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_sql_opens_the_client_for_reading(folder: Path) -> None:
    """With a client on PATH, `sql` is its shell: it reads what is typed, in UTC, and cannot write."""
    path = f"{Path(client()).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "analysis", "sql", "--database", folder / "a.duckdb"]

    def typed(text: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PATH": path}
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=env)

    answer = typed("SELECT count(*) AS n, current_setting('TimeZone') AS zone FROM pool_share;")
    assert (answer.returncode, "UTC" in answer.stdout, "6" in answer.stdout) == (0, True, True)
    assert "read-only" in typed("DROP TABLE pool_share;").stderr


def test_sql_without_a_client_says_how_to_get_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database to open stands in the commands that are printed."""
    monkeypatch.setenv("PATH", str(folder))

    result = run("sql", "--database", folder / "a.duckdb")
    assert result.returncode == 0
    assert "pip install duckdb-cli" in result.stdout
    assert f"duckdb -readonly {folder / 'a.duckdb'}" in result.stdout


def test_sql_runs_one_query(folder: Path) -> None:
    """As JSON, CSV and a table; what JSON has no word for is text."""
    database = ("--database", folder / "a.duckdb")
    query = "SELECT pool, 0.5 AS half, CAST('inf' AS DOUBLE) AS most FROM pool_share ORDER BY pool LIMIT 1"

    as_json = run("sql", query, *database, "--format", "json")
    assert json.loads(as_json.stdout) == [{"pool": "alder", "half": "0.5", "most": "inf"}]
    assert run("sql", query, *database, "--format", "csv").stdout == "pool,half,most\nalder,0.5,inf\n"
    assert "alder" in run("sql", query, *database).stdout


def test_a_query_that_fails_or_writes_is_one_sentence(folder: Path) -> None:
    """Exit 1, and the database is as it was."""
    for query in ("FROM nowhere", "DROP TABLE pool_share", "SELEC"):
        result = run("sql", query, "--database", folder / "a.duckdb")
        assert result.returncode == 1
        assert result.stderr.startswith("pool-analysis: the query failed: ")
        assert result.stderr.count("\n") == 1
    assert "6" in run("sql", "SELECT count(*) FROM pool_share", "--database", folder / "a.duckdb").stdout


@pytest.mark.parametrize(("query", "count"), [("", 0), ("SELECT 1; SELECT 2", 2)])
def test_no_query_is_left_out_in_silence(folder: Path, query: str, count: int) -> None:
    """None and two are refused."""
    result = run("sql", query, "--database", folder / "a.duckdb")
    assert result.returncode == 1
    assert f"one query at a time, this is {count}" in result.stderr


def test_the_notebook_runs_from_a_dataset(folder: Path, tmp_path: Path) -> None:
    """Its first cell is three lines, no output is stored, and every cell runs beside a dataset."""
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len([line for line in cells[0]["source"] if line.strip()]) == 3
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells)

    shutil.copytree(folder / "dataset", tmp_path / "data" / "dataset")
    here = tmp_path / "analysis" / "notebooks"
    here.mkdir(parents=True)
    script = "\n".join("".join(cell["source"]) for cell in cells)
    script += "\nprint(marts.sql('SELECT sum(block_count) FROM pool_share').fetchall())"
    result = subprocess.run(
        [sys.executable, "-c", script],
        cwd=here,
        env=os.environ | {"PYTHONPATH": str(NOTEBOOK.parents[2])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert f"({SIZE.n_blocks}" in result.stdout
