"""Makes the report's section on whether pools take the best-paying transactions, and the fees they earn."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from analysis.report.basis import on_mempool
from analysis.report.charts.lines import (
    DURATION_LABEL,
    PLAIN_LABEL,
    Axis,
    Line,
    Point,
    Stroke,
    interval_point,
    line_panel,
)
from analysis.report.charts.ratios import TRANSACTIONS, Mark, RatioAxis, RatioRow, ratio_drawing
from analysis.report.charts.svg import PANEL_PX, PERCENT_LABEL
from analysis.report.data import ALL, FEERATE_KINDS, Marts, Read, Row
from analysis.report.model import Figure, LegendKey, Panel, SectionContent, Table, Unanswered
from analysis.report.pool_comparison import by_blocks, outlier_sentences
from analysis.report.pools import left_out_note, pool_colour, ratio_row, rows_to_draw
from analysis.report.tables import (
    MartColumn,
    RowHead,
    column,
    interval_columns,
    mart_table,
    pool_head,
    ratio_columns,
)
from analysis.report.text import INTERVAL, decimal, plural, printable, quotient, text_of, with_interval
from analysis.report.topic import Topic

NO_MEMPOOL: Final = "No mempool was watched while a block arrived. `pool-collector run` watches it."
NO_LOW_FEERATES: Final = Unanswered(
    question="Do pools take low feerates?",
    lacks="No mempool held more than twice the transactions of a block. Run `pool-collector run` for longer.",
)
MARKS: Final[Mapping[str, Mark]] = MappingProxyType({"package": "dot", "plain": "ring", "cluster": "diamond"})
KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {"package": "package feerate", "plain": "plain feerate", "cluster": "cluster-order feerate"}
)
CLAIMS: Final[Mapping[str, str]] = MappingProxyType(
    {"top_x": "Top X taken", "outside_2x": "Outside the top 2X taken"}
)
PAPER: Final[Mapping[str, str]] = MappingProxyType(
    {"top_x": "about 90\u00a0%", "outside_2x": "below 5\u00a0%"}
)
STROKES: Final[Mapping[str, Stroke]] = MappingProxyType({"plain": "dashed", "cluster": "dotted"})
OF_BOUND: Final = RatioAxis(title="Part of the bound", largest=1.0)
OF_TEMPLATE: Final = RatioAxis(
    title="Multiple of the template's fees", label=f"'\u00d7' + {PLAIN_LABEL}", limit=None, reference=1.0
)
MAX_POOLS: Final = 4
NO_CHANCE: Final = 0.5
AGE_TICKS_S: Final = (0, 15, 30, 60, 90, 120)
FACTORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "package": "Package feerate",
        "cluster": "Cluster-order feerate",
        "plain": "Plain feerate",
        "waiting": "Waiting time",
        "size": "Size",
    }
)
# For each verdict of the mart: its text in a table, and the end of a sentence.
VERDICTS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "agrees": ("agrees with the paper", "which agrees with it"),
        "below": ("below the paper", "which is below that"),
        "above": ("above the paper", "which is above that"),
        "open": ("cannot tell: inside the interval", "too close to that to tell"),
    }
)
READS: Final[Mapping[str, Read]] = MappingProxyType(
    {
        "feerate_age": Read("feerate_age", "pool, feerate_kind, age_s"),
        "feerate_claims": Read("feerate_claims", "claim, feerate_kind, age_s"),
        "inclusion_factors": Read("inclusion_factors", "pool, factor"),
        "fee_capture": Read("fee_capture", "pool"),
    }
)


def sentences(marts: Marts) -> list[str]:
    """Return the headline sentences: what pools took of high and low feerates, and which pools differ."""
    rows = [row for row in marts.feerates if row["feerate_kind"] == "package"]
    overall = next((row for row in rows if row["pool"] == ALL), None)
    if overall is None or overall["top_x_ratio"] is None:
        return []
    blocks = plural(overall["n_blocks"], "block")
    taken = with_interval(overall, "top_x")
    said = [
        (
            f"By package feerate, pools took {taken} of the top X transactions ({blocks}; "
            "X = the number of transactions in the block)."
        )
    ]
    said += outlier_sentences(
        marts,
        rows,
        "top_x",
        by_blocks(marts.block_ratios, rows, "top_x_ratio").below,
        "take fewer of the top X",
    )
    if overall["outside_2x_ratio"] is not None:
        said.append(f"Pools took {with_interval(overall, 'outside_2x')} of those outside the top 2X.")
        said += outlier_sentences(
            marts,
            rows,
            "outside_2x",
            by_blocks(marts.block_ratios, rows, "outside_2x_ratio").above,
            "take more of those outside the top 2X",
        )
    if overall["n_unmeasured"]:
        said.append(
            f"{plural(overall['n_unmeasured'], 'block')} with transactions could not be measured, "
            "because the mempool at their arrival is not known."
        )
    return said + choice_sentences(marts)


def figures_and_tables(marts: Marts) -> SectionContent:
    """Return the report's section: which part of high and of low feerates each pool's blocks took.

    X is the number of transactions in a block, and waiting transactions are ranked by feerate. The section
    gives the part of the best X that was taken, and the part taken of those ranked below the best 2X, for
    each kind of feerate.
    """
    rows = [row for row in marts.feerates if row["feerate_kind"] in FEERATE_KINDS]
    parts: list[Figure | Table] = []
    missing: list[Unanswered | str] = []
    panels = [
        panel
        for panel in (
            _panel(marts, rows, "top_x", "Top X taken", axis=replace(TRANSACTIONS, largest=1.0)),
            _panel(marts, rows, "outside_2x", "Outside the top 2X taken", axis=TRANSACTIONS),
        )
        if panel is not None
    ]
    if panels:
        parts.append(_figure(marts, rows, panels))
        parts += [_table(marts, rows, kind) for kind in _kinds(rows)]
        parts += choice_parts(marts)
        if all(row["outside_2x_ratio"] is None for row in rows):
            missing.append(NO_LOW_FEERATES)
    else:
        missing.append(NO_MEMPOOL)
    return SectionContent(parts=parts, missing=missing)


def choice_parts(marts: Marts) -> list[Figure | Table]:
    """Return the figures and tables on template age, the paper's claims, factors of choice, captured fees."""
    parts: list[Figure | Table] = []
    ages = [row for row in marts.rows("feerate_age") if row["top_x_ratio"] is not None]
    if len({row["age_s"] for row in ages}) > 1:
        parts += [_age_figure(marts, ages), _age_table(marts)]
    if marts.rows("feerate_claims"):
        parts.append(_claim_table(marts))
    if any(row["auc_ratio"] is not None for row in marts.rows("inclusion_factors")):
        parts += [_factor_figure(marts), _factor_table(marts)]
    if any(row["captured_ratio"] is not None for row in marts.rows("fee_capture")):
        parts += [_capture_figure(marts), _capture_table(marts)]
    return parts


