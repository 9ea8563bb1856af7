"""What explains a pool's choice: parts of the section on feerates beyond acceptance as of arrival."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.charts.charts import RatioAxis, RatioRow
from analysis.report.charts.curves import (
    DURATION_LABEL,
    PERCENT_AXIS,
    PLAIN_LABEL,
    Axis,
    Line,
    Point,
    Stroke,
    banded,
    panel,
)
from analysis.report.data import ALL, Marts, Row
from analysis.report.model import Figure, LegendEntry, Panel, Table
from analysis.report.parts import (
    PANEL_PX,
    colour,
    drawable,
    on_mempool,
    ratio_drawing,
    ratio_row,
)
from analysis.report.sections.practice import FACTORS, VERDICTS
from analysis.report.tables import Head, Show, by_pool, field, mart_table, measured, ratio
from analysis.report.text import INTERVAL, decimal, text_of

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


def choice_parts(marts: Marts) -> list[Figure | Table]:
    """Give the curve over template ages, the paper's claims, the factors, and the fees captured."""
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


def _age_figure(marts: Marts, ages: Sequence[Row]) -> Figure:
    """Draw acceptance over template age: all pools by each feerate, the largest pools by package feerate."""
    pools = [pool for pool in marts.pools if any(row["pool"] == pool for row in ages)][:MAX_POOLS]
    kinds = [kind for kind in KINDS if any(row["feerate_kind"] == kind for row in ages)]
    wanted = [(ALL, kind) for kind in kinds] + [(pool, "package") for pool in pools]
    panels = []
    legend: list[LegendEntry] = []
    for name, title in CLAIMS.items():
        lines = []
        for pool, kind in wanted:
            points = _age_points(ages, pool, kind, name)
            if any(point.y is not None for point in points):
                label = f"{marts.name(pool)}, {KINDS[kind]}" if pool == ALL else marts.name(pool)
                lines.append(
                    Line(
                        label=label,
                        colour=colour(marts, pool),
                        points=_bare(points, pool),
                        stroke=STROKES.get(kind, "solid"),
                    )
                )
        if lines:
            axis = Axis(title="Part taken", label=PERCENT_AXIS.label)
            x = Axis(title="Age of the template before the block", label=DURATION_LABEL, ticks=AGE_TICKS_S)
            panels.append(panel(f"feerate-age-{name}", title, lines, x=x, y=axis, is_half=True))
            legend = legend or [line.legend for line in lines]
    return Figure(
        figure_id="feerate-age-chart",
        title="Acceptance by the age of the template",
        caption=(
            "The mempool is taken that long before the block, but never before its parent. A curve "
            "that is highest "
            "above zero tells how old a pool's templates are. The band of all pools is its "
            f"{INTERVAL}; those of "
            "the pools, by package feerate, are in the CSV."
        ),
        panels=panels,
        marts=("feerate_age", "feerate_age_block"),
        rests_on=on_mempool(marts),
        legend=legend,
        layout="pair",
    )


def _age_points(ages: Sequence[Row], pool: str, kind: str, name: str) -> list[Point]:
    return [
        banded(row["age_s"], row, name, "ratio")
        for row in ages
        if row["pool"] == pool and row["feerate_kind"] == kind
    ]


def _bare(points: Sequence[Point], pool: str) -> list[Point]:
    """Leave the band to the line of all pools: several would hide each other."""
    return list(points) if pool == ALL else [Point(x=point.x, y=point.y) for point in points]


def _age_table(marts: Marts) -> Table:
    rows = [row for row in marts.rows("feerate_age") if row["pool"] == ALL]
    return mart_table(
        "feerate-age-table",
        "Acceptance by the age of the template, all pools",
        Head("Feerate", lambda row: KINDS.get(row["feerate_kind"], text_of(row["feerate_kind"]))),
        [
            field("age_s", "Age", decimal, unit="s"),
            field("real_age_s", "Possible", decimal, unit="s"),
            field("n_blocks", "Blocks"),
            field("n_clamped", "Cut short"),
            *ratio("top_x", "Part", group="Top X"),
            *ratio("outside_2x", "Part", group="Outside the top 2X"),
        ],
        rows,
        mart="feerate_age",
        records=marts.rows("feerate_age"),
        n_records=marts.totals["feerate_age"],
        note="Cut short: blocks whose parent came sooner than that before them. The CSV also has each pool.",
        is_folded=True,
    )


