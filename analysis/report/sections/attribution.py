"""Makes the report's section on how sure it is who mined a block.

It shows the methods of attribution, conflicts between rules, doubtful blocks, and labels of third parties.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.basis import on_blocks
from analysis.report.charts.lines import Axis, Line, Point, line_panel
from analysis.report.charts.svg import PERCENT_LABEL
from analysis.report.data import Marts, Read, Row
from analysis.report.model import Figure, SectionContent, Table, Unanswered
from analysis.report.pools import unmapped_labels
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    mart_table,
    pool_head,
    ratio_columns,
    text_column,
    text_head,
)
from analysis.report.text import (
    INTERVAL,
    count,
    count_or_none,
    decimal,
    listed_pools,
    plural,
    printable,
    text_of,
    with_interval,
)
from analysis.report.topic import Topic

METHODS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "payout": "payout script",
        "tag": "coinbase tag",
        "label": "label of a third party",
        "none": "no rule matched",
    }
)
COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "payout": "var(--accent-1)",
        "tag": "var(--accent-2)",
        "label": "var(--pool-3)",
        "none": "var(--unknown)",
    }
)
VERDICTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "agree": "agrees",
        "disagree": "disagrees",
        "only_here": "only we name it",
        "only_there": "only they name it",
        "neither": "unknown to both",
        "unmapped": "they use a name that we do not know",
    }
)
NO_LABELS: Final = Unanswered(
    question="Do others name the same pools?",
    lacks=(
        "No block has both a coinbase that our rules read and a pool label of a third party. "
        "`pool-collector import labels FILE --source NAME --licence TERMS --url URL` adds labels; "
        "`pool-collector run` and `pool-collector backfill` read coinbases."
    ),
)
RULE_CHANGES: Final = (
    "`pool-analysis diff-rules BEFORE AFTER` shows which blocks a change of the rules moves."
)
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "attribution_method": Read("attribution_method", "period_kind, first_height, method"),
        "attribution_conflict": Read(
            "attribution_conflict", "block_count DESC, pool, other, method, other_method"
        ),
        "attribution_rule": Read("attribution_rule", "decided_count DESC, match_count DESC, rule_id"),
        "label_summary": Read("label_summary", "source, kind"),
        "unmapped_label": Read("unmapped_label", "source, kind, block_count DESC, label"),
        "label_agreement": Read("label_agreement", "source, kind, block_count DESC, label, pool"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: how blocks were attributed, how many conflict, whether others agree."""
    rows = [r for r in marts.rows("attribution_method") if r["period_kind"] == "all"]
    if not rows:
        return []
    total = rows[0]["total_block_count"]
    counts = {r["method"]: r["block_count"] for r in rows}
    by_payout, by_tag, by_label, by_none = (count_or_none(counts.get(name, 0)) for name in METHODS)
    by_rules = f"{by_payout} were attributed by payout script and {by_tag} by coinbase tag"
    labelled = f"; for {by_label} others name the pool" if counts.get("label") else ""
    unnamed = f"{by_none} stay unknown" if labelled else f"{by_none} match no rule"  # labels need no rule
    conflicts = sum(r["conflict_count"] for r in rows)
    said = [
        f"Of {plural(total, 'block')}, {by_rules}{labelled}; {unnamed}.",
        *([f"In {plural(conflicts, 'block')} a rule of another pool matches too."] if conflicts else []),
    ]
    said += _unmapped(marts)
    for row in marts.rows("label_summary"):
        named = row["agree_count"] + row["disagree_count"]
        if named:
            said.append(
                f"{printable(row['source'])} agrees on {with_interval(row, 'agree')} of the "
                f"{plural(named, 'block')} that we both name. It alone names "
                f"{count_or_none(row['only_there_count'])}, and we alone name "
                f"{count_or_none(row['only_here_count'])}."
            )
    return said


