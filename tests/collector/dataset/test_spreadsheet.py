"""Test that a spreadsheet is read cell by cell, and that one which cannot be read is refused."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from collector.dataset.spreadsheet import MAIN, SHEET, read_sheet

DATA = 30 + len(SHEET)  # where the bytes of the only part begin, behind its name
FLAGS, METHOD = 6, 8  # in the header of a part; the list at the end has both two bytes later


def packed(path: Path) -> bytes:
    """Write a spreadsheet of three equal rows, packed with deflate; return its bytes."""
    row = '<row><c r="A1"><v>7</v></c><c r="B1"><v>8</v></c></row>'
    content = f'<worksheet xmlns="{MAIN.strip("{}")}"><sheetData>{row * 3}</sheetData></worksheet>'
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(SHEET, content)
    return path.read_bytes()


def marked(content: bytes, at: int, value: int) -> bytes:
    """Change a byte of the part's header, and its copy in the list of parts at the end."""
    changed = bytearray(content)
    changed[at] = changed[content.index(b"PK\x01\x02") + at + 2] = value
    return bytes(changed)


def test_each_row_is_its_cells(tmp_path: Path) -> None:
    """A row maps column letters to texts."""
    path = tmp_path / "a.xlsx"
    packed(path)

    assert list(read_sheet(path)) == [{"A": "7", "B": "8"}] * 3


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: marked(content, FLAGS, 1), "encrypted"),
        (lambda content: marked(content, METHOD, 99), "compression method"),
        (lambda content: content[:DATA] + b"\xff" * 8 + content[DATA + 8 :], "decompressing"),
        (lambda content: content[: len(content) // 2], "not a zip file"),
        (lambda content: content.replace(SHEET.encode(), SHEET[:-4].encode() + b".xyz"), "no item named"),
    ],
    ids=["password", "method", "bytes", "half", "name"],
)
def test_what_cannot_be_read_is_a_value_error(
    damage: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    """A password, an unknown packing, changed bytes, half a file and a missing sheet are refused alike."""
    path = tmp_path / "a.xlsx"
    content = damage(packed(path))
    path.write_bytes(content)

    with pytest.raises(ValueError, match=said):
        list(read_sheet(path))
