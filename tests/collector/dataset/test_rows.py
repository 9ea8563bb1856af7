"""Test that the typed rows have exactly the contract's columns, and that mypy refuses any other."""

import datetime as dt
import subprocess
import sys
import types
from pathlib import Path
from typing import Any, NotRequired, get_args, get_origin, get_type_hints

import pyarrow as pa
import pytest

from collector.dataset.parquet_files import to_batch
from collector.dataset.rows import ROW_TYPES
from collector.dataset.schema import TABLES

ROOT = Path(__file__).resolve().parents[3]


def value_of(type_: Any) -> object:
    """Make a value of a column's Python type; a list has one element."""
    if get_origin(type_) is list:
        return [value_of(get_args(type_)[0])]
    if hasattr(type_, "__total__"):  # a TypedDict
        return {name: value_of(of) for name, of in get_type_hints(type_).items()}
    return {str: "x", int: 1, float: 1.0, bytes: bytes(32), bool: True}[type_]


@pytest.mark.parametrize("name", TABLES)
def test_a_typed_row_has_the_columns_of_its_table(name: str) -> None:
    """A row type has each column of its table; exactly the nullable ones may be left out or None."""
    hints = get_type_hints(ROW_TYPES[name], include_extras=True)
    assert list(hints) == [column.name for column in TABLES[name].columns]
    for column in TABLES[name].columns:
        hint = hints[column.name]
        may_lack = get_origin(hint) is NotRequired
        inner = get_args(hint)[0] if may_lack else hint
        may_be_none = isinstance(inner, types.UnionType) and type(None) in get_args(inner)
        assert (may_lack, may_be_none) == (column.nullable, column.nullable), column.name


@pytest.mark.parametrize("name", TABLES)
def test_a_row_of_that_type_can_be_written(name: str) -> None:
    """Values of the types in the row fit the Arrow types of the contract."""
    table = TABLES[name]
    row = {}
    for column, hint in get_type_hints(ROW_TYPES[name]).items():
        options = get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
        row[column] = value_of(options[0])
    for column in table.columns:  # a closed set has values of its own
        if column.values:
            row[column.name] = [column.values[0]] if pa.types.is_list(column.type) else column.values[0]
    (read,) = to_batch(table, [row]).to_pylist()
    assert read.keys() == row.keys()
    moments = {name for name, value in read.items() if isinstance(value, dt.datetime)}
    assert {name: read[name] for name in read.keys() - moments} == {
        name: row[name] for name in row.keys() - moments
    }


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ('{"source": "s", "height": 1, "label": "l"}', ""),
        ('{"source": "s", "heigth": 1, "label": "l"}', '"heigth"'),
        ('{"source": "s", "label": "l"}', '"height"'),
        ('{"source": "s", "height": "1", "label": "l"}', '"height" has type "int"'),
    ],
    ids=["right", "misspelt", "missing", "other type"],
)
def test_mypy_refuses_a_row_that_is_none(tmp_path: Path, row: str, complaint: str) -> None:
    """A misspelt or missing column and a value of another type are errors before anything runs."""
    snippet = tmp_path / "snippet.py"
    snippet.write_text(
        f"from collector.dataset.rows import ExternalPoolLabelRow\n\nROW: ExternalPoolLabelRow = {row}\n"
    )
    options = ["--strict", "--config-file=", "--no-error-summary", f"--cache-dir={tmp_path.parent / 'mypy'}"]
    said = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(snippet)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == bool(complaint), said.stdout + said.stderr
    assert complaint in said.stdout
