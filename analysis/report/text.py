"""Writes numbers, times and text from strangers for people, in the same way on the page and the terminal.

A missing number is an en dash. A no-break space joins a number to its unit. The rules of rounding:

counts          whole, with commas between thousands                                2,016
shares, rates   percent with one decimal, below 1 % with two digits                 28.9 %, 0.35 %
intervals       both ends as the number itself, the unit once                       22.0 to 36.8 %
other numbers   three digits, below 0.0001 and from 10^9 on with a power of ten     0.417, 1.26
indices         the same, but whole numbers without decimals                        0.184, 3
growth          percent with its sign and three digits                              +0.123 %
quotients       a sign of multiplication and three digits                           x 1.20
share changes   percentage points with a sign and one decimal                       +1.3
feerates        three digits, in sat/vB                                             12.9
hashrates       three digits and a metric prefix                                    612 EH/s
BTC             two decimals from 1 BTC on, else three digits                       2,700.17, 0.172
one amount      that stands in a block: every digit, at least two decimals          3.125, 25.00
USD             three digits, from 1,000 on whole; only where coins have a price    55.3
durations       at most two units                                                   9 min 50 s
p values        two digits, below 0.001 as such                                     0.032, <0.001
"""

import datetime as dt
import math
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

NOTHING: Final = "\N{EN DASH}"
GAP: Final = "\N{NO-BREAK SPACE}"
MAX_TEXT_LENGTH: Final = 120
NO_BLOCKS: Final = (
    "The dataset has no block. `pool-collector run` watches a node, `pool-collector backfill` reads its "
    "block files, `pool-collector import` takes what others published."
)
NO_ANSWER_IN_BLOCKS: Final = (
    "What is known of these blocks does not answer this. `pool-collector run` watches a node, "
    "`pool-collector backfill` reads its block files."
)
TIMES: Final = "\N{MULTIPLICATION SIGN}"
MINUS: Final = "\N{MINUS SIGN}"
INTERVAL: Final = f"95{GAP}% interval"
_PREFIXES: Final = ("n", "µ", "m", "", "k", "M", "G", "T", "P", "E", "Z", "Y")
_NO_PREFIX: Final = 3
_NEXT_PREFIX: Final = 999.5
_SAT_PER_BTC: Final = 100_000_000
_MILLISECONDS_BELOW_S: Final = 0.1
# Larger and smaller numbers are written with a power of ten, because nobody counts zeros.
_LARGEST_PLAIN: Final = 1e9
_SMALLEST_PLAIN: Final = 1e-4
_LARGEST_COUNT: Final = 1e15
_SUPERSCRIPTS: Final = str.maketrans("-0123456789", "\N{SUPERSCRIPT MINUS}⁰¹²³⁴⁵⁶⁷⁸⁹")
_SECONDS_PER_MINUTE: Final = 60
_SECONDS_PER_HOUR: Final = 3600
_SECONDS_PER_DAY: Final = 86400
_ALL_PERCENT: Final = 100
_LEAST_PERCENT: Final = 0.01
_SMALL_P: Final = 0.001
_CONTROL_PICTURES: Final = 0x2400

_LAST_C0: Final = 0x1F

_DELETE: Final = 0x7F
# Control, format (all bidi controls), surrogate, private use, unassigned, line and paragraph ends.
_UNSAFE_CATEGORIES: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def printable(text: object, *, max_length: int = MAX_TEXT_LENGTH) -> str:
    """Return text that strangers chose in a form that is safe to show.

    An ASCII control character becomes its control picture (ESC is ␛); others are written as ⟨U+202E⟩. This
    also covers characters that change the reading direction. A text longer than `max_length` is cut and gets
    an ellipsis. The text is not escaped for HTML; the template does that.
    """
    whole = str(text)
    shown = "".join(_visible(character) for character in whole[:max_length])
    return shown + "…" if len(whole) > max_length else shown


def _visible(character: str) -> str:
    code = ord(character)
    if code <= _LAST_C0:
        return chr(_CONTROL_PICTURES + code)
    if code == _DELETE:
        return "␡"
    if unicodedata.category(character) in _UNSAFE_CATEGORIES:
        return f"⟨U+{code:04X}⟩"
    return character


