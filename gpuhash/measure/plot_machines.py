"""Draw the figures of many machines: a bar for the median, a line for the middle half; one panel per case."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpuhash.errors import InvalidInputError
from gpuhash.measure import plot, whole_file
from gpuhash.measure.bench import Result
from gpuhash.measure.submissions import Line, case_of


def write_svg(lines: Sequence[Line], path: Path) -> None:
    """Draw the figures of many machines as a chart and write it to an SVG file.

    Raises BackendUnavailableError if vl-convert-python is not installed, and InvalidInputError if there are
    no figures or the file name does not end in .svg.
    """
    converter = plot.require(path)
    if not lines:
        raise InvalidInputError("no figure is left, so there is nothing to draw")
    whole_file.write(path, converter.vegalite_to_svg(specification(lines)))


def specification(lines: Sequence[Line]) -> dict[str, Any]:
    """Return the chart of many machines as a Vega-Lite document: a bar per machine and backend.

    The fastest comes first.
    """
    panels: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        panels.setdefault(case_of(line.result), []).append(line)
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": {
            "text": "Hashes per second",
            "subtitle": "Bar: median. Line: middle half of the runs. Pale: breaks a rule of SUBMITTING.md.",
        },
        # A viewer's font may be wider than the one that the chart was laid out with.
        "padding": {"left": 50, "right": 50, "top": 10, "bottom": 10},
        "concat": [_panel(group) for group in panels.values()],
        "columns": 2,
        "spacing": 50,
    }


def _panel(lines: list[Line]) -> dict[str, Any]:
    """Return the Vega-Lite chart of one case: a bar per figure, and over it the middle half of the runs."""
    rows = [_row(line) for line in lines]
    y = {
        "field": "name",
        "type": "nominal",
        "title": None,
        "sort": list(dict.fromkeys(row["name"] for row in rows)),
        "axis": {"labelLimit": 260},
    }
    backends = [name for name in plot.COLOURS if any(row["backend"] == name for row in rows)]
    bars = {
        "y": y,
        "x": {
            "field": "hashes_per_s",
            "type": "quantitative",
            "title": "hashes/s",
            "axis": {"format": "~s"},
        },
        "color": {
            "field": "backend",
            "legend": None,
            "scale": {"domain": backends, "range": [plot.COLOURS[name] for name in backends]},
        },
        "opacity": {"condition": {"test": "datum.by_the_rules", "value": 1}, "value": 0.45},
    }
    spread = {"y": y, "x": {"field": "least", "type": "quantitative"}, "x2": {"field": "most"}}
    return {
        "title": {"text": _title(lines[0].result), "anchor": "start", "frame": "bounds", "fontSize": 12},
        "width": 300,
        "data": {"values": rows},
        "layer": [
            {"mark": "bar", "encoding": bars},
            {"mark": {"type": "rule", "strokeWidth": 2}, "encoding": spread},
        ],
    }


def _row(line: Line) -> dict[str, Any]:
    """Return the values of one benchmark result for its chart: name, speed, middle half of its runs."""
    return {
        "name": f"{line.name}, {line.result.backend}",
        "backend": line.result.backend,
        "hashes_per_s": line.result.hashes_per_s,
        "least": line.result.count / line.result.upper_quartile_s,
        "most": line.result.count / line.result.lower_quartile_s,
        "by_the_rules": not line.broken_rules,
    }


def _title(result: Result) -> str:
    """Return the title of a panel, which says what it compares: algorithm, message size, batch, stage."""
    size = f"{'about ' if result.mixed else ''}{plot.size_text(result.message_bytes)}"
    return f"{result.algorithm}, {size}, {result.count:,} a call, {result.stage}"
