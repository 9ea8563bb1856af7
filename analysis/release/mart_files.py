"""Write the marts of a database as Parquet files whose bytes depend on the rows alone.

Rows stand in the order of their grain, in row groups of a fixed number of rows. So the same rows, written by
the same version of Arrow, give the same bytes.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.catalog import Model, read_models
from analysis.release.anonymity import anonymous_facts, node_names, selected

MANIFEST_MART: Final = "run_manifest"
ROW_GROUP_ROWS: Final = 100_000


def released_marts() -> list[Model]:
    """Return the models of all marts, sorted by name; a release has every one of them."""
    return sorted((model for model in read_models() if model.layer == "marts"), key=lambda model: model.name)


def read_facts(connection: duckdb.DuckDBPyConnection, *, anonymous: bool) -> dict[str, str]:
    """Return the facts on a build (keys and values of `run_manifest`), sorted by key.

    If `anonymous`, nodes are renamed and comments in user agents are left out.
    """
    facts = dict(connection.execute("SELECT key, value FROM run_manifest").fetchall())
    if anonymous:
        facts = anonymous_facts(facts, node_names(connection, released_marts()))
    return dict(sorted(facts.items()))


def write_marts(
    connection: duckdb.DuckDBPyConnection, folder: Path, *, anonymous: bool
) -> dict[str, tuple[Path, int]]:
    """Write every mart as `<name>.parquet` in a folder; return path and number of rows of each, by name.

    If `anonymous`, the names of our nodes and the addresses of hosts are left out.
    """
    models = released_marts()
    names = node_names(connection, models) if anonymous else None
    return {model.name: _write_mart(connection, model, folder, names) for model in models}


def _write_mart(
    connection: duckdb.DuckDBPyConnection, model: Model, folder: Path, names: Sequence[str] | None
) -> tuple[Path, int]:
    """Write one mart as Parquet; return the path of the file and the number of its rows.

    Where `names` of nodes are given, the file holds neither these names nor addresses of hosts.
    """
    path = folder / f"{model.name}.parquet"
    schema, tables = _rows(connection, model, names)
    return path, pack_rows(path, schema, tables)


def pack_rows(path: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> int:
    """Write Arrow tables as one Parquet file and return the number of rows.

    Each table becomes row groups of ROW_GROUP_ROWS rows, so all tables but the last should have that many.
    """
    n_rows = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=ROW_GROUP_ROWS)
            n_rows += table.num_rows
    return n_rows


def _rows(
    connection: duckdb.DuckDBPyConnection, model: Model, names: Sequence[str] | None
) -> tuple[pa.Schema, Iterator[pa.Table]]:
    """Return the Arrow schema of a mart, and an iterator over its rows as tables, in order of the grain.

    With `names` of nodes, these names and free text are hidden.
    """
    if names is not None and model.name == MANIFEST_MART:
        facts = read_facts(connection, anonymous=True)
        table = pa.table({"key": list(facts), "value": list(facts.values())})
        return table.schema, iter([table])
    columns = model.column_names if names is None else [selected(model, name) for name in model.column_names]
    order = ", ".join(str(model.column_names.index(name) + 1) for name in model.grain)
    query = f"SELECT {', '.join(columns)} FROM {model.name} ORDER BY {order}"  # noqa: S608 - words of our own heads
    uses_names = "$1" in query
    relation = connection.sql(query, params=[names] if uses_names else None)
    reader = relation.to_arrow_reader(ROW_GROUP_ROWS)
    return reader.schema, regrouped(reader)


def regrouped(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """Yield all rows of an Arrow reader as tables of ROW_GROUP_ROWS rows; the last one may have fewer."""
    held = reader.schema.empty_table()
    for batch in reader:
        held = pa.concat_tables([held, pa.Table.from_batches([batch])])
        while held.num_rows >= ROW_GROUP_ROWS:
            yield held.slice(0, ROW_GROUP_ROWS).combine_chunks()
            held = held.slice(ROW_GROUP_ROWS)
    if held.num_rows:
        yield held.combine_chunks()
