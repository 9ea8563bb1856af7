"""Repeat writes that the system refuses until they succeed; log the first refusal and the end of the trouble.

The disk may be full, it or a folder may be read-only, or the process may have no file descriptor left. The
pauses between two tries grow.
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
    """Repeats writes of a journal and its dataset that the system refused, and knows which are refused now.

    Setting `stop` ends the repetition. Without `stop`, a refused write raises NotWritable at once.
    """

    def __init__(self, stop: threading.Event | None) -> None:
        self._stop = stop
        self._full: dict[str, str] = {}  # by what cannot be written now: why

    @property
    def blocked(self) -> str:
        """Return why something cannot be written now; an empty text when everything can."""
        return "; ".join(self._full.values())

    def retry_until_done(self, what: str, act: Callable[[], T]) -> T:
        """Call `act` until its write succeeds, and return its result. Raises NotWritable once `stop` is set.

        `what` names in the log what cannot be written. `act` must not return None.
        """
        pauses = Backoff(*RETRY_S)
        while (done := self.try_once(what, act)) is None:
            assert self._stop is not None  # noqa: S101 - else `try_once` raises
            pauses.wait(self._stop)
        return done

    def try_once(self, what: str, act: Callable[[], T]) -> T | None:
        """Call `act` once; return its result, or None when its write was refused.

        `what` names in the log what cannot be written. Raises NotWritable when there is no `stop` or it is
        set.
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
