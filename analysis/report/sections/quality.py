"""Section: how sure the attribution is: methods, conflicts, doubtful blocks, and what others say."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from analysis.report.charts.curves import PERCENT_AXIS, Axis, Line, Point, panel
from analysis.report.data import Marts, Row
from analysis.report.model import Figure, Section, Table
from analysis.report.parts import on_blocks
from analysis.report.tables import Head, Show, by_pool, by_text, field, mart_table, ratio, words
from analysis.report.text import INTERVAL, NO_BLOCKS, count, decimal, plural, text_of

METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {"payout": "payout script", "tag": "coinbase tag", "none": "no rule matched"}
)
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {"payout": "var(--accent-1)", "tag": "var(--accent-2)", "none": "var(--unknown)"}
)
VERDICTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agree": "agrees",
        "disagree": "disagrees",
        "only_here": "only we name it",
        "only_there": "only they name it",
        "neither": "unknown to both",
        "unmapped": "their name is none of ours",
    }
)
NO_LABELS: Final = (
    "No labels of third parties to compare with. Add them with "
    "`pool-collector import labels FILE --source NAME --licence TERMS --url URL` (or import blocks), "
    "then build again."
)
RULE_CHANGES: Final = (
    "What changes when the rules change: `pool-analysis diff-rules BEFORE AFTER "
    "--dataset DIR` lists the blocks that move."
)


def quality_section(marts: Marts) -> Section:
    """Show methods, conflicts, rules, doubtful blocks and the agreement with others."""
    parts: list[Figure | Table] = []
    missing: list[str] = []
    methods = [row for row in marts.rows("attribution_method") if row["period_kind"] == "all"]
    if methods:
        parts.append(_method_table(marts, methods))
    else:
        missing.append(NO_BLOCKS)
    if len({row["period"] for row in marts.rows("attribution_method")} - {"all"}) > 1:
        parts.append(_method_figure(marts))
    if marts.rows("label_summary"):
        parts += [_label_table(marts), _disagreement_table(marts)]
    else:
        missing.append(NO_LABELS)
    if marts.rows("attribution_conflict"):
        parts.append(_conflict_table(marts))
    elif methods:
        missing.append("No block is claimed by rules of more than one pool.")
    if marts.rows("attribution_rule"):
        parts.append(_rule_table(marts))
    if marts.doubtful:
        parts.append(_doubtful_table(marts))
    missing.append(RULE_CHANGES)
    return Section(
        section_id="attribution",
        title="Attribution",
        question="How sure is it who mined a block?",
        intro=(
            "All rules are matched against the raw coinbase. A payout match beats a tag match; a block "
            "for which "
            "rules of more than one pool match is a conflict, and is listed. Anybody can write any tag."
        ),
        parts=parts,
        missing=missing,
    )


def _method(row: Row) -> str:
    return METHODS.get(row["method"] or "none", text_of(row["method"]))


def _method_table(marts: Marts, rows: list[Row]) -> Table:
    return mart_table(
        "method-table",
        "How blocks were attributed",
        Head("By", _method),
        [
            field("block_count", "Blocks"),
            *ratio("block", "Part of all"),
            field("conflict_count", "Conflicts"),
            field("mean_candidates", "Rules that match", decimal),
        ],
        sorted(rows, key=lambda row: -row["block_count"]),
        mart="attribution_method",
        records=marts.rows("attribution_method"),
        note="The CSV also has the difficulty epochs.",
        is_folded=False,
    )


def _method_figure(marts: Marts) -> Figure:
    """Draw the part of each method per epoch; an epoch without one of them has none of it."""
    rows = [row for row in marts.rows("attribution_method") if row["period_kind"] == "epoch"]
    lines = [
        Line(
            label=METHODS[method],
            colour=COLOURS[method],
            points=[
                Point(
                    x=marts.epochs[int(row["period"])],
                    y=row["block_ratio"],
                    low=row["block_low_ratio"],
                    high=row["block_high_ratio"],
                )
                for row in rows
                if row["method"] == method
            ],
        )
        for method in METHODS
    ]
    lines = [line for line in lines if line.points]
    drawing = panel(
        "method",
        "Method of attribution per difficulty epoch",
        lines,
        x=Axis(title=""),
        y=Axis(title="Part of blocks", label=PERCENT_AXIS.label, domain=(0, 1)),
    )
    return Figure(
        figure_id="method-chart",
        title="How blocks were attributed, per difficulty epoch",
        caption=f"Epochs by their first day; bands are {INTERVAL}s.",
        panels=[drawing],
        marts=("attribution_method",),
        rests_on=on_blocks(marts),
        legend=[line.legend for line in lines],
    )


def _label_table(marts: Marts) -> Table:
    return mart_table(
        "label-table",
        "Agreement with what third parties say",
        by_text("Source", "source"),
        [
            words("kind", "Of"),
            field("block_count", "Blocks"),
            field("agree_count", "Agree"),
            field("disagree_count", "Disagree"),
            *ratio("agree", "Agreement"),
            field("only_here_count", "Only we", group="Named by one side"),
            field("only_there_count", "Only they", group="Named by one side"),
            field("unmapped_count", "Name not ours"),
            field("cohens_kappa", "Cohen's \u03ba", decimal),
        ],
        marts.rows("label_summary"),
        mart="label_summary",
        note="Label sets share public tag lists with each other and with us: agreement is no proof.",
        is_folded=False,
    )


def _disagreement_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("label_agreement") if row["verdict"] not in {"agree", "neither"}]
    return mart_table(
        "disagreement-table",
        "Where third parties say something else",
        by_text("They say", "label"),
        [
            words("source", "Source"),
            Show("We say", lambda row: marts.name(row["pool"]), kind="text"),
            Show("", lambda row: VERDICTS.get(row["verdict"], text_of(row["verdict"])), kind="text"),
            field("block_count", "Blocks"),
            Show("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
        ],
        rows,
        mart="label_agreement",
        records=marts.rows("label_agreement"),
        note="The CSV also has the labels that agree.",
    )


def _conflict_table(marts: Marts) -> Table:
    return mart_table(
        "conflict-table",
        "Conflicts: blocks that rules of two pools match",
        by_pool(marts),
        [
            words("method", "By"),
            Show("Other", lambda row: marts.name(row["other"]), kind="text"),
            words("other_method", "By"),
            field("block_count", "Blocks"),
            Show("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
            words("example_rule_id", "Rule that decided", kind="code"),
            words("other_example_rule_id", "Rule that spoke for the other", kind="code"),
        ],
        marts.rows("attribution_conflict"),
        mart="attribution_conflict",
        is_folded=True,
    )


def _rule_table(marts: Marts) -> Table:
    return mart_table(
        "rule-table",
        "What each rule did",
        Head("Rule", lambda row: text_of(row["rule_id"])),
        [
            field("match_count", "Matches"),
            field("decided_count", "Decided"),
            field("overruled_count", "Overruled"),
            Show("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
        ],
        marts.rows("attribution_rule"),
        mart="attribution_rule",
        is_folded=True,
    )


def _doubtful_table(marts: Marts) -> Table:
    cut = marts.n_doubtful - len(marts.doubtful)
    shows = [
        Show("Pool", lambda row: marts.name(row["pool"]), kind="text"),
        Show("Other candidates", lambda row: _others(marts, row), kind="long"),
    ]
    if "coinbase_text" in marts.doubtful[0]:
        shows.append(words("coinbase_text", "Text in the coinbase", kind="code"))
    return mart_table(
        "doubtful-table",
        "Blocks that no rule names, or that rules of more than one pool match",
        Head("Height", lambda row: str(row["height"])),
        shows,
        marts.doubtful,
        mart="block_pool",
        n_records=marts.n_doubtful,
        note=f"{plural(cut, 'more block')}: `pool-analysis show block_pool`." if cut else "",
        is_folded=True,
    )


def _others(marts: Marts, row: Row) -> str:
    return ", ".join(marts.name(pool) for pool in dict.fromkeys(row["conflicts"] or ())) or "none"
