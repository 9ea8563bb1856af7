"""Write structured logs on stderr: text for people in a terminal, else one JSON object per line."""

import logging
import reprlib
import sys
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

LONGEST_EXCERPT: Final = 200


def printable(text: str) -> str:
    """Return text on one line without characters that control a terminal, because strangers wrote it."""
    return "".join(char for char in " ".join(text.split()) if char.isprintable())


def excerpt(value: object) -> str:
    """Return the beginning of a value that strangers wrote, as text for an error message or a log line.

    `printable` makes the text harmless.
    """
    text = value if isinstance(value, str) else reprlib.repr(value)
    shown = printable(text[:LONGEST_EXCERPT])
    return shown if len(text) <= LONGEST_EXCERPT else f"{shown}…"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 block`, `2,000 blocks`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def without_controls(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove control characters from every text of a log event and return it; strangers wrote part of it."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = "".join(char for char in value if char.isprintable() or char in "\n\t")
    return event


class Stderr:
    """Writes to `sys.stderr` and ignores errors, so that a lost log line never ends the program.

    stderr may be a file on a full disk, a pipe without a reader, or a closed terminal.
    """

    def write(self, text: str) -> None:
        """Write a text to stderr; ignore any error."""
        with suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        """Flush stderr; ignore any error."""
        with suppress(OSError):
            sys.stderr.flush()


def configure_logging(log_format: str = "auto", log_level: str = "info") -> None:
    """Set up logging for a command. `log_format` is auto, console or json."""
    import structlog  # noqa: PLC0415 - loads slowly, and many commands log nothing

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
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", Stderr())),
        cache_logger_on_first_use=False,
    )
