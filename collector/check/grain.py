"""The check of grains: each row is there once."""

from typing import Final

from collector.check.model import Outcome
from collector.check.view import View
from collector.dataset.schema import BLOCKS, TABLES, TRANSACTIONS, Table

# A block that came over the wire and again from a backfill says so in these; one may know fees and one not.
PROVENANCE: Final = ("source", "height_source", "verified_by")
KEEP_ONE: Final = (
    "move the file with the wrong rows out of the dataset; its name is in `filename` of a reader"
)


def check_grain(view: View) -> Outcome:
    """Look for rows that are there more than once. Copies of a stored block that agree are only noted."""
    outcome = Outcome("grain", "each row is there once")
    for table in TABLES.values():
        outcome.n_rows += view.count(f"FROM {table.name}")
        if table in {BLOCKS, TRANSACTIONS}:
            _stored_twice(view, table, outcome)
            continue
        keys = ", ".join(f"CAST({name} AS VARCHAR)" for name in table.grain)
        query = (
            f"SELECT {keys}, count(*) FROM {table.name} GROUP BY {', '.join(table.grain)} HAVING count(*) > 1"  # noqa: S608 - names are the contract's
        )
        outcome.breaches(
            view.examples(query),
            lambda *row, name=table.name: (
                f"{name}: {row[-1]} rows of {', '.join(map(str, row[:-1]))}",
                KEEP_ONE,
            ),
        )
    return outcome


def _stored_twice(view: View, table: Table, outcome: Outcome) -> None:
    """Tell copies that agree in what is known of the block from rows that contradict each other."""
    keys = ", ".join(table.grain)
    told = [name for name in table.arrow.names if name not in {*table.grain, *PROVENANCE}]
    agree = " AND ".join(
        f"count(DISTINCT CASE WHEN {name} IS NOT NULL THEN hash({name}) END) <= 1" for name in told
    )
    query = f"SELECT lower(hex(block_hash)), {agree} FROM {table.name} GROUP BY {keys} HAVING count(*) > 1"  # noqa: S608 - names are the contract's
    n_double = view.count(f"SELECT {keys} FROM {table.name} GROUP BY {keys} HAVING count(*) > 1")  # noqa: S608 - the same
    if not n_double:
        return
    wrong = view.examples(f"SELECT block_hash FROM ({query}) AS t(block_hash, agree) WHERE NOT agree")  # noqa: S608 - the same
    outcome.breaches(
        wrong,
        lambda block_hash: (
            f"{table.name}: rows of block {reverse(block_hash)} contradict each other",
            KEEP_ONE,
        ),
    )
    n_agree = n_double - wrong.n_rows
    if n_agree:
        outcome.note(
            f"{table.name}: {n_agree} are there twice and agree: stored live and by a backfill",
            "harmless: analysis takes one, with fees if known; `pool-collector compact` drops like copies",
            n_agree,
        )


def reverse(hex_text: str) -> str:
    """Show a hash in hex, internal byte order, as people and RPC write it."""
    return bytes.fromhex(hex_text)[::-1].hex()
