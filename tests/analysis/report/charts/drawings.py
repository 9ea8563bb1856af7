"""Reads positions back from the SVG of a chart, so that a test can compare what is drawn with the data."""

import re
from collections.abc import Iterator
from xml.etree import ElementTree as ET

from markupsafe import Markup

NAMESPACE = "{http://www.w3.org/2000/svg}"
_NUMBERS = re.compile(r"-?[\d.]+")


def elements(svg: Markup, tag: str, **wanted: str) -> Iterator[ET.Element]:
    """Yield the elements of an SVG with a tag and with these attributes; `_` in a name stands for `-`."""
    for element in ET.fromstring(str(svg)).iter(f"{NAMESPACE}{tag}"):  # noqa: S314 - drawn by us
        if all(element.get(name.replace("_", "-")) == value for name, value in wanted.items()):
            yield element


def corners(path: ET.Element) -> list[tuple[float, float]]:
    """Return the (x, y) of the points of a path that has only absolute M and L commands, in pixels."""
    numbers = [float(number) for number in _NUMBERS.findall(path.attrib["d"])]
    return list(zip(numbers[::2], numbers[1::2], strict=True))


def at(element: ET.Element) -> tuple[float, float]:
    """Return where `transform="translate(x,y)"` puts an element, in pixels."""
    x, y = (float(number) for number in _NUMBERS.findall(element.attrib["transform"])[:2])
    return x, y


def values_shown(svg: Markup) -> list[str]:
    """Return the texts that a pointer sees, in the order of the drawing."""
    return [
        element.findtext(f"{NAMESPACE}title", "")
        for element in ET.fromstring(str(svg)).iter()  # noqa: S314 - drawn by us
        if "data-value" in element.attrib
    ]


def texts(svg: Markup) -> list[str]:
    """Return all texts of a drawing: labels of axes, titles and marks."""
    return [element.text or "" for element in elements(svg, "text")]
