"""Read single values of other publishers' files. Each raises ValueError that says what it expected."""

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
    """Read a whole number within bounds."""
    if not re.fullmatch(r"-?\d{1,19}", text, re.ASCII):
        raise ValueError(f"{text!r} is no whole number")
    value = int(text)
    if not low <= value <= high:
        raise ValueError(f"{value} is not within {low} and {high}")
    return value


def height(text: str) -> int:
    """Read a height."""
    return whole(text, high=MAX_HEIGHT)


def block_hash(text: str) -> bytes:
    """Read a hash in display order into internal byte order."""
    return hash_bytes(text)


def time_us(text: str) -> int:
    """Read milliseconds since 1970 UTC as microseconds."""
    value_ms = whole(text)
    check_time(value_ms / MS)
    return value_ms * MS


def time_s(text: str) -> int:
    """Read a date and time as seconds since 1970; one without a zone is UTC."""
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time like 2018-02-25 12:00:00") from None
    if len(text) < len("2018-02-25 12:00:00"):
        raise ValueError(f"{text!r} is no time like 2018-02-25 12:00:00")
    value_s = int((moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)).timestamp())
    check_time(value_s)
    return value_s


def time_s_or_none(text: str) -> int | None:
    """Read a date and time as `time_s` does; nothing gives None."""
    return time_s(text) if text else None


def day_s(text: str) -> int:
    """Read a day, UTC, with or without a time in it, as seconds since 1970 at its begin."""
    match = _DATE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no day like 2018-02-25")
    value_s = timegm(time.strptime(match[1], "%Y-%m-%d"))
    check_time(value_s)
    return value_s


def price(text: str) -> float:
    """Read a price: finite and not negative; the first ones are so low that sources round them to zero."""
    value = float(text)
    if not (math.isfinite(value) and value >= 0):
        raise ValueError(f"{text!r} is no price")
    return value


def script(text: str) -> bytes:
    """Read a script in hex."""
    return bytes.fromhex(text)


def label(text: str) -> str:
    """Read a name. It is kept as it is; whoever shows it escapes it."""
    if not text.strip() or len(text) > MAX_LABEL_CHARACTERS:
        raise ValueError(f"{text[:40]!r} is no name of 1 to {MAX_LABEL_CHARACTERS} characters")
    return text


def check_time(value_s: float) -> None:
    """Raise ValueError for a time before the first block or in the future."""
    if not FIRST_DAY_S <= value_s <= time.time() + AHEAD_S:
        raise ValueError(f"{value_s:.0f} s since 1970 is before the first block or in the future")
