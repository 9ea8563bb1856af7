"""Build marts of many small worlds in one DuckDB in memory, so that a test can afford hundreds of worlds.

The rows of a world are put into tables in place of Parquet files. Staging, pool rules, marts and checks are
made by the functions that `analysis.engine.build` calls. A transaction is rolled back after each world.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa

from analysis.attribution.rules import RuleSet, load_rules
from analysis.catalog import load_catalog
from analysis.checks import run_checks
from analysis.database import connect
from analysis.engine import create_marts, create_staging
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
            create_marts(self._connection, catalog, Dataset(NOWHERE, chain), self._rules)
            checks = run_checks(self._connection, catalog)
            assert [check.name for check in checks if check.is_failure] == []
            yield self._connection
        finally:
            self._connection.execute("ROLLBACK")

    def _insert(self, name: str, rows: pa.Table) -> None:
        self._connection.register("world_rows", rows)
        self._connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM world_rows")  # noqa: S608 - a table of the contract
        self._connection.unregister("world_rows")


@contextmanager
def shared_build(rules: Path = RULES) -> Iterator[SharedBuild]:
    """Open a database in memory for many worlds with the same pool rules."""
    with connect(threads=1) as connection:
        yield SharedBuild(connection, load_rules(rules))
