"""Says under each figure what it rests on: which blocks, and how much of the time a node was watched."""

from analysis.report.data import Marts
from analysis.report.text import count, duration, percent, plural


def on_blocks(marts: Marts) -> str:
    """Say which blocks a figure rests on."""
    window = marts.window
    heights = f"heights {count(window['first_height'])} to {count(window['last_height'])}"
    return f"{plural(window['n_blocks'], 'block')} of the active chain, {heights}."


def on_arrivals(marts: Marts) -> str:
    """Say what a figure rests on that needs arrivals on our clock."""
    return f"{on_blocks(marts)} Of these, {_watched(marts, 'rawblock', 'sequence')}"


def on_mempool(marts: Marts) -> str:
    """Say what a figure rests on that needs the mempool."""
    return f"{on_blocks(marts)} Of the mempool, {_watched(marts, 'mempool')}"


def _watched(marts: Marts, *topics: str) -> str:
    """Say how much of some topics was observed; of several nodes, the one that observed least."""
    seen = [row for row in marts.coverage if row["topic"] in topics and row["observed_ratio"] is not None]
    if not seen:
        return "no observation is recorded."
    least = min(seen, key=lambda row: float(row["observed_ratio"]))
    n_gaps = sum(row["n_gaps"] for row in seen)
    holes = f"with {plural(n_gaps, 'hole')}" if n_gaps else "without a hole"
    return f"{percent(least['observed_ratio'])} of {duration(least['window_s'])} was observed, {holes}."
