"""Check that tables agree: blocks with transactions, templates with theirs, rows with their sessions."""

from typing import Final

from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult, display_hash
from collector.dataset.schema import BACKFILL_NODE, IMPORT_TABLES
from collector.log import counted

OF_A_NODE: Final = (
    "mempool_txs",
    "mempool_bodies",
    "mempool_events",
    "block_arrivals",
    "chain_tips",
    "templates",
    "template_txs",
    "mempool_stats",
    "coverage",
    "rejects",
)
# Bytes of a block besides its transactions: the header and the number of transactions.
HEADER_BYTES: Final = "(81 + CASE WHEN count(*) < 253 THEN 0 WHEN count(*) < 65536 THEN 2 ELSE 4 END)"
# Columns of a block that its transactions determine, and how to compute them.
TOTALS: Final = {
    "n_inputs": "coalesce(sum(n_inputs) FILTER (tx_index > 0), 0)",
    "n_outputs": "sum(n_outputs)",
    "n_segwit_tx": "count(*) FILTER (has_witness AND tx_index > 0)",
    "output_value_sat": "coalesce(sum(output_value_sat) FILTER (tx_index > 0), 0)",
    "coinbase_txid": "min(txid) FILTER (tx_index = 0)",
    "coinbase_value_sat": "min(output_value_sat) FILTER (tx_index = 0)",
    "weight_wu": f"sum(weight_wu) + 4 * {HEADER_BYTES}",
    "size_bytes": f"sum(size_bytes) + {HEADER_BYTES}",
}


def check_transactions(view: DatasetView) -> CheckResult:
    """Find blocks whose transaction count, height or sums are not those of their rows in `transactions`.

    Returns a CheckResult.
    """
    query = _unlike_their_transactions()
    if view.is_being_backfilled:  # it writes transactions first, and their blocks next
        query = f"SELECT * FROM ({query}) AS f(block_hash, height, a, b, wrong) WHERE wrong <> 'no block'"  # noqa: S608 - a query of ours

    def describe(
        block_hash: str, height: int, n_said: int, n_there: int | None, wrong: str
    ) -> tuple[str, str]:
        name = f"block {display_hash(block_hash)}"
        if wrong == "no block":
            return (
                f"{counted(n_there or 0, 'transaction')} of {name}, which is not in blocks",
                "a killed backfill left them: run it again, it removes or completes them",
            )
        command = backfill_command(view, height, height)
        if not n_there:
            return (
                f"{name} has {counted(n_said, 'transaction')}, none in transactions",
                f"{command}; or, for a stale block, with --blocks-dir FOLDER in place of --node",
            )
        return (
            f"{name} has {counted(n_said, 'transaction')}, {n_there} in transactions"
            if wrong == "count"
            else f"{name}: its transactions have other {wrong}",
            (
                f"move the files of blocks and transactions with height {height} out of the dataset, "
                f"then {command}"
            ),
        )

    return view.result(
        "transactions",
        "each block has all its transactions and agrees with their sums",
        "FROM transactions",
        query,
        describe,
    )


def _unlike_their_transactions() -> str:
    """Return a SQL query for blocks that differ from their transactions; its last column says in what."""
    of_blocks = ", ".join(f"any_value({name}) AS {name}" for name in TOTALS)
    of_transactions = ", ".join(f"{total} AS {name}" for name, total in TOTALS.items())
    names = ", ".join(f"CASE WHEN b.{name} <> t.{name} THEN '{name}' END" for name in TOTALS)
    return f"""
        SELECT lower(hex(block_hash)), b.height, b.n_tx, t.n_tx, CASE
            WHEN b.n_tx IS NULL THEN 'no block'
            WHEN t.n_tx IS DISTINCT FROM b.n_tx OR t.last <> b.n_tx - 1 THEN 'count'
            ELSE concat_ws(', ',
                CASE WHEN t.lowest <> b.height OR t.highest <> b.height THEN 'height' END,
                CASE WHEN t.n_more = 0 AND t.n_unknown = 1 AND coalesce(t.fees_sat, 0) <> b.fees_sat
                    THEN 'fees_sat' END,
                CASE WHEN t.n_unknown = 1 AND t.best_taken > t.best_own * (1 + 1e-9)
                    THEN 'effective_feerate_sat_vb' END,
                CASE WHEN t.n_more = 0 THEN concat_ws(', ', {names}) END)
            END AS wrong
        FROM (
            SELECT block_hash, max(height) AS height, max(n_tx) AS n_tx, max(fees_sat) AS fees_sat,
                {of_blocks}
            FROM blocks GROUP BY block_hash
        ) b FULL JOIN (
            SELECT
                block_hash, count(DISTINCT tx_index) AS n_tx, max(tx_index) AS last,
                min(height) AS lowest, max(height) AS highest, sum(fee_sat) AS fees_sat,
                count(*) - count(DISTINCT tx_index) AS n_more,
                count(*) FILTER (fee_sat IS NULL) AS n_unknown,
                -- no package pays more per vbyte than the best of its transactions
                max(effective_feerate_sat_vb) AS best_taken, max(fee_sat / vsize_vb) AS best_own,
                {of_transactions}
            FROM transactions GROUP BY block_hash
        ) t USING (block_hash)
        WHERE wrong <> ''
    """  # noqa: S608 - names are the contract's


