"""Let our commands print every text, whatever the encoding of their output is."""

import io
import sys


def escape_unencodable_output() -> None:
    r"""Make standard output and standard error write an escape, such as \xe9, for what they cannot encode.

    Texts of strangers hold any letter, and the name of a file any bytes. The output may be Latin-1 or ASCII.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
