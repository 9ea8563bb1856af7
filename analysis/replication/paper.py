"""The statements of arXiv:1902.07549, each beside the same figure from the data its authors published."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import duckdb
import numpy as np

from analysis.engine import connect
from analysis.events import event_effect
from analysis.growth import fit_growth, growth_segments
from analysis.pools import RuleSet
from analysis.replication.published import load
from analysis.statistics import Numbers, wilson_intervals

Verdict = Literal["replicated", "differs", "cannot be replicated"]

POOL_COUNTS: Final = {"AntPool": 27_026, "F2Pool": 19_282, "BTC.com": 17_488, "ViaBTC": 12_100}
LABELLED: Final = 0.9818
TOP_25: Final = 0.94
TOP_3: Final = 1 / 3
HALVING_DAY: Final = "2016-07-09"
HALVING_WINDOW_DAYS: Final = 30
SIGNIFICANCE: Final = 0.05
SHOWN_DAYS: Final = 3
# Columns of the hashrate file that are not one pool.
NO_POOL: Final = ("ALL", "Unknown", "others")
# Column of the hashrate file, what it is, and the R2 that the paper gives.
GROWTHS: Final[tuple[tuple[str, str, float | None], ...]] = (
    ("ALL", "the network", 0.95),
    ("AntPool", "AntPool", None),
    ("F2Pool", "F2Pool", None),
    ("BTCCOM", "BTC.com", None),
    ("ViaBTC", "ViaBTC", None),
)
COLUMNS: Final = ("statement", "paper", "ours", "verdict", "reason")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One statement of the paper, its figure, ours on the authors' data, and why the two may differ."""

    statement: str
    paper: str
    ours: str
    verdict: Verdict
    reason: str

    @property
    def row(self) -> tuple[str, ...]:
        """Values in the order of COLUMNS."""
        return tuple(getattr(self, column) for column in COLUMNS)


def replicate(folder: Path, rules: RuleSet) -> list[Finding]:
    """Check every statement on the authors' files. The rules only tell which labels are one pool.

    Raises PublishedDataError for a folder without the files.
    """
    with connect() as connection:
        load(connection, folder)
        connection.execute("CREATE TABLE slugs (name VARCHAR, slug VARCHAR)")
        connection.executemany("INSERT INTO slugs VALUES (?, ?)", list(rules.slug_of_name.items()))
        return [finding for statement in STATEMENTS for finding in statement(connection)]


