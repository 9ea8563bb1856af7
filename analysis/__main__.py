"""Start the program `pool-analysis`, also as `python -m analysis`.

Its libraries take a second to load. Ctrl-C ends the program with one line and status 130, also in that
second, so this module imports next to nothing before it handles the signal.
"""

import importlib
import os
import resource
import signal
import sys
import threading
from types import FrameType

from collector.importing import is_importing

INTERRUPTED = 128 + signal.SIGINT
LEAST_ADDRESS_SPACE = 2 << 30  # bytes; with less the libraries crash instead of raising MemoryError
AGAIN_S = 0.01  # Python has left a callback by then


class _Interrupt(BaseException):
    """Marks that Ctrl-C was pressed. A KeyboardInterrupt would not do: Typer would turn it into status 1."""


class _CtrlC:
    """Stops running queries at the first Ctrl-C and raises _Interrupt.

    The second Ctrl-C ends the process at once. So does the first while a library is being loaded.

    Python calls a signal handler only between two of its own steps, so a long query would delay it. But it
    writes the signal to a pipe at once. A thread waits there and stops the query.

    Python drops what is raised in a callback of its own, such as that of a weak reference, and goes on. So
    _Interrupt is then raised again, by an alarm.
    """

    def __init__(self) -> None:
        self.was_pressed = False
        self.is_over = False  # the command has ended, and Ctrl-C is ignored

    def wait(self) -> None:
        """Start to handle Ctrl-C: install the handler of SIGINT and the thread that watches for it.

        It does nothing where SIGINT is ignored, as in a background job of a shell.
        """
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as for a job in the background of a shell
            return
        pressed, written = os.pipe()
        os.set_blocking(written, False)
        signal.signal(signal.SIGINT, self._handle)
        signal.signal(signal.SIGALRM, self._raise_again)
        sys.unraisablehook = self._on_dropped
        signal.set_wakeup_fd(written)
        threading.Thread(target=self._watch, args=(pressed,), daemon=True).start()

    def _handle(self, _number: int, frame: FrameType | None) -> None:
        if not self.was_pressed and not self.is_over:
            self.was_pressed = True
            _stop(frame)

    def _raise_again(self, number: int, frame: FrameType | None) -> None:
        """Raise _Interrupt; an alarm that others sent ends the process, as it would without us."""
        if not self.was_pressed:
            os._exit(128 + number)
        if not self.is_over:
            _stop(frame)

    @staticmethod
    def _on_dropped(dropped: "sys.UnraisableHookArgs") -> None:
        """Set the alarm if Python dropped an _Interrupt; print all else that it drops, as it would."""
        if dropped.exc_type is _Interrupt:
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(dropped)

    @staticmethod
    def _watch(pressed: int) -> None:
        """Stop queries at the first Ctrl-C; end the process at the second, without waiting for any clean-up.

        `pressed` is the end of a pipe from which one byte can be read for each signal, its number.
        """
        _wait_for_ctrl_c(pressed)
        database = sys.modules.get("analysis.database")
        if database is not None and hasattr(database, "interrupt_queries"):
            database.interrupt_queries()
        _wait_for_ctrl_c(pressed)
        os._exit(INTERRUPTED)


def _stop(frame: FrameType | None) -> None:
    """Raise _Interrupt in the code that `frame` runs; where it loads a library, end the process."""
    if is_importing(frame):
        _end()
    raise _Interrupt


def _end() -> None:
    """Print that Ctrl-C stopped the program, and end it.

    The exit handlers of libraries are left out, because they may hang or print more.
    """
    try:
        os.write(2, b"pool-analysis: stopped by Ctrl-C\n")
    finally:
        os._exit(INTERRUPTED)


def _wait_for_ctrl_c(pressed: int) -> None:
    """Read the numbers of signals from a pipe until one is that of Ctrl-C."""
    while os.read(pressed, 1) != bytes([signal.SIGINT]):
        pass


def _refuse_little_memory() -> None:
    """End the program with a message if its limit of address space is so low that libraries would crash."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        sys.exit(
            f"pool-analysis: this process may use {limit >> 20} MiB of address space (ulimit -v), and needs "
            f"{LEAST_ADDRESS_SPACE >> 20} MiB; raise the limit"
        )


def main() -> None:
    """Load and run the command line.

    After Ctrl-C print one line and end with status 130, whatever else failed.
    """
    _refuse_little_memory()
    ctrl_c = _CtrlC()
    try:
        ctrl_c.wait()
        importlib.import_module("analysis.cli").main()
        ctrl_c.is_over = True
    except BaseException:
        if not ctrl_c.was_pressed:
            raise
    if ctrl_c.was_pressed:
        _end()


if __name__ == "__main__":
    main()
