"""Checks of what belongs together: transactions and blocks, templates and theirs, rows and sessions."""

from typing import Final

from collector.check.grain import reverse
from collector.check.model import Outcome
from collector.check.view import View

OF_A_NODE: Final = (
    "mempool_txs",
    "mempool_events",
    "block_arrivals",
    "templates",
    "template_txs",
    "mempool_stats",
    "coverage",
    "rejects",
)
BACKFILL: Final = "backfill"  # the `node` of what a backfill rejects


def check_transactions(view: View) -> Outcome:
    """Compare each block with its transactions: all there, at its height, with its fees."""
    outcome = Outcome("transactions", "each block has all its transactions, and they have it")
    outcome.n_rows = view.count("FROM transactions")
    query = """
        SELECT lower(hex(block_hash)), b.height, b.n_tx, t.n_tx, CASE
            WHEN b.n_tx IS NULL THEN 'no block'
            WHEN t.n_tx IS DISTINCT FROM b.n_tx OR t.last <> b.n_tx - 1 THEN 'count'
            WHEN t.lowest <> b.height OR t.highest <> b.height THEN 'height'
            ELSE 'fees' END
        FROM (
            SELECT block_hash, max(height) AS height, max(n_tx) AS n_tx, max(fees_sat) AS fees_sat
            FROM blocks GROUP BY block_hash
        ) b FULL JOIN (
            SELECT
                block_hash, count(DISTINCT tx_index) AS n_tx, max(tx_index) AS last,
                min(height) AS lowest, max(height) AS highest, sum(fee_sat) AS fees_sat,
                count(*) - count(DISTINCT tx_index) AS n_more,
                count(*) FILTER (fee_sat IS NULL) AS n_unknown
            FROM transactions GROUP BY block_hash
        ) t USING (block_hash)
        WHERE b.n_tx IS NULL OR t.n_tx IS DISTINCT FROM b.n_tx OR t.last <> b.n_tx - 1
            OR t.lowest <> b.height OR t.highest <> b.height
            OR (t.n_more = 0 AND t.n_unknown = 1 AND coalesce(t.fees_sat, 0) <> b.fees_sat)
    """
    if view.is_backfilling:  # it writes transactions first, and their blocks next
        query = f"SELECT * FROM ({query}) AS f(block_hash, height, a, b, wrong) WHERE wrong <> 'no block'"  # noqa: S608 - a query of ours

    def tell(block_hash: str, height: int, n_said: int, n_there: int, wrong: str) -> tuple[str, str]:
        name = f"block {reverse(block_hash)}"
        if wrong == "no block":
            return (
                f"{n_there} transactions of {name}, which is not in blocks",
                "a killed backfill left them: run it again, it removes or completes them",
            )
        return (
            f"{name} has {n_said} transactions, {n_there or 0} are there"
            if wrong == "count"
            else f"{name}: its {wrong} and that of its transactions differ",
            (
                f"move the files of blocks and transactions with height {height} out of the dataset, "
                f"then {backfill_command(view, height, height)}"
            ),
        )

    outcome.breaches(view.examples(query), tell)
    return outcome


def check_templates(view: View) -> Outcome:
    """Compare each template with its transactions."""
    outcome = Outcome("templates", "each template has all its transactions, and they have it")
    outcome.n_rows = view.count("FROM template_txs")
    query = """
        SELECT node, strftime(taken_at, '%Y-%m-%d %H:%M:%S.%f'), t.n_tx, x.n_tx
        FROM (SELECT node, taken_at, max(n_tx) AS n_tx FROM templates GROUP BY node, taken_at) t
        FULL JOIN (
            SELECT node, taken_at, count(DISTINCT tx_index) AS n_tx, max(tx_index) AS last
            FROM template_txs GROUP BY node, taken_at
        ) x USING (node, taken_at)
        WHERE t.n_tx IS NULL OR coalesce(x.n_tx, 0) <> t.n_tx OR x.last <> t.n_tx
    """
    outcome.breaches(
        view.examples(query),
        lambda node, taken_at, n_said, n_there: (
            (
                f"template of {node} at {taken_at} has {n_said or 'no row in templates, and'} "
                f"{'' if n_said is None else 'transactions, '}{n_there or 0} are there"
            ),
            "restore the files of that day from a copy; a template cannot be had again",
        ),
    )
    return outcome


def check_sessions(view: View) -> Outcome:
    """Look for rows of sessions that `nodes` does not know."""
    outcome = Outcome("sessions", "each row's session is in nodes")
    for name in OF_A_NODE:
        outcome.n_rows += view.count(f"FROM {name}")
        query = f"""
            SELECT node, session, count(*) FROM {name} ANTI JOIN nodes_known USING (node, session)
            WHERE node <> '{BACKFILL}' GROUP BY node, session
        """  # noqa: S608 - names are the contract's
        outcome.breaches(
            view.examples(query),
            lambda node, session, count, name=name: (
                f"{name}: {count} rows of session {session} of {node}, which is not in nodes",
                "restore the file of nodes from a copy; without it nothing says which node it was",
            ),
        )
    return outcome


def backfill_command(view: View, first: int, last: int) -> str:
    """Write the command that fetches the blocks of some heights."""
    dataset = view.dataset
    return (
        f"pool-collector backfill --node --chain {dataset.chain} --dataset {dataset.root} "
        f"--from {first} --to {last}"
    )
