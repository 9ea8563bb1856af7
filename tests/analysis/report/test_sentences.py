"""Tests the words of the report's sentences: each says what it counts, of which blocks, and by whose word."""

import math
from dataclasses import replace

import pytest

from analysis.report.data import Marts, Row
from analysis.report.headline import headlines
from analysis.report.model import Table
from analysis.report.sections import (
    attribution,
    concentration,
    feerate,
    halving,
    hashrate,
    luck,
    revenue,
    share,
    template_audit,
)


def test_a_difficulty_that_never_changes_is_said_to_tell_nothing(marts: Marts) -> None:
    """On regtest the two hashrates may differ by any factor: the sentence says why, the card has only one."""
    private = replace(marts, manifest={**marts.manifest, "chain": "regtest"})
    (card,) = [card for card in headlines(private) if card.section == "hashrate"]

    assert hashrate.sentences(private)[0].endswith(f"{hashrate.FIXED_DIFFICULTY}.")
    assert hashrate.FIXED_DIFFICULTY not in hashrate.sentences(marts)[0]
    assert "by difficulty" not in card.note


def test_the_first_sentence_with_x_says_what_x_is(marts: Marts) -> None:
    """Who reads of the top X for the first time reads what X counts."""
    (first, *_) = [said for said in feerate.sentences(marts) if "top X" in said]

    assert "X = the number of transactions in the block" in first


def test_blocks_that_only_labels_name_are_said_to_be_so(marts: Marts) -> None:
    """The sentence on attribution counts payout scripts, tags, labels of others and the rest."""
    counts = {"tag": 1005, "label": 87_716, "none": 1608}
    rows = [
        {
            "period_kind": "all",
            "method": method,
            "block_count": n_blocks,
            "total_block_count": sum(counts.values()),
            "conflict_count": 0,
        }
        for method, n_blocks in counts.items()
    ]
    only = replace(marts, tables={**marts.tables, "attribution_method": rows, "label_summary": []})

    assert attribution.sentences(only) == [
        (
            "Of 90,329 blocks, none were attributed by payout script and 1,005 by coinbase tag; for 87,716 "
            "others name the pool; 1,608 stay unknown."
        )
    ]


def test_names_of_others_that_we_do_not_know_are_named(marts: Marts) -> None:
    """A block that somebody names is not only "unknown": both sections say by whom and how it is called."""
    rows = [
        {"source": "me", "kind": kind, "label": label, "block_count": n_blocks, "unknown_count": n_unknown}
        | {"first_height": 1, "last_height": 900}
        for kind, label, n_blocks, n_unknown in (
            ("labels", "NoSuchPool", 729, 720),
            ("labels", "Odd\x1b", 1, 0),
            ("blocks", "NoSuchPool", 10, 10),  # the same blocks once more, from the source's table of blocks
        )
    ]
    found = replace(marts, tables={**marts.tables, "unmapped_label": rows})

    assert [said for said in attribution.sentences(found) if "do not know" in said] == [
        (
            "me calls 730 blocks by names that we do not know: NoSuchPool (729) and Odd\N{SYMBOL FOR ESCAPE} "
            "(1)."
        )
    ]
    assert "For 720 of them me names a pool, but no pool in data/pools has that name." in share.sentences(
        found
    )
    tables = [part for part in attribution.figures_and_tables(found).parts if isinstance(part, Table)]
    assert "unmapped-table" in {table.table_id for table in tables}


def concentrated(marts: Marts, **numbers: float) -> list[str]:
    """Return the sentences on concentration where the row of all blocks by pool has these numbers."""
    rows = [row | numbers for row in marts.rows("concentration_index")]
    return concentration.sentences(replace(marts, tables={**marts.tables, "concentration_index": rows}))


