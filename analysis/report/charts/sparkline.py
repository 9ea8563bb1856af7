"""Draws the small charts beside the headline numbers: values over time, an interval, a strip of shares.

They have neither axes nor labels, so plain SVG is enough. Each mark carries its value in `data-value`, which
the page shows on hover.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from markupsafe import Markup

WIDTH: Final = 240
HEIGHT: Final = 44
_INSET: Final = 5
_HEAD: Final = Markup(
    '<svg class="spark" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
    'aria-labelledby="{name}-title {name}-desc"><title id="{name}-title">{title}</title>'
    '<desc id="{name}-desc">{description}</desc>'
)
_LINE: Final = Markup(
    '<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}" stroke-linecap="round" '
    'stroke-linejoin="round"/>'
)
_DOT: Final = Markup('<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}" data-value="{value}"/>')
_BOX: Final = Markup(
    '<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}" data-value="{value}"/>'
)
_BAND: Final = Markup('<path d="{path}" fill="{colour}" fill-opacity=".18"/>')
_END: Final = Markup("</svg>")
_COLOUR: Final = "var(--accent-1)"


class SparkPoint(NamedTuple):
    """Holds a value, the two ends of its interval if it has one, and the text that is shown on hover."""

    value: float
    low: float | None
    high: float | None
    label: str


class SharePart(NamedTuple):
    """Holds one part of a strip of shares: its ratio of the whole, its CSS colour, its text on hover."""

    ratio: float
    colour: str
    label: str


def sparkline(name: str, title: str, points: Sequence[SparkPoint]) -> Markup:
    """Return a small SVG of values from left to right, with a band for their intervals.

    The scale starts at zero. Needs at least two points.
    """
    largest = max(max(point.value, point.high or 0) for point in points) or 1.0
    step = (WIDTH - 2 * _INSET) / (len(points) - 1)

    def at(index: int, value: float) -> tuple[float, float]:
        return _INSET + index * step, HEIGHT - _INSET - (HEIGHT - 2 * _INSET) * value / largest

    tops = [at(i, p.value if p.high is None else p.high) for i, p in enumerate(points)]
    bottoms = [at(i, p.value if p.low is None else p.low) for i, p in enumerate(points)]
    line = [at(i, p.value) for i, p in enumerate(points)]
    marks = [
        _BOX.format(
            x=x - step / 2, y=0, width=step, height=HEIGHT, colour="transparent", value=points[i].label
        )
        for i, (x, _) in enumerate(line)
    ]
    x, y = line[-1]
    return Markup("").join(
        [
            _head(name, title, f"{points[0].label} to {points[-1].label}"),
            _BAND.format(path=f"{_path([*tops, *reversed(bottoms)])}Z", colour=_COLOUR),
            _LINE.format(path=_path(line), colour=_COLOUR, width=2),
            *marks,
            _DOT.format(x=x, y=y, colour=_COLOUR, value=points[-1].label),
            _END,
        ]
    )


def interval_mark(name: str, title: str, point: SparkPoint, largest: float) -> Markup:
    """Return a small SVG of a value as a dot and its interval as a bar, on a scale from 0 to `largest`."""
    middle = HEIGHT / 2

    def at(value: float) -> float:
        return _INSET + (WIDTH - 2 * _INSET) * min(1.0, max(0.0, value / (largest or 1.0)))

    scale = f"M{_INSET},{middle} H{WIDTH - _INSET} M{_INSET},{middle - 6} V{middle + 6}"
    parts = [_head(name, title, point.label), _LINE.format(path=scale, colour="var(--rule)", width=2)]
    if point.low is not None and point.high is not None:
        bar = f"M{at(point.low):.1f},{middle} H{at(point.high):.1f}"
        parts.append(_LINE.format(path=bar, colour=_COLOUR, width=4))
    dot = _DOT.format(x=at(point.value), y=middle, colour=_COLOUR, value=point.label)
    return Markup("").join([*parts, dot, _END])


def share_strip(name: str, title: str, parts: Sequence[SharePart]) -> Markup:
    """Return an SVG strip of the parts of one whole, from left to right in the order given."""
    boxes, left = [], 0.0
    for part in parts:
        width = WIDTH * part.ratio
        boxes.append(
            _BOX.format(
                x=left,
                y=_INSET * 2,
                width=max(width - 1, 0.5),
                height=HEIGHT - 4 * _INSET,
                colour=part.colour,
                value=part.label,
            )
        )
        left += width
    described = "; ".join(part.label for part in parts[:4])
    return Markup("").join([_head(name, title, described), *boxes, _END])


def _head(name: str, title: str, description: str) -> Markup:
    return _HEAD.format(width=WIDTH, height=HEIGHT, name=name, title=title, description=description)


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{x:.1f},{y:.1f}" for x, y in points)