def percent(ratio: float | None) -> str:
    """Format a ratio as percent with one decimal, below 1 % with two significant digits: `28.9 %`, `0.35 %`.

    Exactly 0 and 100 % have no decimal. A ratio below 0.01 % is written as `<0.01 %`.
    """
    if ratio is None or math.isnan(ratio):
        return NOTHING
    return f"{_percent_digits(ratio)}{GAP}%"


def percent_range(low: float | None, high: float | None) -> str:
    """Format an interval of ratios as percent for a table, with a dash between its ends: `22.0-36.8 %`."""
    if low is None or high is None:
        return NOTHING
    return f"{_percent_digits(low)}\N{EN DASH}{_percent_digits(high)}{GAP}%"


def percent_interval(low: float | None, high: float | None) -> str:
    """Format an interval of ratios as percent for a sentence: `22.0 to 36.8 %`."""
    if low is None or high is None:
        return NOTHING
    return f"{_percent_digits(low)} to {_percent_digits(high)}{GAP}%"


def _percent_digits(ratio: float) -> str:
    value = round(100 * ratio, 7)
    if value in (0, _ALL_PERCENT):
        return f"{value:.0f}"
    if value < _LEAST_PERCENT:
        return f"<{_LEAST_PERCENT}"
    if value < 1:
        return f"{value:.{1 - math.floor(math.log10(value))}f}"
    # A ratio below 1 never reads as 100.0 %.
    return f"{min(value, 99.9) if value < _ALL_PERCENT else value:.1f}"


def count(number: float | None) -> str:
    """Format a count with commas between thousands; from 10^15 on as a number times a power of ten."""
    if number is None:
        return NOTHING
    return decimal(number) if abs(number) >= _LARGEST_COUNT else f"{number:,.0f}"


