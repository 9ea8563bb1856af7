"""Show what a change of the pool rules does: find each block's pool by both rule sets, and compare."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from analysis.attribution.match import match_candidates
from analysis.attribution.rules import RuleSet
from analysis.candidates import ATTRIBUTED
from analysis.catalog import load_catalog
from analysis.database import connect
from analysis.incremental import create_model
from analysis.raw_views import create_views, listed_files, open_dataset

COLUMNS: Final = (
    "before_pool",
    "after_pool",
    "block_count",
    "first_height",
    "last_height",
    "before_rule_id",
    "after_rule_id",
)

# The rule ids are those that decided the highest of the moved blocks.
CHANGES: Final = """
SELECT
    coalesce(before.pool, 'unknown') AS before_pool,
    coalesce(after.pool, 'unknown') AS after_pool,
    count(*) AS block_count,
    min(height) AS first_height,
    max(height) AS last_height,
    arg_max(before.rule_id, height) AS before_rule_id,
    arg_max(after.rule_id, height) AS after_rule_id
FROM attributed
LEFT JOIN (FROM before_candidates WHERE rank = 1) AS before USING (block_hash)
LEFT JOIN (FROM after_candidates WHERE rank = 1) AS after USING (block_hash)
WHERE before.pool IS DISTINCT FROM after.pool
GROUP BY before_pool, after_pool
ORDER BY block_count DESC, before_pool, after_pool
"""


@dataclass(frozen=True, kw_only=True)
class RuleDiff:
    """Holds the difference between two rule sets on one dataset.

    `changes` has the columns of COLUMNS and one row for each pair of old and new pool with at least one moved
    block; stale blocks are included. `added_rules` and `removed_rules` are rule ids; a rule whose height
    bounds changed is in both.
    """

    before_hash: str
    after_hash: str
    n_blocks: int
    changes: list[tuple[object, ...]]
    added_rules: tuple[str, ...]
    removed_rules: tuple[str, ...]

    @property
    def n_changed(self) -> int:
        """Return the number of blocks that the two rule sets attribute to different pools."""
        return sum(int(str(row[2])) for row in self.changes)


def diff_rules(dataset: Path, before: RuleSet, after: RuleSet, chain: str | None = None) -> RuleDiff:
    """Attribute every block of a dataset by two rule sets; return which blocks move, and which rules differ.

    Raises DatasetError for a folder that is no dataset.
    """
    source = open_dataset(dataset, chain)
    with source.read_lock(), connect() as connection:
        create_views(connection, source, listed_files(source))
        for staging in ("stg_blocks", "stg_external_blocks"):
            create_model(connection, load_catalog().by_name[staging])
        blocks: pa.Table = connection.sql(ATTRIBUTED).to_arrow_table()
        connection.register("attributed", blocks)
        for name, rules in (("before", before), ("after", after)):
            connection.register(f"{name}_candidates", match_candidates(rules, blocks))
        changes = connection.execute(CHANGES).fetchall()
    return RuleDiff(
        before_hash=before.hash,
        after_hash=after.hash,
        n_blocks=blocks.num_rows,
        changes=changes,
        added_rules=_missing(after, before),
        removed_rules=_missing(before, after),
    )


def _missing(rules: RuleSet, others: RuleSet) -> tuple[str, ...]:
    """Return the ids of the pool rules in `rules` that `others` lacks, or has with other height bounds."""
    return tuple(sorted(rule_id for rule_id, *_ in _bounded(rules) - _bounded(others)))


def _bounded(rules: RuleSet) -> set[tuple[str, int, int]]:
    """Return a set with the id, the first and the last height of each rule of a rule set."""
    return {(rule.rule_id, rule.from_height, rule.to_height) for pool in rules.pools for rule in pool.rules}
