"""Give a test a terminal of its own, and what it shows."""

import os
import pty
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pseudo_terminal() -> Iterator[tuple[int, list[bytes]]]:
    """Yield the descriptor of a new terminal, and a list of what it shows, which is whole after the block.

    The caller writes to a copy of the descriptor, made by `os.dup` or by another process.
    """
    controller, terminal = pty.openpty()
    chunks: list[bytes] = []

    def read() -> None:
        try:
            while chunk := os.read(controller, 65536):
                chunks.append(chunk)
        except OSError:  # Linux reports the end of a terminal by this error
            pass

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield terminal, chunks
    finally:
        os.close(terminal)
        reader.join()
        os.close(controller)