def choice_sentences(marts: Marts) -> list[str]:
    """Return sentences on the paper's claims beside our figures, the strongest factor, the captured fees."""
    said = []
    for claim, paper, label in (
        ("top_x", "about 90\u00a0%", "of the top X"),
        ("outside_2x", "below 5\u00a0%", "of those outside the top 2X"),
    ):
        row = next(
            (
                r
                for r in marts.rows("feerate_claims")
                if r["claim"] == claim and r["feerate_kind"] == "plain" and r["age_s"] == 0
            ),
            None,
        )
        if row is not None and row["measured_ratio"] is not None:
            said.append(
                f"The paper says that pools take {paper} {label}. Here it is "
                f"{with_interval(row, 'measured')}, by plain feerates at the arrival of the block, "
                f"{_verdict_clause(row['verdict'])}."
            )
    factors = [r for r in marts.rows("inclusion_factors") if r["pool"] == ALL and r["auc_ratio"] is not None]
    if factors:
        best = max(factors, key=lambda r: abs(r["auc_ratio"] - 0.5))
        name = FACTORS.get(best["factor"], printable(best["factor"])).lower()
        said.append(
            f"Of the factors, {name} explains best which transactions are taken: the area under the "
            f"ROC curve is {with_interval(best, 'auc')}."
        )
    fees = next((r for r in marts.rows("fee_capture") if r["pool"] == ALL), None)
    if fees is not None and fees["captured_ratio"] is not None:
        said.append(
            f"Blocks that are not empty earned {with_interval(fees, 'captured')} of the highest fees "
            "that fit into their weight."
        )
    return said