def _unmapped(marts: Marts) -> list[str]:
    """Return a sentence per source that names pools which data/pools does not know, with these names."""
    said = []
    for source, rows in unmapped_labels(marts).items():
        names = [f"{printable(row['label'])} ({count(row['block_count'])})" for row in rows]
        blocks = plural(sum(row["block_count"] for row in rows), "block")
        said.append(
            f"{printable(source)} calls {blocks} by {'a name' if len(rows) == 1 else 'names'} that we do not "
            f"know: {listed_pools(names, 'other name')}."
        )
    return said


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: methods, conflicts, rules, doubtful blocks, third parties' labels."""
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    methods = [row for row in marts.rows("attribution_method") if row["period_kind"] == "all"]
    if methods:
        parts.append(_method_table(marts, methods))
    timed = _timed_epochs(marts)
    if len({row["period"] for row in timed}) > 1:
        parts.append(_method_figure(marts, timed))
    if marts.rows("label_summary"):
        parts += [_label_table(marts), _disagreement_table(marts)]
    else:
        missing.append(NO_LABELS)
    if marts.rows("unmapped_label"):
        parts.append(_unmapped_table(marts))
    if marts.rows("attribution_conflict"):
        parts.append(_conflict_table(marts))
    if marts.rows("attribution_rule"):
        parts.append(_rule_table(marts))
    if marts.doubtful:
        parts.append(_doubtful_table(marts))
    return SectionContent(parts=parts, missing=missing)


def _method(row: Row) -> str:
    return METHODS.get(row["method"] or "none", text_of(row["method"]))


def _method_table(marts: Marts, rows: list[Row]) -> Table:
    return mart_table(
        "method-table",
        "How blocks were attributed",
        RowHead("By", _method),
        [
            column("block_count", "Blocks"),
            *ratio_columns("block", "Part of all"),
            column("conflict_count", "Conflicts"),
            column("mean_candidates", "Rules that match", decimal),
        ],
        sorted(rows, key=lambda row: -row["block_count"]),
        mart="attribution_method",
        records=marts.rows("attribution_method"),
        note="The CSV also has the difficulty epochs.",
        is_folded=False,
    )


def _timed_epochs(marts: Marts) -> list[Row]:
    """Return the rows of difficulty epochs whose first day is known; the others have no place on the axis."""
    return [
        row
        for row in marts.rows("attribution_method")
        if row["period_kind"] == "epoch" and int(row["period"]) in marts.epochs
    ]


def _method_figure(marts: Marts, rows: Sequence[Row]) -> Figure:
    """Return the figure of the share of blocks that each method attributed, per difficulty epoch."""
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
    drawing = line_panel(
        "method",
        "Method of attribution per difficulty epoch",
        lines,
        x=Axis(title=""),
        y=Axis(title="Part of blocks", label=PERCENT_LABEL, domain=(0, 1)),
    )
    return Figure(
        figure_id="method-chart",
        title="How blocks were attributed, per difficulty epoch",
        caption=f"Each epoch stands at its first day. Bands are {INTERVAL}s.",
        panels=[drawing],
        marts=("attribution_method",),
        rests_on=on_blocks(marts),
        legend=[line.legend for line in lines],
    )


def _label_table(marts: Marts) -> Table:
    return mart_table(
        "label-table",
        "Agreement with what third parties say",
        text_head("Source", "source"),
        [
            text_column("kind", "Of"),
            column("block_count", "Blocks"),
            column("agree_count", "Agree"),
            column("disagree_count", "Disagree"),
            *ratio_columns("agree", "Agreement"),
            column("only_here_count", "Only we", group="Named by one side"),
            column("only_there_count", "Only they", group="Named by one side"),
            column("unmapped_count", "Name not ours"),
            column("cohens_kappa", "Cohen's \u03ba", decimal),
        ],
        marts.rows("label_summary"),
        mart="label_summary",
        note=(
            "Label lists copy from the same public lists of tags, and so do we. Agreement does not "
            "prove that a label is right."
        ),
        is_folded=False,
    )


