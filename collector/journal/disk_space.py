"""Wait while nothing can be written: log it once, try again at growing intervals, log when it works again.

The disk may be full, it or a folder may be read-only, or the process may have no file descriptor left.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import structlog

from collector.backoff import Backoff
from collector.errors import NotWritable

RETRY_S: Final = (0.1, 5.0)  # the first and the longest wait between two tries
T = TypeVar("T")
log = structlog.get_logger(__name__)


class DiskSpace:
    """Knows whether a journal and its dataset can be written, and repeats writes that the system refused.

    Without `stop`, a refused write is an error at once.
    """

    def __init__(self, stop: threading.Event | None) -> None:
        self._stop = stop
        self._full: dict[str, str] = {}  # by what cannot be written now: why

    @property
    def blocked(self) -> str:
        """Why something cannot be written now; empty when everything can."""
        return "; ".join(self._full.values())

    def retry_until_done(self, what: str, act: Callable[[], T]) -> T:
        """Call `act` until it can write; return its result. Raises NotWritable once `stop` is set."""
        pauses = Backoff(*RETRY_S)
        while (done := self.try_once(what, act)) is None:
            assert self._stop is not None  # noqa: S101 - else `try_once` raises
            pauses.wait(self._stop)
        return done

    def try_once(self, what: str, act: Callable[[], T]) -> T | None:
        """Call `act` once; return its result, or None when nothing can be written.

        `what` names in the log what cannot be written. Raises NotWritable once `stop` is set.
        """
        try:
            done = act()
        except NotWritable as error:
            if self._stop is None or self._stop.is_set():
                raise
            if what not in self._full:
                log.error("disk.full", what=what, reason=str(error))  # noqa: TRY400 - no mistake of the program
            self._full[what] = str(error)
            return None
        if self._full.pop(what, None) is not None:
            log.info("disk.goes_on", what=what)
        return done
