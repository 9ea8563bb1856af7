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
    """Return the whole number in `text`, which must be from `low` to `high`."""
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise ValueError(f"{text!r} is no whole number")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{value} is not within {low} and {high}")
    return value


def height(text: str) -> int:
    """Return the block height in `text`, which is at most 10 million."""
    return whole(text, high=MAX_HEIGHT)


def block_hash(text: str) -> bytes:
    """Return a hash, written in display order as 64 hex digits, as bytes in internal byte order."""
    return hash_bytes(text)


def time_us(text: str) -> int:
    """Return a time, written as milliseconds since 1970 UTC, as microseconds."""
    value_ms = whole(text)
    check_time(value_ms / MS)
    return value_ms * MS


def time_s(text: str) -> int:
    """Return seconds since 1970 for such a number, or for a date and time in ISO format.

    A time without a zone is UTC.
    """
    if re.fullmatch(r"[0-9]{9,10}", text):
        check_time(int(text))
        return int(text)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 2018-02-25 12:00:00") from None
    if len(text) < len("2018-02-25 12:00:00"):
        raise ValueError(f"{text!r} is no time like 2018-02-25 12:00:00")
    value_s = int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
    check_time(value_s)
    return value_s


def day_s(text: str) -> int:
    """Return a date, with or without a UTC time after it, as seconds from 1970 to the start of that day."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no day like 2018-02-25")
    value_s = timegm(time.strptime(match[1], "%Y-%m-%d"))
    check_time(value_s)
    return value_s


def price(text: str) -> float:
    """Return a price, which must be finite and not negative; sources round the first prices to zero."""
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{text!r} is no price")
    return value


def script(text: str) -> bytes:
    """Return the bytes of a script written in hex."""
    return bytes.fromhex(text)


def label(text: str) -> str:
    """Return a pool's name of 1 to 200 characters unchanged; whoever shows it must escape it."""
    if not text.strip() or len(text) > MAX_LABEL_CHARACTERS:
        raise ValueError(f"{text[:40]!r} is no name of 1 to {MAX_LABEL_CHARACTERS} characters")
    return text


def check_time(value_s: float) -> None:
    """Raise ValueError for a time before the first block's day or more than two hours ahead."""
    if not FIRST_DAY_S <= value_s <= time.time() + AHEAD_S:
        raise ValueError(f"{value_s:.0f} s since 1970 is before the first block or in the future")
