"""Makes the report's section on luck: epochs with more blocks than expected, runs of blocks, races."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.data import Marts, Read, Row
from analysis.report.model import SectionContent, Table
from analysis.report.pool_comparison import SIGNIFICANCE
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    interval_columns,
    mart_table,
    pool_head,
    ratio_columns,
    text_column,
)
from analysis.report.text import (
    count,
    decimal,
    listed,
    listed_pools,
    p_value,
    percent,
    plural,
    printable,
    quotient,
    quotient_range,
)
from analysis.report.topic import Topic

MAX_NAMED: Final = 3
NO_PROOF: Final = (
    "This proves nothing about anybody's conduct: a share that changed, or blocks named for the wrong pool, "
    "look the same."
)
BY_CHANCE: Final = "adjusted_p_value, p_value, owner"
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "luck": Read("luck", f"{BY_CHANCE}, epoch", "grouped_by = 'pool'"),
        "block_runs": Read("block_runs", f"{BY_CHANCE}, run_length", "grouped_by = 'pool'"),
        "block_runs_group": Read("block_runs", f"{BY_CHANCE}, run_length", "grouped_by != 'pool'"),
        "race_outcome": Read("race_outcome", "adjusted_p_value, p_value, pool, rival_pool"),
        "published_hashrate": Read("published_hashrate", "source, pool"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: which epochs, runs of blocks and races chance does not explain."""
    return [*_luck(marts), *_runs(marts), *_races(marts)]


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return up to four folded tables on luck, runs of blocks and races, the least likely rows first."""
    tables: list[Table] = []
    if marts.rows("luck"):
        tables.append(_luck_table(marts))
    if marts.rows("block_runs"):
        tables.append(_runs_table(marts))
    if marts.rows("race_outcome"):
        tables.append(_race_table(marts))
    if marts.rows("published_hashrate"):
        tables.append(_published_table(marts))
    missing = [] if tables else ["A pool needs 20 blocks. `pool-collector backfill` reads older blocks."]
    return SectionContent(parts=tables, missing=missing)


def _unusual(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row["adjusted_p_value"] < SIGNIFICANCE]


def _luck(marts: Marts) -> list[str]:
    rows = marts.rows("luck")
    if not rows:
        return []
    unusual = _unusual(rows)
    n_tests = count(marts.totals["luck"])
    if not unusual:
        return [
            f"No pool had an epoch that differs by more than chance from those beside it ({n_tests} tests)."
        ]
    least = unusual[0]
    differ = plural(len(unusual), "epoch of a pool differs", "epochs of pools differ")
    said = f"{differ} by more than chance from those beside it ({n_tests} tests)"
    found = f"{printable(least['owner_name'])} found {count(least['block_count'])}"
    expected = f"{decimal(least['expected_count'])} were expected in epoch {least['epoch']}"
    return [f"{said}: above all {found} where {expected}. Luck and a changed hashrate look the same here."]


def _runs(marts: Marts) -> list[str]:
    rows = marts.rows("block_runs")
    if not rows:
        return []
    said = _longest_run(rows)
    unusual = _unusual(rows)
    if not unusual:
        return [*said, "No pool has more runs of blocks than chance explains."]
    named = [
        f"{printable(row['owner_name'])} has {plural(row['found_count'], 'run')} of {row['run_length']} or "
        f"more where {decimal(row['expected_count'])} are expected"
        for row in unusual[:MAX_NAMED]
    ]
    return [*said, f"More runs than chance explains: {listed(named)}. {NO_PROOF}"]


def _longest_run(rows: Sequence[Row]) -> list[str]:
    """Return the sentence on the longest run; the mart leaves out pools with fewer than 20 blocks."""
    longest = max(row["longest_run"] for row in rows)
    if longest == 1:
        return []
    found = dict.fromkeys(printable(row["owner_name"]) for row in rows if row["longest_run"] == longest)
    names = listed_pools([*found])
    return [f"Of pools with 20 blocks or more, {names} had the longest run: {longest} blocks in a row."]


def _races(marts: Marts) -> list[str]:
    rows = marts.rows("race_outcome")
    if not rows:
        return []
    races = plural(sum(row["race_count"] for row in rows), "race")
    unusual = _unusual(rows)
    if not unusual:
        return [f"No pair of pools has an outcome of its {races} that is more uneven than by chance."]
    named = [
        f"{marts.name(row['pool'])} against {marts.name(row['rival_pool'])}" for row in unusual[:MAX_NAMED]
    ]
    return [f"Of {races}, those of {listed(named)} are more uneven than by chance. {NO_PROOF}"]


def _owner_head() -> RowHead:
    return RowHead("Pool", lambda row: printable(row["owner_name"]))


def _chances() -> tuple[MartColumn, MartColumn]:
    return column("p_value", "Chance", p_value), column("adjusted_p_value", "Corrected", p_value)


def _luck_table(marts: Marts) -> Table:
    return mart_table(
        "luck-table",
        "Blocks per epoch against those that the share beside it expects, the least likely first",
        _owner_head(),
        [
            column("epoch", "Epoch", str),
            column("block_count", "Found"),
            column("expected_count", "Expected", decimal),
            *interval_columns(
                "luck_multiple",
                "Found / expected",
                quotient,
                "luck_low_multiple",
                "luck_high_multiple",
                between=quotient_range,
            ),
            *_chances(),
        ],
        marts.rows("luck"),
        mart="luck",
        n_records=marts.totals["luck"],
        note="Expected: by the share in the epochs before and after. Corrected: for all these tests (Holm).",
        is_folded=True,
    )


def _runs_table(marts: Marts) -> Table:
    return mart_table(
        "runs-table",
        "Runs of n blocks in a row or more against chance, the least likely first",
        _owner_head(),
        [
            column("run_length", "n"),
            column("found_count", "Found"),
            column("expected_count", "Expected", decimal),
            *interval_columns(
                "found_multiple",
                "Found / expected",
                quotient,
                "found_low_multiple",
                "found_high_multiple",
                between=quotient_range,
            ),
            *_chances(),
            column("longest_run", "Longest run"),
        ],
        marts.rows("block_runs"),
        mart="block_runs",
        records=[*marts.rows("block_runs"), *marts.rows("block_runs_group")],
        n_records=marts.totals["block_runs"] + marts.totals["block_runs_group"],
        note=f"The CSV has owners and groups of shared templates too. {NO_PROOF}",
        is_folded=True,
    )


def _race_table(marts: Marts) -> Table:
    return mart_table(
        "race-table",
        "Races of two pools at one height",
        pool_head(marts),
        [
            text_column("rival_pool_name", "Against"),
            column("race_count", "Races"),
            column("won_count", "Won"),
            *ratio_columns("won", "Won"),
            column("expected_ratio", "Expected", percent),
            *_chances(),
        ],
        marts.rows("race_outcome"),
        mart="race_outcome",
        n_records=marts.totals["race_outcome"],
        note=(
            "Expected: each of the two pools builds on its own block, and half of all others on each. "
            "Shares are those of the difficulty epoch in which the race took place."
        ),
        is_folded=True,
    )


def _published_table(marts: Marts) -> Table:
    return mart_table(
        "published-table",
        "Blocks found against those that a published hashrate expects",
        pool_head(marts),
        [
            text_column("source", "Published by"),
            column("n_days", "Days"),
            column("found_count", "Found"),
            column("expected_count", "Expected", decimal),
            *interval_columns(
                "found_multiple",
                "Found / expected",
                quotient,
                "found_low_multiple",
                "found_high_multiple",
                between=quotient_range,
            ),
        ],
        marts.rows("published_hashrate"),
        mart="published_hashrate",
        n_records=marts.totals["published_hashrate"],
        note="A source that makes its hashrates from blocks gives a ratio near 1 and shows nothing else.",
        is_folded=True,
    )


TOPIC: Final = Topic(
    section_id="luck",
    title="Luck",
    question="Is a pool luckier than chance allows?",
    intro=(
        "At one difficulty each hash has the same chance, so a pool's blocks scatter around its share. "
        "Found blocks are compared with the share in the neighbouring epochs, runs of blocks with all orders "
        "that the same blocks could have, and races with an even split of the other miners."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
