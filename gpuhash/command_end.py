"""End a command with one line where the system refuses a path, or takes no more of our output."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

# The exit status that a shell gives to a program which a closed pipe ends, so that it is no failed check.
CLOSED_PIPE: Final = 128 + signal.SIGPIPE


@contextmanager
def system_errors_in_one_line(prefix: str) -> Iterator[None]:
    """Turn OSError in the `with` block, and in writing what it printed, into one line and exit status 1.

    The line begins with `prefix`, and says what to do. Where the reader of our output has closed the pipe,
    there is no line, and the status is CLOSED_PIPE. An OSError of another kind, which no user can mend, is
    raised.
    """
    try:
        try:
            yield
        finally:
            if sys.stdout is not None and not sys.stdout.closed:
                sys.stdout.flush()
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # Typer has turned the error into status 1
            _drop_output()
            sys.exit(CLOSED_PIPE)
        raise
    except OSError as error:
        line = _line(error)
        if line is None:
            raise
        _drop_output()
        if not line:
            sys.exit(CLOSED_PIPE)
        sys.stderr.write(f"{prefix}{line}\n")
        sys.exit(1)


def _line(error: OSError) -> str | None:
    """Return what to tell the user of an error: empty for nothing to tell, None for an error of ours."""
    reason = error.strerror or str(error)
    if isinstance(error, BrokenPipeError):
        return ""
    if isinstance(error.filename, str | bytes | os.PathLike):
        path = os.fsdecode(error.filename).encode("utf-8", "backslashreplace").decode()
        path = "".join(letter if letter.isprintable() else "?" for letter in path)
        return f"cannot use {path}: {reason}; see that the path is right, and that this user may use it"
    if error.filename is None and error.errno is not None and not isinstance(error, ConnectionError):
        return f"the system refuses to go on: {reason}; if the disk of the output is full, free space there"
    return None


def _drop_output() -> None:
    """Let the rest of the output go nowhere, because Python writes it at the end and would fail again."""
    with suppress(OSError, ValueError, AttributeError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
