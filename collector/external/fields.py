"""Read single values in other publishers' files. Each function raises ValueError that says what is wrong."""

import datetime as dt
import math
import re
import time
from calendar import timegm
from typing import Final

from collector.dataset.schema import hash_bytes

MAX_HEIGHT: Final = 10_000_000
FIRST_DAY_S: Final = timegm((2009, 1, 3, 0, 0, 0))  # no block is older than the first
AHEAD_S: Final = 2 * 3600  # a header's time may be that far ahead
MAX_LABEL_CHARACTERS: Final = 200
MS: Final = 1000

_DATE = re.compile(r"(\d{4}-\d{2}-\d{2})(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|\+00:00)?)?")


def whole(text: str, *, low: int = 0, high: int = (1 << 63) - 1) -> int:
    """Return the whole number in `text`; raise ValueError if it is not one from `low` to `high`."""
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise ValueError(f"{text!r} is no whole number")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{value} is not within {low} and {high}")
    return value


def height(text: str) -> int:
    """Return the block height in `text`; raise ValueError if it is not from 0 to 10 million."""
    return whole(text, high=MAX_HEIGHT)


def block_hash(text: str) -> bytes:
    """Return the bytes, in internal byte order, of a hash written as 64 hex digits in display order.

    Raises ValueError for another text.
    """
    return hash_bytes(text)


def time_us(text: str) -> int:
    """Return in microseconds since 1970 UTC a time written in milliseconds since 1970 UTC.

    Raises ValueError for a time before the first block or in the future.
    """
    value_ms = whole(text)
    check_time(value_ms / MS)
    return value_ms * MS


def time_s(text: str) -> int:
    """Return in seconds since 1970 UTC a time written in such seconds, or as ISO date and time.

    A time without a zone is UTC. Raises ValueError for another text, also for a date alone: the midnight of
    its day is not when a block was made.
    """
    if re.fullmatch(r"[0-9]{9,10}", text):
        check_time(int(text))
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 2018-02-25 12:00:00") from None
    if len(text) <= len("2018-02-25"):
        raise ValueError(f"{text!r} has no time of day; write one, like 2018-02-25 12:00:00")
    if len(text) < len("2018-02-25 12:00:00"):
        raise ValueError(f"{text!r} is no time like 2018-02-25 12:00:00")
    value_s = int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
    check_time(value_s)
    return value_s


def day_s(text: str) -> int:
    """Return the start of a day, written as a date with or without a UTC time, in seconds since 1970.

    Raises ValueError for another text.
    """
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no day like 2018-02-25")
    value_s = timegm(time.strptime(match[1], "%Y-%m-%d"))
    check_time(value_s)
    return value_s


def price(text: str) -> float:
    """Return the price in `text` as a float; raise ValueError if it is not finite or is negative.

    Zero is allowed, because sources round the first prices to zero.
    """
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{text!r} is no price")
    return value


def script(text: str) -> bytes:
    """Return the bytes of a script written in hex; raise ValueError for another text."""
    return bytes.fromhex(text)


def label(text: str) -> str:
    """Return a pool's name of 1 to 200 characters unchanged; raise ValueError for another length.

    It is also raised for half a character, which JSON can hold and UTF-8 cannot. Whoever shows the name must
    escape it.
    """
    if not text.strip() or len(text) > MAX_LABEL_CHARACTERS:
        raise ValueError(f"{text[:40]!r} is no name of 1 to {MAX_LABEL_CHARACTERS} characters")
    if not is_text(text):
        raise ValueError(f"{text[:40]!r} has half of a character")
    return text


def is_text(value: str) -> bool:
    """Return whether a string can be written in UTF-8, which halves of characters (surrogates) cannot."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_time(value_s: float) -> None:
    """Raise ValueError for a time before the first block's day or more than two hours in the future."""
    if not FIRST_DAY_S <= value_s <= time.time() + AHEAD_S:
        raise ValueError(f"{value_s:.0f} s since 1970 is before the first block or in the future")
