"""Check the chain: every height has a block, every block its parent, and every block was verified."""

from typing import Final

from collector.check.cross_table import backfill_command
from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult, display_hash
from collector.dataset.schema import UNKNOWN_PARENT


def check_heights(view: DatasetView) -> CheckResult:
    """Find heights without a block, from the lowest stored one to the highest that a node connected.

    All functions `check_…` return a CheckResult with what they found.
    """
    result = CheckResult("heights", "every height from the first to the last is there")
    result.n_rows = view.count("FROM blocks")
    query = """
        SELECT height + 1, next - 1 FROM (
            SELECT height, lead(height) OVER (ORDER BY height) AS next
            FROM (SELECT DISTINCT height FROM all_blocks)
        ) WHERE next > height + 1 ORDER BY height
    """
    holes = view.rows(query)
    for first, last in holes:
        words = f"height {first} is" if first == last else f"heights {first} to {last} are"
        result.breach(f"{words} missing", backfill_command(view, first, last), last - first + 1)
    _find_missing_above(view, result)
    return result


def _find_missing_above(view: DatasetView, result: CheckResult) -> None:
    """Add to `result` each block above the highest stored one that a node connected and that is not stored.

    Such a block breaks the contract. It is only a note while a backfill or a collector of the node runs,
    because these may still store it.
    """
    query = """
        SELECT node, lower(hex(block_hash)), height FROM (
            SELECT node, block_hash, max(height) AS height, arg_max(event, event_at) AS event
            FROM all_block_arrivals WHERE kind = 'pushed' AND event <> 'seen' GROUP BY node, block_hash
        )
        ANTI JOIN all_blocks USING (block_hash)
        WHERE event = 'connected' AND (
            height IS NULL OR height > coalesce((SELECT max(height) FROM all_blocks), -1)
        ) ORDER BY node, height
    """
    for node, block_hash, height in view.rows(query):
        where = "an unknown height" if height is None else f"height {height}"
        what = f"block {display_hash(block_hash)} was connected by {node} at {where} and is missing"
        mend = "`pool-collector run` fetches it"
        if height is not None:
            mend += f"; or {backfill_command(view, height, height)}"
        is_under_way = view.is_being_backfilled or node in view.files.journals.running
        (result.note if is_under_way else result.breach)(what, mend)


# Stored blocks without their parent, on a branch that ends below the highest block. A node forgets stale
# blocks when it prunes or is set up anew, so nothing can bring such a parent. A branch that goes on for so
# many blocks counts as the active chain. A collector that has asked a node for
# such a parent in vain has left a reject.
FOLLOWED_BLOCKS: Final = 100
_UNMENDABLE_ORPHANS: Final = f"""
    WITH RECURSIVE orphans AS (
        SELECT DISTINCT c.block_hash, c.height, c.prev_hash FROM blocks c
        ANTI JOIN all_blocks p ON c.prev_hash = p.block_hash
        WHERE c.height - 1 IN (SELECT height FROM all_blocks)
    ), branches AS (
        SELECT block_hash AS orphan, height AS orphan_height, block_hash, height FROM orphans
        UNION
        SELECT orphan, orphan_height, c.block_hash, c.height
        FROM branches b JOIN all_blocks c ON c.prev_hash = b.block_hash
        WHERE c.height <= orphan_height + {FOLLOWED_BLOCKS}
    )
    SELECT o.* FROM orphans o JOIN (
        SELECT orphan, max(height) AS end_height FROM branches GROUP BY orphan
    ) b ON o.block_hash = b.orphan
    WHERE (end_height < (SELECT max(height) FROM all_blocks) AND end_height < o.height + {FOLLOWED_BLOCKS})
        OR o.prev_hash IN (SELECT body FROM all_rejects WHERE reason = '{UNKNOWN_PARENT}')
"""  # noqa: S608 - a number and a text of ours