def check_templates(view: DatasetView) -> CheckResult:
    """Find templates whose transaction count, session or sums are not those of their transactions' rows.

    Returns a CheckResult.
    """
    query = """
        SELECT node, strftime(taken_at, '%Y-%m-%d %H:%M:%S.%f'), t.n_tx, x.n_tx
        FROM (
            SELECT node, taken_at, max(n_tx) AS n_tx, max(session) AS session, max(weight_wu) AS weight_wu,
                max(n_sigops) AS n_sigops, max(fees_sat) AS fees_sat
            FROM templates GROUP BY node, taken_at
        ) t FULL JOIN (
            SELECT node, taken_at, count(DISTINCT tx_index) AS n_tx, max(tx_index) AS last,
                count(DISTINCT txid) AS n_txids, min(session) AS session, max(session) AS last_session,
                sum(weight_wu) AS weight_wu, sum(n_sigops) AS n_sigops, sum(fee_sat) AS fees_sat
            FROM template_txs GROUP BY node, taken_at
        ) x USING (node, taken_at)
        WHERE t.n_tx IS NULL OR coalesce(x.n_tx, 0) <> t.n_tx OR x.last <> t.n_tx OR x.n_txids <> t.n_tx
            OR x.session <> t.session OR x.last_session <> t.session
            OR coalesce(x.weight_wu, 0) <> t.weight_wu OR coalesce(x.n_sigops, 0) <> t.n_sigops
            OR coalesce(x.fees_sat, 0) <> t.fees_sat
    """

    def describe(node: str, taken_at: str, n_said: int | None, n_there: int | None) -> tuple[str, str]:
        return (
            (
                f"template of {node} at {taken_at} has {n_said or 'no row in templates, and'} "
                f"{'' if n_said is None else 'transactions, '}{n_there or 0} are there"
                f"{' and say otherwise' if n_said == n_there else ''}"
            ),
            "restore the files of that day from a copy; a template cannot be had again",
        )

    return view.result(
        "templates",
        "each template has all its transactions and agrees with their sums",
        "FROM template_txs",
        query,
        describe,
    )


def check_copies(view: DatasetView) -> CheckResult:
    """Find transactions (by wtxid) whose rows in `mempool_txs` and `transactions` contradict each other.

    Returns a CheckResult.
    """
    result = CheckResult("copies", "rows of one transaction in mempools and blocks are alike")
    columns = (
        "wtxid, txid, size_bytes, weight_wu, n_inputs, n_outputs, output_value_sat, signals_rbf, fee_sat"
    )
    _, *compared = columns.split(", ")
    differs = " OR ".join(f"min({name}) <> max({name})" for name in compared)
    result.n_rows = view.count("FROM mempool_txs")
    query = f"""
        SELECT lower(hex(min(txid))) FROM (
            SELECT {columns} FROM mempool_txs WHERE wtxid IS NOT NULL
            UNION ALL SELECT {columns} FROM transactions SEMI JOIN mempool_txs USING (wtxid)
        ) GROUP BY wtxid HAVING {differs}
    """  # noqa: S608 - names are the contract's
    result.breaches(
        view.examples(query),
        lambda txid: (
            f"rows of transaction {display_hash(txid)} in mempool_txs and transactions contradict each other",
            "restore the files that have them from a copy",
        ),
    )
    return result


def check_fees(view: DatasetView) -> CheckResult:
    """Count, by node and day, mempool entries without a fee that the table `transactions` has.

    They are notes in the CheckResult; `pool-collector mend` fills them.
    """
    result = CheckResult("fees", "a fee that transactions has is not null in mempool_txs")
    result.n_rows = view.count("FROM mempool_txs")
    query = """
        SELECT node, strftime(entered_at, '%Y-%m-%d') AS day, count(*) AS n_missing
        FROM (FROM mempool_txs WHERE fee_sat IS NULL)
        SEMI JOIN (SELECT txid FROM transactions WHERE fee_sat IS NOT NULL) USING (txid)
        GROUP BY ALL ORDER BY ALL
    """
    for node, day, n_missing in view.rows(query):
        result.note(
            f"fees that {node} lacks on {day} and transactions has: {n_missing:,}",
            f"pool-collector mend --chain {view.dataset.chain} {view.dataset.root}",
            n_missing,
        )
    return result


