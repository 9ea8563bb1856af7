"""Test the command line as a user runs it: exit codes, and what it prints to which stream."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest

from analysis.catalog import load_catalog, read_models
from analysis.cli import main
from analysis.engine import build
from analysis.relations import RAW_TABLES
from collector.dataset.schema import TABLES
from tests.analysis.shared_build import RULES
from tests.analysis.world import label_bytes, write_world
from tests.pseudo_terminal import pseudo_terminal

ESCAPE = "\x1b[31mred\x1b[0m"
HOSTILE = f"/Alpha/{ESCAPE}<script>'\"; DROP TABLE blocks; --"


class Result(NamedTuple):
    """Holds the exit code and the two output streams of one run of the command."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: str | Path, columns: int = 200) -> Result:
    """Run pool-analysis with these arguments in this process, without a terminal."""
    out, err, returncode = io.StringIO(), io.StringIO(), 0
    with (
        mock.patch.object(sys, "argv", ["pool-analysis", *map(str, arguments)]),
        mock.patch.dict(os.environ, {"COLUMNS": str(columns), "NO_COLOR": "1"}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as end:
            returncode = int(end.code or 0)
    return Result(returncode, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a dataset of three blocks; the second has hostile text in its coinbase."""
    blocks = [
        {"block_hash": "a1", "height": 1, "coinbase_script": "/Alpha/", "arrived_at": 1},
        {"block_hash": "a2", "prev_hash": "a1", "height": 2, "coinbase_script": HOSTILE, "arrived_at": 9.5},
        {"block_hash": "u3", "prev_hash": "a2", "height": 3, "coinbase_script": "?"},
    ]
    return write_world(tmp_path_factory.mktemp("cli") / "dataset", {"blocks": blocks})


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a rule folder in which a pool has a hostile name."""
    folder = tmp_path_factory.mktemp("rules")
    name = json.dumps(f"Alpha {ESCAPE}")
    (folder / "alpha.toml").write_text(f'name = {name}\n[[rules]]\ntag = "/Alpha/"\nsource = "test"\n')
    return folder


@pytest.fixture(scope="module")
def database(dataset: Path, rules: Path) -> Path:
    """Build the dataset with the rules through the command line."""
    path = dataset.parent / "analysis.duckdb"
    result = run("build", "--dataset", dataset, "--database", path, "--pools", rules)
    assert result.returncode == 0, result.stderr
    assert str(path) in result.stdout
    return path


def test_a_build_says_how_to_name_rules_where_ours_name_nothing(
    dataset: Path, rules: Path, tmp_path: Path
) -> None:
    """The project's rules are of the main network, so on another chain a stranger needs rules of his own."""
    ours = run("build", "--dataset", dataset, "--database", tmp_path / "a.duckdb")
    given = run("build", "--dataset", dataset, "--database", tmp_path / "a.duckdb", "--pools", rules)

    assert "not regtest: name others with --pools" in ours.stdout
    assert "--pools" not in given.stdout


def test_build_reports_failed_checks_and_exits_1(tmp_path: Path) -> None:
    """`build`, `check` and `report` exit with 1 and name the failed check; no report is written."""
    block = {"block_hash": "a1", "height": 1, "coinbase_value_sat": 1, "fees_sat": 0}
    dataset = write_world(tmp_path / "dataset", {"blocks": [block]})
    database = tmp_path / "analysis.duckdb"

    results = [
        run("build", "--dataset", dataset, "--database", database),
        run("check", "--database", database),
        run("report", "--database", database, "--out", tmp_path / "report.html"),
    ]

    assert [result.returncode for result in results] == [1, 1, 1]
    assert "fail: coinbase_within_reward: offending rows: 1." in results[0].stderr
    assert all("checks failed: coinbase_within_reward" in result.stderr for result in results)
    assert not (tmp_path / "report.html").exists()


def test_check_prints_how_many_passed(database: Path) -> None:
    """`check` prints how many checks of the last build passed."""
    result = run("check", "--database", database)

    assert result.returncode == 0
    assert "checks: " in result.stdout


def test_list_names_every_relation_with_layer_grain_and_summary() -> None:
    """`list` prints one line per relation, marts first."""
    lines = run("list", columns=400).stdout.splitlines()

    assert lines[0].split() == ["name", "layer", "grain", "summary"]
    assert any(line.split()[:4] == ["pool_share_day", "marts", "day,", "pool"] for line in lines)
    layers = [line.split()[1] for line in lines[1:]]
    assert layers == sorted(layers, key=["marts", "staging", "checks"].index)


def test_raw_tables_are_named_and_shown(database: Path) -> None:
    """`list` names the raw tables on standard error, and `show` shows one."""
    assert sorted(TABLES) == list(RAW_TABLES)
    assert run("list").stderr.rstrip().split(": ")[1].split(", ") == sorted(TABLES)
    assert run("show", "blocks", "--database", database, "--format", "csv").stdout.startswith("block_hash,")


def test_list_and_describe_are_rows_for_programs_too() -> None:
    """`list` and `describe` write JSON and CSV; `describe` gives a row per column."""
    listed = json.loads(run("list", "--format", "json").stdout)
    assert {"name": "pool_share", "layer": "marts", "grain": "pool"}.items() <= next(
        row.items() for row in listed if row["name"] == "pool_share"
    )
    assert len(list(csv.DictReader(io.StringIO(run("list", "--format", "csv").stdout)))) == len(listed)
    for name in ("block_facts", "blocks"):
        rows = json.loads(run("describe", name, "--format", "json").stdout)
        assert rows[0].keys() == {"relation", "column", "type", "meaning", "in_grain"}
        (key,) = [row for row in rows if row["column"] == "block_hash"]
        assert (key["relation"], key["type"], key["in_grain"]) == (name, "BLOB", True)


def test_describe_says_how_a_relation_is_made() -> None:
    """`describe` prints paragraph, grain, sources, parameters and columns with their units."""
    text = run("describe", "feerate_age_block").stdout

    assert "The mempool of a node (mempool_residence) is ranked at every moment" in text
    assert "grain: block_hash, node, age_s, feerate_kind" in text
    assert "reads: block_pool, chain_blocks, mempool_clusters" in text
    assert "parameter n_age_buckets = 128: buckets per span and node" in text
    assert any(
        line.strip().split(maxsplit=2)
        == ["age_s", "DOUBLE", "s before the block, as one of the parameter ages_s"]
        for line in text.splitlines()
    )
    assert "stays_overlap (checks)" in run("describe", "stays_overlap").stdout
    assert "nodes (raw)" in run("describe", "nodes").stdout


@pytest.mark.parametrize(
    "command", [["describe", "pool_shar"], ["show", "pool_shar"], ["sql", "FROM pool_shar"]]
)
def test_a_misspelt_relation_is_answered_with_the_nearest(database: Path, command: list[str]) -> None:
    """Each command that takes a relation names those that the writer may have meant, and exits with 1."""
    more = [] if command[0] == "describe" else ["--database", database]
    result = run(*command, *more)

    assert result.returncode == 1
    assert "there is no relation 'pool_shar'; did you mean pool_share" in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["describe", "POOL_SHARE"], ["show", "POOL_SHARE"]])
def test_a_relation_in_capitals_is_answered_with_its_name(command: list[str]) -> None:
    """Names are written in small letters; the answer to another case is the name as it is written."""
    result = run(*command)

    assert result.returncode == 1
    assert f"there is no relation '{command[1]}'; did you mean pool_share" in result.stderr


@pytest.mark.parametrize("command", [["show", "shares_sum_to_one"], ["sql", "FROM shares_sum_to_one"]])
def test_a_check_in_the_place_of_a_relation_is_told(database: Path, command: list[str]) -> None:
    """`list` names checks, too; they have no rows, and the answer says which command has their results."""
    result = run(*command, "--database", database)

    assert result.returncode == 1
    assert "shares_sum_to_one is a check" in result.stderr
    assert "pool-analysis check shows its result" in result.stderr
    assert "no relation" not in result.stderr


def test_json_and_csv_are_exact(database: Path) -> None:
    """`show` gives the same values as JSON and CSV: hashes in display order, times in UTC, nulls."""
    rows = json.loads(run("show", "block_pool", "--database", database, "--format", "json").stdout)
    text = run("show", "block_pool", "--database", database, "--format", "csv").stdout
    lines = list(csv.DictReader(io.StringIO(text, newline="")))

    assert [row["block_hash"] for row in rows] == [label_bytes(h)[::-1].hex() for h in ("a1", "a2", "u3")]
    assert rows[0]["pool_name"] == f"Alpha {ESCAPE}"
    assert rows[1]["conflicts"] == json.loads(lines[1]["conflicts"]) == []
    assert rows[2]["method"] is None
    assert lines[2]["method"] == ""
    arrivals = json.loads(run("show", "chain_blocks", "--database", database, "--format", "json").stdout)
    assert [row["arrived_at"] for row in arrivals] == [
        "2026-01-01T00:00:01Z",
        "2026-01-01T00:00:09.500000Z",
        None,
    ]


def test_a_long_table_is_cut_and_says_so(tmp_path: Path) -> None:
    """A table shows 40 rows unless --limit says otherwise; CSV and JSON have all rows."""
    blocks = [{"block_hash": f"a{i}", "prev_hash": f"a{i - 1}", "height": i} for i in range(1, 51)]
    database = tmp_path / "analysis.duckdb"
    build(write_world(tmp_path / "dataset", {"blocks": blocks}), RULES, database, marts=["chain_blocks"])

    short, long = (
        run("show", "chain_blocks", "--database", database, *more) for more in ([], ["--limit", "99"])
    )

    assert short.stdout.count("\n") == 1 + 40
    assert "more than 40 rows" in short.stderr
    assert long.stdout.count("\n") == 1 + 50
    assert long.stderr == ""


def test_show_sorts_a_view_by_its_grain(database: Path) -> None:
    """A view has no order of its own; the same call prints the same rows in the same order."""
    printed = run("show", "stg_blocks", "--database", database, "--format", "json").stdout
    hashes = [bytes.fromhex(row["block_hash"])[::-1] for row in json.loads(printed)]

    assert len(hashes) > 1
    assert hashes == sorted(hashes)


def test_staging_without_its_dataset_is_one_sentence(tmp_path: Path) -> None:
    """After the dataset is deleted, `show` and `sql` show marts; for a staging view they say what to do."""
    dataset = write_world(tmp_path / "dataset", {"blocks": [{"block_hash": "a1", "height": 1}]})
    database = tmp_path / "analysis.duckdb"
    build(dataset, RULES, database, marts=["chain_blocks", "run_manifest"])
    shutil.rmtree(dataset)

    assert run("show", "chain_blocks", "--database", database).returncode == 0
    for command in (["show", "stg_blocks"], ["sql", "FROM blocks"]):
        result = run(*command, "--database", database)
        assert result.returncode == 1
        assert f"the dataset {dataset} is not there; put it back, or build again with" in result.stderr
        assert result.stderr.count("\n") == 1
    assert "/etc/hostname" in run("sql", "FROM read_text('/etc/hostname')", "--database", database).stderr


def test_json_of_nothing_is_an_empty_list(database: Path) -> None:
    """A relation without rows gives an empty JSON array and a CSV header."""
    assert (
        json.loads(
            run("show", "mempool_cuts", "--database", database, "--format", "json", "--limit", "0").stdout
        )
        == []
    )
    assert (
        run("show", "pool_share", "--database", database, "--format", "csv", "--limit", "0").stdout.count(
            "\n"
        )
        == 1
    )


def test_hostile_text_cannot_act_on_a_terminal(database: Path) -> None:
    """No output format contains an escape character."""
    for name in ("block_pool", "pool_share"):
        for form in ("table", "csv", "json"):
            shown = on_a_terminal("show", name, "--database", str(database), "--format", form)
            assert "red" in shown
            assert "\x1b[31m" not in shown


FORMULA = "=cmd|' /C calc'!A0"


@pytest.mark.parametrize(
    ("name", "in_csv"),
    [
        (FORMULA, f"'{FORMULA}"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\uff1d1", "'\uff1d1"),
        ("Pool \x1b]0;x\x07 \u202efdp", "Pool \ufffd]0;x\ufffd \ufffdfdp"),
        ("Pool \x9b31m", "Pool \ufffd31m"),
        ("Plain = Pool", "Plain = Pool"),
    ],
)
def test_what_strangers_write_is_inert_in_every_format(tmp_path: Path, name: str, in_csv: str) -> None:
    """A pool's hostile name is no formula in CSV and no control character in any format."""
    pools, database = tmp_path / "pools", tmp_path / "a.duckdb"
    pools.mkdir()
    (pools / "alpha.toml").write_text(
        f'name = {json.dumps(name)}\n[[rules]]\ntag = "/Alpha/"\nsource = "test"\n', encoding="utf-8"
    )
    block = {"block_hash": "a1", "height": 1, "coinbase_script": "/Alpha/"}
    dataset = write_world(tmp_path / "dataset", {"blocks": [block]})
    build(dataset, pools, database, marts=["block_pool", "run_manifest"])

    shown = {
        form: run("show", "block_pool", "--database", database, "--format", form).stdout
        for form in ("csv", "json", "table")
    }

    (row,) = csv.DictReader(io.StringIO(shown["csv"], newline=""))
    assert row["pool_name"] == in_csv
    assert json.loads(shown["json"])[0]["pool_name"] == name
    for text in shown.values():
        assert all(character.isprintable() or character == "\n" for character in text)


def test_numbers_below_zero_stay_numbers_in_csv(database: Path) -> None:
    """A negative number in CSV gets no apostrophe, as a text that begins with a minus would."""
    result = run("sql", "SELECT -1 AS n, -0.5::DOUBLE AS x", "--database", database, "--format", "csv")
    assert result.stdout == "n,x\n-1,-0.5\n"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["build", "{dataset}", "--database", "{file}/a.duckdb"], "--database"),
        (["report", "{database}", "--out", "{file}/report.html"], "--out"),
        (["report", "{database}", "--out", "{folder}/r.html", "--figures", "{file}"], "--figures"),
        (["release", "{database}", "--out", "{file}/release"], "--out"),
        (["sql-for", "spark", "{file}/sql"], "folder"),
    ],
)
def test_a_file_in_the_place_of_a_folder_is_one_sentence(
    dataset: Path, database: Path, tmp_path: Path, arguments: list[str], option: str
) -> None:
    """It says what stands in the way and which option to change, and the file stays."""
    (tmp_path / "file").write_text("mine")
    places = {"dataset": dataset, "database": database, "file": tmp_path / "file", "folder": tmp_path}
    result = run(*(word.format(**places) for word in arguments))

    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "a part of this path is a file, not a folder" in result.stderr
    assert f"choose another {option}" in result.stderr
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_list_says_what_each_relation_is_on_a_terminal_of_any_width(columns: int) -> None:
    """A narrow terminal loses the grain, never a name or a word of the summary; a last line says so."""
    shown = re.sub(r"\x1b\[\d*m", "", on_a_terminal("list", columns=columns))
    header, *lines = shown.splitlines()

    at = header.index("summary")
    begin = next(number for number, line in enumerate(lines) if line.startswith("stays_overlap "))
    end = next(number for number in range(begin + 1, len(lines)) if lines[number][:1].isalpha())
    words = " ".join(line[at:].strip() for line in lines[begin:end])
    assert words == load_catalog().by_name["stays_overlap"].summary
    assert any(line.startswith("own_transactions_were_waiting ") for line in lines)
    assert ("left out on a terminal of this width: grain" in shown) == (columns < 110)


