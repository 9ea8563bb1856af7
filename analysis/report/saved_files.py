"""Makes the files that a reader can save: each table as CSV, each figure as SVG or PNG.

On the page each file is a link that holds the file itself (`data:`), so neither a script nor a network is
needed. An SVG is complete: title, legend, panels, the colours of the light page, and the reader's own fonts.
"""

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote
from xml.etree import ElementTree as ET

import vl_convert

from analysis.errors import ReportError
from analysis.report.charts.svg import NAMESPACE
from analysis.report.model import Figure, LegendKey, Page, Panel, Table
from analysis.report.text import count
from analysis.row_output import inert_field
from collector.dataset.files import why_unwritable

MAX_CSV_BYTES: Final = 400_000
PNG_SCALE: Final = 3  # times 96 dpi: fit for print
# Characters that need no escape in a data URI inside an HTML attribute.
SAFE_IN_DATA: Final = " ,:;/()[]{}|=+-@!*$?~^`."
_MARGIN: Final = 20
_TITLE_PX: Final = 30
_LEGEND_PX: Final = 24
_PANEL_TITLE_PX: Final = 20
_GAP_PX: Final = 24
_PX_PER_LETTER: Final = 7.2
_MAX_WIDTH_PX: Final = 1000
_FONT: Final = "system-ui, 'Segoe UI', Roboto, 'Noto Sans', 'DejaVu Sans', Arial, sans-serif"
_VARIABLE: Final = re.compile(r"var\((--[\w-]+)\)")


class Download(NamedTuple):
    """Describes a link that holds a whole file: its name, its data URI, and the text of the link."""

    file_name: str
    uri: str
    label: str


def csv_text(rows: Iterable[Mapping[str, Any]], *, max_bytes: int | None = None) -> tuple[str, int]:
    """Return rows as CSV text, all of them or as many as fit into `max_bytes`, and the number of rows in it.

    Values are exact. `row_output.inert_field` writes each field, as it does for `pool-analysis show`.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    n_rows = 0
    for row in rows:
        if not n_rows:
            writer.writerow(row)
        before = out.tell()
        writer.writerow([inert_field(value, column) for column, value in row.items()])
        if max_bytes is not None and out.tell() > max_bytes:
            return out.getvalue()[:before], n_rows
        n_rows += 1
    return out.getvalue(), n_rows


def csv_download(table: Table) -> Download | None:
    """Return a link that holds a table's CSV, cut at 400 kB; None if the table has no rows."""
    if not table.records:
        return None
    text, n_rows = csv_text(table.records, max_bytes=MAX_CSV_BYTES)
    total = table.n_records or len(table.records)
    label = "CSV" if n_rows == total else f"CSV, the first {count(n_rows)} of {count(total)} rows"
    uri = f"data:text/csv;charset=utf-8,{quote(text, safe=SAFE_IN_DATA)}"
    return Download(f"{table.table_id}.csv", uri, label)


def svg_download(figure: Figure) -> Download:
    """Return a link (a data URI) that holds a whole figure as an SVG file."""
    uri = f"data:image/svg+xml;charset=utf-8,{quote(standalone(figure), safe=SAFE_IN_DATA)}"
    return Download(f"{figure.figure_id}.svg", uri, "SVG")


def write_figures(page: Page, folder: Path) -> list[Path]:
    """Write every figure as SVG and PNG, and every table as CSV, into a folder; return the paths.

    Raises ReportError if the folder cannot be written.
    """
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in _files(page):
            (folder / name).write_bytes(content)
            written.append(folder / name)
    except OSError as error:
        raise ReportError(
            f"{folder} cannot be written ({why_unwritable(error)}); choose another --figures"
        ) from error
    return written


def _files(page: Page) -> Iterator[tuple[str, bytes]]:
    for part in (part for section in (*page.sections, *page.methods) for part in section.parts):
        if isinstance(part, Figure):
            svg = standalone(part)
            yield f"{part.figure_id}.svg", svg.encode()
            yield f"{part.figure_id}.png", vl_convert.svg_to_png(svg, scale=PNG_SCALE)
        elif isinstance(part, Table) and part.records:
            yield f"{part.table_id}.csv", csv_text(part.records)[0].encode()


