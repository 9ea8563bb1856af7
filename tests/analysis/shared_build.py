"""Build marts of many small worlds in one DuckDB in memory, so that a test can afford hundreds of worlds.

The rows of a world are put into tables in place of Parquet files. Staging, pool rules, marts and checks are
made by the functions that `analysis.engine.build` calls. A transaction is rolled back after each world.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from analysis.attribution.match import match_candidates
from analysis.attribution.rules import RuleSet, load_rules
from analysis.candidates import ATTRIBUTED, CANDIDATES
from analysis.catalog import load_catalog
from analysis.checks import run_checks
from analysis.database import connect
from analysis.incremental import (
    create_input,
    create_model,
    create_staging,
    input_tables,
)
from analysis.manifest import build_log
from analysis.raw_contents import contents_of_relations
from collector.dataset.open import Dataset
from collector.dataset.query import contract_types
from collector.dataset.schema import TABLES
from tests.analysis.world import Rows, arrow_table, world_rows

RULES = Path(__file__).parent / "cases" / "pools"
NOWHERE = Path("/nowhere")


class SharedBuild:
    """Holds a connection with raw tables and staging; each world is built in it and taken out again."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, rules: RuleSet) -> None:
        self._connection = connection
        self._rules = rules
        for table in TABLES.values():
            columns = ", ".join(f"{name} {type_}" for name, type_ in contract_types(table).items())
            connection.execute(f"CREATE TABLE {table.name} ({columns})")
        create_staging(connection, load_catalog())

    @contextmanager
    def built(
        self, tables: Mapping[str, Rows], marts: Collection[str], chain: str = "regtest"
    ) -> Iterator[duckdb.DuckDBPyConnection]:
        """Build some marts of a world, and give the connection to read them; fail if a check fails."""
        catalog = load_catalog().restricted_to(marts)
        self._connection.execute("BEGIN")
        try:
            for name, rows in world_rows(tables).items():
                self._insert(name, arrow_table(TABLES[name], rows))
            self._create_inputs(Dataset(NOWHERE, chain))
            for model in catalog.layer("marts"):
                create_model(self._connection, model)
            checks = run_checks(self._connection, catalog)
            assert [check.name for check in checks if check.is_failure] == []
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")

    def _create_inputs(self, dataset: Dataset) -> None:
        blocks = self._connection.sql(ATTRIBUTED).to_arrow_table()
        contents = contents_of_relations(self._connection)
        tables = input_tables(self._rules, dataset, contents, build_log(dataset, NOWHERE))
        for name, table in {CANDIDATES: match_candidates(self._rules, blocks), **tables}.items():
            create_input(self._connection, name, table)

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._connection.register("world_rows", rows)
        self._connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM world_rows")  # noqa: S608 - a table of the contract
        self._connection.unregister("world_rows")


@contextmanager
def shared_build(rules: Path = RULES) -> Iterator[SharedBuild]:
    """Open a database in memory for many worlds with the same pool rules."""
    with connect(threads=1) as connection:
        yield SharedBuild(connection, load_rules(rules))
