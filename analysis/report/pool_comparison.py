"""Finds the pools that differ from all other pools together, by tests corrected for the number of pools."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np

from analysis.report.data import ALL, UNKNOWN, Marts, Row
from analysis.report.text import comma_interval, listed_pools
from analysis.stats.rank_tests import holm, rank_test

SIGNIFICANCE: Final = 0.05
MIN_BLOCKS: Final = 5  # a pool with fewer blocks is not compared


class Different(NamedTuple):
    """Names the pools whose value is significantly above, or below, the value of all other pools together."""

    above: set[str]
    below: set[str]


def by_count(rows: Sequence[Row], count: str, total: str) -> Different:
    """Return the pools whose share `count` / `total` of blocks differs from that of all others.

    The test is Fisher's exact test. `count` and `total` are column names. `rows` has one row per pool, and
    one for all pools together. The p values are corrected for the number of pools. A pool is not compared if
    it or all others together have fewer than 5 blocks. Blocks of unknown pools count only among the others.
    """
    from scipy import stats  # noqa: PLC0415 - takes half a second, and only the report needs it

    n_blocks, n_counted = next((row[total], row[count]) for row in rows if row["pool"] == ALL)
    tests: dict[str, tuple[float, float]] = {}
    for row in rows:
        own, others = (row[count], row[total]), (n_counted - row[count], n_blocks - row[total])
        if row["pool"] not in (ALL, UNKNOWN) and min(own[1], others[1]) >= MIN_BLOCKS:
            table = [[counted, blocks - counted] for counted, blocks in (own, others)]
            p_value = stats.fisher_exact(table).pvalue
            tests[row["pool"]] = (p_value, own[0] / own[1] - others[0] / others[1])
    return _different(tests)


def by_blocks(blocks: Sequence[Row], rows: Sequence[Row], name: str) -> Different:
    """Return the pools whose blocks differ in column `name` from all others (Mann-Whitney test).

    `blocks` has one row per block; a block without a value is left out. `rows` has one row per pool, and one
    for all pools together, with the same ratio over all their blocks. A pool does not count as different if
    ranks, means and these ratios, which a sentence names, disagree on the direction. The p values are
    corrected for the number of pools. A pool is not compared if it or all others together have fewer than 5
    blocks. Blocks of unknown pools count only among the others.
    """
    known = [(row["pool"], row[name]) for row in blocks if row[name] is not None]
    whole = {row["pool"]: row[name] for row in rows}
    tests: dict[str, tuple[float, float]] = {}
    for pool in sorted({pool for pool, _ in known} - {UNKNOWN}):
        own = [ratio for other, ratio in known if other == pool]
        others = [ratio for other, ratio in known if other != pool]
        if min(len(own), len(others)) >= MIN_BLOCKS:
            test = rank_test(np.array(own), np.array(others))
            by_mean = sum(own) / len(own) - sum(others) / len(others)
            by_whole = whole[pool] - whole[ALL]
            agree = test is not None and test.rank_biserial * by_mean > 0 and by_whole * by_mean > 0
            tests[pool] = (test.p_value if test and agree else 1.0, by_mean)
    return _different(tests)


def _different(tests: Mapping[str, tuple[float, float]]) -> Different:
    """Correct the p values for the number of tests, and return the pools with p < 0.05 by direction.

    `tests` has for each pool its p value, and its difference from the others, whose sign is the direction.
    """
    corrected = holm([p_value for p_value, _ in tests.values()])
    found = [
        (pool, difference)
        for (pool, (_, difference)), p_value in zip(tests.items(), corrected, strict=True)
        if p_value < SIGNIFICANCE
    ]
    return Different(
        above={pool for pool, difference in found if difference > 0},
        below={pool for pool, difference in found if difference < 0},
    )


def outlier_sentences(marts: Marts, rows: Iterable[Row], name: str, pools: set[str], claim: str) -> list[str]:
    """Return one sentence that names the given pools and their ratio `name`; an empty list for no pool.

    The claim starts with a verb in the plural, as in "take fewer of the top X"; one pool alone gets "takes".
    """
    found = [row for row in rows if row["pool"] in pools]
    if not found:
        return []
    if len(found) == 1:
        verb, rest = claim.split(" ", 1)
        return [
            (
                f"{marts.name(found[0]['pool'])} {verb}s {rest} than the others "
                f"({comma_interval(found[0], name)})."
            )
        ]
    named = [f"{marts.name(row['pool'])} ({comma_interval(row, name)})" for row in found]
    return [f"{listed_pools(named)} {claim} than the others."]
