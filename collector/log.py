"""Structured logs on stderr: for people in a terminal, one JSON object per line elsewhere."""

import logging
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, TextIO, cast

import structlog


def without_controls(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Leave out of every text what would control a terminal: part of it was written by strangers."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(char for char in value if char.isprintable() or char in "\n\t")
    return event


class Stderr:
    """The stderr of the moment. A line that it does not take is left out, and ends nothing.

    It may be a file on the disk that is full, a pipe that nobody reads any more, a terminal that has closed.
    """

    def write(self, text: str) -> None:
        """Write some text, if that is possible."""
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        """Hand over what was written, if that is possible."""
        with suppress(OSError):
            sys.stderr.flush()


def configure_logging(log_format: str = "auto", log_level: str = "info") -> None:
    """Set up logging for a command: `log_format` is auto, console or json."""
    is_console = sys.stderr.isatty() if log_format == "auto" else log_format == "console"
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if is_console
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            without_controls,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[log_level.upper()]
        ),
        logger_factory=lambda *_: structlog.PrintLogger(cast("TextIO", Stderr())),
        cache_logger_on_first_use=False,
    )
