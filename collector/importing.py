"""Tell a signal handler whether a library is being loaded, where it must not raise.

A library in C runs Python code while it is loaded. If a signal handler raises in that code, the library may
drop the exception, or end the process with an error of its own: nanobind, by which DuckDB is made, aborts it.
So a program that gets a signal there ends at once, as by a kill.
"""

from types import FrameType
from typing import Final

IMPORT_SYSTEM: Final = "<frozen importlib._bootstrap>"  # the file that CPython gives for its import statement


def is_importing(frame: FrameType | None) -> bool:
    """Return whether the code of a frame, as a signal handler gets it, runs in the course of an import."""
    while frame is not None:
        if frame.f_code.co_filename == IMPORT_SYSTEM:
            return True
        frame = frame.f_back
    return False
