"""Test that our commands cut nothing on a narrow terminal: rows become blocks of lines, sentences wrap."""

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from collector.dataset.schema import TABLES
from collector.status.gather import gather
from tests.collector.check.made_dataset import make_rows, write
from tests.pseudo_terminal import pseudo_terminal


def shown(columns: int, *arguments: str) -> list[str]:
    """Run Python with these arguments on a terminal of that width; return the lines that it shows."""
    environment = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
    with pseudo_terminal() as (terminal, chunks):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        done = subprocess.run(
            [sys.executable, *arguments],
            stdin=terminal,
            stdout=terminal,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment | {"TERM": "xterm", "NO_COLOR": "1"},
        )
    assert done.returncode == 0, done.stderr
    return re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", b"".join(chunks).decode()).splitlines()


def blocks(lines: list[str]) -> list[dict[str, str]]:
    """Return the rows that are shown as blocks: each text, its lines joined, by the name of its column."""
    found: list[dict[str, str]] = []
    for line in lines:
        if line.startswith("-- row "):
            found.append({})
        elif found and not line.strip():
            break
        elif found and (cells := re.fullmatch(r"(\S+(?: \S+)*)?(?: {2,}(.*))?", line.rstrip())):
            name = cells[1] or next(reversed(found[-1]), "")
            before = "" if cells[1] else f"{found[-1].get(name, '')} "
            found[-1][name] = before + (cells[2] or "").strip()
    return found


def test_status_shows_each_table_as_a_block(tmp_path: Path) -> None:
    """40 columns hold every name, number and time."""
    dataset = write(tmp_path / "d", make_rows())
    lines = shown(40, "-m", "collector", "status", str(dataset.root))
    tables = {row["table"]: row for row in blocks(lines)}
    assert tables.keys() == {table.name for table in gather(dataset).tables if table.n_files}
    assert {len(row) for row in tables.values()} == {6}
    assert tables["blocks"]["MB"] == "0.0"
    assert tables["blocks"]["last (UTC)"] == "block 102"
    assert tables["mempool_events"]["first (UTC)"] == "2024-10-04 00:00"
    assert "\N{HORIZONTAL ELLIPSIS}" not in "".join(lines)


def test_check_shows_each_check_as_a_block(tmp_path: Path) -> None:
    """40 columns hold every result and what it means."""
    dataset = write(tmp_path / "d", make_rows())
    rows = blocks(shown(40, "-m", "collector", "check", str(dataset.root)))
    wide = shown(200, "-m", "collector", "check", str(dataset.root))
    at = wide[0].index("ok means")
    named = {line.split()[0]: line[at:].strip() for line in wide[1 : len(rows) + 1]}
    assert len(rows) == len(named)
    for row in rows:
        assert row["result"] in {"ok", "no data"}
        assert row["ok means"].replace(" ", "") == named[row["check"]].replace(" ", "")


@pytest.mark.parametrize("columns", [40, 80])
@pytest.mark.parametrize(
    "call",
    ["collector schema", "collector fetch", "analysis describe fee_capture", "analysis describe blocks"],
)
def test_sentences_wrap_between_words(call: str, columns: int) -> None:
    """The words are those of a wide terminal; only a word that is longer than a line goes over its end."""
    arguments = ("-m", *call.split())
    lines = [line.rstrip() for line in shown(columns, *arguments)]
    long = [line for line in lines if len(line) > columns and not line.startswith("fetch one with: ")]
    assert [line for line in long if len(line.split()) > 1] == []
    narrow, wide = (" ".join(text).split() for text in (lines, shown(500, *arguments)))
    if not call.startswith("analysis"):  # whose columns are a table
        assert narrow == wide
    for table in TABLES.values() if call == "collector schema" else ():
        assert f"{table.name}:" in narrow


def test_the_columns_of_a_relation_are_blocks() -> None:
    """`describe` shows each column with its whole type and meaning."""
    rows = {row["column"]: row for row in blocks(shown(40, "-m", "analysis", "describe", "fee_capture"))}
    assert rows["captured_full_high_ratio"]["type"] == "DOUBLE"
    assert rows["captured_full_high_ratio"]["meaning"] == "0..1, upper bound of the 95 % interval"
