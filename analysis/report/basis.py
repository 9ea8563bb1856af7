"""Writes the sentence under each figure on its basis: which blocks, and how much of the time was observed."""

from analysis.report.data import Marts
from analysis.report.text import count, duration, listed, percent, plural, printable


def on_blocks(marts: Marts) -> str:
    """Return the sentence under a figure that is made from blocks: their number and heights.

    It also names the sources of the blocks if there are several.
    """
    window = marts.window
    heights = f"heights {count(window['first_height'])} to {count(window['last_height'])}"
    return f"{plural(window['n_blocks'], 'block')} of the active chain, {heights}. {by_whom(marts)}".strip()


def by_whom(marts: Marts) -> str:
    """Return a sentence that names the sources of the blocks, if there are several; else an empty text."""
    sources = sorted({source for row in marts.rows("pool_share_window") for source in row["told_by"] or ()})
    return f"Told by {listed([printable(source) for source in sources])}." if len(sources) > 1 else ""


def on_arrivals(marts: Marts) -> str:
    """Return the sentence under a figure of arrival times: its blocks, and how much time was observed."""
    return f"{on_blocks(marts)} Of these, {_watched(marts, 'rawblock', 'sequence')}"


def on_mempool(marts: Marts) -> str:
    """Return the sentence under a figure of the mempool: its blocks, and how much time was observed."""
    return f"{on_blocks(marts)} Of the mempool, {_watched(marts, 'mempool')}"


def _watched(marts: Marts, *topics: str) -> str:
    """Return a text: which percentage of the time the given ZMQ topics were observed, with how many holes.

    A hole is a time without observation. If there are several nodes or topics, the smallest percentage is
    given.
    """
    seen = [row for row in marts.coverage if row["topic"] in topics and row["observed_ratio"] is not None]
    if not seen:
        return "no observation is recorded."
    least = min(seen, key=lambda row: float(row["observed_ratio"]))
    n_gaps = sum(row["n_gaps"] for row in seen)
    holes = f"with {plural(n_gaps, 'hole')}" if n_gaps else "without a hole"
    return f"{percent(least['observed_ratio'])} of {duration(least['window_s'])} was observed, {holes}."
