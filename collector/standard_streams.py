"""Open the standard streams that whatever started the program has closed."""

import os
import sys
from pathlib import Path


def open_missing() -> None:
    """Open /dev/null for each of stdin, stdout and stderr that is closed.

    The next file or socket would get the number of the closed one, and whoever writes errors to number 2
    would write into it. Call this first, as the lowest free number is the one that is missing. Children
    inherit the streams.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open until the process ends
            os.set_inheritable(stream.fileno(), True)  # noqa: FBT003 - it takes no keyword
            setattr(sys, name, stream)
