"""Test what our three commands have in common: a fast start, one way to name a dataset, completion."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer import Typer
from typer.main import get_command
from typer.testing import CliRunner

from analysis.cli import app as analysis_app
from collector.cli import app as collector_app
from gpuhash.cli import app as gpuhash_app

# Each takes a tenth of a second or more to import.
SLOW = {"duckdb", "numba", "numpy", "pandas", "pyarrow", "requests", "scipy", "sqlglot", "structlog"}
LOADED = """
import runpy, sys
module, sys.argv = sys.argv[1], ["x", *sys.argv[2:]]
try:
    runpy.run_module(module, run_name="__main__", alter_sys=True)
except SystemExit:
    pass
finally:
    print("loaded:", *sorted(name for name in sys.modules if "." not in name), file=sys.stderr)
"""
PROGRAMS = {"pool-collector": "collector", "pool-analysis": "analysis", "gpuhash": "gpuhash"}


def ended(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments until it ends; return its status and output."""
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"COLUMNS": "100"} | environment,
    )


@pytest.mark.parametrize(
    "call",
    [
        "collector --help",
        "collector --version",
        "collector backfill --help",
        "analysis --help",
        "analysis list",
        "analysis show no_such_relation",
        "gpuhash --help",
        "gpuhash bench --help",
    ],
)
def test_what_needs_no_library_loads_none(call: str) -> None:
    """Help, lists and wrong usage do not wait for libraries that only other commands use."""
    said = ended("-c", LOADED, *call.split()).stderr.rpartition("loaded:")[2].split()

    assert "typer" in said
    assert SLOW.intersection(said) == set()


def test_what_a_query_reads_is_parsed_once(tmp_path: Path) -> None:
    """The first `describe` of a mart parses its query; a later one loads no library."""
    home = {"XDG_CACHE_HOME": str(tmp_path)}
    first, second = (ended("-c", LOADED, "analysis", "describe", "pool_share", **home) for _ in range(2))

    assert "sqlglot" in first.stderr.rpartition("loaded:")[2].split()
    assert SLOW.intersection(second.stderr.rpartition("loaded:")[2].split()) == set()
    assert first.stdout == second.stdout
    assert "reads: block_pool" in first.stdout


@pytest.mark.parametrize("call", ["status", "check", "compact", "mend", "run --dry-run"])
def test_a_dataset_is_named_in_either_way(call: str, tmp_path: Path) -> None:
    """The argument and the option mean the same folder; two different folders are wrong usage."""
    command = ("-m", "collector", *call.split())
    one, other = str(tmp_path / "one"), str(tmp_path / "other")

    as_argument, as_option = ended(*command, one), ended(*command, "--dataset", one)
    both, differing = ended(*command, one, "--dataset", one), ended(*command, one, "--dataset", other)

    assert as_argument.returncode == 1
    assert as_argument.stderr == as_option.stderr == both.stderr
    assert differing.returncode == 2
    assert "give one dataset" in " ".join(
        differing.stderr.replace("│", " ").split()
    )  # the frame breaks lines


@pytest.mark.parametrize("call", ["status", "check", "compact", "mend", "catalog", "run --dry-run"])
def test_a_settings_file_names_the_dataset(call: str, tmp_path: Path) -> None:
    """A folder that the command names goes before it."""
    config = tmp_path / "collector.toml"
    config.write_text(f'dataset = "{tmp_path / "of_the_file"}"\n')
    (tmp_path / "of_the_file").write_text("no folder")
    (tmp_path / "other").write_text("no folder")
    command = ("-m", "collector", *call.split(), "--config", str(config))

    alone, beside = ended(*command), ended(*command, str(tmp_path / "other"))

    assert alone.returncode == beside.returncode == 1
    assert f"{tmp_path / 'of_the_file'}" in alone.stderr
    assert f"{tmp_path / 'other'}" in beside.stderr


@pytest.mark.parametrize("call", ["show pool_share", "sql select", "check", "report"])
def test_a_database_is_named_in_either_way(call: str, tmp_path: Path) -> None:
    """The argument and the option mean the same file, which is not there."""
    command = ("-m", "analysis", *call.split())
    one, other = str(tmp_path / "one"), str(tmp_path / "other")

    as_argument, as_option = ended(*command, one), ended(*command, "--database", one)

    assert as_argument.returncode == 1
    assert as_argument.stderr == as_option.stderr
    assert f"there is no database {one}" in as_option.stderr
    assert ended(*command, one, "--database", other).returncode == 2


def help_of(app: Typer, *verb: str) -> list[str]:
    """Return the lines of a command's help on a terminal of 80 columns."""
    return CliRunner().invoke(app, [*verb, "--help"], env={"COLUMNS": "80"}).stdout.splitlines()


@pytest.mark.parametrize("app", [collector_app, analysis_app, gpuhash_app])
def test_help_fits_a_terminal_of_80_columns(app: Typer) -> None:
    """No list of values is broken inside a word, and a paragraph has one short line, its last."""
    for verb in get_command(app).commands:  # type: ignore[attr-defined]
        lines = help_of(app, verb)

        assert max(map(len, lines)) == 80
        for line in lines:
            assert len(re.findall(r"<(?!=)", line)) == len(re.findall(r">(?!=)", line)), (verb, line)
        text = "\n".join(line.rstrip() for line in lines).partition("╭")[0].split("\n\n")
        for paragraph in text[2:]:
            begun, *others = paragraph.strip("\n").split("\n")
            for line, after in zip([begun, *others], others, strict=False):
                assert len(line) + len(after.split()[0]) >= 79, (verb, line)


@pytest.mark.parametrize(
    ("program", "begun", "offered"),
    [
        ("pool-collector", "back", {"backfill"}),
        ("pool-collector", "status --", {"--dataset", "--chain", "--json", "--help"}),
        ("pool-analysis", "show pool_sh", {"pool_share"}),
        ("gpuhash", "ver", {"verify"}),
    ],
)
def test_bash_completes_what_was_begun(program: str, begun: str, offered: set[str]) -> None:
    """The script that `--show-completion` prints makes bash offer commands, options and relations."""
    detected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = ended("-m", PROGRAMS[program], "--show-completion", "bash", **detected).stdout
    script = script.replace(" $1 ", f" {sys.executable} -m {PROGRAMS[program]} ")
    function = f"_{program.replace('-', '_')}_completion"
    words = [program, *begun.split(" ")]
    ask = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; {function} {program}"

    said = subprocess.run(
        ["bash", "-c", f'{script}\n{ask}; printf "%s\\n" "${{COMPREPLY[@]}}"'],
        capture_output=True,
        text=True,
        check=True,
    )

    assert offered <= set(said.stdout.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_other_shells_have_a_script(program: str, shell: str) -> None:
    """The script for zsh and fish names the program."""
    detected = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = ended("-m", PROGRAMS[program], "--show-completion", shell, **detected)

    assert done.returncode == 0
    assert program in done.stdout
