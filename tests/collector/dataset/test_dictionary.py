"""Test that the data dictionary matches the contract, and that its examples run."""

import re
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from collector.dataset.dictionary import markdown, type_name
from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS, TABLES, TRANSACTIONS


@pytest.fixture(scope="module")
def readme(repo_root: Path) -> str:
    """Read data/README.md."""
    return (repo_root / "data" / "README.md").read_text()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder in which data/dataset holds one block of two transactions at height 900,000."""
    folder = tmp_path_factory.mktemp("reader")
    dataset = Dataset.open(folder / "data" / "dataset", "main", create=True)
    for table, count in ((BLOCKS, 1), (TRANSACTIONS, 2)):
        rows = [
            {column.name: example(column.type, index, column.values) for column in table.columns}
            | {"height": 900_000, "block_hash": bytes(31) + b"\xab"}
            for index in range(count)
        ]
        dataset.write(table, rows, stem="example")
    return folder


def example(type_: pa.DataType, index: int, values: tuple[str, ...]) -> object:
    """Return a value that fits a column's type, for row 0 or 1."""
    if pa.types.is_boolean(type_):
        return index == 0
    if pa.types.is_list(type_):
        return []
    if pa.types.is_string(type_):
        return values[index] if values else "text"
    return bytes([index]) * 32 if "binary" in str(type_) else index


def snippets(readme: str, language: str) -> list[str]:
    """Return the code examples of data/README.md in a language."""
    return re.findall(rf"```{language}\n(.*?)```", readme, re.DOTALL)


def test_the_committed_dictionary_is_current(readme: str) -> None:
    """data/README.md equals what `make docs` generates from the contract."""
    assert markdown() in readme


@pytest.mark.parametrize("name", TABLES)
def test_every_column_is_explained(name: str) -> None:
    """Each table has a section, and each column a row with its type, sentence and closed set."""
    (section,) = re.findall(rf"### `{name}`\n(.*?)(?=\n### |\Z)", markdown(), re.DOTALL)
    for column in TABLES[name].columns:
        (line,) = [line for line in section.splitlines() if line.startswith(f"| `{column.name}` |")]
        assert column.doc in line
        assert type_name(column.type) in line
        assert ("| yes |" in line) == column.nullable
        assert all(f"`{value}`" in line for value in column.values)


def test_the_sql_example_reads_heights_and_hashes(readme: str, folder: Path) -> None:
    """DuckDB finds the block by the documented query."""
    (query,) = snippets(readme, "sql")
    connection = duckdb.connect()
    for statement in query.replace("data/dataset", str(folder / "data" / "dataset")).split(";"):
        if statement.strip():
            result = connection.execute(statement)

    height, n_tx, _, block_hash = result.fetchall()[0]
    assert (height, n_tx, block_hash) == (900_000, 0, "ab" + "00" * 31)


@pytest.mark.parametrize(
    ("index", "check", "expected"),
    [
        (0, "print(list(blocks.height), *blocks.hash)", f"[900000] ab{'00' * 31}\n"),
        (1, "print(table.num_rows, table.column_names)", "1 ['height', 'txid', 'fee_sat', 'vsize_vb']\n"),
    ],
)
def test_the_python_examples_run(readme: str, folder: Path, index: int, check: str, expected: str) -> None:
    """Pandas and pyarrow read the dataset by the documented lines."""
    code = snippets(readme, "python")[index] + check
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith(expected)
