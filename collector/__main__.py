"""The entry point of `pool-collector` and `python -m collector`.

It imports almost nothing, because the imports of the command take about a second: a signal to stop that
comes meanwhile must not end `pool-collector run` as a crash would.
"""

import os
import signal
import sys
from types import FrameType

STOPPED_EARLY = b"stopped before the start: nothing was received\n"


def main() -> None:
    """Run the command; SIGTERM, SIGINT and SIGHUP during the imports of `run` end it with status 0."""
    if sys.argv[1:2] == ["run"]:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, _stop_early)
    from collector import cli  # noqa: PLC0415 - imports are what the handlers are set before

    cli.main()


def _stop_early(_number: int, _frame: FrameType | None) -> None:
    """End the process at once: nothing has begun that must be ended in order."""
    os.write(sys.stderr.fileno(), STOPPED_EARLY)
    os._exit(0)


if __name__ == "__main__":
    main()
