"""Turn Altair charts into SVG that may be put into a page beside others: no browser, no network, no script.

Colours are CSS variables (`var(--…)`), so one drawing serves light and dark. Ids are numbered within
their drawing and carry its name, so no two drawings of a page share one. The same chart gives the
same text.
"""

import re
from typing import Any, Final
from xml.etree import ElementTree as ET

import altair as alt
import vl_convert
from markupsafe import Markup

NAMESPACE: Final = "http://www.w3.org/2000/svg"
FONT: Final = "sans-serif"
FONT_SIZE_PX: Final = 12
INK: Final = "var(--ink)"
MUTED: Final = "var(--muted)"
RULE: Final = "var(--rule)"

# Only what draws: names for scripts and screen readers are replaced by one title and description.
_DROPPED: Final = frozenset(
    {"class", "role", "aria-roledescription", "aria-hidden", "aria-label", "pointer-events", "font-family"}
)
_REFERENCE: Final = re.compile(r"url\(#([^)]+)\)")


def draw(chart: alt.TopLevelMixin, *, name: str, title: str, description: str) -> Markup:
    """Render a chart as one inline `<svg>` with a title and a description.

    `name` becomes the prefix of its ids and has to be unique in the page.
    """
    # Checking the whole against Altair's schema once more would take half of a report's time.
    specification = chart.configure(**_config()).to_dict(validate=False)
    # The text is Vega's own, with every string in it escaped.
    root = ET.fromstring(vl_convert.vegalite_to_svg(specification))  # noqa: S314 - we made it
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


def _config() -> dict[str, Any]:
    """Give the look that every chart shares."""
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
        "aria": False,
        "axis": axis,
        "view": {"stroke": None},
        "text": {"fontSize": FONT_SIZE_PX, "color": INK},
    }


def _clean(root: ET.Element, name: str) -> None:
    """Drop what does not draw, and give every id of the drawing a name of its own."""
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    renamed = {old: f"{name}-{number}" for number, old in enumerate(ids)}
    for parent in root.iter():
        for child in list(parent):
            if child.get("display") == "none" or child.get("d") == "M0,0h0v0h0Z":
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{NAMESPACE}}}")
        for attribute in _DROPPED & set(element.attrib):
            del element.attrib[attribute]
        for attribute, value in element.attrib.items():
            if attribute == "id":
                element.set("id", renamed[value])
            elif "url(#" in value:
                element.set(attribute, _REFERENCE.sub(lambda m: f"url(#{renamed[m[1]]})", value))
