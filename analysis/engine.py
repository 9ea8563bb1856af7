"""Build the staging views and the marts of one dataset in a DuckDB file.

The file appears by rename, complete and checked, or not at all. Staging models are views on the Parquet
files, because they only rename, cast and remove duplicates: a copy of the data would gain nothing. Marts are
tables, or views on such tables, so they can be read without the dataset.
"""

import shutil
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa

from analysis.attribution.match import match_candidates
from analysis.attribution.rules import RuleSet, load_rules
from analysis.catalog import Catalog, Model, load_catalog
from analysis.checks import CheckResult, run_checks
from analysis.database import connect
from analysis.descriptions import write_comments
from analysis.errors import DatabaseError
from analysis.manifest import build_facts, build_log
from analysis.raw_views import create_views, open_dataset, unreadable_file
from collector.dataset.files import replaced_atomically
from collector.dataset.open import Dataset

# Selects every coinbase of our blocks and of imported block tables; the imported ones have no outputs.
ATTRIBUTED: Final = """
    SELECT block_hash, height, coinbase_script, coinbase_outputs FROM stg_blocks
    UNION ALL
    SELECT block_hash, min(height), arg_min(coinbase_script, source), []
    FROM (FROM stg_external_blocks WHERE coinbase_script IS NOT NULL) ANTI JOIN stg_blocks USING (block_hash)
    GROUP BY block_hash
    ORDER BY height, block_hash
"""

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildResult:
    """Describes a finished build: the database, its chain, the rows per mart, the results of checks."""

    database: Path
    chain: str
    rules_hash: str
    n_rows: dict[str, int]
    checks: tuple[CheckResult, ...]
    wall_s: float

    @property
    def failed_checks(self) -> tuple[CheckResult, ...]:
        """Return the checks of severity `fail` that found offending rows."""
        return tuple(check for check in self.checks if check.is_failure)


def build(
    dataset: Path,
    rules: Path,
    database: Path,
    chain: str | None = None,
    *,
    marts: Collection[str] | None = None,
    memory_gb: float | None = None,
    temp_gb: float | None = None,
    threads: int | None = None,
    progress: Progress = lambda _name: None,
) -> BuildResult:
    """Build every model in a new database and run every check; return what was built.

    `progress` is called with the name of each step, mostly a mart, before it starts. With `marts`, only these
    and the models that they read are built, and only checks that read nothing else are run. DuckDB takes at
    most `memory_gb` of memory (by default four fifths of the machine's) and puts the rest beside the
    database, at most `temp_gb` (by default half of the free disk). `threads` changes the time, not a digit.

    Raises DatasetError, RulesError or DatabaseError, and then leaves an older database as it was.
    """
    start_s = time.monotonic()
    rule_set = load_rules(rules)
    opened = open_dataset(dataset, chain)
    catalog = load_catalog() if marts is None else load_catalog().restricted_to(marts)
    with ExitStack() as stack:
        stack.enter_context(opened.read_lock())
        path = stack.enter_context(_appearing(database))
        most_gb = _half_of_free_gb(path.parent) if temp_gb is None else temp_gb
        connection = stack.enter_context(connect(path, memory_gb=memory_gb, temp_gb=most_gb, threads=threads))
        try:
            n_rows = _build(connection, catalog, opened, rule_set, progress)
            progress("checks")
            checks = run_checks(connection, catalog)
            connection.execute("CHECKPOINT")
        except duckdb.OutOfMemoryException as error:
            raise _too_large(database, error, most_gb) from None
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise unreadable_file(opened) or DatabaseError(
                f"DuckDB cannot build {database}: {reason}"
            ) from None
    return BuildResult(
        database=database,
        chain=opened.chain,
        rules_hash=rule_set.hash,
        n_rows=n_rows,
        checks=checks,
        wall_s=time.monotonic() - start_s,
    )


def create_model(connection: duckdb.DuckDBPyConnection, model: Model) -> None:
    """Create the view or table of one model; its parameters become variables of the DuckDB session."""
    for name, parameter in model.parameters.items():
        connection.execute(f"SET VARIABLE {name} = ?", [parameter.value])
    kind, query = ("VIEW", model.sql) if model.is_view else ("TABLE", model.ordered_sql)
    connection.execute(f"CREATE {kind} {model.name} AS {query}")


def _build(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    dataset: Dataset,
    rules: RuleSet,
    progress: Progress,
) -> dict[str, int]:
    """Create raw views, staging, inputs and marts in order; return the number of rows of each mart."""
    create_views(connection, dataset)
    create_staging(connection, catalog)
    n_rows = create_marts(connection, catalog, dataset, rules, progress)
    write_comments(connection, catalog)
    return n_rows


def create_staging(connection: duckdb.DuckDBPyConnection, catalog: Catalog) -> None:
    """Create the macros and the staging views; the connection needs the raw tables."""
    connection.execute(catalog.macros)
    for model in catalog.layer("staging"):
        create_model(connection, model)


def create_marts(
    connection: duckdb.DuckDBPyConnection,
    catalog: Catalog,
    dataset: Dataset,
    rules: RuleSet,
    progress: Progress = lambda _name: None,
) -> dict[str, int]:
    """Create the pool rules, the facts of the build and the marts; return the number of rows of each mart.

    The connection needs the raw tables and staging. `dataset` gives the names that the facts tell.
    """
    progress("pool_candidates")
    blocks = connection.sql(ATTRIBUTED).to_arrow_table()
    _create_input(connection, "pool_candidates", match_candidates(rules, blocks))
    _create_input(connection, "pools", rules.pools_table())
    _create_input(connection, "pool_names", rules.names_table())
    _create_input(connection, "entities", rules.entities_table())
    progress("build_facts")
    _create_input(connection, "build_facts", build_facts(connection, dataset, rules.hash))
    _create_input(connection, "build_log", build_log(dataset))
    n_rows = {}
    for model in catalog.layer("marts"):
        progress(model.name)
        create_model(connection, model)
        answer = connection.execute(f"SELECT count(*) FROM {model.name}").fetchone()  # noqa: S608 - a file name of ours
        n_rows[model.name] = answer[0] if answer else 0
    return n_rows


def _half_of_free_gb(folder: Path) -> float:
    """Return half of the free space of the disk that holds a folder, in GB."""
    return shutil.disk_usage(folder).free / 2 / 1e9


def _too_large(database: Path, error: duckdb.OutOfMemoryException, temp_gb: float) -> DatabaseError:
    """Make the error for a build that does not fit in memory and in the room for temporary files."""
    reason = str(error).splitlines()[0]
    return DatabaseError(
        f"DuckDB cannot build {database}: it needs more than its memory and {temp_gb:.3g} GB of temporary"
        f" files in {database.parent}; free disk space there, choose another --database, or a machine with"
        f" more memory ({reason})"
    )


def _create_input(connection: duckdb.DuckDBPyConnection, name: str, table: pa.Table) -> None:
    """Store an Arrow table in the database under a name, for the marts to read."""
    connection.register("input_table", table)
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM input_table")  # noqa: S608 - a name of ours
    connection.unregister("input_table")


@contextmanager
def _appearing(database: Path) -> Iterator[Path]:
    """Yield a temporary path to build in; rename it to `database` at the end, or delete it after an error.

    Raises DatabaseError where the folder cannot be written.
    """
    try:
        database.parent.mkdir(parents=True, exist_ok=True)
        with replaced_atomically(database) as path:
            yield path
    except OSError as error:
        raise DatabaseError(
            f"{database} cannot be written ({error.strerror or error}); choose another --database"
        ) from None
