"""Test reading results: with plain DuckDB, with `sql` and its client, from Python, and in the notebook."""

import csv
import datetime as dt
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from analysis import OpenMarts
from analysis.catalog import load_catalog
from analysis.engine import build
from analysis.errors import DatabaseError, UnknownRelationError
from collector.dataset.schema import TABLES
from tests.analysis.test_cli import run
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

README = Path(__file__).resolve().parents[2] / "analysis" / "README.md"
NOTEBOOK = Path(__file__).resolve().parents[2] / "analysis" / "notebooks" / "start.ipynb"
SIZE = Size(n_blocks=40, entering=64, taken=48)
MARTS = [model.name for model in load_catalog().layer("marts")]
VIEWS = [model.name for model in load_catalog().layer("staging")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with a dataset, its rules and the database `a.duckdb`."""
    folder = tmp_path_factory.mktemp("shell")
    build(write_world(simulate(SIZE), folder), folder / "pools", folder / "a.duckdb")
    return folder


def client() -> str:
    """Return the path of the plain duckdb client, on PATH or beside the Python that runs the tests."""
    found = shutil.which("duckdb") or shutil.which("duckdb", path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip("no duckdb client: python -m pip install duckdb-cli")
    return found


def test_every_relation_is_read_by_duckdb_without_our_functions(folder: Path) -> None:
    """A DuckDB without our functions can read every mart and staging view."""
    with duckdb.connect(str(folder / "a.duckdb"), read_only=True) as connection:
        counts = {name: len(connection.sql(f"FROM {name}").to_arrow_table()) for name in MARTS + VIEWS}

    assert counts["pool_share"] == 6
    assert counts["stg_blocks"] == counts["chain_blocks"] >= SIZE.n_blocks


def test_the_database_explains_itself(folder: Path) -> None:
    """Every mart, staging view and raw table, and each of their columns, has a comment."""
    with duckdb.connect(str(folder / "a.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT table_name, comment FROM duckdb_tables() UNION ALL"
            " SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
        ).fetchall()
        columns = connection.execute(
            "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
        ).fetchall()

    described = {name for name, comment in rows if comment}
    assert {*MARTS, *VIEWS, *TABLES} <= described
    assert [(table, name) for table, name, comment in columns if table in described and not comment] == []
    comment = dict(rows)["pool_share"]
    assert load_catalog().by_name["pool_share"].summary in comment


def test_every_mart_is_read_by_the_plain_client(folder: Path) -> None:
    """The documented command shows each mart and view in a client that is older than our library."""
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
        ["sql", "SELECT txid, n FROM range(9) t(n), stg_transactions"],
    ],
)
def test_compaction_waits_while_rows_of_a_view_are_written(folder: Path, arguments: list[str]) -> None:
    """`show` and `sql` hold the read lock of the dataset until the last row of a staging view is written."""
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
    """With a client on PATH, `sql` opens its shell: it runs typed queries in UTC, and cannot write."""
    path = f"{Path(client()).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "analysis", "sql", "--database", folder / "a.duckdb"]

    def typed(text: str) -> subprocess.CompletedProcess[str]:
        env = os.environ | {"PATH": path}
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=env)

    answer = typed("SELECT count(*) AS n, current_setting('TimeZone') AS zone FROM pool_share;")
    assert (answer.returncode, "UTC" in answer.stdout, "6" in answer.stdout) == (0, True, True)
    part = next(folder.glob("a.duckdb.marts/*/*.parquet"))
    written = part.read_bytes()
    refused = {
        "DROP TABLE pool_share;": "read-only",
        f"COPY pool_share TO '{folder}/out.csv';": "Permission Error",
        f"COPY pool_share TO '{folder}/dataset/out.csv';": "Permission Error",
        f"COPY pool_share TO '{folder}/a.duckdb.marts/out.csv';": "Permission Error",
        f"COPY pool_share TO '{part}';": "Permission Error",
        "FROM read_text('/etc/passwd');": "Permission Error",
        "SET enable_external_access = true;": "locked",
    }
    answer = typed("\n".join(refused))  # the client goes on after a statement that it refuses
    errors = re.findall("read-only|Permission Error|locked", answer.stderr)
    assert errors == list(refused.values()), answer.stderr
    for text in (f".shell touch {folder}/out.csv", f".output {folder}/out.csv"):  # each ends the client
        answer = typed(text)
        assert "cannot be used in -safe mode" in answer.stdout + answer.stderr, text
    assert not list(folder.rglob("out.csv"))
    assert part.read_bytes() == written


def test_a_query_typed_wrong_is_told_by_the_client_alone(folder: Path) -> None:
    """A failed query of the shell ends `sql` with the client's status; the version is not blamed."""
    path = f"{Path(client()).parent}{os.pathsep}{os.environ['PATH']}"
    command = [sys.executable, "-m", "analysis", "sql", "--database", folder / "a.duckdb"]
    for typed, status, said in (("selec", 1, "Parser Error"), ("FROM nope;", 1, "nope"), (".exit 3", 3, "")):
        answer = subprocess.run(
            command,
            input=typed,
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"PATH": path},
        )
        assert (answer.returncode, said in answer.stderr) == (status, True), answer.stderr
        assert "pool-analysis" not in answer.stderr
        assert "1.4" not in answer.stderr


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (
            'if [ "$1" = -version ]; then echo v1.3.2 0b83e5d2f6; fi; exit 1',
            "is DuckDB 1.3.2; {} needs 1.4 or newer",
        ),
        ("kill -9 $$", "signal 9 ended"),
    ],
)
def test_a_client_that_cannot_go_on_is_named(folder: Path, tmp_path: Path, script: str, said: str) -> None:
    """One line says that the client is too old, or that a signal ended it."""
    stand_in = tmp_path / "duckdb"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    answer = subprocess.run(
        [sys.executable, "-m", "analysis", "sql", "--database", folder / "a.duckdb"],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert answer.returncode == 1
    assert answer.stderr.startswith("pool-analysis: ")
    assert said.format(folder / "a.duckdb") in answer.stderr
    assert answer.stderr.count("\n") == 1


def test_sql_without_a_client_says_how_to_get_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a client on PATH, `sql` prints commands that name the database."""
    monkeypatch.setenv("PATH", str(folder))

    result = run("sql", "--database", folder / "a.duckdb")
    assert result.returncode == 0
    assert "pip install duckdb-cli" in result.stdout
    assert f"duckdb -readonly {folder / 'a.duckdb'}" in result.stdout


def test_sql_runs_one_query(folder: Path) -> None:
    """`sql` prints the rows of a query as JSON, CSV and a table; JSON has infinity as text."""
    database = ("--database", folder / "a.duckdb")
    query = "SELECT pool, 0.5 AS half, CAST('inf' AS DOUBLE) AS most FROM pool_share ORDER BY pool LIMIT 1"

    as_json = run("sql", query, *database, "--format", "json")
    assert json.loads(as_json.stdout) == [{"pool": "alder", "half": "0.5", "most": "inf"}]
    assert run("sql", query, *database, "--format", "csv").stdout == "pool,half,most\nalder,0.5,inf\n"
    assert "alder" in run("sql", query, *database).stdout


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_time_without_a_zone_is_in_utc(folder: Path, monkeypatch: pytest.MonkeyPatch, zone: str) -> None:
    """The zone of the machine moves no time, such as the beginning of a month."""
    query = "SELECT date_trunc('month', DATE '2026-01-05') AS moment"
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        found = run("sql", query, "--database", folder / "a.duckdb", "--format", "json")
    finally:
        monkeypatch.undo()
        time.tzset()

    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout) == [{"moment": "2026-01-01T00:00:00Z"}]


@pytest.mark.parametrize("query", ["SELECT 'infinity'::TIMESTAMP AS x", "SELECT DATE '5877642-01-01' AS x"])
def test_a_value_that_cannot_be_shown_is_one_sentence(folder: Path, query: str) -> None:
    """A time that Python has not is refused with what to do, without a traceback."""
    found = run("sql", query, "--database", folder / "a.duckdb")

    assert found.returncode == 1
    assert "a value cannot be shown" in found.stderr
    assert "VARCHAR" in found.stderr
    assert "Traceback" not in found.stderr


def test_a_plan_in_csv_has_a_row_per_line(folder: Path) -> None:
    """The drawing of a plan is not run together, and `sql` prints the same lines as a table."""
    words = ("sql", "EXPLAIN SELECT 1", "--database", folder / "a.duckdb")

    rows = list(csv.DictReader(run(*words, "--format", "csv").stdout.splitlines()))

    assert {row["explain_key"] for row in rows} == {"physical_plan"}
    drawn = [row["explain_value"] for row in rows]
    assert len(drawn) > 3
    assert ["physical_plan:", *drawn] == run(*words).stdout.splitlines()


def test_intervals_and_maps_have_a_form_that_others_read(folder: Path) -> None:
    """An interval is a duration of ISO 8601, and a map a list of pairs."""
    query = "SELECT INTERVAL '1 month 2 days' AS i, INTERVAL '-1.5 s' AS s, MAP {1: 'a'} AS m"
    database = ("--database", folder / "a.duckdb")

    found = json.loads(run("sql", query, *database, "--format", "json").stdout)
    assert found == [{"i": "P1M2DT0S", "s": "P0M0DT-1.5S", "m": [[1, "a"]]}]
    in_csv = run("sql", query, *database, "--format", "csv").stdout
    assert in_csv == 'i,s,m\nP1M2DT0S,P0M0DT-1.5S,"[[1, ""a""]]"\n'


def test_two_columns_of_one_name_are_no_json(folder: Path) -> None:
    """A JSON object would lose one of them; CSV has both."""
    words = ("sql", "SELECT 1 AS a, 2 AS a", "--database", folder / "a.duckdb", "--format")

    assert run(*words, "csv").stdout == "a,a\n1,2\n"
    refused = run(*words, "json")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "two columns are called a; name one otherwise with AS" in refused.stderr


def test_a_hash_that_is_shown_can_be_asked_for(folder: Path) -> None:
    """The condition that the help and the README name finds the row of a hash as `show` prints it."""
    database = ("--database", folder / "a.duckdb")
    shown = run("show", "block_pool", *database, "--format", "csv", "--limit", "1").stdout
    (row,) = csv.DictReader(shown.splitlines())
    documented = "FROM block_pool WHERE hash_hex(block_hash) = '00ab...'"

    query = documented.replace("00ab...", row["block_hash"])
    found = run("sql", query, *database, "--format", "csv")

    assert found.stdout == shown
    assert f'pool-analysis sql "{documented}"' in README.read_text()
    assert "hash_hex(block_hash) = '00ab...'" in " ".join(run("sql", "--help").stdout.split())


def test_only_hashes_of_bitcoin_are_reversed(folder: Path) -> None:
    """The SHA-256 of a file reads as sha256sum prints it, and 32 bytes of a script stay a script."""
    value = bytes(range(32))
    query = f"""
        SELECT
            unhex('{value.hex()}') AS txid, unhex('{value.hex()}') AS file_sha256,
            [struct_pack(value_sat := 1, script := unhex('{value.hex()}'))] AS coinbase_outputs
    """
    database = ("--database", folder / "a.duckdb")

    (found,) = json.loads(run("sql", query, *database, "--format", "json").stdout)
    (in_csv,) = csv.DictReader(run("sql", query, *database, "--format", "csv").stdout.splitlines())

    for row in (found, in_csv):
        assert row["txid"] == value[::-1].hex()
        assert row["file_sha256"] == value.hex()
    assert found["coinbase_outputs"] == [{"value_sat": 1, "script": value.hex()}]
    assert value.hex() in run("sql", query, *database).stdout


def test_a_key_made_of_a_height_is_no_hash(folder: Path) -> None:
    """What the marts hold in the place of an unknown hash is null in every form, also inside a list."""
    query = "SELECT label_block_key(831999) AS block_hash, [label_block_key(7)] AS hashes, 1 AS height"
    database = ("--database", folder / "a.duckdb")

    (found,) = json.loads(run("sql", query, *database, "--format", "json").stdout)

    assert found == {"block_hash": None, "hashes": [None], "height": 1}
    assert run("sql", query, *database, "--format", "csv").stdout.splitlines()[1] == ",[null],1"
    assert "ffff" not in run("sql", query, *database).stdout


def test_a_query_that_fails_or_writes_is_one_sentence(folder: Path) -> None:
    """A bad query exits with 1 and one line, and the database stays as it was."""
    for query in ("SELECT nothing", "DROP TABLE pool_share", "SELEC"):
        result = run("sql", query, "--database", folder / "a.duckdb")
        assert result.returncode == 1
        assert result.stderr.startswith("pool-analysis: the query failed: ")
        assert result.stderr.count("\n") == 1
    typo = run("sql", "SELECT pol FROM pool_share", "--database", folder / "a.duckdb")
    assert 'not found in FROM clause! Candidate bindings: "pool"' in typo.stderr
    assert "6" in run("sql", "SELECT count(*) FROM pool_share", "--database", folder / "a.duckdb").stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_the_output_cannot_encode_becomes_an_escape(folder: Path, encoding: str) -> None:
    """`sql` and `report` print everything where the output is not UTF-8."""

    def printed(*arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "analysis", *arguments, "--database", folder / "a.duckdb"],
            capture_output=True,
            env=os.environ | {"PYTHONIOENCODING": encoding},
            check=False,
        )
        assert (result.returncode, result.stderr) == (0, b"")
        return result.stdout.decode(encoding)

    text = "é€".encode(encoding, "backslashreplace").decode(encoding)
    assert printed("sql", "SELECT 'é€' AS x", "--format", "csv") == f"x\n{text}\n"
    assert text in printed("sql", "SELECT 'é€' AS x")
    assert printed("report", "--out", str(folder / "a.html")).endswith(f"report: {folder / 'a.html'}\n")


HOLES = [
    "COPY pool_share TO '{folder}/out.csv'",
    "COPY pool_share TO '{chain}/out.parquet'",
    "COPY (FROM pool_share) TO '{chain}/blocks/out.parquet' (USE_TMP_FILE false)",
    "EXPLAIN ANALYZE COPY pool_share TO '{chain}/out.parquet'",
    "EXPLAIN (ANALYZE) COPY pool_share TO '{chain}/out.parquet'",
    "/* a comment */ EXPLAIN ANALYZE COPY pool_share TO '{chain}/out.parquet'",
    "EXPORT DATABASE '{folder}/out'",
    "EXPORT DATABASE '{chain}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "FROM read_text('/etc/passwd')",
    "FROM read_blob('/proc/self/environ')",
    "FROM read_text('{chain}/../../secret')",
    "FROM read_csv('{folder}/secret')",
    "FROM '{folder}/secret.csv'",
    "FROM glob('/etc/*')",
    "FROM read_csv('http://127.0.0.1:9/x')",
    "SELECT * FROM query('FROM read_text(''/etc/passwd'')')",
    "ATTACH '{folder}/other.duckdb' AS other",
    "ATTACH '{chain}/other.duckdb' AS other",
    "ATTACH ':memory:' AS other",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD parquet",
    "SET enable_external_access = true",
    "SET allowed_directories = ['/']",
    "SET lock_configuration = false",
    "RESET lock_configuration",
    "SET VARIABLE x = 1",
    "PRAGMA enable_profiling = 'json'",
    "PRAGMA profiling_output = '{folder}/out'",
    "PRAGMA database_list",
    "CALL enable_logging(storage = 'file', storage_path = '{folder}/out')",
    "CREATE TEMP TABLE x AS SELECT 1",
    "CREATE SECRET x (TYPE s3)",
    "PREPARE x AS COPY pool_share TO '{folder}/out.csv'",
    "DROP TABLE pool_share",
    "DELETE FROM pool_share",
    "CHECKPOINT",
]


@pytest.mark.parametrize("hole", HOLES)
def test_a_query_reads_the_database_and_its_dataset_and_no_more(folder: Path, hole: str) -> None:
    """A query can write nothing, read no other file, load no extension and change no setting."""
    chain = next((folder / "dataset").glob("chain=*"))
    for name in ("secret", "secret.csv"):
        (folder / name).write_text("a\nsecret\n")
    with duckdb.connect(str(folder / "other.duckdb")) as other:
        other.execute("CREATE OR REPLACE TABLE t AS SELECT 'secret' AS a")
    before = sorted(path for path in folder.rglob("*"))
    query = hole.format(folder=folder, chain=chain)

    result = run("sql", query, "--database", folder / "a.duckdb")
    with OpenMarts(folder / "a.duckdb") as marts, pytest.raises((DatabaseError, duckdb.Error)):
        marts.sql(query).fetchall()

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("pool-analysis: the query failed: ")
    assert result.stderr.count("\n") == 1
    assert sorted(path for path in folder.rglob("*")) == before


@pytest.mark.parametrize(
    "query",
    [
        "FROM stg_blocks",
        "FROM blocks",
        "SELECT count(*) FROM pool_share",
        "WITH t AS (FROM pool_share) FROM t",
        "VALUES (1)",
        "DESCRIBE pool_share",
        "SUMMARIZE pool_share",
        "SHOW TABLES",
        "EXPLAIN FROM pool_share",
        "EXPLAIN ANALYZE FROM pool_share",
        "PIVOT (SELECT pool, rank FROM pool_share) ON pool USING any_value(rank)",
        "SELECT wilson_interval(1, 2)",
        "  -- a comment\nFROM pool_share;",
    ],
)
def test_what_reads_is_answered(folder: Path, query: str) -> None:
    """A query can use marts, staging, raw tables and our functions, and can be explained."""
    result = run("sql", query, "--database", folder / "a.duckdb")
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout


@pytest.mark.parametrize("explain", ["EXPLAIN", "EXPLAIN ANALYZE"])
def test_a_plan_is_printed_line_by_line(folder: Path, explain: str) -> None:
    """Each line of a plan is a line of output, on a narrow terminal too; a text in it cannot act on one."""
    query = f'{explain} SELECT rank + 1 AS "[red]\x1b[31m" FROM pool_share'  # noqa: S608 - a word of the parameters

    result = run("sql", query, "--database", folder / "a.duckdb", columns=20)

    assert result.returncode == 0, result.stderr
    first, *lines = result.stdout.splitlines()
    assert first in ("physical_plan:", "analyzed_plan:")
    assert {line[0] for line in lines} <= set("╭│╰")
    assert any(re.fullmatch(r"│ .*pool_share *│", line) for line in lines)
    assert "[red]\N{REPLACEMENT CHARACTER}[31m" in result.stdout
    assert "\x1b" not in result.stdout


def test_a_database_from_a_stranger_opens_no_folder(folder: Path, tmp_path: Path) -> None:
    """A folder that a database names is opened only if it is a dataset or has parts; views read no other."""
    hostile = tmp_path / "hostile.duckdb"
    (tmp_path / "secret").write_text("secret")
    for root, chain in ((str(tmp_path), "main"), (str(folder / "dataset"), "../../..")):
        hostile.unlink(missing_ok=True)
        with duckdb.connect(str(hostile)) as connection:
            connection.execute(
                "CREATE TABLE build_log AS FROM (VALUES ('dataset', ?), ('parts', ?)) AS t(key, value)",
                [root, str(tmp_path)],
            )
            connection.execute(
                "CREATE TABLE run_manifest AS FROM (VALUES ('chain', ?)) AS t(key, value)", [chain]
            )
            connection.execute(f"CREATE VIEW pool_share AS FROM read_text('{tmp_path}/secret')")

        result = run("show", "pool_share", "--database", hostile)

        assert result.returncode == 1
        assert "Permission Error" in result.stderr


def test_a_mart_is_a_data_frame(folder: Path) -> None:
    """OpenMarts gives a mart as a DataFrame and times with a zone, and corrects a misspelt name."""
    with OpenMarts(folder / "a.duckdb") as marts:
        frame = marts.df("pool_share")
        times = marts.sql("SELECT header_time FROM chain_blocks ORDER BY height").fetchall()
        with pytest.raises(UnknownRelationError, match=r"'pool_shares'; did you mean pool_share"):
            marts.df("pool_shares")
        with pytest.raises(UnknownRelationError, match=r"'pool_shares'; did you mean pool_share"):
            marts.sql("SELECT * FROM pool_shares")
        with pytest.raises(UnknownRelationError, match="no relation"):
            marts.df("pool_share; DROP TABLE pool_share")

    assert list(frame["pool"])[:1] == ["alder"]
    assert len(frame) == 6
    assert times[0][0].utcoffset() == dt.timedelta(0)


@pytest.mark.parametrize(("query", "count"), [("", 0), ("SELECT 1; SELECT 2", 2)])
def test_no_query_is_left_out_in_silence(folder: Path, query: str, count: int) -> None:
    """`sql` refuses a text of no query, and one of two."""
    result = run("sql", query, "--database", folder / "a.duckdb")
    assert result.returncode == 1
    assert f"one query at a time, this is {count}" in result.stderr


def test_what_is_not_utf8_is_one_sentence(folder: Path) -> None:
    """Neither a query nor a database with such a name can be given to DuckDB."""
    strange = os.fsdecode(b"caf\xe9")
    shutil.copy(folder / "a.duckdb", folder / strange)
    for arguments in (
        (f"SELECT '{strange}'", "--database", folder / "a.duckdb"),
        ("SELECT 1", folder / strange),
    ):
        result = run("sql", *arguments)
        assert (result.returncode, "is not UTF-8" in result.stderr) == (1, True)
        assert len(result.stderr.splitlines()) == 1
    (folder / strange).unlink()


def test_an_interactive_python_gets_no_bar_of_duckdb() -> None:
    """DuckDB takes `python -c` for a terminal, wherever its output goes, and would draw into it."""
    program = (
        "from analysis.database import connect\n"
        "with connect() as connection:\n"
        "    print(connection.execute(\"SELECT current_setting('enable_progress_bar')\").fetchall())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "[(False,)]\n"


def test_the_notebook_runs_from_a_dataset(folder: Path, tmp_path: Path) -> None:
    """The notebook starts with three lines, has no stored output, and all its cells run beside a dataset."""
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert len([line for line in cells[0]["source"] if line.strip()]) == 3
    assert [cell["outputs"] for cell in cells] == [[]] * len(cells)

    opened = next(line.strip() for line in cells[0]["source"] if "open_marts(" in line)
    assert f"\n{opened}" in README.read_text()

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
