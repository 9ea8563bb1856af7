"""Pause between attempts: each pause is twice as long as the one before, up to a limit.

The arithmetic and the retry loop are tenacity's. stamina, which wraps it, does not fit: it sleeps with
`time.sleep`, which no event can interrupt, so that a stop would have to wait for the end of a pause.
"""

import threading
from collections.abc import Callable
from typing import TypeVar

import tenacity

T = TypeVar("T")


class Backoff:
    """Computes the lengths of pauses between attempts: each is twice the one before, up to a limit."""

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._wait = _doubled(first_s, longest_s)
        self._state = tenacity.RetryCallState(tenacity.Retrying(), None, (), {})

    def next_s(self) -> float:
        """Return the length of the next pause in seconds, twice the one before, up to the limit."""
        pause_s = self._wait(self._state)
        self._state.prepare_for_next_attempt()
        return pause_s

    def wait(self, stop: threading.Event) -> bool:
        """Wait for the next pause between attempts, or until `stop` is set; return whether `stop` is set."""
        return stop.wait(self.next_s())

    def reset(self) -> None:
        """Begin again with the shortest pause between attempts, because an attempt has succeeded."""
        self._state.attempt_number = 1


def retry(
    attempt: Callable[[], T],
    *,
    on: type[Exception] | tuple[type[Exception], ...],
    first_s: float,
    longest_s: float,
    stop: threading.Event,
    patience_s: float | None = None,
    before_pause: Callable[[BaseException], None] | None = None,
) -> T:
    """Call `attempt` until it raises none of the errors `on`, and return its result; pause between attempts.

    When `patience_s` is over or `stop` is set, the last error is raised. `before_pause` gets the error of
    each failed attempt that is followed by a pause.
    """
    stops: tenacity.stop.stop_base = tenacity.stop_when_event_set(stop)
    if patience_s is not None:
        stops |= tenacity.stop_before_delay(patience_s)
    last: BaseException | None = None

    def tell(state: tenacity.RetryCallState) -> None:
        nonlocal last
        last = state.outcome.exception() if state.outcome is not None else None
        if before_pause is not None and last is not None:
            before_pause(last)

    def pause(length_s: float) -> None:
        if stop.wait(length_s) and last is not None:
            raise last  # tenacity would first make another attempt

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(on),
        wait=_doubled(first_s, longest_s),
        stop=stops,
        sleep=pause,
        before_sleep=tell,
        reraise=True,
    )
    return retrying(attempt)


def _doubled(first_s: float, longest_s: float) -> tenacity.wait.wait_base:
    return tenacity.wait_exponential(multiplier=first_s, max=longest_s)