@pytest.mark.parametrize("call", ["check", "list"])
def test_a_terminal_too_narrow_for_columns_shows_blocks(database: Path, call: str) -> None:
    """40 columns cut no name, no heading and no outcome: each row is a block with all its columns."""
    arguments = (call, str(database)) if call == "check" else (call,)
    shown = re.sub(r"\x1b\[\d*m", "", on_a_terminal(*arguments, columns=40))
    names = {model.name for model in read_models() if call == "list" or model.layer == "checks"}
    found = set(re.findall(r"^name +(\w+) *\r?$", shown, re.MULTILINE))
    assert {name for name in names if len(name) <= 27} <= found
    count = shown.count("-- row ")
    for column in ("outcome", "n_offending", "reason") if call == "check" else ("layer", "summary"):
        assert len(re.findall(rf"^{column}( |\r?$)", shown, re.MULTILINE)) == count
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown


def on_a_terminal(*arguments: str, columns: int = 100) -> str:
    """Run the command with a terminal as standard output and return what the terminal shows."""
    with (
        pseudo_terminal() as (terminal, chunks),
        os.fdopen(os.dup(terminal), "w") as screen,
        mock.patch.object(sys, "argv", ["pool-analysis", *arguments]),
        mock.patch.dict(os.environ, {"TERM": "xterm-256color", "COLUMNS": str(columns)}),
        redirect_stdout(screen),
        pytest.raises(SystemExit) as end,
    ):
        main()
    assert not end.value.code
    return b"".join(chunks).decode()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "no_such_mart"], "there is no relation 'no_such_mart'"),
        (["show", "pool_share; DROP TABLE pools"], "there is no relation"),
        (["show", "pool_share", "--database", "nowhere.duckdb"], "there is no database nowhere.duckdb"),
        (["build", "--dataset", "nowhere"], "there is no dataset nowhere"),
        (["build", "--dataset", "pyproject.toml"], "pyproject.toml is no folder"),
        (["show", "pool_share", "--database", "tests"], "tests is a folder"),
        (["build", "--pools", "nowhere"], "nowhere"),
        (["report", "--database", "nowhere.duckdb"], "there is no database nowhere.duckdb"),
        (["check", "--database", "nowhere.duckdb"], "there is no database nowhere.duckdb"),
    ],
)
def test_failure_is_one_sentence_and_exit_1(arguments: list[str], message: str) -> None:
    """A failure prints one line that says what to do, without a traceback, and exits with 1."""
    result = run(*arguments)

    assert result.returncode == 1
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["frobnicate"],
        ["build", "--frobnicate"],
        ["build", "--plan", "--watch"],
        ["show"],
        ["show", "x", "--format", "xml"],
    ],
)
def test_wrong_usage_is_exit_2(arguments: list[str]) -> None:
    """An unknown verb, option or value, or a missing argument, exits with 2."""
    assert run(*arguments).returncode == 2


def test_a_reader_that_has_enough_is_no_failure_of_ours(database: Path) -> None:
    """A program that closes our output pipe early causes no traceback."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "analysis",
            "show",
            "stg_blocks",
            "--database",
            str(database),
            "--format",
            "csv",
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.close()
    _, errors = process.communicate()
    assert "Traceback" not in errors


def test_version_is_told() -> None:
    """--version prints the name of the command and its version."""
    result = run("--version")

    assert result.returncode == 0
    assert result.stdout.startswith("pool-analysis 0.")
