"""Start the program `pool-collector`, also as `python -m collector`.

Its libraries take a second to load. A signal or a lack of memory in that second ends the program with one
line, as it does later. So this module handles signals before it imports anything large.
"""

import importlib
import os
import resource
import signal
import sys
from types import FrameType

from collector.importing import is_importing
from collector.standard_streams import open_missing
from collector.unneeded import hide_unneeded

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM
LEAST_ADDRESS_SPACE = 2 << 30  # bytes; with less the libraries crash instead of raising MemoryError
AGAIN_S = 0.01  # Python has left a callback by then
STOPPED = {INTERRUPTED: "stopped by Ctrl-C", TERMINATED: "stopped by SIGTERM"}
STOPPED_EARLY = "stopped before the start: nothing was received"


class _Signals:
    """Raises KeyboardInterrupt at Ctrl-C and SystemExit at SIGTERM; a second signal ends the process.

    The first signal ends it too while a library is being loaded.

    While the command `run` loads, it has received nothing, so a signal is a clean stop (also the SIGHUP of a
    terminal that closes). Once loaded, `run` handles signals itself.

    Python drops what is raised in a callback of its own, such as that of a weak reference, and goes on. So
    the exception is then raised again, by an alarm.
    """

    def __init__(self, *, is_run: bool) -> None:
        self.status: int | None = None  # the exit status that the first signal demands
        self._dropped: BaseException | None = None  # what Python dropped, until the alarm
        for number in (signal.SIGINT, signal.SIGTERM, *([signal.SIGHUP] if is_run else [])):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _stop_early if is_run else self._handle)
        if not is_run:
            signal.signal(signal.SIGALRM, self._raise_again)
            sys.unraisablehook = self._on_dropped

    def _handle(self, number: int, frame: FrameType | None) -> None:
        """Raise an exception for the first signal; end the process with its status at the second signal."""
        if self.status is not None:
            os._exit(self.status)
        self.status = 128 + number
        if is_importing(frame):
            _end(self.status, STOPPED[self.status])
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(TERMINATED)

    def _on_dropped(self, dropped: "sys.UnraisableHookArgs") -> None:
        """Set the alarm if Python dropped what a signal raised; print all else that it drops, as it would."""
        if isinstance(dropped.exc_value, (KeyboardInterrupt, SystemExit)):
            self._dropped = dropped.exc_value
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(dropped)

    def _raise_again(self, number: int, frame: FrameType | None) -> None:
        """Raise what was dropped; an alarm that others sent ends the process, as it would without us."""
        dropped, self._dropped = self._dropped, None
        if dropped is None:
            os._exit(128 + number)
        if self.status is not None and is_importing(frame):
            _end(self.status, STOPPED[self.status])
        raise dropped


def _stop_early(_number: int, _frame: object) -> None:
    """End the process with status 0 on a signal, because the command has received nothing yet."""
    _end(0, STOPPED_EARLY)


def main() -> None:
    """Load and run the command line.

    Ctrl-C ends it with one line and status 130, even if a library raises.
    """
    open_missing()
    signals = _Signals(is_run=sys.argv[1:2] == ["run"])
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_ADDRESS_SPACE:
        _end(
            1,
            f"error: this process may use {limit >> 20} MiB of address space (ulimit -v), and needs "
            f"{LEAST_ADDRESS_SPACE >> 20} MiB; raise the limit",
        )
    hide_unneeded()
    try:
        importlib.import_module("collector.cli").main()
    except (MemoryError, ImportError) as error:
        if signals.status is None:
            _end(1, f"error: {_explain(error)}")
    except BaseException as error:
        if signals.status is None:
            raise
        if type(error).__name__ == "Stopped":  # of collector.errors, which may not be loaded
            _end(INTERRUPTED, str(error))
    if signals.status is not None:
        _end(signals.status, STOPPED[signals.status])


def _explain(error: MemoryError | ImportError) -> str:
    """Return a sentence that says which Python package is missing, or that memory is short."""
    if isinstance(error, ModuleNotFoundError):
        return f"the Python package {error.name} is missing; install pool-measurement again"
    reason = " ".join(str(error).split()) or type(error).__name__
    return f"there is not enough memory ({reason}); raise the limit of this process (ulimit -v)"


def _end(status: int, line: str) -> None:
    """Print one line and end the process now with `status`.

    The clean-up of libraries is left out, because it may hang or print more.
    """
    try:
        sys.stdout.flush()
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
