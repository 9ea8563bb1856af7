"""Tests each section of the report: what it shows with data, and what it says without."""

import datetime as dt
from dataclasses import replace
from pathlib import Path

import pytest

from analysis.report.charts.lines import CUT_MARK, Axis, Line, Point, duration_ticks, line_panel
from analysis.report.charts.ratios import ratio_panel
from analysis.report.data import MAX_DAYS, UNKNOWN, Marts, Row
from analysis.report.headline import headlines
from analysis.report.model import Figure, Page, Section, Table, TableColumn
from analysis.report.page import page, render
from analysis.report.sections import (
    concentration,
    empty,
    hashrate,
    network,
    policy,
    read_marts,
    revenue,
    template_audit,
)
from analysis.report.sections import user_transactions as users
from analysis.report.tables import RowHead, mart_table
from analysis.report.text import NOTHING
from tests.analysis.report import report_marts

FIGURES = {
    "concentration": {"top-n-chart", "index-chart"},
    "hashrate": {"hashrate-chart", "hashrate-pool-chart"},
    "revenue": {"revenue-chart", "dilemma-chart", "prisoner-chart"},
    "halving": {"halving-chart"},
    "empty": {"empty-rate-chart", "empty-course-chart", "empty-curve-chart", "empty-hazard-chart"},
    "feerate": {"feerate-chart", "feerate-age-chart", "factor-chart", "capture-chart"},
    "audit": {"audit-score-chart", "audit-part-chart", "candidate-chart"},
    "users": {"delay-chart", "user-chart", "user-use-chart"},
    "network": {"stale-chart", "spread-chart"},
    "attribution": {"method-chart"},
}
# A number that was planted, as the page writes it, and a sentence of the findings that must be there.
SHOWN = {
    "concentration": ("0.180 to 0.220", "The shares changed in 1 of 1 day"),
    "luck": ("\u00d72.57", "where 7.00 are expected. This proves nothing about anybody's conduct"),
    "hashrate": ("612\u00a0EH/s", "It is not one exponential"),
    "revenue": ("348", "As in a Malthusian trap, hashrate grew while hashprice in USD fell."),
    "halving": ("\u00d71.20", "The price did not change more than on placebo dates"),
    "empty": ("\N{MINUS SIGN}0.70", "12 of 18 empty blocks came before our node"),
    "feerate": ("about 90\u00a0%", "Of the factors, package feerate explains best which"),
    "audit": ("321", "in order of arrival, not of feerate"),
    "policy": (
        (
            "took none of the version 3 transactions that paid enough; signals version bit 4; "
            "dates its headers 27.0\u00a0s before the block arrives; orders its blocks by chunks of clusters "
            "or the feerate of each transaction alone from height 941,050 on; has 321 transactions that pay "
            "far less than its own order asks for, in 9 of 70 blocks; mines templates of Farm \u241b "
            "(7 of 80 blocks)"
        ),
        (
            "none of the kind \u201cversion 3 transactions\u201d, which our templates promised 400 times, "
            "and which paid clearly more than the block asked for 17 times more"
        ),
    ),
    "users": (
        "33\u00a0min\u00a020\u00a0s",
        "entered the mempool of the node main, 6.0\u00a0% paid for a waiting parent.",
    ),
    "network": ("\N{MINUS SIGN}0.750\u00a0s", "1 reorganisation, the deepest of 1 block."),
    "attribution": ("0.980", "others agrees on 99.7\u00a0%"),
}
# Tables of owners and groups of pools.
GROUPED = {
    "hashrate": ("hashrate-group-table", "growth-group-table"),
    "revenue": ("revenue-group-table", "dilemma-group-table"),
    "empty": ("empty-group-table", "empty-timing-group-table", "empty-predecessor-group-table"),
}
# Intervals and corrected p-values, as the page writes them.
INTERVALS = {
    "hashrate": ("2026-03-04 to 2026-03-06",),
    "empty": ("0.0011", "0.0022", "21.0 to 71.0"),
    "network": ("0.110\u00a0s to 0.130\u00a0s",),
}
# A question that three blocks cannot answer, and the command that brings what lacks.
MISSING = {
    "Do the shares change?": "`pool-collector backfill`",
    "Does hashrate grow exponentially?": "`pool-collector backfill`",
    "What does mining earn, and does hashrate follow?": "`pool-collector backfill`",
    "Is a pool luckier than chance allows?": "`pool-collector backfill`",
    "Did a halving change anything?": "`pool-collector import prices FILE",
    "How soon after the parent do empty blocks come?": "`pool-collector import arrivals FILE",
    "Do pools take transactions by feerate?": "`pool-collector run`",
    "How do blocks differ from what a stock node would mine?": "`pool-collector run`",
    "Which transactions does each pool mine": "`pool-collector run`",
    "How long do users wait, by what they pay?": "`pool-collector run`",
    "How many blocks are lost, and how fast do blocks spread?": "`[[node]]`",
    "Do others name the same pools?": "`pool-collector import labels FILE",
    "How does it change over time?": "`pool-collector run`",
}