def check_parents(view: DatasetView) -> CheckResult:
    """Find blocks whose parent has a wrong height, or is missing although blocks of that height are stored.

    A missing parent that no node has any more is a note; it does not break the contract. Returns a
    CheckResult.
    """
    query = """
        SELECT lower(hex(block_hash)), height, lower(hex(prev_hash)), parent_height FROM (
            SELECT DISTINCT c.block_hash, c.height, c.prev_hash, p.height AS parent_height
            FROM blocks c LEFT JOIN all_blocks p ON c.prev_hash = p.block_hash
        )
        WHERE parent_height <> height - 1 OR (
            parent_height IS NULL AND height - 1 IN (SELECT height FROM all_blocks)
            AND block_hash NOT IN (SELECT block_hash FROM unmendable_orphans)
        )
    """
    view.rows(f"CREATE OR REPLACE TEMP TABLE unmendable_orphans AS {_UNMENDABLE_ORPHANS}")

    def describe(block_hash: str, height: int, prev_hash: str, parent_height: int | None) -> tuple[str, str]:
        name = f"block {display_hash(block_hash)} at height {height}"
        if parent_height is None:
            return (
                f"the parent {display_hash(prev_hash)} of {name} is missing",
                backfill_command(view, height - 1, height - 1),
            )
        return (
            f"{name} follows one at height {parent_height}",
            "move the files with either out of the dataset and backfill them again",
        )

    result = view.result(
        "parents", "every block's parent is there, one height below", "FROM blocks", query, describe
    )
    result.notes(
        view.examples("SELECT lower(hex(block_hash)), height, lower(hex(prev_hash)) FROM unmendable_orphans"),
        lambda block_hash, height, prev_hash: (
            (
                f"the parent {display_hash(prev_hash)} of block {display_hash(block_hash)} at height "
                f"{height} is missing, and the node has forgotten it"
            ),
            "nothing to do; a backfill from the blocks folder of a node that saw the parent brings it",
        ),
    )
    return result


def check_verdicts(view: DatasetView) -> CheckResult:
    """Find blocks that did not pass verification when they were stored; return them as a CheckResult."""
    query = "SELECT lower(hex(block_hash)), height, verdict FROM blocks WHERE verdict <> 'valid'"
    return view.result(
        "verdicts",
        "every block passed the check of its work, txids, merkle root and commitment",
        "FROM blocks",
        query,
        lambda block_hash, height, verdict: (
            f"block {display_hash(block_hash)} at height {height}: {verdict}",
            f"move the file that has it out of the dataset, then {backfill_command(view, height, height)}",
        ),
    )


# Rows of other tables that name a block and its height: the block, its parent if the row has it, the table.
_MENTIONED: Final = """
    SELECT block_hash, height, prev_hash, 'block_arrivals' AS name FROM block_arrivals
    UNION ALL SELECT tip_hash, tip_height, NULL, 'nodes' FROM nodes
    UNION ALL SELECT prev_hash, height - 1, NULL, 'templates' FROM templates
    UNION ALL SELECT block_hash, height, NULL, 'chain_tips' FROM chain_tips
"""
# Blocks, each once with the height that its own row says, or else the row of a child.
_STORED: Final = """
    SELECT block_hash, height, max(prev_hash) AS prev_hash FROM (
        SELECT block_hash, height, prev_hash FROM blocks
        UNION ALL SELECT prev_hash, height - 1, NULL FROM blocks
    ) GROUP BY block_hash, height
"""


def check_arrivals(view: DatasetView) -> CheckResult:
    """Find block arrivals, chain tips and templates whose height or parent is not the stored block's.

    A block that arrived and is not stored is a note. Returns a CheckResult.
    """
    result = CheckResult("arrivals", "arrivals, tips and templates have the height and parent of their block")
    result.n_rows = view.count(_MENTIONED)
    query = f"""
        WITH wrong AS (
            SELECT block_hash, a.height, b.height AS stored, a.name
            FROM ({_MENTIONED}) a JOIN ({_STORED}) b USING (block_hash)
            WHERE a.height <> b.height OR a.prev_hash <> b.prev_hash
        )
        SELECT lower(hex(block_hash)), height, stored, name FROM wrong
        UNION ALL
        SELECT lower(hex(block_hash)), height, tip_height, 'nodes'
        FROM block_arrivals JOIN all_nodes USING (node, session)
        WHERE kind = 'at_start' AND (block_hash <> tip_hash OR height <> tip_height)
            AND block_hash NOT IN (SELECT block_hash FROM wrong)
            AND tip_hash NOT IN (SELECT block_hash FROM wrong)
    """  # noqa: S608 - a query of ours
    result.breaches(
        view.examples(query),
        lambda block_hash, said, stored, name: (
            (
                f"{name} names block {display_hash(block_hash)} at height {said} or with another "
                f"parent; the block is at {stored}"
            ),
            f"restore the file of {name} from a copy",
        ),
    )
    absent = """
        SELECT DISTINCT lower(hex(block_hash)), height FROM block_arrivals
        ANTI JOIN all_blocks USING (block_hash) WHERE kind = 'pushed'
    """
    result.notes(
        view.examples(absent),
        lambda block_hash, height: (
            f"block {display_hash(block_hash)} arrived and is not stored",
            "run a backfill, which fetches it when it is active"
            if height is None
            else f"{backfill_command(view, height, height)}, when it is active",
        ),
    )
    return result