def test_an_interval_of_one_number_is_one_number(marts: Marts) -> None:
    """One pool mines nothing together, and an interval from 2 to 2 is written as 2."""
    bounds = {"nakamoto_if_apart": 2.0, "nakamoto_if_largest": 2.0}
    one = concentrated(marts, nakamoto=1.0, nakamoto_low=1.0, nakamoto_high=2.0, **bounds)
    two = concentrated(marts, nakamoto=2.0, nakamoto_low=2.0, nakamoto_high=2.0, **bounds)

    assert one[0] == (
        "1 pool mined more than half of the named blocks (95\u00a0% interval 1 to 2), and 2 if the unknown "
        "blocks are counted."
    )
    assert two[0] == (
        "2 pools together mined more than half of the named blocks (95\u00a0% interval only 2), also if the "
        "unknown blocks are counted."
    )


def test_an_index_says_what_it_counts(marts: Marts) -> None:
    """Each sentence says whether it is by pool or by company, and of which blocks."""
    said = concentrated(marts, hhi=0.285, hhi_low=0.216, hhi_high=0.352, n_owners=4)
    unknown = [{**marts.rows("owner_share")[0], "is_unknown": True, "position": None}]
    with_unknown = replace(
        marts, tables={**marts.tables, "owner_share": [*marts.rows("owner_share"), *unknown]}
    )

    assert said[1] == (
        "By pool, the Herfindahl-Hirschman index of the named blocks is 0.285 (95\u00a0% interval 0.216 to "
        "0.352; further pools may have found no block)."
    )
    assert "further pools" not in concentrated(marts, hhi_low=0.26, n_owners=4)[1]
    assert "The 3 largest companies, each with all its pools, mined 60.0\u00a0% of all blocks (" in said[2]
    assert "of all blocks, unknown ones included (" in concentration.sentences(with_unknown)[2]


def test_the_longest_run_is_of_all_pools_that_have_it(marts: Marts) -> None:
    """Pools of equally long runs are named together, each once; a run of one block is none."""
    (row,) = marts.rows("block_runs")
    rows = [
        row | {"owner_name": name, "longest_run": n} for name, n in (("A", 5), ("B", 5), ("A", 5), ("C", 4))
    ]
    no_runs = [row | {"longest_run": 1}]

    def said(rows: list[Row]) -> str:
        return " ".join(luck.sentences(replace(marts, tables={**marts.tables, "block_runs": rows})))

    assert "Of pools with 20 blocks or more, A and B had the longest run: 5 blocks in a row." in said(rows)
    assert "longest run" not in said(no_runs)


@pytest.mark.parametrize(
    ("pieces", "statistic", "breaks", "depends"),
    [(1, 0.6, False, True), (1, 1.9, False, False), (1, None, False, False), (2, math.nan, True, False)],
)
def test_pieces_are_said_where_there_are_some(
    marts: Marts, pieces: int, statistic: float | None, *, breaks: bool, depends: bool
) -> None:
    """One piece of growth is one exponential, also where its residuals depend on each other."""
    fits = [row | {"durbin_watson": statistic} for row in marts.rows("hashrate_growth")]
    segments = [row for row in marts.rows("hashrate_segment") if row["grouped_by"] == "network"][:pieces]
    tables = {**marts.tables, "hashrate_growth": fits, "hashrate_segment": segments}

    said = " ".join(hashrate.sentences(replace(marts, tables=tables)))

    assert ("It is not one exponential: 2 pieces of constant growth fit better." in said) == breaks
    assert ("The residuals depend on each other (Durbin-Watson 0.600; 2 if" in said) == depends
    assert ("one exponential:" in said) == breaks


@pytest.mark.parametrize(("n_most", "subject"), [(120, "Most of them"), (90, "The most")])
def test_the_pool_with_most_candidates_is_named(marts: Marts, n_most: int, subject: str) -> None:
    """A small pool has the highest ratio of candidates, but most of them are in blocks of a large one."""
    counts = {"all": (200, 100_000), "foundry": (n_most, 80_000), "antpool": (10, 500)}
    rows = [
        {"pool": pool, "n_candidates": n, "n_txs": n_txs, "candidate_ratio": n / n_txs}
        | {"candidate_low_ratio": 0.5 * n / n_txs, "candidate_high_ratio": 2 * n / n_txs}
        for pool, (n, n_txs) in counts.items()
    ]
    judged = replace(marts, tables={**marts.tables, "out_of_band": rows})

    assert (
        f"{subject}, {n_most} of 200, are in blocks of Foundry USA: " in template_audit.sentences(judged)[-1]
    )


