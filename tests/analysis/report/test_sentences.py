"""Tests the words of the report's sentences: each says what it counts, of which blocks, and by whose word."""

import math
from dataclasses import replace

import pytest

from analysis.report.data import Marts, Row
from analysis.report.headline import headlines
from analysis.report.model import Table
from analysis.report.sections import attribution, concentration, feerate, hashrate, luck, share


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