def _verdict_clause(verdict: str) -> str:
    """Return the clause that says whether our figure agrees with the paper's, to end a sentence."""
    return VERDICTS[verdict][1] if verdict in VERDICTS else f"which is {printable(verdict)}"


def _kinds(rows: Sequence[Row]) -> list[str]:
    """Return the kinds of feerate that the rows have: package, plain and cluster, in this order."""
    return [kind for kind in FEERATE_KINDS if any(row["feerate_kind"] == kind for row in rows)]


def _panel(marts: Marts, rows: Sequence[Row], name: str, title: str, *, axis: RatioAxis) -> Panel | None:
    """Return a drawing of the ratio `name` of every pool, with a mark for each kind of feerate.

    The result is None if no row has that ratio.
    """
    drawn = [ratio_row(marts, row, name, mark=MARKS[row["feerate_kind"]]) for row in rows_to_draw(rows, name)]
    if not drawn:
        return None
    svg = ratio_drawing(f"feerate-{name}", f"{title}, per pool", drawn, width_px=PANEL_PX, axis=axis)
    return Panel(title=title, wide=svg)


def _figure(marts: Marts, rows: Sequence[Row], panels: Sequence[Panel]) -> Figure:
    return Figure(
        figure_id="feerate-chart",
        title="Acceptance by feerate",
        caption=(
            "Marks show the share of transactions that a pool's blocks took, lines the "
            f"{INTERVAL}s.{left_out_note(rows)}"
        ),
        panels=panels,
        marts=("feerate_strategy", "feerate_strategy_block"),
        rests_on=on_mempool(marts),
        legend=[
            LegendKey(label=KINDS[kind], colour="var(--ink)", shape=MARKS[kind]) for kind in _kinds(rows)
        ],
        layout="pair",
    )


def _table(marts: Marts, rows: Sequence[Row], kind: str) -> Table:
    columns: list[MartColumn] = [column("n_blocks", "Blocks"), column("n_unmeasured", "Left out")]
    for name, of, group in (
        ("top_x", "n_top", "Top X"),
        ("outside_2x", "n_outside", "Outside the top 2X"),
    ):
        columns += [
            column(f"{of}_taken", "Taken", group=group),
            column(of, "Of", group=group),
            *ratio_columns(name, "Part", group=group),
        ]
    return mart_table(
        f"feerate-{kind}-table",
        f"Acceptance by {KINDS[kind]}, per pool",
        pool_head(marts),
        columns,
        [row for row in rows if row["feerate_kind"] == kind],
        mart="feerate_strategy",
        note=(
            "Taken and Of count transactions. Left out: blocks for which the mempool is not known. "
            "Empty blocks have no top X and are not counted. With too few blocks there is no "
            "interval. If every block took all, or none, the interval is that of as many yes-or-no "
            "blocks."
        ),
        is_folded=False,
    )


def _age_figure(marts: Marts, ages: Sequence[Row]) -> Figure:
    """Return the figure of which part of high and of low feerates blocks took, by template age.

    The age is the time from a template to the block. All pools together get a line for each kind of feerate;
    the largest pools get one by package feerate.
    """
    pools = [pool for pool in marts.pools if any(row["pool"] == pool for row in ages)][:MAX_POOLS]
    kinds = [kind for kind in KINDS if any(row["feerate_kind"] == kind for row in ages)]
    wanted = [(ALL, kind) for kind in kinds] + [(pool, "package") for pool in pools]
    panels = []
    legend: list[LegendKey] = []
    for name, title in CLAIMS.items():
        lines = []
        for pool, kind in wanted:
            points = _age_points(ages, pool, kind, name)
            if any(point.y is not None for point in points):
                label = f"{marts.name(pool)}, {KINDS[kind]}" if pool == ALL else marts.name(pool)
                lines.append(
                    Line(
                        label=label,
                        colour=pool_colour(marts, pool),
                        points=_bare(points, pool),
                        stroke=STROKES.get(kind, "solid"),
                    )
                )
        if lines:
            axis = Axis(title="Part taken", label=PERCENT_LABEL)
            x = Axis(title="Age of the template before the block", label=DURATION_LABEL, ticks=AGE_TICKS_S)
            panels.append(line_panel(f"feerate-age-{name}", title, lines, x=x, y=axis, is_half=True))
            legend = legend or [line.legend for line in lines]
    return Figure(
        figure_id="feerate-age-chart",
        title="Acceptance by the age of the template",
        caption=(
            "The mempool is taken this long before the block, but never before its parent. If a curve "
            "is highest at an age above zero, that age tells how old the pool's templates are. The "
            f"band is the {INTERVAL} of all pools; the intervals of single pools, by package feerate, "
            "are in the CSV."
        ),
        panels=panels,
        marts=("feerate_age", "feerate_age_block"),
        rests_on=on_mempool(marts),
        legend=legend,
        layout="pair",
    )


