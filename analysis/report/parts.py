"""What sections share: names, colours, rows headed by a pool, and charts of ratios."""

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from analysis.report.charts import charts
from analysis.report.charts.charts import Mark, RatioAxis, RatioRow
from analysis.report.charts.svg import draw
from analysis.report.data import ALL, UNKNOWN, Marts, Row
from analysis.report.model import Panel, TableRow
from analysis.report.text import count, duration, percent, percent_range, plural

WIDE_PX: Final = 960
PANEL_PX: Final = 400
NARROW_PX: Final = 358
N_COLOURS: Final = 8
MAX_CHART_POOLS: Final = 15
SHARES: Final = RatioAxis(title="Part of blocks")
TRANSACTIONS: Final = RatioAxis(title="Part of transactions")


def colour(marts: Marts, pool: str) -> str:
    """Give a pool's CSS colour: its own by rank, the same in every chart; grey for unknown and for all."""
    if pool == ALL:
        return "var(--ink)"
    if pool == UNKNOWN:
        return "var(--unknown)"
    place = marts.pools.index(pool) if pool in marts.pools else N_COLOURS
    return f"var(--pool-{place + 1})" if place < N_COLOURS else "var(--pool-other)"


def pool_row(marts: Marts, row: Row, *cells: str) -> TableRow:
    """Make a table row that is headed by a pool."""
    pool = row["pool"]
    return TableRow(head=marts.name(pool), cells=cells, colour=colour(marts, pool), is_total=pool == ALL)


def ratio_cells(row: Row, name: str) -> tuple[str, str]:
    """Give the ratio `name` and its interval as two cells."""
    interval = percent_range(row[f"{name}_low_ratio"], row[f"{name}_high_ratio"])
    return percent(row[f"{name}_ratio"]), interval


def ratio_row(marts: Marts, row: Row, name: str, *, mark: Mark = "dot") -> RatioRow:
    """Make the chart row of the ratio `name`, which must not be null."""
    return RatioRow(
        row=row["pool"],
        label=marts.name(row["pool"]),
        value=percent(row[f"{name}_ratio"]),
        ratio=row[f"{name}_ratio"],
        low=row[f"{name}_low_ratio"],
        high=row[f"{name}_high_ratio"],
        colour=colour(marts, row["pool"]),
        mark=mark,
    )


def drawable(rows: Iterable[Row], name: str) -> list[Row]:
    """Keep the rows that have the ratio `name`: all, the pools with most blocks, and unknown."""
    known = [row for row in rows if row[f"{name}_ratio"] is not None]
    kept = {ALL, UNKNOWN, *_pools(known)[:MAX_CHART_POOLS]}
    return [row for row in known if row["pool"] in kept]


def cut_note(rows: Iterable[Row], n_drawn: int = MAX_CHART_POOLS) -> str:
    """Say how many pools a chart leaves out, as a sentence to append; empty where it shows all."""
    n_pools = len(_pools(rows)) - n_drawn
    return f" {plural(n_pools, 'pool')} with fewer blocks: in the table only." if n_pools > 0 else ""


def _pools(rows: Iterable[Row]) -> list[str]:
    """Give the pools of some rows, each once, in their order."""
    return list(dict.fromkeys(row["pool"] for row in rows if row["pool"] not in (ALL, UNKNOWN)))


def ratio_panel(name: str, title: str, rows: Sequence[RatioRow], axis: RatioAxis = SHARES) -> Panel:
    """Draw a ratio chart in its two widths."""
    return Panel(
        title="",
        wide=ratio_drawing(f"{name}-wide", title, rows, width_px=WIDE_PX, axis=axis),
        narrow=ratio_drawing(f"{name}-narrow", title, rows, width_px=NARROW_PX, axis=axis),
    )


def ratio_drawing(
    name: str, title: str, rows: Sequence[RatioRow], *, width_px: int, axis: RatioAxis = SHARES
) -> Markup:
    """Draw a ratio chart in one width; the description says it in words."""
    chart = charts.ratios(rows, width_px=width_px, axis=axis)
    description = "; ".join(f"{row.label} {row.value}" for row in rows)
    return draw(chart, name=name, title=title, description=description)


def on_blocks(marts: Marts) -> str:
    """Say which blocks a figure rests on."""
    window = marts.window
    heights = f"heights {count(window['first_height'])} to {count(window['last_height'])}"
    return f"{plural(window['n_blocks'], 'block')} of the active chain, {heights}."


def on_arrivals(marts: Marts) -> str:
    """Say what a figure that needs arrivals on our clock rests on."""
    return f"{on_blocks(marts)} Of these, {_watched(marts, 'rawblock', 'sequence')}"


def on_mempool(marts: Marts) -> str:
    """Say what a figure that needs the mempool rests on."""
    return f"{on_blocks(marts)} Of the mempool, {_watched(marts, 'mempool')}"


def _watched(marts: Marts, *topics: str) -> str:
    """Say how much of some topics was observed, least of all nodes."""
    seen = [row for row in marts.coverage if row["topic"] in topics and row["observed_ratio"] is not None]
    if not seen:
        return "nothing is recorded as observed."
    least = min(seen, key=lambda row: float(row["observed_ratio"]))
    n_gaps = sum(row["n_gaps"] for row in seen)
    holes = f"with {plural(n_gaps, 'hole')}" if n_gaps else "without a hole"
    return f"{percent(least['observed_ratio'])} of {duration(least['window_s'])} was observed, {holes}."
