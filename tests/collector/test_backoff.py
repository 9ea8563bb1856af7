"""Test pauses that double, and the retry loop with its three ways to end."""

import threading

import pytest

from collector.backoff import Backoff, retry


def test_pauses_double_up_to_the_limit_and_begin_again() -> None:
    """Pauses begin with `first_s`, never exceed `longest_s`, and begin again after a reset."""
    pauses = Backoff(0.5, 3.0)
    assert [pauses.next_s() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]

    pauses.reset()
    assert pauses.next_s() == 0.5


def test_a_stop_ends_a_pause() -> None:
    """When `stop` is set, `wait` returns True at once instead of pausing for an hour."""
    stop = threading.Event()
    stop.set()
    assert Backoff(3600, 3600).wait(stop)
    assert not Backoff(0.001, 0.001).wait(threading.Event())


def test_an_attempt_is_repeated_until_it_succeeds() -> None:
    """`before_pause` gets each error, and the result of the last attempt is returned."""
    failures, told = [ValueError("one"), ValueError("two")], []

    def attempt() -> str:
        if failures:
            raise failures.pop(0)
        return "done"

    stop = threading.Event()
    result = retry(
        attempt, on=ValueError, first_s=0.001, longest_s=0.001, stop=stop, before_pause=told.append
    )
    assert (result, [str(error) for error in told]) == ("done", ["one", "two"])


def test_other_errors_and_the_end_of_patience_are_raised() -> None:
    """An error not in `on` is raised at once; the last error is raised when patience ends."""
    n_attempts = 0

    def attempt() -> None:
        nonlocal n_attempts
        n_attempts += 1
        raise KeyError(n_attempts)

    stop = threading.Event()
    with pytest.raises(KeyError, match="1"):
        retry(attempt, on=ValueError, first_s=1, longest_s=1, stop=stop)
    with pytest.raises(KeyError, match="2"):
        retry(attempt, on=KeyError, first_s=1, longest_s=1, stop=stop, patience_s=0.5)


def test_a_stop_during_a_pause_raises_without_another_attempt() -> None:
    """After a stop the last error is raised, because an attempt at a hanging node would delay the stop."""
    stop = threading.Event()
    n_attempts = 0

    def attempt() -> None:
        nonlocal n_attempts
        n_attempts += 1
        raise ValueError(n_attempts)

    with pytest.raises(ValueError, match="1"):
        retry(attempt, on=ValueError, first_s=60, longest_s=60, stop=stop, before_pause=lambda _: stop.set())
    assert n_attempts == 1
