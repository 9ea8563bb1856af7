"""Keep which pool rules match each coinbase, a part per 2,000 heights: a new day matches its own blocks."""

from collections.abc import Iterator, Mapping
from typing import Final

import duckdb
import pyarrow.compute as pc

from analysis.attribution.match import match_candidates
from analysis.attribution.rules import RuleSet
from analysis.catalog import READ_FOR_INPUTS
from analysis.fingerprints import Fingerprints, package_hash
from analysis.parts import Inputs, Part, PartsFolder

CANDIDATES: Final = "pool_candidates"
HEIGHTS: Final = 2000  # of a part
# Selects every coinbase of our blocks and of imported block tables; the imported ones have no outputs.
ATTRIBUTED: Final = """
    SELECT block_hash, height, coinbase_script, coinbase_outputs FROM stg_blocks
    UNION ALL
    SELECT block_hash, min(height), arg_min(coinbase_script, source), []
    FROM (FROM stg_external_blocks WHERE coinbase_script IS NOT NULL) ANTI JOIN stg_blocks USING (block_hash)
    GROUP BY block_hash
    ORDER BY height, block_hash
"""
CONTENTS: Final = f"""
    SELECT height // {HEIGHTS}, count(*), sum(hash(block_hash, height, coinbase_script, coinbase_outputs))
    FROM ({ATTRIBUTED}) GROUP BY 1 ORDER BY 1
"""  # noqa: S608 - our own query
COINBASES: Final = "a coinbase"


def candidate_inputs(rules: RuleSet, found: Fingerprints) -> dict[str, str]:
    """Return the inputs of the pools that the rules match per block."""
    return found.of_query(ATTRIBUTED, READ_FOR_INPUTS) | {
        "a pool rule": rules.hash,
        "the matching": package_hash("analysis.attribution"),
    }


def candidate_parts(
    connection: duckdb.DuckDBPyConnection, rules: RuleSet, parts: PartsFolder, inputs: Inputs
) -> Iterator[Part]:
    """Yield the parts in order of height, and make those that are missing; without a block, an empty one.

    `inputs` are those of all parts together. A part depends on the coinbases of its own heights.
    """
    own = {name: value for name, value in inputs.items() if not name.startswith("reads ")}
    contents = connection.execute(CONTENTS).fetchall()
    by_group = {group: own | {COINBASES: f"{group} {n} {total}"} for group, n, total in contents} or {0: own}
    found = {group: parts.find(CANDIDATES, each) for group, each in by_group.items()}
    missing = {group: by_group[group] for group, part in found.items() if part is None}
    made = dict(_made(connection, rules, parts, missing))
    for group, part in found.items():
        yield part or made[group]


def _made(
    connection: duckdb.DuckDBPyConnection, rules: RuleSet, parts: PartsFolder, missing: Mapping[int, Inputs]
) -> Iterator[tuple[int, Part]]:
    """Match the coinbases of some groups of heights, and yield each group with its part."""
    if not missing:
        return
    groups = ", ".join(map(str, missing))
    query = f"FROM ({ATTRIBUTED}) WHERE height // {HEIGHTS} IN ({groups})"
    blocks = connection.sql(query).to_arrow_table()
    group_of = pc.divide(blocks["height"], HEIGHTS)  # rounds towards zero, as // does for heights
    for group, inputs in missing.items():
        candidates = match_candidates(rules, blocks.filter(pc.equal(group_of, group)))
        connection.register("found_candidates", candidates)
        yield group, parts.make(connection, CANDIDATES, inputs, "FROM found_candidates", {}, ())
        connection.unregister("found_candidates")
