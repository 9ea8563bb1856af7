"""Keep the HTTP answers of a build, so that many clients who ask for the same are answered at once."""

import math
import threading
import time
from collections import OrderedDict
from typing import Any, Final

MAX_BYTES: Final = 32 << 20  # of all answers
MAX_ANSWER_BYTES: Final = 1 << 20
ENTRY_BYTES: Final = 32 << 10  # more than the longest address and all headers
MOMENT_S: Final = 5  # for how long what depends on the time of day is kept
MOMENTARY: Final = f"max-age={MOMENT_S}"  # how such an answer says so
Key = tuple[object, ...]
Messages = list[dict[str, Any]]


class KeptAnswers:
    """Holds whole HTTP answers as ASGI messages; the one that was not asked for the longest is dropped first.

    An answer may have an end in time. The first who asks after it does not find the answer, and makes it
    anew; those who ask meanwhile still find it, so that not all of them make the same.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._answers: OrderedDict[Key, tuple[Messages, float]] = OrderedDict()
        self._n_bytes = 0

    def find(self, key: Key) -> Messages | None:
        """Return the ASGI messages of a kept answer; None if there is none or its time is over."""
        with self._lock:
            messages, end_s = self._answers.get(key, (None, 0.0))
            if messages is None:
                return None
            if time.monotonic() >= end_s:
                self._answers[key] = (messages, time.monotonic() + MOMENT_S)
                return None
            self._answers.move_to_end(key)
            return messages

    def keep(self, key: Key, messages: Messages, *, for_s: float = math.inf) -> None:
        """Keep an answer's ASGI messages for `for_s` seconds; drop others to make room.

        An answer that is too large is not kept.
        """
        size = _size(messages)
        if size > min(MAX_ANSWER_BYTES, self._max_bytes):
            return
        with self._lock:
            before = self._answers.pop(key, None)
            self._n_bytes += size - (0 if before is None else _size(before[0]))
            self._answers[key] = (messages, time.monotonic() + for_s)
            while self._n_bytes > self._max_bytes:
                self._n_bytes -= _size(self._answers.popitem(last=False)[1][0])


def _size(messages: Messages) -> int:
    return ENTRY_BYTES + sum(len(message.get("body", b"")) for message in messages)