def _labelled(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    n_rows, n_named, first, last = _row(
        connection,
        """
        SELECT count(*), count(*) FILTER (WHERE label != 'unknown'), min(height), max(height)
        FROM paper_labels
        """,
    )
    (last_sized,) = _row(connection, "SELECT max(height) FROM paper_sizes")
    n_heights, n_window = last - first + 1, last_sized - first + 1
    found = n_named / n_rows
    needed = (LABELLED * n_window - n_named) / (n_window - n_rows)
    yield Finding(
        statement="Blocks that carry a pool label",
        paper=_percent(LABELLED),
        ours=f"{_percent(found)} ({n_named:,} of {n_rows:,}; {_interval(n_named, n_rows)})",
        verdict="replicated" if round(found, 4) == LABELLED else "differs",
        reason=f"Published labels end at height {last}, the paper's window near {last_sized};"
        f" {n_heights - n_rows} heights of {n_heights:,} are missing from the file. The paper's figure holds"
        f" if {_percent(needed)} of the {n_window - n_rows:,} blocks without a published label had one.",
    )


def _blocks_of_pools(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    """Count each pool's blocks over both files: each lacks blocks that the other has."""
    for label, expected in POOL_COUNTS.items():
        n_labels, n_sizes, n_both = _row(
            connection,
            """
            SELECT count(labels.height), count(sizes.height), count(*)
            FROM (SELECT DISTINCT height FROM paper_labels WHERE label = $1) AS labels
            FULL JOIN (SELECT DISTINCT height FROM paper_sizes WHERE label = $1) AS sizes USING (height)
            """,
            label,
        )
        yield Finding(
            statement=f"Blocks of {label} over the window",
            paper=f"{expected:,}",
            ours=f"{n_both:,}",
            verdict="replicated" if n_both == expected else "differs",
            reason=f"Heights in the label file ({n_labels:,}) or in the pool's size file ({n_sizes:,}), which"
            " goes on to the end of the window. Neither file alone gives the figure.",
        )


def _top_25(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    n_top, n_all, n_names = _row(
        connection,
        """
        WITH counts AS (
            SELECT coalesce(slug, lower(label)) AS pool, count(*) AS n_blocks
            FROM paper_labels LEFT JOIN slugs ON lower(label) = slugs.name
            GROUP BY pool
        ),
        ranked AS (
            SELECT *, row_number() OVER (ORDER BY n_blocks DESC, pool) AS position
            FROM counts WHERE pool != 'unknown'
        )
        SELECT
            sum(n_blocks) FILTER (WHERE position <= 25),
            (SELECT count(*) FROM paper_labels),
            count(*)
        FROM ranked
        """,
    )
    found = n_top / n_all
    yield Finding(
        statement="Blocks of the 25 largest pools",
        paper=f"over {_percent(TOP_25, 0)}",
        ours=f"{_percent(found)} ({_interval(n_top, n_all)})",
        verdict="replicated" if found > TOP_25 else "differs",
        reason=f"Labels that our rules know as one pool are merged, which leaves {n_names} pools. Blocks"
        " without a label count in the total. The paper does not say which labels it merged.",
    )


def _top_3(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    days = connection.execute(
        """
        WITH ranked AS (
            SELECT
                day,
                hashes_per_s,
                row_number() OVER (PARTITION BY day ORDER BY hashes_per_s DESC) AS position
            FROM paper_hashrates WHERE NOT list_contains($1, label)
        ),
        networks AS (SELECT day, hashes_per_s FROM paper_hashrates WHERE label = 'ALL')
        SELECT
            strftime(day, '%Y-%m-%d'),
            sum(ranked.hashes_per_s) / any_value(networks.hashes_per_s) AS share
        FROM ranked INNER JOIN networks USING (day) WHERE position <= 3 GROUP BY day ORDER BY share
        """,
        [list(NO_POOL)],
    ).fetchall()
    below = [day for day, share in days if share <= TOP_3]
    named = ", ".join(sorted(below)[:SHOWN_DAYS]) + (" ..." if len(below) > SHOWN_DAYS else "")
    yield Finding(
        statement="Hashrate of the three largest pools, each day",
        paper="over one third every day",
        ours=f"over one third on {len(days) - len(below):,} of {len(days):,} days;"
        f" least {_percent(days[0][1])}",
        verdict="differs" if below else "replicated",
        reason=(f"Not on {named}. " if below else "")
        + "Pools inside the columns 'Unknown' and 'others' cannot be told apart, so ours is a lower bound.",
    )


def _growth(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    for label, name, published in GROWTHS:
        days, values = _series(
            connection, "SELECT day, hashes_per_s FROM paper_hashrates WHERE label = $1 ORDER BY day", label
        )
        fit = fit_growth(days, values)
        if fit is None:
            continue
        segments = growth_segments(days, values)
        rates = ", ".join(f"{segment.lambda_per_day:.4f}" for segment in segments)
        yield Finding(
            statement=f"Hashrate of {name} grows exponentially",
            paper=f"R2 = {published} (conference version)" if published else "exponential",
            ours=f"R2 = {fit.r_squared:.3f}, adjusted {fit.adjusted_r_squared:.3f},"
            f" lambda = {fit.lambda_per_day:.5f} per day"
            f" ({fit.lambda_low_per_day:.5f} to {fit.lambda_high_per_day:.5f}), {fit.n_days:,.0f} days",
            verdict="replicated" if not published or fit.r_squared >= published else "differs",
            reason="ln H = lambda t + c on days above 0. The trend is there; but residuals lean on each other"
            f" (Durbin-Watson {fit.durbin_watson:.2f}) and the series breaks into {len(segments)} pieces"
            f" with lambda {rates}, so no single rate describes it.",
        )


def _halving(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    days, prices = _series(connection, "SELECT day, price_usd FROM paper_prices ORDER BY day")
    event = float(np.datetime64(HALVING_DAY).astype(int))
    window = HALVING_WINDOW_DAYS
    effect = event_effect(days, prices, event, window)
    if effect is not None:
        yield Finding(
            statement="The price is not sensitive to the halving",
            paper="not sensitive",
            ours=f"{_change(effect.log_change)} from {window} days before to {window} after; placebo dates"
            f" {_change(effect.placebo_low)} to {_change(effect.placebo_high)}, p = {effect.p_value:.2f}",
            verdict="replicated" if effect.p_value > SIGNIFICANCE else "differs",
            reason=f"One halving ({HALVING_DAY}) against {effect.n_placebos:.0f} other dates, whose windows"
            " overlap: only a change far beyond the usual ones could be seen.",
        )
    yield Finding(
        statement="Fees are not sensitive to the halving",
        paper="not sensitive",
        ours="none",
        verdict="cannot be replicated",
        reason="No fees were published. The revenue file gives fees and subsidy as one sum in USD, and no"
        " file has the times of blocks with which the subsidy could be taken out.",
    )


def _empty(connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    n_empty, n_blocks, *_ = _row(
        connection, "SELECT count(*) FILTER (WHERE n_tx = 1), count(*) FROM paper_sizes"
    )
    yield Finding(
        statement="Intervals before empty blocks are significantly shorter",
        paper="significantly lower",
        ours=f"none; {n_empty:,} of {n_blocks:,} blocks of four pools are empty"
        f" ({_percent(n_empty / n_blocks)}, {_interval(n_empty, n_blocks)})",
        verdict="cannot be replicated",
        reason="The files have no time of any block, neither of arrival nor of the header. The mart"
        " empty_intervals measures it on a dataset of one's own.",
    )


def _feerates(_connection: duckdb.DuckDBPyConnection) -> Iterator[Finding]:
    for statement, figure in (
        ("Of the X best-paying transactions, a block takes", "about 90 %"),
        ("Of the transactions behind the best 2X, a block takes", "below 5 %"),
    ):
        yield Finding(
            statement=statement,
            paper=figure,
            ours="none",
            verdict="cannot be replicated",
            reason="No transaction, feerate or mempool was published. The mart feerate_strategy measures it"
            " on a dataset of one's own.",
        )


STATEMENTS: Final[tuple[Callable[[duckdb.DuckDBPyConnection], Iterator[Finding]], ...]] = (
    _labelled,
    _blocks_of_pools,
    _top_25,
    _top_3,
    _growth,
    _halving,
    _empty,
    _feerates,
)


def _row(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Any, ...]:
    row = connection.execute(query, list(parameters)).fetchone()
    return row or ()


def _series(connection: duckdb.DuckDBPyConnection, query: str, *parameters: Any) -> tuple[Numbers, Numbers]:
    """Days since 1970-01-01 and values."""
    rows = connection.execute(query, list(parameters)).fetchall()
    days = np.array([np.datetime64(day).astype(int) for day, _ in rows], dtype=float)
    return days, np.array([value for _, value in rows], dtype=float)


def _percent(ratio: float, digits: int = 2) -> str:
    return f"{100 * ratio:.{digits}f} %"


def _change(log_change: float) -> str:
    return f"{100 * (np.exp(log_change) - 1):+.0f} %"


def _interval(successes: int, trials: int) -> str:
    low, high = wilson_intervals(np.array([float(successes)]), np.array([float(trials)]))
    return f"95 % {_percent(low[0])} to {_percent(high[0])}"
