"""Test that the entry point handles signals before the slow imports of the command."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DEADLINE_S = 60.0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_during_the_imports_is_a_clean_stop(tmp_path: Path, number: signal.Signals) -> None:
    """A signal during the imports ends the program with one line.

    A module that the command imports reads from a pipe here, so that the imports last until the signal.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "typer.py").write_text(f"open({str(pipe)!r}).read()")
    process = subprocess.Popen(
        [sys.executable, "-m", "collector", "run"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        stderr=subprocess.PIPE,
    )
    writer = wait_for_reader(pipe)
    try:
        process.send_signal(number)
        _, error = process.communicate(timeout=DEADLINE_S)
    finally:
        os.close(writer)
        process.kill()
    assert (process.returncode, error) == (0, b"stopped before the start: nothing was received\n")


def wait_for_reader(pipe: Path) -> int:
    """Wait until a process reads from a pipe; return the descriptor of the pipe's other end."""
    deadline_s = time.monotonic() + DEADLINE_S
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline_s:
                raise
        time.sleep(0.01)
