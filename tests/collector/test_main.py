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

    A module that the command imports opens a pipe here and then works on, so that the imports last until the
    signal. It does not wait in one long call: a signal just before that call would be seen only after it.
    """
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    endless = f"import time\nopen({str(pipe)!r}).close()\nwhile True:\n    time.sleep(0.01)\n"
    (tmp_path / "typer.py").write_text(endless)
    heard = f"import signal, runpy; signal.signal({number:d}, signal.SIG_DFL); "  # also under nohup
    start = "runpy.run_module('collector', run_name='__main__', alter_sys=True)"
    process = subprocess.Popen(
        [sys.executable, "-c", heard + start, "run"],
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