def with_growth(marts: Marts, mart: str, **values: float | None) -> Marts:
    """Return marts in which the fits of `mart` that are not of hashrate have these values.

    A fit without a metric is of hashrate; the fits of the network come first.
    """
    rows = [row | ({} if row.get("metric") == "hashrate" else values) for row in marts.rows(mart)]
    return replace(marts, tables={**marts.tables, mart: rows})


def test_a_fit_without_a_rate_is_no_dilemma(marts: Marts) -> None:
    """A hashprice that never changes has no growth, and no sentence; a perfect fit has no Durbin-Watson."""
    nothing = dict.fromkeys(("lambda_per_day", "lambda_low_per_day", "lambda_high_per_day"))
    constant = with_growth(marts, "revenue_growth", **nothing)
    exact = with_growth(marts, "hashrate_growth", durbin_watson=None)

    assert not [said for said in revenue.sentences(constant) if "dilemma" in said or "trap" in said]
    assert not [said for said in hashrate.sentences(exact) if "Durbin-Watson" in said]


def test_a_count_of_pools_says_that_each_has_its_own_interval(marts: Marts) -> None:
    """Intervals that are not corrected for their number make nothing certain."""
    (said,) = [said for said in revenue.sentences(marts) if said.startswith("Prisoner's dilemma")]

    assert "certain" not in said
    assert "own 95\u00a0% intervals say" in said


@pytest.mark.parametrize(
    ("p_value", "words"),
    [
        (
            0.01,
            "An epoch after a hashprice above 512 USD per PH/s and day (95 % interval 500 to 530), hashrate",
        ),
        (0.4, "No threshold is shown above which hashrate grows an epoch later: best split at 512 USD"),
    ],
)
def test_the_threshold_is_that_of_the_growth_one_epoch_later(
    marts: Marts, p_value: float, words: str
) -> None:
    """Growth in the same epoch shares its difficulty with the hashprice, so it carries no sentence."""
    (row,) = marts.rows("revenue_threshold")
    later = {"later_threshold_low_per_ph_day": 500.0, "later_threshold_per_ph_day": 512.0}
    later |= {"later_threshold_high_per_ph_day": 530.0, "later_below_growth": 0.0, "later_above_growth": 0.05}
    rows = [row | later | {"later_p_value": p_value}]

    said = revenue.sentences(replace(marts, tables={**marts.tables, "revenue_threshold": rows}))

    assert [each for each in said if each.replace("\u00a0", " ").startswith(words)]
    assert "348" not in " ".join(said)


@pytest.mark.parametrize(
    ("adjusted", "least", "words"),
    [
        (0.06, 0.03, "The price did not change more than on placebo dates at 1 halving (smallest p = 0.06)."),
        (0.04, 0.03, "The price changed more than on placebo dates at 1 of 1 halving: 2020 by \u00d71.20."),
        (0.06, 0.06, "Too few placebo dates for 1 test to tell whether the price changed at 1 halving"),
    ],
)
def test_halvings_are_judged_by_corrected_p_values(
    marts: Marts, adjusted: float, least: float, words: str
) -> None:
    """Of many tests one has p below 0.05 by chance; where none could pass, the sentence says so."""
    p_values = {"p_value": 0.02, "adjusted_p_value": adjusted, "least_adjusted_p_value": least}
    rows = [marts.rows("halving_effect")[0] | p_values]

    said = halving.sentences(replace(marts, tables={**marts.tables, "halving_effect": rows}))

    assert said[0].startswith(words)