def _disagreement_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("label_agreement") if row["verdict"] not in {"agree", "neither"}]
    return mart_table(
        "disagreement-table",
        "Blocks on which third parties and we differ",
        text_head("They say", "label"),
        [
            text_column("source", "Source"),
            MartColumn("We say", lambda row: marts.name(row["pool"]), kind="text"),
            MartColumn(
                "Verdict", lambda row: VERDICTS.get(row["verdict"], text_of(row["verdict"])), kind="text"
            ),
            column("block_count", "Blocks"),
            MartColumn("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
        ],
        rows,
        mart="label_agreement",
        records=marts.rows("label_agreement"),
        note="The CSV also has the labels on which both agree.",
    )


def _unmapped_table(marts: Marts) -> Table:
    return mart_table(
        "unmapped-table",
        "Names of third parties that are none of ours",
        text_head("They say", "label"),
        [
            text_column("source", "Source"),
            column("block_count", "Blocks"),
            column("unknown_count", "Unknown to us"),
            MartColumn("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
        ],
        marts.rows("unmapped_label"),
        mart="unmapped_label",
        note="To map a name, write it into `aliases` of its pool in data/pools, and build again.",
        is_folded=True,
    )


def _conflict_table(marts: Marts) -> Table:
    return mart_table(
        "conflict-table",
        "Conflicts: blocks that match rules of two pools",
        pool_head(marts),
        [
            text_column("method", "By"),
            MartColumn("Other", lambda row: marts.name(row["other"]), kind="text"),
            text_column("other_method", "By"),
            column("block_count", "Blocks"),
            MartColumn("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
            text_column("example_rule_id", "Rule that decided", kind="code"),
            text_column("other_example_rule_id", "Rule for the other pool", kind="code"),
        ],
        marts.rows("attribution_conflict"),
        mart="attribution_conflict",
        is_folded=True,
    )


def _rule_table(marts: Marts) -> Table:
    return mart_table(
        "rule-table",
        "What each rule did",
        RowHead("Rule", lambda row: text_of(row["rule_id"])),
        [
            column("match_count", "Matches"),
            column("decided_count", "Decided"),
            column("overruled_count", "Overruled"),
            MartColumn("Heights", lambda row: f"{count(row['first_height'])} to {count(row['last_height'])}"),
        ],
        marts.rows("attribution_rule"),
        mart="attribution_rule",
        is_folded=True,
    )


def _doubtful_table(marts: Marts) -> Table:
    cut = marts.n_doubtful - len(marts.doubtful)
    columns = [
        MartColumn("Pool", lambda row: marts.name(row["pool"]), kind="text"),
        MartColumn("Other candidates", lambda row: _others(marts, row), kind="long"),
    ]
    if "coinbase_text" in marts.doubtful[0]:
        columns.append(text_column("coinbase_text", "Text in the coinbase", kind="code"))
    return mart_table(
        "doubtful-table",
        "Blocks that match no rule, or rules of more than one pool",
        RowHead("Height", lambda row: str(row["height"])),
        columns,
        marts.doubtful,
        mart="block_pool",
        n_records=marts.n_doubtful,
        note=(f"{plural(cut, 'more block')}: `pool-analysis show block_pool`. " if cut else "")
        + RULE_CHANGES,
        is_folded=True,
    )


def _others(marts: Marts, row: Row) -> str:
    return ", ".join(marts.name(pool) for pool in dict.fromkeys(row["conflicts"] or ())) or "none"


TOPIC: Final = Topic(
    section_id="attribution",
    title="Attribution",
    question="How sure is it who mined a block?",
    intro=(
        "We compare every rule with the raw coinbase. A match of the payout script beats a match "
        "of the tag. A block that matches rules of more than one pool is a conflict and is listed "
        "below. Anybody can write any tag into a coinbase."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
