"""Test that the catalog reads heads and build order from the SQL files, and refuses faulty files."""

import json
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
import sqlglot
from sqlglot import exp

from analysis.catalog import INPUTS, Catalog, Layer, catalog_of, load_catalog
from analysis.database import connect, open_database
from analysis.engine import build
from analysis.errors import CatalogError
from collector.dataset.schema import TABLES
from tests.analysis.world import write_world

RULES = Path(__file__).parent / "cases" / "pools"
# What gives the same result in any order of floating-point numbers: it selects one, or collects them.
EXACT_AGGREGATES = {
    "min",
    "max",
    "count",
    "list",
    "median",
    "quantile_cont",
    "any_value",
    "arg_min",
    "arg_max",
} | {
    "lag",
    "lead",
}
HEAD = '/*\nsummary = "s"\nmethod = "m"\ngrain = ["a"]\n[columns]\na = "BIGINT  unit"\n*/\n'


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """Load the catalog of the package."""
    return load_catalog()


def with_head(sql: str) -> str:
    """Put a valid head before a query."""
    return HEAD + sql


def of(**marts: str) -> Catalog:
    """Make a catalog of marts from their texts, given by name."""
    return catalog_of({("marts", f"{name}.sql"): text for name, text in marts.items()})


def test_every_recorded_column_reaches_the_analyses(catalog: Catalog) -> None:
    """The staging model of a table of the contract has all its columns, whatever is added to them."""
    lacking = {
        f"{table.name}.{column.name}"
        for table in TABLES.values()
        for column in table.columns
        if column.name not in catalog.by_name[f"stg_{table.name}"].column_names
    }

    assert lacking == {"block_arrivals.is_catch_up"}  # the model says it as `pulled`


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of one block."""
    folder = tmp_path_factory.mktemp("catalog")
    dataset = write_world(folder / "dataset", {"blocks": [{"block_hash": "a", "height": 1}]})
    return build(dataset, RULES, folder / "analysis.duckdb").database


def test_heads_tell_the_columns_that_there_are(catalog: Catalog, database: Path) -> None:
    """Each head lists the names, order and types of columns that DESCRIBE gives for the built relation."""
    with open_database(database) as connection:
        for model in catalog.models:
            if model.columns:
                rows = connection.execute(f"DESCRIBE {model.name}").fetchall()
                described = [(name, type_) for name, type_, *_ in rows]
                assert [(column.name, column.type) for column in model.columns] == described, model.name


def test_each_layer_reads_what_it_may(catalog: Catalog) -> None:
    """Each staging view reads its raw table; marts and checks read staging, marts and inputs."""
    layer_of: dict[str, str] = {model.name: model.layer for model in catalog.models}
    for model in catalog.models:
        sources = {layer_of.get(name, "raw" if name in TABLES else "input") for name in model.references}
        if model.layer == "staging":
            assert model.references == {model.name.removeprefix("stg_")}
        else:
            assert sources <= {"staging", "marts", "input"}, model.name
    assert {model.name for model in catalog.layer("staging")} == {f"stg_{name}" for name in TABLES}


def test_order_puts_everything_after_what_it_reads(catalog: Catalog) -> None:
    """In the order of the catalog, each model comes after all models that it reads."""
    seen: set[str] = set(TABLES) | set(INPUTS)
    for model in catalog.models:
        assert model.references <= seen, model.name
        seen.add(model.name)


def test_columns_carry_their_unit(catalog: Catalog) -> None:
    """The meaning of a ratio gives its range 0..1, and the name of a column in seconds ends with _s."""
    for model in catalog.layer("marts"):
        for column in model.columns:
            if column.name.endswith("_ratio"):
                assert "0..1" in column.doc, f"{model.name}.{column.name}"
            if column.doc.startswith("s,") or column.doc.startswith("s "):
                assert column.name.endswith("_s"), f"{model.name}.{column.name}"


def test_every_parameter_is_used_and_every_variable_is_a_parameter(catalog: Catalog) -> None:
    """Each head lists exactly the variables that its query reads by getvariable."""
    for model in catalog.models:
        calls = sqlglot.parse_one(model.sql, dialect="duckdb").find_all(
            sqlglot.exp.Anonymous, sqlglot.exp.Func
        )
        names = {
            call.find(sqlglot.exp.Literal).this
            for call in calls
            if call.sql(dialect="duckdb").lower().startswith("getvariable(")
        }
        assert names == set(model.parameters), model.name


def test_macros_do_what_their_tests_say(catalog: Catalog) -> None:
    """Every test query in macros.sql returns true, and there is one per macro."""
    selects = 0
    with connect() as connection:
        for statement in connection.extract_statements(catalog.macros):
            rows = connection.execute(statement).fetchall()
            if statement.query.lstrip().lower().startswith(("select", "-- test")):
                assert rows == [(True,)], statement.query
                selects += 1
    assert selects == catalog.macros.lower().count("create macro")


def test_no_number_depends_on_the_order_in_which_threads_read(catalog: Catalog, database: Path) -> None:
    """No mart sums floating-point numbers by a plain aggregate, as DuckDB binds it; ordered_sum does not."""
    with connect(database, read_only=True) as connection:
        for model in catalog.layer("staging"):  # plans of views on files cannot be written down
            connection.execute(f"CREATE TEMP TABLE {model.name} AS FROM main.{model.name} LIMIT 0")
        connection.execute("CREATE TEMP TABLE numbers AS SELECT 0.5e0 AS a")
        for sql, found in (
            ("select sum(a) from numbers", ["sum"]),
            ("select avg(a) over () from numbers", ["avg"]),
            ("select ordered_sum(a), sum(cast(a as decimal(38, 6))) from numbers", []),
        ):
            assert sums_of_floats(connection, sql) == found
        for model in catalog.layer("marts"):
            for name, parameter in model.parameters.items():
                connection.execute(f"SET VARIABLE {name} = ?", [parameter.value])
            assert sums_of_floats(connection, model.sql) == [], f"{model.name}: use ordered_sum"


def sums_of_floats(connection: duckdb.DuckDBPyConnection, sql: str) -> list[str]:
    """Return the aggregates of a query whose last digits depend on the order of the rows."""
    quoted = sql.replace("'", "''")
    (row,) = connection.execute(f"SELECT json_serialize_plan('{quoted}', optimize := false)").fetchall()
    plan = json.loads(row[0])
    assert not plan["error"], plan
    return list(floating_aggregates(plan["plans"]))


def floating_aggregates(node: object) -> Iterator[str]:
    """Yield the names of those aggregates and windows in a plan that add floating-point numbers."""
    if isinstance(node, list):
        for item in node:
            yield from floating_aggregates(item)
    if isinstance(node, dict):
        if node.get("expression_class") in {"BOUND_AGGREGATE", "BOUND_WINDOW"}:
            name = (node.get("qname") or {}).get("path", [""])[-1]
            types = {argument["id"] for argument in node.get("arguments") or []}
            if types & {"DOUBLE", "FLOAT"} and name not in EXACT_AGGREGATES:
                yield name
        for key, item in node.items():
            if key != "function_data":  # how list_sum adds up a list, which has an order
                yield from floating_aggregates(item)


def test_no_running_count_has_a_filter(catalog: Catalog) -> None:
    """DuckDB reads all rows before again for each row of a filtered window with an order; CASE is linear."""
    assert filtered_in_order("select count(*) filter (where a) over (partition by b order by c) from t") == 1
    assert filtered_in_order("select sum(a) filter (where a) over w from t window w as (order by c)") == 1
    assert filtered_in_order("select count(case when a then 1 end) over (order by c) from t") == 0
    assert filtered_in_order("select sum(a) filter (where a) over (partition by b) from t") == 0
    assert {model.name: n for model in catalog.models if (n := filtered_in_order(model.sql))} == {}


def filtered_in_order(sql: str) -> int:
    """Count the windows of a query that have a filter and an order."""
    tree = sqlglot.parse_one(sql, dialect="duckdb")
    named = {window.name: window for window in tree.find_all(exp.Window) if window.arg_key == "windows"}
    filtered = [window for window in tree.find_all(exp.Window) if isinstance(window.this, exp.Filter)]
    return sum(bool((named.get(window.alias) or window).args.get("order")) for window in filtered)


def test_a_mart_is_stored_in_a_total_order() -> None:
    """The grain ends the order of a query, so that no two rows tie; a query without an order gets one."""
    head = HEAD.replace("a =", 'b = "BIGINT  unit"\na =').replace('["a"]', '["a", "b"]')
    models = of(x=head + "select 1 as b, 2 as a", y=head + "select 1 as b, 2 as a order by b desc -- last")

    assert models.by_name["x"].ordered_sql.endswith("\norder by 2, 1")
    with connect() as connection:
        rows = f"select 1 as b, unnest(range(3)) as a union all {models.by_name['y'].ordered_sql}"
        assert len(connection.execute(rows).fetchall()) == 4


def test_some_marts_come_with_all_that_they_read(catalog: Catalog) -> None:
    """A restricted catalog has the named marts, the models that they read, and checks of these only."""
    part = catalog.restricted_to(["pool_share", "mempool_cuts"])

    marts = {model.name for model in part.layer("marts")}
    assert marts == {
        "pool_share",
        "block_pool",
        "block_facts",
        "chain_blocks",
        "mempool_cuts",
        "coverage_intervals",
        "block_messages",
    }
    staging = {model.name for model in part.layer("staging")}
    assert staging >= {"stg_blocks", "stg_external_blocks", "stg_coverage"}
    assert "stg_templates" not in staging
    checks = {model.name for model in part.layer("checks")}
    assert "one_active_block_per_height" in checks
    assert "stays_overlap" not in checks
    with pytest.raises(CatalogError, match="no mart stg_blocks"):
        catalog.restricted_to(["stg_blocks"])


def test_references_see_through_common_table_expressions() -> None:
    """Reads are found inside joins, subqueries and a common table expression of the same name."""
    models = of(
        z=with_head("select 1 as a"),
        y=with_head("with z as (select * from z) select a from z where a in (select height from stg_blocks)"),
        stg_blocks=with_head("select height from blocks"),
    )

    assert models.by_name["y"].references == {"z", "stg_blocks"}
    assert [model.name for model in models.models] == ["stg_blocks", "z", "y"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select 1 as a", "does not begin with a head"),
        ("/*\nsummary = \n*/ select 1", "not TOML"),
        ("/*\nsummary = 's'\nfoo = 1\n*/ select 1", "foo in the head"),
        ("/*\nsummary = 's'\n*/ select 1", "needs grain and"),
        (HEAD.replace("  unit", ""), "two spaces"),
        (HEAD.replace('method = "m"', ""), "needs method"),
        (HEAD.replace('["a"]', '["b"]'), "grain names b"),
        (with_head("select 1; select 2"), "exactly one SELECT"),
        (with_head("drop table a"), "exactly one SELECT"),
        (with_head("select ("), "cannot be parsed as SQL"),
        (with_head("select a from nowhere"), "reads nowhere, which no SQL file makes"),
        (with_head("select a from x"), "circle"),
    ],
)
def test_a_bad_file_is_named_with_its_fault(text: str, message: str) -> None:
    """Each fault raises a CatalogError with one sentence that names the file."""
    with pytest.raises(CatalogError, match=message) as error:
        of(x=text)
    assert "x" in str(error.value)


@pytest.mark.parametrize(("layer", "name"), [("marts", "blocks"), ("marts", "pools"), ("staging", "x")])
def test_a_name_is_given_once(layer: Layer, name: str) -> None:
    """A file may not have the name of a raw table, of an input or of another file."""
    texts: dict[tuple[Layer, str], str] = {("marts", "x.sql"): with_head("select 1 as a")}
    texts[layer, f"{name}.sql"] = with_head("select 1 as a")

    with pytest.raises(CatalogError, match="another relation has that name"):
        catalog_of(texts)


def test_a_check_needs_a_severity() -> None:
    """A check without a severity in its head, or without what it needs, is refused."""
    for head in (
        "summary = 's'",
        "summary = 's'\nseverity = 'fail'",
        "summary = 's'\n[needs]\nblocks = 'no block'",
    ):
        with pytest.raises(CatalogError, match="needs severity"):
            catalog_of({("checks", "x.sql"): f"/*\n{head}\n*/ select 1"})


def test_a_check_needs_what_exists(catalog: Catalog) -> None:
    """What a check needs is a relation, or a column that it has."""
    head = "/*\nsummary = 's'\nseverity = 'fail'\n[needs]\nnowhere = 'r'\n*/ select 1"
    with pytest.raises(CatalogError, match="reads nowhere"):
        catalog_of({("checks", "x.sql"): head})
    for check in catalog.layer("checks"):
        for relation, _, column in (need.partition(".") for need in check.needs):
            columns = {each.name for each in catalog.by_name[relation].columns}
            assert not column or column in columns, check.name