def standalone(figure: Figure) -> str:
    """Return the title, legend and panels of a figure as one SVG text, in the colours of the light page."""
    drawings = [ET.fromstring(str(panel.wide)) for panel in figure.panels]  # noqa: S314 - drawn by us
    sizes = [_size(drawing) for drawing in drawings]
    per_row = max(1, int((_MAX_WIDTH_PX + _GAP_PX) // (max(width for width, _ in sizes) + _GAP_PX)))
    cell_width = max(width for width, _ in sizes) + _GAP_PX
    columns = min(per_row, len(drawings))
    width = max(columns * cell_width - _GAP_PX, len(figure.title) * 10) + 2 * _MARGIN
    root = ET.Element("svg", xmlns=NAMESPACE)
    ET.SubElement(root, "title").text = figure.title
    ET.SubElement(root, "desc").text = f"{figure.caption} {figure.rests_on}".strip()
    paper = ET.SubElement(root, "rect", width="100%", height="100%", fill="var(--paper)")
    _text(root, figure.title, _MARGIN, _MARGIN + 14, size=17, weight="600")
    top = _legend(root, figure.legend, width, _MARGIN + _TITLE_PX)
    has_titles = any(panel.title for panel in figure.panels)
    for start in range(0, len(drawings), columns):
        shown = range(start, min(start + columns, len(drawings)))
        for index in shown:
            left = _MARGIN + (index - start) * cell_width
            _panel(root, figure.panels[index], drawings[index], left, top, has_titles=has_titles)
        top += max(sizes[index][1] for index in shown) + _GAP_PX + (_PANEL_TITLE_PX if has_titles else 0)
    height = top - _GAP_PX + _MARGIN
    root.attrib.update(
        {
            "width": f"{width:g}",
            "height": f"{height:g}",
            "viewBox": f"0 0 {width:g} {height:g}",
            "font-family": _FONT,
        }
    )
    paper.attrib.update({"width": f"{width:g}", "height": f"{height:g}"})
    return _in_light(ET.tostring(root, encoding="unicode"))


def _size(drawing: ET.Element) -> tuple[float, float]:
    _, _, width, height = map(float, drawing.attrib["viewBox"].split())
    return width, height


def _panel(
    root: ET.Element, panel: Panel, drawing: ET.Element, left: float, top: float, *, has_titles: bool
) -> None:
    """Add the drawing of one panel, below its title, to the SVG `root` at (`left`, `top`).

    With `has_titles`, room for a title is kept also above a panel that has none.
    """
    if panel.title:
        if panel.colour:
            box = {"x": f"{left:g}", "y": f"{top:g}", "width": "10", "height": "10", "rx": "2"}
            ET.SubElement(root, "rect", box, fill=panel.colour)
        _text(root, panel.title, left + (16 if panel.colour else 0), top + 10, size=13, weight="600")
    width, height = _size(drawing)
    for name in ("style", "role", "aria-labelledby", "xmlns"):
        drawing.attrib.pop(name, None)
    for element in drawing.iter():  # parsed names carry their namespace
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
    for child in [child for child in drawing if child.tag in {"title", "desc"}]:
        drawing.remove(child)
    below = top + (_PANEL_TITLE_PX if has_titles else 0)
    place = {"x": f"{left:g}", "y": f"{below:g}", "width": f"{width:g}", "height": f"{height:g}"}
    drawing.attrib.update(place)
    root.append(drawing)


def _legend(root: ET.Element, entries: Iterable[LegendKey], width: float, top: float) -> float:
    """Draw a legend into the SVG `root` from `top` down, in as many lines as needed; return its lower end.

    The end is a y in pixels.
    """
    left, line = float(_MARGIN), top
    found = list(entries)
    for entry in found:
        taken = 40 + len(entry.label) * _PX_PER_LETTER
        if left > _MARGIN and left + taken > width - _MARGIN:
            left, line = float(_MARGIN), line + _LEGEND_PX
        _key(root, entry, left, line)
        _text(root, entry.label, left + 30, line + 10, size=13)
        left += taken
    return line + _LEGEND_PX + 6 if found else top


def _key(root: ET.Element, entry: LegendKey, left: float, top: float) -> None:
    middle = f"{top + 6:g}"
    if entry.shape == "diamond":
        corners = f"M{left + 6:g},{middle} l6,-6 l6,6 l-6,6 z"
        look = {"d": corners, "stroke": entry.colour, "stroke-width": "2", "fill": "var(--paper)"}
        ET.SubElement(root, "path", look)
        return
    if entry.shape in {"dot", "ring"}:
        fill = entry.colour if entry.shape == "dot" else "var(--paper)"
        circle = {"cx": f"{left + 12:g}", "cy": middle, "r": "5", "fill": fill}
        ET.SubElement(root, "circle", circle | {"stroke": entry.colour, "stroke-width": "2"})
        return
    if entry.shape in {"hatch", "frame"}:
        _framed_key(root, entry, left, top)
        return
    ends = {"x1": f"{left:g}", "x2": f"{left + 24:g}", "y1": middle, "y2": middle, "stroke": entry.colour}
    line = ET.SubElement(root, "line", ends | {"stroke-width": "10" if entry.shape == "bar" else "3"})
    if entry.shape == "dashed":
        line.set("stroke-dasharray", "6 4")
    if entry.shape == "dotted":
        line.set("stroke-dasharray", "2 3")


def _framed_key(root: ET.Element, entry: LegendKey, left: float, top: float) -> None:
    """Draw the small frame of a legend's entry at (`left`, `top`) into the SVG `root`.

    It is dashed for a part of a period, or has slanted lines for what is unknown.
    """
    box = {"x": f"{left + 1:g}", "y": f"{top + 1:g}", "width": "22", "height": "10", "fill": "none"}
    frame = ET.SubElement(root, "rect", box, stroke=entry.colour)
    if entry.shape == "frame":
        frame.set("stroke-dasharray", "3 3")
        return
    lines = " ".join(f"M{left + start:g},{top + 11:g} l8,-10" for start in (1, 6, 11))
    ET.SubElement(root, "path", {"d": lines, "stroke": entry.colour, "stroke-width": "2"})


def _text(root: ET.Element, text: str, left: float, base: float, *, size: int, weight: str = "400") -> None:
    place = {"x": f"{left:g}", "y": f"{base:g}", "font-size": f"{size}", "font-weight": weight}
    ET.SubElement(root, "text", place, fill="var(--ink)").text = text


def _in_light(svg: str) -> str:
    """Return an SVG in which each CSS variable, `var(--name)`, is replaced by its value on the light page.

    A name that the style sheet does not have, as in a text of a chart, stays as it is.
    """
    return _VARIABLE.sub(lambda found: _colours().get(found[1], found[0]), svg)


@cache
def _colours() -> Mapping[str, str]:
    """Return the value of each CSS variable of the style sheet on the light page, by name."""
    css = (resources.files("analysis.report") / "templates" / "report.css").read_text(encoding="utf-8")
    light = css.split("@media (prefers-color-scheme: dark)")[0]
    return dict(re.findall(r"(--[\w-]+): ([^;]+);", light))
