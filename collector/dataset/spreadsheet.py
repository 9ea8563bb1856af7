"""Read the values of the first sheet of a spreadsheet file (.xlsx), row by row."""

import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final
from xml.etree import ElementTree as ET

MAIN: Final = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
SHEET: Final = "xl/worksheets/sheet1.xml"
STRINGS: Final = "xl/sharedStrings.xml"
# What zipfile, its decompressors and the reader of XML raise for a file that is damaged or has a password.
UNREADABLE: Final = (
    OSError,
    EOFError,
    LookupError,
    RuntimeError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    ET.ParseError,
)
MAX_SHEET_BYTES: Final = 1 << 28  # a small file may unfold to anything


def read_sheet(path: Path) -> Iterator[dict[str, str]]:
    """Yield each row of a spreadsheet's first sheet as {column letter: text}; empty cells are left out.

    Raises ValueError, whose text says why, if the file cannot be read as a spreadsheet.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            strings = _shared_strings(archive)
            with _opened(archive, SHEET) as sheet:
                for _event, element in ET.iterparse(sheet):  # noqa: S314 - expat 2.4.1 on stops entity bombs
                    if element.tag == f"{MAIN}row":
                        yield dict(_cells(element, strings))
                        element.clear()
    except UNREADABLE as error:
        raise ValueError(str(error)) from None


def _opened(archive: zipfile.ZipFile, name: str) -> IO[bytes]:
    """Open a part of a spreadsheet archive for reading; ValueError if it unfolds to too many bytes."""
    n_bytes = archive.getinfo(name).file_size
    if n_bytes > MAX_SHEET_BYTES:
        raise ValueError(f"{name} unfolds to {n_bytes:,} bytes, more than {MAX_SHEET_BYTES:,}")
    return archive.open(name)


def _shared_strings(archive: zipfile.ZipFile) -> list[str]:
    """Return the texts of a spreadsheet to which cells refer by number; an empty list if it has none."""
    if STRINGS not in archive.namelist():
        return []
    with _opened(archive, STRINGS) as part:
        root = ET.fromstring(part.read())  # noqa: S314 - expat 2.4.1 on stops entity bombs
    return ["".join(text.text or "" for text in item.iter(f"{MAIN}t")) for item in root.iter(f"{MAIN}si")]


def _cells(row: ET.Element, strings: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the column letter and the text of each cell of a row that has a value."""
    for cell in row.iter(f"{MAIN}c"):
        value = cell.findtext(f"{MAIN}v")
        if value is None:
            continue
        column = re.sub(r"[0-9]+", "", cell.get("r", ""))
        yield column, strings[int(value)] if cell.get("t") == "s" else value
