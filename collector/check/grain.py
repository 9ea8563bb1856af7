"""Checks of tables: each row once, no row without what it belongs to, numbers that can be."""

from typing import Final

from collector.check.model import Outcome
from collector.check.view import View
from collector.schema import BLOCKS, TABLES, TRANSACTIONS, Table

# A block that came over the wire and again from a backfill says so in these; one may know fees and one not.
PROVENANCE: Final = ("source", "height_source", "verified_by")
KEEP_ONE: Final = (
    "move the file with the wrong rows out of the dataset; its name is in `filename` of a reader"
)

MAX_SAT: Final = 2_100_000_000_000_000
# What must hold of every row: a condition, and what it says. Prioritised transactions may have negative fees
# in templates and in the sums over relatives.
RANGES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "blocks": (
        ("height >= 0", "a height is not negative"),
        ("n_tx >= 1", "a block has a coinbase"),
        ("weight_wu = 3 * stripped_bytes + size_bytes", "weight is 3 * stripped size + size"),
        ("stripped_bytes BETWEEN 1 AND size_bytes", "stripped size is at most the size"),
        ("nonce BETWEEN 0 AND 4294967295", "a nonce has 32 bits"),
        ("bits BETWEEN 0 AND 4294967295", "bits have 32 bits"),
        ("subsidy_sat BETWEEN 0 AND 5000000000", "a subsidy is 0 to 50 coins"),
        (f"fees_sat IS NULL OR fees_sat BETWEEN 0 AND {MAX_SAT}", "fees are 0 to 21 million coins"),
        (
            "fees_sat IS NULL OR coinbase_value_sat BETWEEN 0 AND subsidy_sat + fees_sat",
            "a coinbase pays at most subsidy and fees",
        ),
        ("n_segwit_tx BETWEEN 0 AND n_tx", "not more transactions have witness data than there are"),
    ),
    "transactions": (
        ("tx_index >= 0 AND height >= 0", "positions and heights are not negative"),
        ("is_coinbase = (tx_index = 0)", "the first transaction, and no other, is the coinbase"),
        ("vsize_vb = (weight_wu + 3) // 4", "virtual size is weight / 4, rounded up"),
        ("size_bytes BETWEEN 1 AND weight_wu", "size is at most the weight"),
        ("n_inputs >= 1 AND n_outputs >= 1", "there are inputs and outputs"),
        ("len(output_types) = n_outputs", "each output has a type"),
        (f"output_value_sat BETWEEN 0 AND {MAX_SAT}", "values are 0 to 21 million coins"),
        (
            "fee_sat IS NULL OR (fee_sat >= 0 AND fee_sat = input_value_sat - output_value_sat)",
            "a fee is inputs minus outputs, and not negative",
        ),
        ("coalesce(list_max(parents) < tx_index, true)", "parents come first"),
    ),
    "mempool_txs": (
        ("coalesce(fee_sat >= 0, true)", "a fee is not negative"),
        ("coalesce(vsize_vb > 0 AND weight_wu > 0, true)", "sizes are positive"),
        ("coalesce(ancestor_count >= 1 AND descendant_count >= 1, true)", "a transaction counts itself"),
        ("first_seen_kind <> 'pushed' OR mempool_sequence IS NOT NULL", "what was pushed has its number"),
    ),
    "mempool_events": (
        ("(kind = 'pulled') = (sequence < 0)", "counters are negative where no message was"),
        (
            "kind = 'pulled' OR (mempool_sequence IS NOT NULL) = (event IN ('A', 'R'))",
            "pushed A and R have a mempool sequence, C and D none",
        ),
        ("removal_reason IS NULL OR event = 'R'", "only R has a reason"),
        ("replaced_by IS NULL OR removal_reason = 'replaced'", "only what was replaced names by which"),
    ),
    "block_arrivals": (("coalesce(height >= 0, true)", "a height is not negative"),),
    "templates": (
        ("n_tx >= 0 AND weight_wu >= 0 AND n_sigops >= 0", "counts are not negative"),
        ("request_us >= 0", "an answer takes time"),
    ),
    "template_txs": (
        ("tx_index >= 1", "the first transaction of a template is 1"),
        ("weight_wu > 0", "a weight is positive"),
        ("coalesce(list_max(parents) < tx_index, true)", "parents come first"),
    ),
    "mempool_stats": (
        ("n_tx >= 0 AND vsize_vb >= 0 AND usage_bytes >= 0", "sizes are not negative"),
        ("min_feerate_sat_vb >= 0", "a feerate is not negative"),
    ),
    "nodes": (("tip_height >= 0 AND n_mempool_at_start >= 0", "counts are not negative"),),
}


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


def check_ranges(view: View) -> Outcome:
    """Look for numbers that cannot be."""
    outcome = Outcome("ranges", "numbers are in their ranges, and agree with each other")
    for name, conditions in RANGES.items():
        counts = ", ".join(f"count(*) FILTER (NOT ({condition}))" for condition, _ in conditions)
        n_rows, *n_wrong = view.rows(f"SELECT count(*), {counts} FROM {name}")[0]  # noqa: S608 - conditions of ours
        outcome.n_rows += n_rows
        for (condition, words), count in zip(conditions, n_wrong, strict=True):
            if count:
                outcome.breach(
                    f"{name}: {count} rows break `{condition}`: {words}",
                    "this is no damage of a file but wrong when it was written: report it with these rows",
                    count,
                )
    return outcome


def reverse(hex_text: str) -> str:
    """Show a hash in hex, internal byte order, as people and RPC write it."""
    return bytes.fromhex(hex_text)[::-1].hex()