def _age_points(ages: Sequence[Row], pool: str, kind: str, name: str) -> list[Point]:
    return [
        interval_point(row["age_s"], row, name, "ratio")
        for row in ages
        if row["pool"] == pool and row["feerate_kind"] == kind
    ]


def _bare(points: Sequence[Point], pool: str) -> list[Point]:
    """Return the points of a single pool without their bands, because several bands would hide each other.

    The points of all pools together (`pool` is "all") keep their bands.
    """
    return list(points) if pool == ALL else [Point(x=point.x, y=point.y) for point in points]


def _age_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("feerate_age") if row["pool"] == ALL]
    return mart_table(
        "feerate-age-table",
        "Acceptance by the age of the template, all pools",
        RowHead("Feerate", lambda row: KINDS.get(row["feerate_kind"], text_of(row["feerate_kind"]))),
        [
            column("age_s", "Age", decimal, unit="s"),
            column("real_age_s", "Possible", decimal, unit="s"),
            column("n_blocks", "Blocks"),
            column("n_clamped", "Cut short"),
            *ratio_columns("top_x", "Part", group="Top X"),
            *ratio_columns("outside_2x", "Part", group="Outside the top 2X"),
        ],
        rows,
        mart="feerate_age",
        records=marts.rows("feerate_age"),
        n_records=marts.totals["feerate_age"],
        note=(
            "Cut short: blocks whose parent came later than this age before them. The CSV also has each pool."
        ),
        is_folded=True,
    )


def _claim_table(marts: Marts) -> Table:
    """Return the table of the paper's figures beside ours: first by plain feerate, as in the paper."""
    rows = sorted(
        (row for row in marts.rows("feerate_claims") if row["age_s"] == 0),
        key=lambda row: (row["feerate_kind"] != "plain", row["feerate_kind"], row["claim"] != "top_x"),
    )
    return mart_table(
        "claim-table",
        "The paper's figures beside ours",
        RowHead("Claim", lambda row: CLAIMS[row["claim"]]),
        [
            MartColumn(
                "Ranked by",
                lambda row: KINDS.get(row["feerate_kind"], text_of(row["feerate_kind"])),
                kind="text",
            ),
            column("n_blocks", "Blocks"),
            MartColumn("Paper", lambda row: PAPER[row["claim"]]),
            *ratio_columns("measured", "Ours"),
            MartColumn(
                "Verdict",
                lambda row: _verdict(row["verdict"]),
                kind="text",
            ),
        ],
        rows,
        mart="feerate_claims",
        records=marts.rows("feerate_claims"),
        note=(
            "All blocks, with the mempool as it was when the block arrived. The paper "
            "(arXiv:1902.07549) uses plain feerates: the first two rows. The CSV also has the other "
            "template ages."
        ),
        is_folded=False,
    )


def _verdict(verdict: str) -> str:
    return VERDICTS[verdict][0] if verdict in VERDICTS else text_of(verdict)


def _factor_figure(marts: Marts) -> Figure:
    panels = []
    for factor, title in FACTORS.items():
        rows = [row for row in marts.ranked("inclusion_factors") if row["factor"] == factor]
        drawn = [ratio_row(marts, row, "auc") for row in rows_to_draw(rows, "auc")]
        if drawn:
            axis = RatioAxis(title="Area under the ROC curve", largest=1.0, reference=NO_CHANCE)
            svg = ratio_drawing(f"factor-{factor}", title, drawn, width_px=PANEL_PX, axis=axis)
            panels.append(Panel(title=title, wide=svg))
    return Figure(
        figure_id="factor-chart",
        title="What explains which transactions are taken",
        caption=(
            "Area under the ROC curve: take one transaction that the block took and one that it left; "
            "the area is the chance that the taken one ranks higher. 50\u00a0% explains nothing; below it, "
            f"the lower-ranked ones are taken. Lines are {INTERVAL}s."
        ),
        panels=panels,
        marts=("inclusion_factors", "inclusion_sample"),
        rests_on=on_mempool(marts),
        layout="pair",
    )


