"""Tests the headline sentences: they claim what the numbers support, and nothing else."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analysis.report import findings, pool_comparison
from analysis.report.data import Marts
from analysis.report.sections import TOPICS, coverage, empty, feerate, read_marts, share
from analysis.report.text import NO_BLOCKS
from tests.analysis.report import report_marts


@pytest.fixture(scope="module")
def marts(tmp_path_factory: pytest.TempPathFactory) -> Marts:
    """Give the marts of six days of made-up blocks."""
    database = tmp_path_factory.mktemp("marts") / "analysis.duckdb"
    return read_marts(report_marts.write(database, report_marts.mainnet_like()))


def said(sentences: Callable[[Marts], list[str]], marts: Marts) -> str:
    """Return the sentences that a topic writes, joined to one text with plain spaces."""
    return " ".join(sentences(marts)).replace("\N{NO-BREAK SPACE}", " ")


def with_row(rows: list[Any], index: int, **values: Any) -> list[Any]:
    """Return a copy of rows in which some values of the row at `index` are changed."""
    return [{**row, **values} if place == index else row for place, row in enumerate(rows)]


def test_order_is_certain_only_where_intervals_part(marts: Marts) -> None:
    """The second pool is certainly behind only if its interval ends below the start of the first one's."""
    apart = said(share.sentences, marts)
    touching = replace(marts, shares=with_row(marts.shares, 1, share_high_ratio=0.5))

    assert "AntPool follows with" in apart
    assert "do not overlap" in apart
    assert "the order of the two is not certain" in said(share.sentences, touching)


def test_equals_are_named_together(marts: Marts) -> None:
    """If two pools mined the same number of blocks, both are named as the largest."""
    first = marts.shares[0]["block_count"]
    tied = replace(marts, shares=with_row(marts.shares, 1, block_count=first))

    assert f"Foundry USA and AntPool mined the most: {first} of 900 blocks each" in said(
        share.sentences, tied
    )


def test_unknown_blocks_are_counted_apart(marts: Marts) -> None:
    """Unknown blocks have a sentence of their own; without any, a sentence says that all are attributed."""
    known = replace(marts, shares=[row for row in marts.shares if not row["is_unknown"]])

    assert "No rule names the pool of" in said(share.sentences, marts)
    assert "Every block is attributed, to 7 pools in all." in said(share.sentences, known)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"p_value": 0.0004, "rank_biserial": -0.9}, "came sooner: median"),
        ({"p_value": 0.0004, "rank_biserial": -0.9}, "sooner in 95.0 % of all pairs (rank test p < 0.001"),
        ({"p_value": 0.0004, "rank_biserial": 0.5}, "later in 75.0 % of all pairs"),
        ({"p_value": 0.05, "rank_biserial": -0.2}, "do not show that empty blocks come sooner or later"),
    ],
)
def test_intervals_differ_only_where_the_test_says_so(
    marts: Marts, values: dict[str, Any], sentence: str
) -> None:
    """The sentence gives the part of pairs in which empty blocks come sooner, or later for a positive effect.

    If the test finds no difference, the sentence says so.
    """
    changed = replace(marts, empties=with_row(marts.empties, 0, **values))

    assert sentence in said(empty.sentences, changed)


def test_a_pool_that_differs_from_the_others_is_named(marts: Marts) -> None:
    """The planted pool with many empty blocks is named, and so is the one that takes low feerates."""
    assert re.search(
        r"Hasty Pool mines empty blocks more often than the others \(\d+\.\d %, 95 % interval",
        said(empty.sentences, marts),
    )
    text = said(feerate.sentences, marts)
    assert re.search(r"OCEAN takes fewer of the top X than the others \(\d+\.\d %, 95 % interval", text)
    assert "OCEAN takes more of those outside the top 2X than the others (" in text


def test_several_pools_are_named_in_one_sentence(marts: Marts) -> None:
    """Two pools that differ from the others stand in one sentence, each with its own ratio."""
    rows = [
        {**row, "n_empty": row["n_blocks"] if row["pool"] in ("ocean", "hasty") else 0}
        for row in marts.empties
    ]
    rows[0] = {**rows[0], "n_empty": sum(row["n_empty"] for row in rows)}

    assert re.search(
        r"Hasty Pool \(.*?\) and OCEAN \(.*?\) mine empty blocks more often than the others\.",
        said(empty.sentences, replace(marts, empties=rows)),
    )


def test_one_pool_of_many_is_not_named_for_what_chance_does() -> None:
    """With p = 0.022 a pool differs if two pools are compared, but not if twenty are.

    The pool has 3 empty of 50 blocks, and the others together 10 of 950.
    """
    odd = {"pool": "odd", "n_empty": 3, "n_blocks": 50}
    rest = {"pool": "rest", "n_empty": 10, "n_blocks": 950}
    overall = {"pool": "all", "n_empty": 13, "n_blocks": 1000}
    others = [{"pool": f"p{n}", "n_empty": n < 10, "n_blocks": 50} for n in range(19)]

    assert pool_comparison.by_count([overall, odd, rest], "n_empty", "n_blocks").above == {"odd"}
    assert pool_comparison.by_count([overall, odd, *others], "n_empty", "n_blocks") == (set(), set())


