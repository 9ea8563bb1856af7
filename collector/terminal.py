"""Show rows and sentences on a terminal of any width: what does not fit is wrapped, and nothing is cut."""

import shutil
import sys
import textwrap
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

ENDLESS_WIDTH: Final = 100_000
LEAST_FOLDED: Final = 30  # characters in a line of a wrapped column, as long as there is a column to spare
LEAST_READABLE: Final = 15  # the same where there is none
LONGEST_LINE: Final = 120  # characters that can be read well
GAP_WIDTH: Final = 2  # between two columns of a table


def write_cells(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    console: Console,
    *,
    folding: Collection[str] = (),
    spare: Sequence[str] = (),
    right: Collection[str] = (),
) -> None:
    """Print rows of printable texts as a table; if the terminal is too narrow, wrap the columns `folding`.

    Where these would get less than LEAST_FOLDED characters, the `spare` columns are left out one by one, and
    a last line names them. Where that is not enough, each row becomes a block of lines, one per column, with
    every column. Columns in `right` are aligned to the right. Output that does not go to a terminal is as
    wide as the rows.
    """
    left_out: list[str] = []
    table = _table(columns, cells, folding, left_out, right)
    needed = console.measure(table, options=console.options.update(width=ENDLESS_WIDTH)).maximum
    if not console.is_terminal:
        console.width = max(needed, 1)
    for column in spare:
        if _least_width(table, folding, LEAST_FOLDED) <= console.width:
            break
        left_out.append(column)
        table = _table(columns, cells, folding, left_out, right)
    if _least_width(table, folding, LEAST_READABLE) > console.width:
        for block in _blocks(columns, cells):
            console.print(block)
        return
    console.print(table)
    if left_out:
        text = f"left out on a terminal of this width: {', '.join(left_out)}; --format csv has all"
        console.print(text, style="dim", highlight=False)


def text_width() -> int | None:
    """Return how many characters a line of sentences may have on the terminal that standard output is.

    None where standard output is no terminal.
    """
    return min(shutil.get_terminal_size().columns, LONGEST_LINE) if sys.stdout.isatty() else None


def wrapped(line: str, indent: str, width: int | None) -> str:
    """Return a line broken between words at `width` characters, unless that is None.

    Further lines begin with `indent`. A word that is longer than a line stays whole; the terminal wraps it.
    """
    if width is None:
        return line
    return textwrap.fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _table(
    columns: Sequence[str],
    cells: Sequence[Sequence[str]],
    folding: Collection[str],
    left_out: Collection[str],
    right: Collection[str],
) -> Table:
    """Return cells as a table without the columns `left_out`; only the columns `folding` may wrap."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    shown = [place for place, column in enumerate(columns) if column not in left_out]
    for place in shown:
        table.add_column(
            columns[place],
            no_wrap=columns[place] not in folding,
            overflow="fold",
            justify="right" if columns[place] in right else "left",
        )
    for line in cells:
        table.add_row(*(Text(line[place]) for place in shown))
    return table


def _least_width(table: Table, folding: Collection[str], least: int) -> int:
    """Return the width that a table needs so that each wrapped column has `least` characters in a line."""
    widths = [
        min(widest, least) if column.header in folding else widest
        for column in table.columns
        for widest in [max(cell_len(str(text)) for text in (column.header, *column.cells))]
    ]
    return sum(widths) + GAP_WIDTH * (len(widths) - 1)


def _blocks(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[Table | Text]:
    """Yield rows for a narrow terminal: for each a heading, then a line per column with name and value."""
    for number, line in enumerate(cells, start=1):
        yield Text(f"-- row {number}", style="dim")
        block = Table(box=None, show_header=False, pad_edge=False)
        for column, cell in zip(columns, line, strict=True):
            block.add_row(Text(column, overflow="fold"), Text(cell, overflow="fold"))
        yield block
