"""Run the SQL files that `pool-analysis sql-for` wrote on Spark, from a dataset and pool rules to marts."""

import platform
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa

from analysis import manifest
from analysis.attribution.match import match_candidates
from analysis.attribution.rules import RuleSet, load_rules
from analysis.candidates import ATTRIBUTED, CANDIDATES
from analysis.catalog import load_catalog
from analysis.errors import WarehouseError
from analysis.raw_views import open_dataset
from analysis.warehouse.export import MART, STAGING
from analysis.warehouse.functions import register, spark_type
from analysis.warehouse.session import data_frame
from analysis.warehouse.translate import translated_query
from collector.dataset.open import Dataset
from collector.dataset.query import contract_types
from collector.dataset.schema import TABLES, Table


@dataclass(frozen=True, slots=True)
class SqlFile:
    """Describes one SQL file: the relation that it makes, the relation's kind (as mart), and its query."""

    name: str
    kind: str
    sql: str


def read_folder(folder: Path) -> list[SqlFile]:
    """Return the SQL files of a folder in order of their numbers; WarehouseError where there are none."""
    files = []
    for path in sorted(folder.glob("*.sql")):
        text = path.read_text(encoding="utf-8")
        kind = text.removeprefix("-- ").partition(":")[0]
        files.append(SqlFile(path.stem.partition("_")[2], kind, text))
    if not files:
        raise WarehouseError(
            f"{folder} has no SQL files; write them with pool-analysis sql-for spark {folder}"
        )
    return files


def run(
    spark: Any, folder: Path, dataset: Path, *, rules: Path, out: Path, chain: str | None = None
) -> list[str]:
    """Run all SQL files of a folder on Spark over a dataset, and store the marts as Parquet below `out`.

    It returns the names of the marts. Raises WarehouseError where `out` is not empty, DatasetError and
    RulesError as a build does.
    """
    files, rule_set, opened = read_folder(folder), load_rules(rules), open_dataset(dataset, chain)
    if out.exists() and any(out.iterdir()):
        raise WarehouseError(f"{out} is not empty; name a new folder")
    register(spark)
    with opened.read_lock():
        for table in TABLES.values():
            _raw_table(spark, opened, table).createOrReplaceTempView(table.name)
        for file in (file for file in files if file.kind == STAGING):
            spark.sql(file.sql).createOrReplaceTempView(file.name)
        _make_inputs(spark, opened, rule_set, out)
        made = [file for file in files if file.kind != STAGING]
        for file in made:
            _kept(spark, file.name, spark.sql(file.sql), out / f"{file.kind}s")
    return [file.name for file in made if file.kind == MART]


def _raw_table(spark: Any, dataset: Dataset, table: Table) -> Any:
    """Return a raw table of the dataset as a Spark relation; columns that older files lack are null."""
    schema = ", ".join(f"{name} {spark_type(type_)}" for name, type_ in contract_types(table).items())
    paths = [str(path) for path in dataset.paths(table)]
    return spark.read.schema(schema).parquet(*paths) if paths else spark.createDataFrame([], schema)


def _kept(spark: Any, name: str, rows: Any, folder: Path) -> None:
    """Store the rows of a Spark relation as Parquet, and register a view of its name on these files."""
    path = str(folder / name)
    rows.write.parquet(path)
    spark.read.schema(rows.schema).parquet(path).createOrReplaceTempView(name)


def _make_inputs(spark: Any, dataset: Dataset, rules: RuleSet, out: Path) -> None:
    """Register the Spark relations that no SQL file makes: pool rules, matched blocks, facts on the run."""
    tables = rules.tables() | {
        "build_facts": _facts(spark, dataset, rules),
        "build_log": manifest.build_log(dataset, out),
    }
    for name, table in tables.items():
        data_frame(spark, table).createOrReplaceTempView(name)
    blocks = spark.sql(translated_query(ATTRIBUTED, {}, load_catalog().macros))
    candidates = data_frame(spark, match_candidates(rules, blocks.toArrow()))
    _kept(spark, CANDIDATES, candidates, out / "inputs")


def _facts(spark: Any, dataset: Dataset, rules: RuleSet) -> pa.Table:
    """Return the facts on which the results depend (versions, sources, rules, chain) as keys and values.

    Unlike a build in DuckDB it has no hash of the dataset's rows.
    """
    facts = {
        "analysis_version": metadata.version(manifest.DISTRIBUTION),
        "commit": manifest.commit(),
        "sources_hash": manifest.sources_hash(),
        "python_version": platform.python_version(),
        "spark_version": spark.version,
        "rules_hash": rules.hash,
        "chain": dataset.chain,
    }
    return pa.table({"key": list(facts), "value": list(facts.values())})
