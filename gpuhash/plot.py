"""A chart of a benchmark: throughput against batch size, one panel per algorithm and message size."""

import importlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gpuhash.bench import Result
from gpuhash.errors import BackendUnavailableError, InvalidInputError


def write_svg(results: Iterable[Result], path: Path) -> None:
    """Draw results and write them as SVG.

    Raises BackendUnavailableError when vl-convert-python is not installed, InvalidInputError when there is
    nothing to draw or the file is not called .svg.
    """
    converter = require(path)
    rows = list(results)
    if not rows:
        raise InvalidInputError("nothing was measured, so there is nothing to draw")
    path.write_text(converter.vegalite_to_svg(specification(rows)))


def require(path: Path) -> Any:
    """Return what draws; raises as write_svg does, which is better known before a measurement."""
    if path.suffix != ".svg":
        raise InvalidInputError(f"the chart is SVG; {path} does not end in .svg")
    try:
        return importlib.import_module("vl_convert")
    except ImportError as error:
        raise BackendUnavailableError(
            "a chart needs vl-convert-python; pip install vl-convert-python"
        ) from error


def specification(results: list[Result]) -> dict[str, Any]:
    """Return the chart as Vega-Lite."""
    rows = [
        {
            "panel": f"{result.algorithm}, {'about ' if result.mixed else ''}{result.message_bytes} B",
            "line": f"{result.backend} {result.stage}",
            "count": result.count,
            "megahashes_per_s": result.hashes_per_s / 1e6,
        }
        for result in results
    ]
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    logarithmic = {"type": "log"}
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "data": {"values": rows},
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": panels},
        "columns": 3,
        "resolve": {"scale": {"x": "independent"}},
        "spec": {
            "width": 220,
            "height": 160,
            "mark": {"type": "line", "point": True},
            "encoding": {
                "x": {
                    "field": "count",
                    "type": "quantitative",
                    "scale": logarithmic,
                    "title": "messages per call",
                },
                "y": {
                    "field": "megahashes_per_s",
                    "type": "quantitative",
                    "scale": logarithmic,
                    "title": "MH/s",
                },
                "color": {"field": "line", "type": "nominal", "title": None, "sort": None},
            },
        },
    }