def plural(number: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `1 block`, `2,016 blocks`.

    `many` is the plural where it is not `one` with an "s".
    """
    return f"{count(number)} {one if number == 1 else many or one + 's'}"


def decimal(number: float | None) -> str:
    """Format a number with at least three digits; below 0.0001 and from 10^9 on with a power of ten."""
    if number is None or math.isnan(number):
        return NOTHING
    if number == 0:
        return "0"
    if not _SMALLEST_PLAIN <= abs(number) < _LARGEST_PLAIN:
        digits, _, power = f"{number:.2e}".partition("e")
        shown = f"{digits}{GAP}{TIMES}{GAP}10{str(int(power)).translate(_SUPERSCRIPTS)}"
    else:
        # The power is that of the rounded number: 0.9996 is shown as 1.00.
        _, _, power = f"{number:.2e}".partition("e")
        shown = f"{number:,.{max(0, 2 - int(power))}f}"
    return shown.replace("-", MINUS)


def decimal_range(low: float | None, high: float | None) -> str:
    """Format an interval of numbers for a table, as `1.2 to 3.4`; an upper end of None is infinity."""
    if low is None and high is None:
        return NOTHING
    return f"{decimal(low)} to {'∞' if high is None else decimal(high)}"


def index_number(number: float | None) -> str:
    """Format an index of concentration: a whole number without decimals, any other with three digits."""
    return count(number) if number is None or number == round(number) else decimal(number)


def index_range(low: float | None, high: float | None) -> str:
    """Format an interval of an index of concentration: `0.151 to 0.212`."""
    return NOTHING if low is None or high is None else f"{index_number(low)} to {index_number(high)}"


def growth(ratio: float | None) -> str:
    """Format a relative change as percent with its sign and three digits: `+0.123 %`."""
    return NOTHING if ratio is None or math.isnan(ratio) else f"{_growth_digits(ratio)}{GAP}%"


def growth_range(low: float | None, high: float | None) -> str:
    """Format an interval of relative changes: `+0.0121 to +0.123 %`."""
    return NOTHING if low is None or high is None else f"{_growth_digits(low)} to {growth(high)}"


def _growth_digits(ratio: float) -> str:
    return f"{'+' if ratio > 0 else ''}{decimal(100 * ratio)}"


def quotient(number: float | None) -> str:
    """Format how many times larger a number is than another: three digits after a sign of multiplication."""
    return NOTHING if number is None or math.isnan(number) else f"{TIMES}{decimal(number)}"


def quotient_range(low: float | None, high: float | None) -> str:
    """Format an interval of quotients, each with its sign of multiplication."""
    return NOTHING if low is None or high is None else f"{quotient(low)} to {quotient(high)}"


def share_change(change: float | None) -> str:
    """Format the change of a share, given as a ratio, in percentage points with its sign: `+1.3`."""
    return NOTHING if change is None or math.isnan(change) else f"{100 * change:+.1f}".replace("-", MINUS)


def share_change_range(low: float | None, high: float | None) -> str:
    """Format an interval of changes of a share in percentage points: `+0.4 to +1.3`."""
    return NOTHING if low is None or high is None else f"{share_change(low)} to {share_change(high)}"


def metric(number: float | None, unit: str) -> str:
    """Format a number and its unit with the metric prefix that fits: `612 EH/s`, `3.33 mH/s`."""
    if number is None or math.isnan(number):
        return NOTHING
    step = _NO_PREFIX
    while abs(number) >= _NEXT_PREFIX and step < len(_PREFIXES) - 1:
        number, step = number / 1000, step + 1
    while 0 < abs(number) < _NEXT_PREFIX / 1000 and step > 0:
        number, step = number * 1000, step - 1
    return f"{decimal(number)}{GAP}{_PREFIXES[step]}{unit}"


def hashprice(amount_per_ph: float | None, unit: str) -> str:
    """Format what 1 PH/s earns in a day, as `1 PH/s earned 55.3 USD`.

    `unit` is the currency. If 1 PH/s would earn 10^9 or more, as on a chain with a low difficulty, the amount
    for the largest of 1 TH/s, 1 GH/s, 1 MH/s, 1 kH/s and 1 H/s that earns less is written.
    """
    if amount_per_ph is None or math.isnan(amount_per_ph):
        return NOTHING
    step = _PREFIXES.index("P")
    while amount_per_ph >= _LARGEST_PLAIN and step > _NO_PREFIX:
        amount_per_ph, step = amount_per_ph / 1000, step - 1
    return f"1{GAP}{_PREFIXES[step]}H/s earned {decimal(amount_per_ph)}{GAP}{unit}"


def bitcoin(amount_sat: float | None) -> str:
    """Format an amount given in satoshi as a number of BTC: two decimals from 1 BTC on, else three digits."""
    if amount_sat is None:
        return NOTHING
    value = amount_sat / _SAT_PER_BTC
    return f"{value:,.2f}" if abs(value) >= 1 else decimal(value)


def exact_bitcoin(amount_sat: int | None) -> str:
    """Format an amount given in satoshi as a number of BTC with every digit: `3.125`, `25.00`."""
    if amount_sat is None:
        return NOTHING
    whole, rest = divmod(amount_sat, _SAT_PER_BTC)
    return f"{whole:,}.{f'{rest:08}'.rstrip('0'):0<2}"


def signed(number: float | None) -> str:
    """Format a number, such as an effect size, with its sign and two decimals."""
    if number is None or math.isnan(number):
        return NOTHING
    return f"{number:+.2f}".replace("-", MINUS)


def p_value(number: float | None) -> str:
    """Format a p value with two significant digits; below 0.001 as `<0.001`."""
    if number is None or math.isnan(number):
        return NOTHING
    return "<0.001" if number < _SMALL_P else f"{number:.2g}"


def p_claim(number: float) -> str:
    """Format a p value for a sentence: `p = 0.032`, `p < 0.001`."""
    shown = p_value(number)
    return f"p < {shown[1:]}" if shown.startswith("<") else f"p = {shown}"


def duration_range(low_s: float | None, high_s: float | None) -> str:
    """Format an interval of durations: `2.31 ms to 4.20 s`."""
    return NOTHING if low_s is None or high_s is None else f"{duration(low_s)} to {duration(high_s)}"


def median(row: Mapping[str, Any], name: str) -> str:
    """Format the median `<name>_median_s` of a row for a sentence, with its 95 % interval if it has one."""
    low_s, high_s = row[f"{name}_median_low_s"], row[f"{name}_median_high_s"]
    interval = "" if low_s is None else f" ({INTERVAL} {duration_range(low_s, high_s)})"
    return f"{duration(row[f'{name}_median_s'])}{interval}"


def duration(seconds: float | None) -> str:
    """Format a duration in at most two units: `2.31 ms`, `4.20 s`, `9 min 50 s`, `3 d 4 h`."""
    if seconds is None or math.isnan(seconds):
        return NOTHING
    if 0 < abs(seconds) < _MILLISECONDS_BELOW_S:
        return metric(seconds, "s")
    if seconds < _SECONDS_PER_MINUTE:
        return f"{decimal(seconds)}{GAP}s"
    whole = round(seconds)
    for big, big_unit, small, small_unit in (
        (_SECONDS_PER_DAY, "d", _SECONDS_PER_HOUR, "h"),
        (_SECONDS_PER_HOUR, "h", _SECONDS_PER_MINUTE, "min"),
        (_SECONDS_PER_MINUTE, "min", 1, "s"),
    ):
        if whole >= big:
            rest = whole % big // small
            tail = f"{GAP}{rest}{GAP}{small_unit}" if rest else ""
            return f"{whole // big}{GAP}{big_unit}{tail}"
    return f"{whole}{GAP}s"


def moment(at: dt.datetime | dt.date | None) -> str:
    """Format a UTC time to the second, as `2026-01-31 12:00:00`, or a date without a time."""
    if at is None:
        return NOTHING
    return f"{at:%Y-%m-%d}{GAP}{at:%H:%M:%S}" if isinstance(at, dt.datetime) else f"{at:%Y-%m-%d}"


def span(first: dt.datetime | None, last: dt.datetime | None) -> str:
    """Format the span between two UTC times; if both are on one day, the day is written once."""
    if first is None or last is None:
        return NOTHING
    if first.date() == last.date():
        return f"{first:%Y-%m-%d} {first:%H:%M} to {last:%H:%M} UTC"
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"


def listed(names: list[str]) -> str:
    """Format names for a sentence: `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def text_of(value: Any) -> str:
    """Format any value of a mart as text that is safe to show; None is an en dash."""
    return NOTHING if value is None else printable(value)


def count_or_none(number: int) -> str:
    """Format a count for a sentence, with `none` for 0."""
    return count(number) if number else "none"


def with_interval(row: Mapping[str, Any], name: str) -> str:
    """Format the ratio `<name>_ratio` of a row and its interval: `28.9 % (95 % interval 22.0 to 36.8 %)`."""
    return f"{percent(row[f'{name}_ratio'])} ({_interval(row, name)})"


def comma_interval(row: Mapping[str, Any], name: str) -> str:
    """Format the ratio `<name>_ratio` of a row and its interval for a place inside brackets.

    The form is `28.9 %, 95 % interval 22.0 to 36.8 %`.
    """
    return f"{percent(row[f'{name}_ratio'])}, {_interval(row, name)}"


def _interval(row: Mapping[str, Any], name: str) -> str:
    low, high = row[f"{name}_low_ratio"], row[f"{name}_high_ratio"]
    if low is None:
        return "no interval: too few blocks, or all alike"
    return f"{INTERVAL} {percent_interval(low, high)}"


def intervals_named_once(sentences: Iterable[str]) -> list[str]:
    """Return sentences in which only the first of all intervals is called a "95 % interval".

    The numbers stand out better so. Empty sentences are dropped.
    """
    parts = "\n".join(sentences).split(f"{INTERVAL} ")
    first = f"{INTERVAL} ".join(parts[:2])
    return [sentence for sentence in "".join([first, *parts[2:]]).split("\n") if sentence]


def intervals_unnamed(sentence: str) -> str:
    """Return a sentence without the words "95 % interval", for a place that says once what ranges are."""
    return sentence.replace(f"{INTERVAL} ", "")


def listed_pools(pools: list[str], other: str = "other pool") -> str:
    """Format names of pools for a sentence: at most four, and then the number of the others, as `other`."""
    rest = len(pools) - MAX_NAMED
    return listed(pools if rest <= 0 else [*pools[:MAX_NAMED], plural(rest, other)])


MAX_NAMED: Final = 4
