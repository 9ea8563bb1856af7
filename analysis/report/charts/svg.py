"""Turns an Altair chart into SVG that stands inside a page, without browser, network or script.

Colours are CSS variables (`var(--…)`), so one drawing works on the light and on the dark page. Every id
starts with the name of its drawing, so two drawings on one page never share an id. The same chart always
gives the same text.

Encodings are objects of Altair (`alt.Y2("high:Q")`). For a plain text or value Altair searches all of its
schemas for a class, which takes a third of the time of a report.

This module also holds what all charts have in common: their widths, the labels of their rows, and the formats
of dates.
"""

import datetime as dt
import json
import re
from functools import lru_cache
from typing import Any, Final
from xml.etree import ElementTree as ET

import altair as alt
import vl_convert
from markupsafe import Markup

Drawing = alt.LayerChart | alt.FacetChart

NAMESPACE: Final = "http://www.w3.org/2000/svg"
FONT: Final = "sans-serif"
FONT_SIZE_PX: Final = 12
INK: Final = "var(--ink)"
MUTED: Final = "var(--muted)"
RULE: Final = "var(--rule)"
PAPER: Final = "var(--paper)"
# A description that starts with this invisible separator is shown where a pointer rests; Vega makes others.
HOVER_MARK: Final = "\N{INVISIBLE SEPARATOR}"
_HATCH: Final = "unknown-hatch"
UNKNOWN_FILL: Final = f"url(#{_HATCH})"
WIDE_PX: Final = 960  # a figure across the page
PANEL_PX: Final = 400  # one of two panels beside each other
NARROW_PX: Final = 358  # a figure on a phone
ROW_HEIGHT_PX: Final = 26
PERCENT_LABEL: Final = "format(100 * datum.value, '.3~g') + '\u00a0%'"
DRAWINGS: Final = 128  # so many are kept, of some 100 kB at most
MAX_POINTED_DAYS: Final = 31  # a line over more days has no dots
_WIDE_FROM_PX: Final = 600
_PX_PER_TICK: Final = 120
_YEARS_SHOWN_FROM: Final = dt.timedelta(days=300)

# These attributes draw nothing. One title and one description replace the names for screen readers.
_DROPPED: Final = frozenset(
    {"class", "role", "aria-roledescription", "aria-hidden", "aria-label", "pointer-events", "font-family"}
)
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")


class ChartRows(alt.InlineData):
    """Is the data of a chart: a list of dicts, which Altair neither checks nor copies.

    Altair copies a chart at every step of making it, and would copy each row of its data as well.
    """

    _class_is_valid_at_instantiation = False

    def __deepcopy__(self, _: object) -> "ChartRows":
        return self


def draw(chart: alt.TopLevelMixin, *, name: str, title: str, description: str) -> Markup:
    """Return an Altair chart as one inline `<svg>` with a title and a description for screen readers.

    `name` is the prefix of all ids in it, so it must be unique on the page.
    """
    # Altair would check the whole chart against its schema a second time: half of the time of a report.
    specification = chart.to_dict(validate=False)
    specification["config"] = _config()  # `configure` would copy the chart and all its layers once more
    # Vega wrote this text and escaped every string in it.
    root = ET.fromstring(_svg(json.dumps(specification)))  # noqa: S314 - we made it
    if any(element.get("fill") == UNKNOWN_FILL for element in root.iter()):
        root.insert(0, _hatch())
    _clean(root, name)
    width, height = root.attrib.pop("width"), root.attrib.pop("height")
    root.attrib.pop("version", None)
    root.set("xmlns", NAMESPACE)
    root.set("role", "img")
    root.set("aria-labelledby", f"{name}-title {name}-description")
    root.set("style", f"max-width:{float(width):g}px;aspect-ratio:{float(width):g}/{float(height):g}")
    for tag, text in (("description", description), ("title", title)):
        element = ET.Element("desc" if tag == "description" else tag, id=f"{name}-{tag}")
        element.text = text
        root.insert(0, element)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704 - serialised, so escaped


@lru_cache(maxsize=DRAWINGS)
def _svg(specification: str) -> str:
    """Draw a chart, which takes half of the time of a report; a server's next build changes few of them."""
    return str(vl_convert.vegalite_to_svg(specification))


def _config() -> dict[str, Any]:
    """Return the Vega configuration with the style that all charts share."""
    axis = {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "gridColor": RULE,
        "domainColor": RULE,
        "tickColor": RULE,
        "labelFontSize": FONT_SIZE_PX,
        "titleFontSize": FONT_SIZE_PX,
        "titleFontWeight": "normal",
        "titlePadding": 8,
    }
    return {
        "font": FONT,
        "background": "transparent",
        "aria": True,
        "axis": axis,
        "view": {"stroke": None},
        "text": {"fontSize": FONT_SIZE_PX, "color": INK},
    }


def _clean(root: ET.Element, name: str) -> None:
    """Remove from an SVG the elements that draw nothing and needless attributes; rename every id.

    An id becomes `<name>-<number>`. The words that a mark shows under the pointer become its `title`.
    """
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    renamed = {old: f"{name}-{number}" for number, old in enumerate(ids)}
    for parent in root.iter():
        for child in list(parent):
            if child.get("display") == "none" or child.get("d") == "M0,0h0v0h0Z":
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        words = element.get("aria-label", "")
        for attribute in _DROPPED & set(element.attrib):
            del element.attrib[attribute]
        for attribute, value in element.attrib.items():
            if attribute == "id":
                element.set("id", renamed[value])
            elif "url(#" in value:
                element.set(attribute, _REFERENCE.sub(lambda m: f"url(#{renamed[m[1]]})", value))
        if words.startswith(HOVER_MARK):
            element.insert(0, title := ET.Element("title"))
            title.text = words.removeprefix(HOVER_MARK)
            element.set("data-value", "")


def _hatch() -> ET.Element:
    """Return the SVG pattern of slanted lines that fills areas of unknown blocks, visible without colour."""
    look = {"id": _HATCH, "width": "6", "height": "6", "patternUnits": "userSpaceOnUse"}
    definitions = ET.Element("defs")
    pattern = ET.SubElement(definitions, "pattern", look, patternTransform="rotate(45)")
    ET.SubElement(pattern, "rect", width="6", height="6", fill=PAPER)
    ET.SubElement(pattern, "rect", width="2.5", height="6", fill="var(--unknown)")
    return definitions


def row_labels(base: alt.Chart, label_px: int) -> alt.Chart:
    """Return the Altair layer with each row's label, left of the plot, cut if longer than `label_px`."""
    once = base.transform_aggregate(label="min(label)", groupby=["row"])
    text: alt.Chart = once.mark_text(align="left", limit=label_px - 10).encode(
        x=alt.XValue(-label_px), text=alt.Text("label:N"), color=alt.ColorValue(INK)
    )
    return text


def label_width(width_px: int) -> int:
    """Return the width in pixels for the labels of rows, in a chart that is `width_px` wide."""
    return 150 if width_px >= _WIDE_FROM_PX else 108


def tick_count(width_px: int) -> int:
    """Return how many ticks an axis should have in a chart that is `width_px` wide; at least 3."""
    return max(3, width_px // _PX_PER_TICK)


def timestamp(at: dt.datetime) -> str:
    """Return a time as text that Vega reads: ISO 8601 in UTC, with milliseconds."""
    return at.astimezone(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def day_format(length: dt.timedelta) -> str:
    """Return the strftime format of days on an axis of the given length.

    It has day and month, and from 300 days on month and year.
    """
    return "%d %b" if length < _YEARS_SHOWN_FROM else "%b %Y"