def check_block_fees(view: DatasetView) -> CheckResult:
    """Find the spans of heights of blocks whose fees are null; they are notes in the CheckResult.

    A later backfill fills the fees.
    """
    result = CheckResult("block_fees", "the fees of every block are there")
    result.n_rows = view.count("FROM blocks")
    # A block without transactions but its coinbase has no fees to learn: it does not end a range.
    query = """
        SELECT min(height), max(height), count(*) FROM (
            SELECT height, is_lacking, row_number() OVER (ORDER BY height)
                - row_number() OVER (PARTITION BY is_lacking ORDER BY height) AS run
            FROM (
                SELECT height, bool_or(fees_sat IS NULL) AS is_lacking FROM all_blocks
                WHERE fees_sat IS NULL OR n_tx > 1 GROUP BY height
            )
        ) WHERE is_lacking GROUP BY run ORDER BY 1
    """
    for first, last, n_blocks in view.rows(query):
        where = f"height {first}" if first == last else f"heights {first} to {last}"
        result.note(
            f"fees are unknown at {where}",
            f"{backfill_command(view, first, last)}; or, where the node's rev files have its undo data, with "
            "--blocks-dir FOLDER in place of --node",
            n_blocks,
        )
    return result


def check_sources(view: DatasetView) -> CheckResult:
    """Find imports whose number of rows is not the one that the table `external_sources` records.

    Returns a CheckResult.
    """
    result = CheckResult("sources", "imported rows have their source, and none is missing")
    said = " UNION ALL ".join(
        f"SELECT source, '{kind}' AS kind, count(*) AS n_rows FROM {name} GROUP BY source"  # noqa: S608 - names are the contract's
        for kind, name in IMPORT_TABLES.items()
    )
    query = f"""
        SELECT source, kind, s.n_rows, coalesce(x.n_rows, 0)
        FROM (SELECT source, kind, sum(n_rows) AS n_rows FROM external_sources GROUP BY source, kind) s
        FULL JOIN ({said}) x USING (source, kind)
        WHERE s.n_rows IS NULL OR s.n_rows > coalesce(x.n_rows, 0)
    """  # noqa: S608 - the same
    result.n_rows = view.count("FROM external_sources")
    if view.is_being_backfilled:  # an import writes its rows first, and where they are from next
        return result
    result.breaches(
        view.examples(query),
        lambda source, kind, n_said, n_there: (
            f"{n_there} {kind} of {source} are there, external_sources has {n_said or 'no row of them'}",
            "import the file again after a killed import; if rows are missing, restore them from a copy",
        ),
    )
    return result


def check_sessions(view: DatasetView) -> CheckResult:
    """Find rows whose session is not in the table `nodes`, and sessions of a node on another chain.

    Returns a CheckResult.
    """
    result = CheckResult("sessions", "the session of each row is in nodes, and its node is on this chain")
    chain = view.dataset.chain
    result.breaches(
        view.examples(f"SELECT node, session, chain FROM nodes WHERE chain <> '{chain}'"),  # noqa: S608 - a name of ours
        lambda node, session, other: (
            f"session {session} of {node} was on {other}, and is among those of {chain}",
            "move its files out of the dataset: they are of another chain",
        ),
    )
    for name in OF_A_NODE:
        result.n_rows += view.count(f"FROM {name}")
        query = f"""
            SELECT node, session, count(*) FROM {name} ANTI JOIN all_nodes USING (node, session)
            WHERE node <> '{BACKFILL_NODE}' GROUP BY node, session
        """  # noqa: S608 - names are the contract's
        result.breaches(
            view.examples(query),
            lambda node, session, count, name=name: (
                f"{name}: {counted(count, 'row')} of session {session} of {node}, which is not in nodes",
                "restore the file of nodes from a copy; without it nothing says which node it was",
            ),
        )
    return result


def backfill_command(view: DatasetView, first: int, last: int) -> str:
    """Return the command line that fetches the blocks of heights `first` to `last`."""
    dataset = view.dataset
    return (
        f"pool-collector backfill --node --chain {dataset.chain} --dataset {dataset.root} "
        f"--from {first} --to {last}"
    )
