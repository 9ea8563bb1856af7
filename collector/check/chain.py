"""Checks of the chain: every height there, every block on its parent, every body verified."""

from typing import Final

from collector.check.grain import reverse
from collector.check.links import backfill_command
from collector.check.model import Outcome
from collector.check.view import View


def check_heights(view: View) -> Outcome:
    """Look for heights that no block has, from the first one to the last that a node connected."""
    outcome = Outcome("heights", "every height from the first to the last is there")
    outcome.n_rows = view.count("FROM blocks")
    query = """
        SELECT height + 1, next - 1 FROM (
            SELECT height, lead(height) OVER (ORDER BY height) AS next
            FROM (SELECT DISTINCT height FROM blocks_known)
        ) WHERE next > height + 1 ORDER BY height
    """
    holes = view.rows(query)
    for first, last in holes:
        words = f"height {first} is" if first == last else f"heights {first} to {last} are"
        outcome.breach(f"{words} missing", backfill_command(view, first, last), last - first + 1)
    _look_above(view, outcome)
    return outcome


def _look_above(view: View, outcome: Outcome) -> None:
    """Look for active blocks above all that are there; a collector or backfill that runs may bring them."""
    query = """
        SELECT node, lower(hex(block_hash)), height FROM (
            SELECT node, block_hash, max(height) AS height, arg_max(event, event_at) AS event
            FROM block_arrivals_known WHERE kind = 'pushed' AND event <> 'seen' GROUP BY node, block_hash
        )
        ANTI JOIN blocks_known USING (block_hash)
        WHERE event = 'connected' AND (
            height IS NULL OR height > coalesce((SELECT max(height) FROM blocks_known), -1)
        ) ORDER BY node, height
    """
    for node, block_hash, height in view.rows(query):
        where = "a height that nobody knows" if height is None else f"height {height}"
        what = f"block {reverse(block_hash)} was connected by {node} at {where} and is missing"
        mend = "`pool-collector run` fetches it"
        if height is not None:
            mend += f"; or {backfill_command(view, height, height)}"
        is_under_way = view.is_backfilling or node in view.files.journals.running
        (outcome.note if is_under_way else outcome.breach)(what, mend)


def check_parents(view: View) -> Outcome:
    """Look for blocks whose parent is missing though its height is there, or has another height."""
    query = """
        SELECT lower(hex(block_hash)), height, lower(hex(prev_hash)), parent_height FROM (
            SELECT DISTINCT c.block_hash, c.height, c.prev_hash, p.height AS parent_height
            FROM blocks c LEFT JOIN blocks_known p ON c.prev_hash = p.block_hash
        )
        WHERE parent_height <> height - 1
            OR (parent_height IS NULL AND height - 1 IN (SELECT height FROM blocks_known))
    """

    def tell(block_hash: str, height: int, prev_hash: str, parent_height: int | None) -> tuple[str, str]:
        name = f"block {reverse(block_hash)} at height {height}"
        if parent_height is None:
            return (
                f"the parent {reverse(prev_hash)} of {name} is missing",
                backfill_command(view, height - 1, height - 1)
                + "; of a stale block only the blocks folder of a node that saw it may have the parent",
            )
        return (
            f"{name} follows one at height {parent_height}",
            "move the files with either out of the dataset and backfill them again",
        )

    return view.outcome(
        "parents", "every block's parent is there, one height below", "FROM blocks", query, tell
    )


def check_verdicts(view: View) -> Outcome:
    """Look for bodies that did not pass verification."""
    query = "SELECT lower(hex(block_hash)), height, verdict FROM blocks WHERE verdict <> 'valid'"
    return view.outcome(
        "verdicts",
        "every block passed the check of work, txids, merkle root and commitment",
        "FROM blocks",
        query,
        lambda block_hash, height, verdict: (
            f"block {reverse(block_hash)} at height {height}: {verdict}",
            f"move the file that has it out of the dataset, then {backfill_command(view, height, height)}",
        ),
    )


# What speaks of a block with its height: the block, its parent where that is told, and where it is said.
_TOLD: Final = """
    SELECT block_hash, height, prev_hash, 'block_arrivals' AS name FROM block_arrivals
    UNION ALL SELECT tip_hash, tip_height, NULL, 'nodes' FROM nodes
    UNION ALL SELECT prev_hash, height - 1, NULL, 'templates' FROM templates
"""
# A block whose own row may be missing has the place that its children give it.
_STORED: Final = """
    SELECT block_hash, height, prev_hash FROM blocks
    UNION SELECT prev_hash, height - 1, NULL FROM blocks
"""


def check_arrivals(view: View) -> Outcome:
    """Compare arrivals, tips and templates with the blocks that they speak of."""
    outcome = Outcome("arrivals", "arrivals, tips and templates have the height and parent of their block")
    outcome.n_rows = view.count("FROM block_arrivals")
    query = f"""
        SELECT lower(hex(a.block_hash)), a.height, b.height, a.name
        FROM ({_TOLD}) a JOIN ({_STORED}) b USING (block_hash)
        WHERE a.height <> b.height OR a.prev_hash <> b.prev_hash
        UNION ALL
        SELECT lower(hex(block_hash)), height, tip_height, 'nodes'
        FROM block_arrivals JOIN nodes_known USING (node, session)
        WHERE kind = 'at_start' AND (block_hash <> tip_hash OR height <> tip_height)
    """  # noqa: S608 - a query of ours
    outcome.breaches(
        view.examples(query),
        lambda block_hash, said, stored, name: (
            (
                f"{name} has block {reverse(block_hash)} at height {said}, it is at {stored}, "
                "or with another parent"
            ),
            f"restore the file of {name} from a copy",
        ),
    )
    absent = """
        SELECT DISTINCT lower(hex(block_hash)), height FROM block_arrivals
        ANTI JOIN blocks_known USING (block_hash) WHERE kind = 'pushed'
    """
    outcome.notes(
        view.examples(absent),
        lambda block_hash, height: (
            f"block {reverse(block_hash)} arrived and is not stored",
            "run a backfill, which fetches it when it is active"
            if height is None
            else f"{backfill_command(view, height, height)}, when it is active",
        ),
    )
    return outcome
