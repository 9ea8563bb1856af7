"""Check that each row is stored once."""

from typing import Final

from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult, display_hash
from collector.dataset.schema import BLOCKS, TABLES, TRANSACTIONS, Table

# Columns in which two copies of a block may differ: one came from the collector, the other from a backfill.
PROVENANCE: Final = ("source", "height_source", "verified_by")
KEEP_ONE: Final = (
    "move the file with the wrong rows out of the dataset; its name is in `filename` of a reader"
)


def check_grain(view: DatasetView) -> CheckResult:
    """Find rows that are stored more than once; copies of a block that agree are only a note.

    Returns a CheckResult.
    """
    result = CheckResult("grain", "each row is there once")
    for table in TABLES.values():
        result.n_rows += view.count(f"FROM {table.name}")
        if table in {BLOCKS, TRANSACTIONS}:
            _stored_twice(view, table, result)
            continue
        keys = ", ".join(f"CAST({name} AS VARCHAR)" for name in table.grain)
        query = (
            f"SELECT {keys}, count(*) FROM {table.name} GROUP BY {', '.join(table.grain)} HAVING count(*) > 1"  # noqa: S608 - names are the contract's
        )
        result.breaches(
            view.examples(query),
            lambda *row, name=table.name: (
                f"{name}: {row[-1]} rows are about {', '.join(map(str, row[:-1]))}",
                KEEP_ONE,
            ),
        )
    return result


def _stored_twice(view: DatasetView, table: Table, result: CheckResult) -> None:
    """Find blocks (or their transactions) that are stored twice, and add what was found to `result`.

    Copies that agree are a note; copies that contradict each other are a breach.
    """
    keys = ", ".join(table.grain)
    compared = [name for name in table.arrow.names if name not in {*table.grain, *PROVENANCE}]
    agree = " AND ".join(
        f"count(DISTINCT CASE WHEN {name} IS NOT NULL THEN hash({name}) END) <= 1" for name in compared
    )
    query = f"SELECT lower(hex(block_hash)), {agree} FROM {table.name} GROUP BY {keys} HAVING count(*) > 1"  # noqa: S608 - names are the contract's
    n_double = view.count(f"SELECT {keys} FROM {table.name} GROUP BY {keys} HAVING count(*) > 1")  # noqa: S608 - the same
    if not n_double:
        return
    wrong = view.examples(f"SELECT block_hash FROM ({query}) AS t(block_hash, agree) WHERE NOT agree")  # noqa: S608 - the same
    result.breaches(
        wrong,
        lambda block_hash: (
            f"{table.name}: rows of block {display_hash(block_hash)} contradict each other",
            KEEP_ONE,
        ),
    )
    n_agree = n_double - wrong.n_rows
    if n_agree:
        result.note(
            f"{table.name}: {n_agree} are there twice and agree: stored live and by a backfill",
            "harmless: analysis takes one, with fees if known; `pool-collector compact` drops like copies",
            n_agree,
        )