def _factor_table(marts: Marts) -> Table:
    return mart_table(
        "factor-table",
        "Factors of inclusion per pool",
        pool_head(marts),
        [
            MartColumn("Factor", lambda row: FACTORS.get(row["factor"], text_of(row["factor"])), kind="text"),
            column("n_blocks", "Blocks"),
            column("n_taken", "Taken"),
            column("n_left", "Left"),
            *ratio_columns("auc", "Area"),
            *interval_columns(
                "coefficient",
                "Coefficient",
                decimal,
                "coefficient_low",
                "coefficient_high",
                group="Regression",
            ),
        ],
        marts.ranked("inclusion_factors"),
        mart="inclusion_factors",
        note=(
            "Coefficient: log odds between the lowest and the highest rank, with the other factors "
            "equal. Plain feerate is not in this model."
        ),
        is_folded=True,
    )


def _capture_figure(marts: Marts) -> Figure:
    rows = marts.ranked("fee_capture")
    bound = [ratio_row(marts, row, "captured") for row in rows_to_draw(rows, "captured")]
    bound += [
        ratio_row(marts, row, "captured_full", mark="ring") for row in rows_to_draw(rows, "captured_full")
    ]
    drawing = ratio_drawing(
        "capture-bound", "Fees taken of the bound", bound, width_px=PANEL_PX, axis=OF_BOUND
    )
    panels = [Panel(title="As a share of the bound", wide=drawing)]
    against = [
        RatioRow(
            row=row["pool"],
            label=marts.name(row["pool"]),
            value=quotient(row["template_multiple"]),
            ratio=row["template_multiple"],
            low=row["template_multiple_low"],
            high=row["template_multiple_high"],
            colour=pool_colour(marts, row["pool"]),
        )
        for row in rows_to_draw(rows, "captured")
        if row["template_multiple"] is not None
    ]
    if against:
        svg = ratio_drawing(
            "capture-template", "Fees against a stock template", against, width_px=PANEL_PX, axis=OF_TEMPLATE
        )
        panels.append(Panel(title="Against our template of the same weight", wide=svg))
    return Figure(
        figure_id="capture-chart",
        title="Fees captured",
        caption=(
            "The bound is the most that the waiting transactions could pay: at the block's own weight "
            "(dots), or in a full block (rings; empty blocks are counted). Above \u00d71 a pool earned "
            f"more than our template. Lines are {INTERVAL}s."
        ),
        panels=panels,
        marts=("fee_capture", "fee_capture_block"),
        rests_on=on_mempool(marts),
        legend=[
            LegendKey(label="of the block's weight", colour="var(--ink)", shape="dot"),
            LegendKey(label="of a full block", colour="var(--ink)", shape="ring"),
        ],
        layout="pair",
    )


def _capture_table(marts: Marts) -> Table:
    return mart_table(
        "capture-table",
        "Fees captured per pool",
        pool_head(marts),
        [
            column("n_blocks", "Blocks"),
            *ratio_columns("captured", "Part", group="Of the block's weight"),
            *ratio_columns("captured_full", "Part", group="Of a full block"),
            column("n_template_blocks", "Blocks", group="Against our template"),
            *interval_columns(
                "template_multiple",
                "Multiple",
                decimal,
                "template_multiple_low",
                "template_multiple_high",
                group="Against our template",
            ),
        ],
        marts.ranked("fee_capture"),
        mart="fee_capture",
        is_folded=True,
    )


TOPIC: Final = Topic(
    section_id="feerate",
    title="Feerate strategy",
    question="Do pools take transactions by feerate?",
    intro=(
        "For each block with X transactions, the mempool as it stood when the block arrived is "
        "sorted by feerate. A pool that takes the best-paying ones takes all of the top X and "
        "none outside the top 2X. Plain feerate is a transaction's own fee divided by its virtual "
        "size. The mining score of a transaction is its own feerate or the feerate of it together "
        "with all its ancestors, whichever is lower. Its package feerate is the highest score "
        "among it and its waiting descendants."
    ),
    sentences=sentences,
    content=figures_and_tables,
    reads=READS,
)
