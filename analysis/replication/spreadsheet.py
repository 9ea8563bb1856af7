"""Reads the values of the first sheet of a spreadsheet file (.xlsx), row by row."""

from collections.abc import Iterator
from pathlib import Path

from analysis.errors import PublishedDataError
from collector.dataset.spreadsheet import read_sheet


def read_rows(path: Path) -> Iterator[dict[str, str]]:
    """Yield each row of the first sheet as {column letter: text}; empty cells are left out.

    Raises PublishedDataError, which names the file, if the file cannot be read as a spreadsheet.
    """
    try:
        yield from read_sheet(path)
    except ValueError as error:
        raise PublishedDataError(f"{path} cannot be read as a spreadsheet ({error}); fetch it anew") from None