def test_ranks_against_means_make_no_difference() -> None:
    """A pool does not count as lower than the others if only its ranks, and not its mean, are lower."""
    own = [{"pool": "own", "ratio": 0.83 + n / 1000} for n in range(10)]
    better = [{"pool": "better", "ratio": 0.9 + n / 1000} for n in range(30)]
    worst = [{"pool": "worst", "ratio": 0.0 + n / 1000} for n in range(10)]

    whole = [{"pool": pool, "ratio": n / 9} for n, pool in enumerate(("worst", "own", "better", "all"))]

    assert "own" in pool_comparison.by_blocks([*own, *better], whole, "ratio").below
    assert "own" not in pool_comparison.by_blocks([*own, *better, *worst], whole, "ratio").below
    assert "worst" in pool_comparison.by_blocks([*own, *better, *worst], whole, "ratio").below


def test_a_pool_above_all_together_is_not_named_as_below() -> None:
    """Its blocks may take less than those of others, and it more than they: large ones took little."""
    own = [{"pool": "own", "ratio": 0.98 + n / 1000} for n in range(10)]
    other = [{"pool": "other", "ratio": 0.99 + n / 1000} for n in range(30)]
    whole = [
        {"pool": pool, "ratio": ratio} for pool, ratio in (("own", 0.981), ("other", 0.9), ("all", 0.912))
    ]

    assert pool_comparison.by_blocks([*own, *other], whole, "ratio") == (set(), set())
    assert pool_comparison.by_blocks([*own, *other], [*whole, {"pool": "all", "ratio": 0.99}], "ratio").below


def test_a_ratio_without_interval_says_why(marts: Marts) -> None:
    """A ratio of few blocks, or of blocks that are all alike, is written with the reason for no interval."""
    rows = [{**row, "top_x_low_ratio": None, "top_x_high_ratio": None} for row in marts.feerates]

    assert "(no interval: too few blocks, or all alike)" in said(
        feerate.sentences, replace(marts, feerates=rows)
    )


def test_a_small_mempool_leaves_low_feerates_open(marts: Marts) -> None:
    """If no mempool held more than 2X transactions, the question about low feerates has no answer."""
    rows = [
        {**row, "outside_2x_ratio": None, "outside_2x_low_ratio": None, "outside_2x_high_ratio": None}
        for row in marts.feerates
    ]
    small = replace(marts, feerates=rows)

    assert "outside the top 2X" not in said(feerate.sentences, small)
    assert feerate.NO_LOW_FEERATES in findings.answers(small)[1]
    assert feerate.NO_LOW_FEERATES not in findings.answers(marts)[1]


def test_coverage_names_the_least_observed_stream(marts: Marts) -> None:
    """Holes are counted and the least observed stream is named; without a hole a sentence says so."""
    whole = [{**row, "n_gaps": 0, "observed_ratio": 1.0} for row in marts.coverage]
    momentary = [{**row, "observed_ratio": None} for row in marts.coverage]

    assert "1 hole in 3 streams. The least observed stream is mempool of main: 99" in said(
        coverage.sentences, marts
    )
    assert "main: every stream was observed without a hole" in said(
        coverage.sentences, replace(marts, coverage=whole)
    )
    assert coverage.sentences(replace(marts, coverage=momentary)) == []


def test_too_few_blocks_give_no_sentence_on_intervals(marts: Marts) -> None:
    """Without a rank test no sentence compares the intervals of empty and other blocks."""
    values = {"p_value": None, "rank_biserial": None, "enough_data": False}
    changed = replace(marts, empties=with_row(marts.empties, 0, **values))

    assert "after the parent" in said(empty.sentences, marts)
    assert "after the parent" not in said(empty.sentences, changed)


@pytest.mark.parametrize("world", [report_marts.nothing(), report_marts.scarce(), report_marts.filled()])
def test_every_question_has_findings_or_says_what_lacks(world: report_marts.World, tmp_path: Path) -> None:
    """Each question has a section or is asked among the unanswered ones; equal lacks are said once."""
    marts = read_marts(report_marts.write(tmp_path / "analysis.duckdb", world))
    sections, unanswered = findings.answers(marts)

    shown = {section.section_id for section in sections}
    asked = " ".join(lack.question for lack in unanswered)
    assert all(topic.section_id in shown or topic.question in asked for topic in TOPICS)
    assert len({lack.lacks for lack in unanswered}) == len(unanswered)
    said_here = [sentence for section in sections for sentence in section.findings]
    assert all(sentence.endswith(".") for sentence in [*said_here, *(lack.lacks for lack in unanswered)])


def test_a_sentence_on_missing_data_is_said_once(tmp_path: Path) -> None:
    """A dataset without a block has one line for all questions about blocks, and no section."""
    marts = read_marts(report_marts.write(tmp_path / "analysis.duckdb", report_marts.nothing()))
    sections, unanswered = findings.answers(marts)

    assert sections == []
    assert [lack.lacks for lack in unanswered].count(NO_BLOCKS) == 1
    assert share.TOPIC.question in next(lack.question for lack in unanswered if lack.lacks == NO_BLOCKS)