def sections(content: Page) -> dict[str, Section]:
    """Return the sections of a page, by id."""
    return {section.section_id: section for section in content.sections}


@pytest.fixture(scope="module")
def filled(filled_content: Page) -> dict[str, Section]:
    """Give the sections of a report with data, by id."""
    return sections(filled_content)


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Give the report on a dataset of three blocks without arrivals, fees or mempools."""
    folder = tmp_path_factory.mktemp("bare")
    return page(read_marts(report_marts.write(folder / "analysis.duckdb", report_marts.scarce())))


def cells(section: Section) -> set[str]:
    """Return the texts of all cells in the tables of a section."""
    tables = [part for part in section.parts if isinstance(part, Table)]
    return {cell for table in tables for row in table.rows for cell in (row.head, *row.cells)}


@pytest.mark.parametrize("name", FIGURES)
def test_a_section_draws_its_figures(filled: dict[str, Section], name: str) -> None:
    """A section with data has all of its figures, and each drawing has visible marks."""
    found = {part.figure_id: part for part in filled[name].parts if isinstance(part, Figure)}

    assert set(found) == FIGURES[name]
    assert all("<path" in panel.wide for figure in found.values() for panel in figure.panels)


@pytest.mark.parametrize("name", SHOWN)
def test_planted_numbers_are_shown_and_said(filled: dict[str, Section], name: str) -> None:
    """A planted number stands in a table of the section, and a planted sentence among the findings."""
    number, sentence = SHOWN[name]
    assert number in cells(filled[name])
    assert any(sentence in one for one in filled[name].findings)


@pytest.mark.parametrize("name", GROUPED)
def test_an_owner_of_several_pools_stands_beneath_the_pools(filled: dict[str, Section], name: str) -> None:
    """An owner of several pools stands in a table of its own, and an owner of one pool does not."""
    found = {part.table_id: part for part in filled[name].parts if isinstance(part, Table)}

    for table_id in GROUPED[name]:
        assert {row.head for row in found[table_id].rows} == {"Letters Inc."}
        assert {row.cells[0] for row in found[table_id].rows} == {"Owner"}


@pytest.mark.parametrize("name", INTERVALS)
def test_intervals_and_corrected_p_values_stand_beside_what_they_are_of(
    filled: dict[str, Section], name: str
) -> None:
    """The tables have the planted intervals of breaks, medians and lags, and the corrected p values."""
    assert set(INTERVALS[name]) <= cells(filled[name])


@pytest.mark.parametrize("question", MISSING)
def test_a_question_without_data_names_what_brings_it(bare: Page, question: str) -> None:
    """A question without data is one line that names the command which adds the data."""
    lines = [lack.lacks for lack in bare.unanswered if question in lack.question]

    assert len(lines) == 1
    assert MISSING[question] in lines[0]


def test_a_section_without_figure_or_table_is_not_on_the_page(bare: Page) -> None:
    """Three blocks give a section of shares, and none of halvings, templates, users or the mempool."""
    shown = set(sections(bare))

    assert {"share", "empty"} <= shown
    assert not shown & {"halving", "audit", "users", "feerate", "network"}


@pytest.mark.parametrize("mart", ["concentration_index", "hashrate", "user_day", "empty_rate", "revenue"])
def test_a_figure_without_a_value_is_left_out(marts: Marts, mart: str) -> None:
    """Days whose rows hold no value, such as days of unnamed blocks only, give no figure and no error."""
    bare = [
        {name: None if isinstance(value, float) else value for name, value in row.items()}
        for row in marts.rows(mart)
    ]
    content = page(replace(marts, tables={**marts.tables, mart: bare}))
    figures = [part for section in content.sections for part in section.parts if isinstance(part, Figure)]

    assert bare
    assert all(figure.panels and all(panel.wide for panel in figure.panels) for figure in figures)
    assert render(content)


def test_empty_drawings_have_no_place_in_a_section() -> None:
    """Neither a line without a value nor a chart without rows is an error or a drawing."""
    line = Line(label="nothing", colour="red", points=[Point(x=1.0, y=None)])
    panels = [
        line_panel("a", "A", [line], x=Axis(title=""), y=Axis(title="")),
        ratio_panel("b", "B", []),
    ]

    assert not any(panel.wide for panel in panels)


def test_transactions_that_several_nodes_saw_count_once(marts: Marts) -> None:
    """The share of replaced ones rests on the count of the sentence before; nodes are not added up."""
    (everyone,) = [row for row in marts.rows("confirmation_decile") if not row["decile"]]
    deciles = [everyone | {"n_entered": 6369, "n_replaced": 235}]
    days = [
        row | {"node": node, "n_entered": n_entered, "n_replaced": n_replaced, "n_cpfp": n_cpfp}
        for row in marts.rows("user_day")[:1]
        for node, n_entered, n_replaced, n_cpfp in (("a", 6369, 235, 637), ("b", 5000, 0, 0))
    ]
    tables = {**marts.tables, "confirmation_decile": deciles, "user_day": days}
    said = users.sentences(replace(marts, tables=tables))

    assert said[-2:] == [
        "3.7\u00a0% of the 6,369 transactions were replaced.",
        (
            "Of the 6,369 transactions that entered the mempool of the node a, 10.0\u00a0% paid for a waiting"
            " parent."
        ),
    ]


def test_a_candidate_that_two_nodes_judged_stands_with_each_node(marts: Marts) -> None:
    """The rows of one transaction differ by the node, which has a column."""
    (row,) = marts.rows("out_of_band_candidates")
    twice = [row, row | {"node": "other"}]
    section, _ = template_audit.TOPIC.section(
        replace(marts, tables={**marts.tables, "out_of_band_candidates": twice})
    )
    (table,) = [part for part in section.tables if part.table_id == "candidate-list-table"]
    assert isinstance(table, Table)
    assert [row.cells[0] for row in table.rows] == ["main", "other"]


def test_blocks_that_no_rule_names_are_no_pool(marts: Marts) -> None:
    """Unnamed blocks are of several miners, so no table gives them an order, a policy or a signal."""

    def with_unknown(name: str) -> list[Row]:
        rows = marts.rows(name)
        return [*rows, *({**row, "pool": UNKNOWN, "verdict": "first_come"} for row in rows[:1])]

    names = ("pool_ordering", "pool_policy", "signalling", "pool_clock", "sub_pool")
    changed = replace(marts, tables={**marts.tables, **{name: with_unknown(name) for name in names}})
    shown = [topic.TOPIC.section(changed)[0] for topic in (template_audit, policy)]
    tables = {part.table_id: part for section in shown for part in section.tables if isinstance(part, Table)}

    for name in ("order-table", "policy-words-table", "policy-table", "signalling-table"):
        assert tables[name].rows
        assert "Unknown" not in {row.head for row in tables[name].rows}
    assert "Unknown" not in " ".join(said for section in shown for said in section.findings)


def test_a_score_stands_beside_what_it_leaves_out(marts: Marts) -> None:
    """The finding and the card name all promised transactions and those of them that were in the blocks."""
    changed = with_promises(marts, n_promised=3895, n_matched=3300)

    assert "promised 3,895 transactions" in template_audit.sentences(changed)[0]
    assert "contain 3,300 of them (84.7\u00a0%)" in template_audit.sentences(changed)[0]
    (card,) = [card for card in headlines(changed) if card.section == "audit"]
    assert "3,895" in card.note
    assert "3,300" in card.note


def test_a_score_of_half_of_what_was_promised_is_not_shown(marts: Marts) -> None:
    """Where half of what the templates promised is missing with an excuse, no place shows the score."""
    changed = with_promises(marts, n_promised=3895, n_matched=2036)

    said = template_audit.sentences(changed)[0]
    assert "contain 2,036 of them (52.3\u00a0%)" in said
    assert said.endswith("such as having entered too late, so there is no score.")
    assert "audit" not in {card.section for card in headlines(changed)}
    section, _ = template_audit.TOPIC.section(changed)
    assert "audit-score-chart" not in {figure.figure_id for figure in section.figures}
    (table,) = [part for part in section.tables if part.table_id == "audit-table"]
    assert isinstance(table, Table)
    assert {tuple(row.cells[-2:]) for row in table.rows} == {(NOTHING, NOTHING)}


def test_a_score_of_just_four_fifths_has_a_card(marts: Marts) -> None:
    """A pool is judged where blocks have seven of ten promised transactions, and one lacks an excuse."""
    enough = with_promises(marts, n_promised=10, n_matched=7, unexplained_ratio=0.1)
    too_little = with_promises(marts, n_promised=10, n_matched=7, unexplained_ratio=0.0)

    assert "audit" in {card.section for card in headlines(enough)}
    assert "audit" not in {card.section for card in headlines(too_little)}


def with_promises(marts: Marts, *, n_promised: int, n_matched: int, unexplained_ratio: float = 0.01) -> Marts:
    """Return marts in which the templates promised so many transactions, of which the blocks have so many."""
    numbers = {"n_promised": n_promised, "n_matched": n_matched, "unexplained_ratio": unexplained_ratio}
    rows = [row | numbers for row in marts.rows("template_audit")]
    return replace(marts, tables={**marts.tables, "template_audit": rows})


def test_labels_alone_are_not_said_to_be_nothing(marts: Marts) -> None:
    """With blocks of which only a label is known, no sentence denies the blocks, the labels or the days."""
    empties = [row | {"n_blocks": 0} for row in marts.empties]
    hashrates = [
        row | {"paper_hashes_per_s": None, "observed_hashes_per_s": None} for row in marts.rows("hashrate")
    ]
    changes = [row | {"p_value": None, "adjusted_p_value": None} for row in marts.rows("share_change")]
    quiet = {"hashrate": hashrates, "share_change": changes, "label_summary": [], "hashrate_growth": []}
    quiet |= {"hashrate_pool": [], "hashrate_segment": []}
    content = page(replace(marts, empties=empties, tables={**marts.tables, **quiet}))
    lacks = " ".join(lack.lacks for lack in content.unanswered)

    assert empty.NOT_COUNTED in lacks
    assert hashrate.NO_DIFFICULTY in lacks
    assert concentration.TOO_FEW_TO_TEST.lacks in lacks
    assert "No block has both a coinbase that our rules read and a pool label" in lacks
    assert "The dataset has no block" not in lacks
    assert "hashrate" not in {finding.section for finding in content.findings}


def test_the_hashrate_of_a_pool_is_explained_by_timed_blocks(filled: dict[str, Section]) -> None:
    """A pool whose first block has no known parent has less than its share of blocks, and it says why."""
    assert "The hashrate of a pool is its share of this" not in filled["hashrate"].intro
    assert "a block whose parent is not in the dataset, such as the first one" in filled["hashrate"].intro


def test_the_words_on_a_pool_may_wrap(filled: dict[str, Section]) -> None:
    """A sentence is wider than a page, so its cell is one whose text goes on in the next line."""
    (table,) = [part for part in filled["policy"].tables if part.table_id == "policy-words-table"]

    assert isinstance(table, Table)
    assert [each.kind for each in table.columns] == ["long"]


def test_both_accounts_of_propagation_say_which_blocks_count(filled: dict[str, Section]) -> None:
    """The sentence counts what the node had first as 0; the figure counts each block once."""
    (figure,) = [each for each in filled["network"].parts if getattr(each, "figure_id", "") == "spread-chart"]

    assert any("a block that it announced first counts as 0" in said for said in filled["network"].findings)
    assert isinstance(figure, Figure)
    assert "Every block that several nodes announced counts once" in figure.caption


def test_what_was_left_out_is_counted(filled: dict[str, Section]) -> None:
    """The coverage section counts what was left out of results, and the checks that found something."""
    shown = cells(filled["coverage"])

    assert {"Empty blocks", "Blocks of unknown pools", "heights_missing"} <= shown
    notes = [part.note for part in filled["coverage"].parts if isinstance(part, Table)]
    assert "1 of 2 checks found nothing." in notes


def test_no_price_stands_on_a_chain_whose_coins_have_none(tmp_path: Path) -> None:
    """Prices that were imported into a dataset of a test chain appear in no sentence, table or CSV."""
    world = report_marts.filled()
    database = report_marts.write(
        tmp_path / "analysis.duckdb", replace(world, manifest={**world.manifest, "chain": "regtest"})
    )
    marts = read_marts(database)
    content = page(marts)
    assert not [cell for section in content.sections for cell in cells(section) if "USD" in cell]
    tables = [part for section in content.sections for part in section.parts if isinstance(part, Table)]
    assert not [column for table in tables for column in table.columns if "USD" in column.unit]
    for section in content.sections:
        for table in (part for part in section.parts if isinstance(part, Table)):
            values = [row for row in table.records if any("_usd" in str(value) for value in row.values())]
            amounts = [value for row in table.records for name, value in row.items() if "_usd" in name]
            assert not values
            assert not [amount for amount in amounts if amount is not None]
    said = " ".join(sentence for finding in content.findings for sentence in finding.sentences)
    headlines = " ".join(f"{card.value} {card.note} {card.chart}" for card in content.headlines)
    assert "USD" not in said + headlines
    assert revenue.NO_PRICE_HERE in content.unanswered


def test_pools_that_nothing_tells_apart_have_no_section(marts: Marts) -> None:
    """Where every pool only mines what our nodes accept, the question stands among those not answered."""
    mined = [row for row in marts.rows("pool_policy") if row["verdict"] == "mines"]
    quiet = {name: [] for name in policy.READS} | {"pool_policy": mined}
    section, lacking = policy.TOPIC.section(replace(marts, tables={**marts.tables, **quiet}))

    assert mined
    assert list(section.parts) == list(section.findings) == []
    assert [lack.lacks for lack in lacking] == [policy.LACKS]


def test_an_epoch_with_few_blocks_makes_no_spike(marts: Marts) -> None:
    """A long window is drawn by difficulty epoch, without the epochs that have only a few blocks."""
    days = [
        {"period_kind": "day", "period": f"2020-01-{n % 28 + 1:02d}", "block_count": 144}
        for n in range(MAX_DAYS + 1)
    ]
    epochs = [
        {"period_kind": "epoch", "period": "400", "block_count": 20},
        {"period_kind": "epoch", "period": "401", "block_count": 2016},
    ]
    days_of = {400: dt.date(2015, 1, 1), 401: dt.date(2015, 1, 14)}
    long = replace(marts, tables={**marts.tables, "hashrate": [*days, *epochs]}, epochs=days_of)

    assert [day for day, _ in long.over_time("hashrate")] == [days_of[401]]


def test_the_two_methods_of_hashrate_say_on_which_blocks_they_rest(marts: Marts) -> None:
    """Where many blocks have a difficulty and no time, the sentence does not pass them off as timed."""
    row = marts.whole_window("hashrate")
    assert row is not None
    assert "by the difficulty it is" in hashrate.TOPIC.section(marts)[0].findings[0]

    fewer = {**row, "block_count": 40, "timed_block_count": 10, "difficulty_block_count": 40}
    sparse = replace(marts, tables={**marts.tables, "hashrate": [fewer]})
    said = hashrate.TOPIC.section(sparse)[0].findings[0]
    assert said.startswith("10 blocks of known difficulty and time need ")
    assert "by the difficulty of 40 blocks, also those without a time, it is" in said


def test_days_of_a_few_blocks_are_no_course(marts: Marts) -> None:
    """If only some headers have a time, the blocks of known height are drawn by difficulty epoch."""
    days = [{"period_kind": "day", "period": f"2020-01-{n:02d}", "n_blocks": 1} for n in range(1, 21)]
    epochs = [{"period_kind": "epoch", "period": f"{400 + n}", "n_blocks": 2016} for n in range(20)]
    days_of = {400 + n: dt.date(2020, 1, 1 + n) for n in range(20)}
    sparse = replace(marts, tables={**marts.tables, "empty_rate": [*days, *epochs]}, epochs=days_of)
    whole = [row | {"n_blocks": 2016} for row in days]
    dense = replace(sparse, tables={**marts.tables, "empty_rate": [*whole, *epochs]})

    assert {row["period_kind"] for _, row in sparse.over_time("empty_rate")} == {"epoch"}
    assert {row["period_kind"] for _, row in dense.over_time("empty_rate")} == {"day"}


def test_lists_of_arrivals_are_compared(marts: Marts) -> None:
    """Clocks of others are shown with their intervals and differences, also if no node of ours ran."""
    intervals = {"interval_count": 990, "interval_median_s": 406.0}
    intervals |= {"interval_median_low_s": 401.0, "interval_median_high_s": 412.0}
    heights = {"block_count": 1000, "first_height": 7, "last_height": 1006}
    heights |= {"missing_height_count": 0, "fork_height_count": 1, "is_whole_seconds": True}
    lists = [{"clock": clock} | heights | intervals for clock in ("kit", "others")]
    pair = {"clock": "kit", "other_clock": "others", "shared_count": 980, "is_whole_seconds": True}
    pair |= {"first_count": 500, "equal_count": 300, "other_first_count": 180}
    pair |= {"spread_median_s": 0.0, "spread_p90_s": 3.0, "spread_p99_s": 13.0}
    nobody = {"stale_rate": [], "reorg_depth": [], "node_propagation": []}
    tables = {
        **marts.tables,
        **nobody,
        "arrival_summary": lists,
        "arrival_spread": [pair],
        "header_clock": [],
    }
    section, _ = network.TOPIC.section(replace(marts, tables=tables, spread_curve=[]))
    own = {"arrival_summary": [lists[0] | {"clock": "own"}], "arrival_spread": []}
    without, _ = network.TOPIC.section(replace(marts, tables=tables | own, spread_curve=[]))

    assert {"6\u00a0min\u00a046\u00a0s", "13.0\u00a0s", "whole seconds"} <= cells(section)
    assert section.findings[1].startswith(
        "Half of 990 intervals between arrivals at kit are shorter than 6\u00a0min"
    )
    assert "kit and others saw the same 980 blocks" in section.findings[0]
    assert list(without.parts) == list(without.findings) == []


def test_periods_without_a_value_do_not_decide_how_time_is_cut(marts: Marts) -> None:
    """A few days with the wanted value are drawn as days, however many others there are without it."""
    days = [
        {
            "period_kind": "day",
            "period": f"{dt.date(2020, 1, 1) + dt.timedelta(days=n)}",
            "known": 5 if n < 3 else 0,
            "block_count": 144,
        }
        for n in range(MAX_DAYS + 1)
    ]
    long = replace(marts, tables={**marts.tables, "hashrate": days})

    assert [day.day for day, _ in long.over_time("hashrate", "known")] == [1, 2, 3]


def test_blocks_without_arrivals_are_not_said_to_be_no_blocks(bare: Page) -> None:
    """The question on lost blocks names arrivals as what lacks, although the section has no part at all."""
    (lack,) = [lack for lack in bare.unanswered if network.TOPIC.question in lack.question]

    assert lack.lacks == network.NOT_WATCHED


def test_few_columns_stand_beside_a_narrow_chart(filled: dict[str, Section]) -> None:
    """Findings, chart and table share a row if the table is small; a table of many columns gets its own."""
    assert filled["share"].fits_one_row
    assert not filled["feerate"].fits_one_row
    assert not filled["coverage"].fits_one_row


@pytest.mark.parametrize(("n_rows", "n_shown"), [(60, 60), (63, 63), (66, 66), (67, 60), (200, 60)])
def test_a_table_is_not_cut_just_before_its_end(n_rows: int, n_shown: int) -> None:
    """Up to a tenth more than 60 rows are all shown; of more the first 60, and a note counts the others."""
    rows = [{"day": number} for number in range(n_rows)]
    head = RowHead("Day", lambda row: str(row["day"]))
    table = mart_table("days", "Days", head, [], rows, mart="pool_share_day")

    assert [row.head for row in table.rows] == [str(number) for number in range(n_shown)]
    assert table.note == (
        f"{n_rows - 60} more rows: `pool-analysis show pool_share_day`." if n_rows > 66 else ""
    )


def test_a_column_without_a_name_is_refused() -> None:
    """A head without text could be neither read out nor used to sort."""
    with pytest.raises(ValueError, match="needs a label"):
        TableColumn(label="")


@pytest.mark.parametrize(
    ("low_s", "high_s"), [(0.01, 0.2), (0.001, 4e6), (1.0, 30.0), (50.0, 700.0), (2.0, 3.0)]
)
def test_an_axis_of_durations_has_ticks_to_read_it_by(low_s: float, high_s: float) -> None:
    """Even a short axis of durations has at least three ticks, all of them within its ends."""
    ticks = duration_ticks(low_s, high_s)

    assert len(ticks) >= 3
    assert all(low_s <= tick <= high_s for tick in ticks)


def test_a_band_that_would_flatten_the_lines_is_cut_with_a_mark() -> None:
    """The axis ends at twice the largest value, and a mark shows where a band goes on beyond the axis."""

    def drawn(high: float) -> str:
        points = [Point(x=x, y=1.0 + x, low=0.5, high=high) for x in (0.0, 0.5, 1.0)]
        line = Line(label="rate", colour="var(--ink)", points=points, shape="step")
        axis = Axis(title="per second", cuts_bands=True)
        return str(line_panel("rate", "Rate", [line], x=Axis(title="s"), y=axis).wide)

    assert CUT_MARK in drawn(500.0)
    assert ">500<" not in drawn(500.0)
    assert CUT_MARK not in drawn(2.5)