def _claim_table(marts: Marts) -> Table:
    """Set the paper's figures beside ours: first as the paper measures, then by the other feerates."""
    rows = sorted(
        (row for row in marts.rows("feerate_claims") if row["age_s"] == 0),
        key=lambda row: (row["feerate_kind"] != "plain", row["feerate_kind"], row["claim"] != "top_x"),
    )
    return mart_table(
        "claim-table",
        "The paper's figures beside ours",
        Head("", lambda row: CLAIMS[row["claim"]]),
        [
            Show(
                "Ranked by",
                lambda row: KINDS.get(row["feerate_kind"], text_of(row["feerate_kind"])),
                kind="text",
            ),
            field("n_blocks", "Blocks"),
            Show("Paper", lambda row: PAPER[row["claim"]]),
            *ratio("measured", "Ours"),
            Show(
                "Verdict",
                lambda row: _verdict(row["verdict"]),
                kind="text",
            ),
        ],
        rows,
        mart="feerate_claims",
        records=marts.rows("feerate_claims"),
        note=(
            "All blocks, mempool as of the block's arrival. The paper (arXiv:1902.07549) takes plain "
            "feerates: the first "
            "two rows. The CSV also has the other ages of templates."
        ),
        is_folded=False,
    )


def _verdict(verdict: str) -> str:
    return VERDICTS[verdict][0] if verdict in VERDICTS else text_of(verdict)


def _factor_figure(marts: Marts) -> Figure:
    panels = []
    for factor, title in FACTORS.items():
        rows = [row for row in marts.ranked("inclusion_factors") if row["factor"] == factor]
        drawn = [ratio_row(marts, row, "auc") for row in drawable(rows, "auc")]
        if drawn:
            axis = RatioAxis(title="Area under the ROC curve", largest=1.0, reference=NO_CHANCE)
            svg = ratio_drawing(f"factor-{factor}", title, drawn, width_px=PANEL_PX, axis=axis)
            panels.append(Panel(title=title, wide=svg))
    return Figure(
        figure_id="factor-chart",
        title="What explains which transactions are taken",
        caption=(
            "Area under the ROC curve: the chance that of one taken and one left transaction of a "
            "block the taken one ranks "
            f"higher. 50\u00a0% explains nothing, below it the lower ranks are taken. Lines are {INTERVAL}s."
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
        by_pool(marts),
        [
            Show("Factor", lambda row: FACTORS.get(row["factor"], text_of(row["factor"])), kind="text"),
            field("n_blocks", "Blocks"),
            field("n_taken", "Taken"),
            field("n_left", "Left"),
            *ratio("auc", "Area"),
            *measured(
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
            "Coefficient: log odds from the lowest to the highest rank, the other factors equal; "
            "plain feerate is left out of the model."
        ),
        is_folded=True,
    )


def _capture_figure(marts: Marts) -> Figure:
    rows = marts.ranked("fee_capture")
    bound = [ratio_row(marts, row, "captured") for row in drawable(rows, "captured")]
    bound += [ratio_row(marts, row, "captured_full", mark="ring") for row in drawable(rows, "captured_full")]
    drawing = ratio_drawing(
        "capture-bound", "Fees taken of the bound", bound, width_px=PANEL_PX, axis=OF_BOUND
    )
    panels = [Panel(title="Of the most that could be had", wide=drawing)]
    against = [
        RatioRow(
            row=row["pool"],
            label=marts.name(row["pool"]),
            value=f"\u00d7{row['template_multiple']:.2f}",
            ratio=row["template_multiple"],
            low=row["template_multiple_low"],
            high=row["template_multiple_high"],
            colour=colour(marts, row["pool"]),
        )
        for row in drawable(rows, "captured")
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
            "The bound is the best that the waiting transactions allow at the block's own weight "
            "(dots) or in a full block "
            "(rings, empty blocks counted). Above \u00d71 a pool did better than our template. Lines "
            f"are {INTERVAL}s."
        ),
        panels=panels,
        marts=("fee_capture", "fee_capture_block"),
        rests_on=on_mempool(marts),
        legend=[
            LegendEntry(label="of the block's weight", colour="var(--ink)", shape="dot"),
            LegendEntry(label="of a full block", colour="var(--ink)", shape="ring"),
        ],
        layout="pair",
    )


def _capture_table(marts: Marts) -> Table:
    return mart_table(
        "capture-table",
        "Fees captured per pool",
        by_pool(marts),
        [
            field("n_blocks", "Blocks"),
            *ratio("captured", "Part", group="Of the block's weight"),
            *ratio("captured_full", "Part", group="Of a full block"),
            field("n_template_blocks", "Blocks", group="Against our template"),
            *measured(
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
