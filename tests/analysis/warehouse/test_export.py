"""Test what `pool-analysis sql-for` writes, and what it says where it cannot."""

import subprocess
import sys
from pathlib import Path

import pytest

from analysis.catalog import load_catalog
from analysis.errors import CatalogError, WarehouseError
from analysis.warehouse.export import write_folder
from analysis.warehouse.functions import SPARK_FUNCTIONS, spark_type
from analysis.warehouse.run import read_folder
from analysis.warehouse.translate import translated_query


def in_spark(sql: str) -> str:
    """Translate one query and write it on one line."""
    return " ".join(translated_query(sql, {}, load_catalog().macros).split())


def test_every_model_has_a_file_in_the_order_of_a_build(tmp_path: Path) -> None:
    """The files make all staging views and marts, in the order of the catalog, and no macro is left."""
    catalog = load_catalog()
    n_files = write_folder(tmp_path / "spark")

    files = read_folder(tmp_path / "spark")
    models = [model.name for model in (*catalog.layer("staging"), *catalog.layer("marts"))]
    assert len(files) == n_files
    assert [file.name for file in files if file.name in models] == models
    assert [file.name for file in files if "getvariable" in file.sql.lower()] == []
    assert {path.name for path in (tmp_path / "spark").iterdir()} >= {"README.md", "functions.py", "run.py"}


def test_a_folder_is_written_anew_and_other_files_are_kept(tmp_path: Path) -> None:
    """A second call leaves no file of the first; a folder with other files is refused."""
    n_before = write_folder(tmp_path, ["block_order"])
    n_files = write_folder(tmp_path, ["pool_share"])

    assert n_files < n_before
    assert len(list(tmp_path.glob("*.sql"))) == n_files
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for name, text in (("mine.txt", ""), ("001_mine.sql", "select 1\n"), ("query.sql", "-- mart: mine\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        with pytest.raises(WarehouseError, match=rf"has other files \({name}\)"):
            write_folder(tmp_path)
        (tmp_path / name).unlink()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "README.md").write_text("# Mine\n", encoding="utf-8")
    with pytest.raises(WarehouseError, match=r"has other files \(README.md\)"):
        write_folder(tmp_path)


def test_the_command_writes_some_marts(tmp_path: Path) -> None:
    """`sql-for spark DIR --mart` writes a mart and what it reads; a name that is no mart is one sentence."""
    command = [sys.executable, "-m", "analysis", "sql-for", "spark", str(tmp_path / "spark"), "--mart"]
    good = subprocess.run([*command, "block_pool"], capture_output=True, text=True, check=True)
    bad = subprocess.run([*command, "shares"], capture_output=True, text=True, check=False)

    names = {file.name for file in read_folder(tmp_path / "spark")}
    assert {"stg_blocks", "block_facts", "block_pool"} <= names
    assert "pool_share" not in names
    assert "SQL files" in good.stdout
    assert (bad.returncode, bad.stderr.count("\n")) == (1, 1)
    assert "there is no mart shares" in bad.stderr


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("select list(a order by a desc, b) from t", "sort in one direction"),
        ("select unnest([1, 2]) as a, b, unnest([3, 4]) as c from t", "write them in a row"),
        ("select * from a join b using (k) asof join c on a.k = c.k and a.t >= c.t", "write it first"),
        ("select * from a asof right join c on a.k = c.k and a.t >= c.t", "write asof inner join"),
        ("select seconds_between(a) from t", "has 2 parameters, not 1"),
        ("select unnest(range(9, 1, -2)) as n from t", "step -2 of .* is not a positive whole number"),
        ("select unnest(range(1, 9, 0)) as n from t", "step 0 of .* is not a positive whole number"),
    ],
)
def test_what_has_no_counterpart_is_refused(sql: str, said: str) -> None:
    """A query that would change its meaning is refused with a way out."""
    with pytest.raises(CatalogError, match=said):
        in_spark(sql)


def test_words_keep_their_meaning() -> None:
    """Places in lists count from one, whole division is whole, decimals are doubles, a mart has no order."""
    assert in_spark("select a[1], a[n] from t order by 1") == (
        "SELECT TRY_ELEMENT_AT(a, 1), TRY_ELEMENT_AT(a, CAST(n AS INT)) FROM t"
    )
    assert in_spark("select a // 2 * 0.5 from t") == "SELECT a DIV 2 * 0.5D FROM t"
    assert "SEQUENCE(CAST(a AS BIGINT), CAST(b AS BIGINT) - 1, CAST(3 AS BIGINT))" in in_spark(
        "select range(a, b, 3) as numbers from t"
    )
    assert "UNION ALL" in in_spark(
        "with recursive r as (select 1 as n union select n + 1 from r) select * from r"
    )


def test_every_function_has_types_of_spark() -> None:
    """The result of each function is a type that Spark knows: none of DuckDB's brackets is left."""
    types = {function.name: spark_type(function.result) for function in SPARK_FUNCTIONS}

    assert types["wilson_interval"] == "STRUCT<low: DOUBLE, high: DOUBLE>"
    assert [name for name, type_ in types.items() if "[" in type_ or "(" in type_] == []
