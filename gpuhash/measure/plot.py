"""Draw a benchmark: throughput against batch size, one panel per algorithm and message size."""

import importlib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.measure import whole_file
from gpuhash.measure.bench import Result

COLOURS = {"reference": "#7f7f7f", "cpu": "#1f77b4", "cuda": "#2ca02c"}


def write_svg(results: Iterable[Result], path: Path) -> None:
    """Draw benchmark results as a chart and write it to an SVG file.

    Raises BackendUnavailableError if vl-convert-python is not installed, and InvalidInputError if there are
    no results or the file name does not end in .svg.
    """
    converter = require(path)
    rows = list(results)
    if not rows:
        raise InvalidInputError("nothing was measured, so there is nothing to draw")
    whole_file.write(path, converter.vegalite_to_svg(specification(rows)))


def require(path: Path) -> Any:
    """Return the module that draws charts, or raise as `write_svg` would, before a long measurement."""
    if path.suffix != ".svg":
        raise InvalidInputError(f"the chart is SVG; {path} does not end in .svg")
    try:
        return importlib.import_module("vl_convert")
    except ImportError as error:
        raise BackendUnavailableError(
            "a chart needs vl-convert-python; pip install vl-convert-python"
        ) from error


def specification(results: list[Result]) -> dict[str, Any]:
    """Return the chart of benchmark results as a Vega-Lite document: backends by colour, stages by dashes."""
    panels = [_panel(result) for result in results]
    rows = [
        {
            "panel": panel,
            "backend": result.backend,
            "stage": result.stage,
            "count": result.count,
            "hashes_per_s": result.hashes_per_s,
        }
        for panel, result in zip(panels, results, strict=True)
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "title": "Hashes per second against messages per call",
        "data": {"values": rows},
        "facet": {
            "field": "panel",
            "type": "nominal",
            "title": None,
            "sort": list(dict.fromkeys(panels)),
        },
        "columns": 3,
        "spec": {
            "width": 220,
            "height": 160,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": _axis("count", "messages per call", [result.count for result in results]),
                "y": _axis("hashes_per_s", "hashes/s", [result.hashes_per_s for result in results]),
                "color": _colours({result.backend for result in results}),
                "strokeDash": _dashes({result.stage for result in results}),
            },
        },
    }


def _panel(result: Result) -> str:
    """Return the title of a result's panel: algorithm and message size."""
    return f"{result.algorithm}, {'about ' if result.mixed else ''}{size_text(result.message_bytes)}"


def _colours(backends: set[str]) -> dict[str, Any]:
    names = [name for name in COLOURS if name in backends]
    return {
        "field": "backend",
        "title": None,
        "scale": {"domain": names, "range": [COLOURS[name] for name in names]},
    }


def _dashes(stages: set[str]) -> dict[str, Any]:
    """Return the Vega-Lite setting of a dash pattern per stage, with end-to-end first and solid."""
    return {
        "field": "stage",
        "title": None,
        "sort": sorted(stages, key=lambda stage: (stage != "end-to-end", stage)),
        "legend": {
            "labelLimit": 0,
            "symbolType": "stroke",
            "symbolStrokeWidth": 1.5,
            "symbolSize": 400,
            "encode": {"symbols": {"update": {"stroke": {"value": "black"}}}},
        },
    }


def _axis(field: str, title: str, values: Sequence[float]) -> dict[str, Any]:
    """Return a logarithmic Vega-Lite axis that covers all values, from a power of ten to a power of ten."""
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    powers = [10.0**exponent for exponent in range(first, max(last, first + 1) + 1)]
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "domain": [powers[0], powers[-1]]},
        "axis": {"values": powers, "format": "~s"},
    }


def size_text(count: int) -> str:
    """Format a number of bytes: 64 B, 4 KiB, 1 MiB."""
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % unit == 0:
            return f"{count // unit} {name}"
    return f"{count} B"
