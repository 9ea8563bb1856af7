"""Test that Spark gives the rows of DuckDB: every model, the macros, and a run over a dataset.

By default some models are drawn anew in each run. POOL_TEST_SPARK=all takes all of them. The small worlds of
the cases are compared in tests/analysis/test_cases.py, where they are built.
"""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlglot

from analysis.catalog import Model, load_catalog
from analysis.database import connect
from analysis.engine import build
from analysis.errors import WarehouseError
from analysis.warehouse.export import write_folder
from analysis.warehouse.run import run
from analysis.warehouse.session import data_frame
from analysis.warehouse.translate import translated_query
from tests.analysis.shared_build import RULES
from tests.analysis.test_cases import CASES
from tests.analysis.warehouse.on_spark import compute, difference, drawn, read_relation
from tests.analysis.world import read_csv
from tests.analysis.world import write_world as write_rows
from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

SIZE: Final = Size(n_blocks=80, entering=24, taken=18)
MODELS: Final = (*load_catalog().layer("staging"), *load_catalog().layer("marts"))
REPEAT: Final = "models are drawn; POOL_TEST_SPARK=all computes this one in each run"
CONFLICT: Final = CASES / "block_pool" / "tag_payout_conflict_unknown"
Relation = Callable[[str], pa.Table]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relation]:
    """Build a planted world in DuckDB; give its relations by name."""
    folder = tmp_path_factory.mktemp("world")
    result = build(write_world(simulate(SIZE), folder), folder / "pools", folder / "a.duckdb")
    with connect(result.database, read_only=True) as connection:
        yield cache(lambda name: read_relation(connection, name))


@pytest.mark.parametrize("model", drawn(MODELS), ids=lambda model: model.name)
def test_model_has_the_rows_of_duckdb(spark: Any, world: Relation, model: Model) -> None:
    """A model on Spark, made of the relations that DuckDB made, equals the model in DuckDB."""
    found = compute(spark, model, world)

    assert difference(world(model.name), found, model.grain) == "", REPEAT


def test_a_dataset_becomes_marts(spark: Any, tmp_path: Path) -> None:
    """The runner reads a dataset, matches the pool rules, and stores the marts that DuckDB has."""
    dataset = write_rows(
        tmp_path / "dataset", {path.stem: read_csv(path) for path in CONFLICT.glob("[!e]*.csv")}
    )
    write_folder(tmp_path / "spark", ["block_pool"])
    built = build(dataset, RULES, tmp_path / "a.duckdb", marts=["block_pool"])

    marts = run(spark, tmp_path / "spark", dataset, rules=RULES, out=tmp_path / "out")

    assert marts == ["block_facts", "block_pool"]
    with connect(built.database, read_only=True) as connection:
        for mart in marts:
            expected = read_relation(connection, mart)
            assert len(expected) > 1
            found = pq.read_table(tmp_path / "out" / "marts" / mart)
            assert difference(expected, found, load_catalog().by_name[mart].grain) == ""
    with pytest.raises(WarehouseError, match="is not empty"):
        run(spark, tmp_path / "spark", dataset, rules=RULES, out=tmp_path / "out")


def test_macros_mean_the_same(spark: Any) -> None:
    """The select after each macro is true on Spark as well."""
    macros = load_catalog().macros
    selects = [
        str(tree.sql("duckdb")) for tree in sqlglot.parse(macros, "duckdb") if tree and tree.key == "select"
    ]
    assert len(selects) == macros.count("create macro")

    wrong = [
        sql for sql in selects if spark.sql(translated_query(sql, {}, macros)).collect()[0][0] is not True
    ]
    assert wrong == []


def test_bytes_become_the_text_of_duckdb(spark: Any) -> None:
    """Every byte, no byte and null are written on Spark as DuckDB casts them."""
    texts = pa.table({"bytes": pa.array([bytes(range(256)), b"", None], pa.binary())})
    data_frame(spark, texts).createOrReplaceTempView("texts")
    with connect() as connection:
        connection.register("texts", texts)
        expected = connection.sql("SELECT cast(bytes AS varchar) FROM texts").fetchall()

    found = spark.sql(
        translated_query("select printable(bytes) from texts", {}, load_catalog().macros)
    ).collect()

    assert [tuple(row) for row in found] == expected
