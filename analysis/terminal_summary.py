"""Print the findings of a built database, and a small table of pools, on a terminal."""

import textwrap
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from analysis.report.data import Marts, Row
from analysis.report.model import Page
from analysis.report.text import GAP, NOTHING, count, percent, percent_range
from collector.terminal import write_cells

MAX_POOLS: Final = 12
COLUMNS: Final = ("Pool", "Blocks", "Share", "95 % interval", "Empty", "Top X", "Outside 2X")
INDENT: Final = "  "
X_EXPLAINED: Final = """\
X = the number of transactions in the block
Top X: how much was taken of the X that paid best
Outside 2X: how much was taken of those that paid less than the 2X best"""


def print_summary(content: Page, marts: Marts, console: Console) -> None:
    """Print the key findings of a report within 80 columns; `content` is the page made from `marts`.

    All text is printed as rich Text, which ignores markup, and control characters are made visible.
    """
    console.print(Text(content.lede, style="bold"))
    for source in content.sources:
        times = f", {source.times}" if source.times else ""
        said = f"{source.n_blocks} {source.name}: heights {source.heights}{times}."
        console.print(Text(_wrapped(said, console.width)), soft_wrap=True)
    console.print(Text(f"{INDENT}Ranges beside numbers are 95 % intervals.".replace(" %", f"{GAP}%")))
    for finding in content.findings:
        console.print()
        console.print(Text(finding.question, style="bold cyan"))
        for sentence in finding.sentences:
            console.print(Text(_wrapped(sentence, console.width)), soft_wrap=True)
    if content.unanswered:
        console.print()
        console.print(Text("Not answered here", style="bold cyan"))
    for lack in content.unanswered:
        said = f"{lack.question} {lack.lacks.replace('`', '')}"
        console.print(Text(_wrapped(said, console.width)), soft_wrap=True)
    if marts.shares:
        console.print()
        _print_pools(marts, console)


def _wrapped(sentence: str, width: int) -> str:
    """Return a sentence wrapped to indented lines of `width` columns, never between a number and its unit."""
    return textwrap.fill(sentence, width, initial_indent=INDENT, subsequent_indent=INDENT)


def _print_pools(marts: Marts, console: Console) -> None:
    """Print a row per pool: its share, its empty blocks, how closely it follows feerates."""
    empties = {row["pool"]: row for row in marts.empties}
    feerates = {row["pool"]: row for row in marts.feerates if row["feerate_kind"] == "package"}
    ranked = [row for row in marts.shares if not row["is_unknown"]]
    shown = [*ranked[:MAX_POOLS], *(row for row in marts.shares if row["is_unknown"])]
    cells = [_cells(marts, row, empties.get(row["pool"]), feerates.get(row["pool"])) for row in shown]
    write_cells(COLUMNS, cells, console, folding=COLUMNS[:1], right=COLUMNS[1:])
    rest = len(marts.shares) - len(shown)
    notes = [f"{count(rest)} more: pool-analysis show pool_share"] if rest > 0 else []
    notes += _empty_note(marts)
    if any(row["top_x_ratio"] is not None for row in feerates.values()):
        notes.append(X_EXPLAINED)
    for note in notes:
        console.print(Text(note, style="dim"))


def _empty_note(marts: Marts) -> list[str]:
    """Say of how many blocks it is known whether they are empty, where that is not all of the table."""
    known = max((row["n_blocks"] for row in marts.empties), default=0)
    total = sum(row["block_count"] for row in marts.shares)
    if not 0 < known < total:
        return []
    return [f"Empty: of the {count(known)} of {count(total)} blocks of which this is known"]


def _cells(marts: Marts, share: Row, empty: Row | None, feerate: Row | None) -> Sequence[str]:
    """Return the texts of one pool's line from its rows of three marts; a dash where a row is None."""
    return (
        marts.name(share["pool"]),
        count(share["block_count"]),
        percent(share["share_ratio"]),
        percent_range(share["share_low_ratio"], share["share_high_ratio"]),
        percent(empty["empty_ratio"]) if empty else NOTHING,
        percent(feerate["top_x_ratio"]) if feerate else NOTHING,
        percent(feerate["outside_2x_ratio"]) if feerate else NOTHING,
    )
