"""Tests how numbers, times and text from strangers are written for people."""

import datetime as dt
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.report import text

UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text())
def test_printable_text_never_steers_anything(hostile: str) -> None:
    """No control, format, surrogate or private character is left, and the length has a limit."""
    shown = text.printable(hostile, max_length=20)

    assert not {unicodedata.category(character) for character in shown} & UNSAFE
    assert len(shown) <= 20 * len("⟨U+10FFFF⟩") + 1


@given(st.text(alphabet=st.characters(categories=("L", "N", "P", "S", "M", "Zs")), max_size=100))
def test_harmless_text_is_shown_as_it_is(harmless: str) -> None:
    """Letters, signs and emoji of every script are not changed."""
    assert text.printable(harmless) == harmless


@pytest.mark.parametrize(
    ("ratio", "shown"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.99999, "99.9 %"),
        (1 - 1e-12, "100 %"),
        (0.2889, "28.9 %"),
        (0.0123, "1.2 %"),
        (0.00354, "0.35 %"),
        (0.003, "0.30 %"),
        (0.00001, "<0.01 %"),
        (None, text.NOTHING),
        (float("nan"), text.NOTHING),
    ],
)
def test_percent_has_the_digits_a_reader_can_use(ratio: float | None, shown: str) -> None:
    """A ratio below 1 is never written as 100.0 %, and a ratio above 0 never as 0 %."""
    assert text.percent(ratio).replace(text.GAP, " ") == shown


@pytest.mark.parametrize(
    ("amount_sat", "shown"),
    [
        (312_500_000, "3.125"),
        (2_500_000_000, "25.00"),
        (123_456_700_000_000, "1,234,567.00"),
        (314_159_265, "3.14159265"),
        (1, "0.00000001"),
        (0, "0.00"),
        (None, text.NOTHING),
    ],
)
def test_an_amount_of_a_block_has_every_digit(amount_sat: int | None, shown: str) -> None:
    """A subsidy of 3.125 BTC is not written as 3.12."""
    assert text.exact_bitcoin(amount_sat) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.0, "0 s"),
        (0.04213, "42.1 ms"),
        (0.000048, "48.0 µs"),
        (0.392, "0.392 s"),
        (4.2, "4.20 s"),
        (59.96, "60.0 s"),
        (60, "1 min"),
        (590.4, "9 min 50 s"),
        (3600, "1 h"),
        (273_600, "3 d 4 h"),
        (None, text.NOTHING),
    ],
)
def test_durations_have_at_most_two_units(seconds: float | None, shown: str) -> None:
    """A duration below a minute has three digits, and a longer one has two units."""
    assert text.duration(seconds).replace(text.GAP, " ") == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (123_456.7, "123,457"),
        (-0.165, "\N{MINUS SIGN}0.165"),
        (0.000150, "0.000150"),
        (4.66e-10, "4.66 \N{MULTIPLICATION SIGN} 10⁻¹⁰"),
        (-1.184e26, "\N{MINUS SIGN}1.18 \N{MULTIPLICATION SIGN} 10²⁶"),
        (999_999_999.0, "999,999,999"),
        (1e9, "1.00 \N{MULTIPLICATION SIGN} 10⁹"),
        (0.0, "0"),
        (None, text.NOTHING),
    ],
)
def test_numbers_have_three_digits_and_no_row_of_zeros(number: float | None, shown: str) -> None:
    """Thousands have commas, a minus is a true minus sign, very large and small numbers a power of ten."""
    assert text.decimal(number).replace(text.GAP, " ") == shown


@pytest.mark.parametrize(
    ("number", "shown"),
    [(6.12e20, "612 EH/s"), (1.27, "1.27 H/s"), (0.00333, "3.33 mH/s"), (0.9996, "1.00 H/s"), (0, "0 H/s")],
)
def test_a_unit_gets_the_prefix_that_leaves_few_digits(number: float, shown: str) -> None:
    """Large and small numbers get the metric prefix that leaves one to three digits before the point."""
    assert text.metric(number, "H/s").replace(text.GAP, " ") == shown


@pytest.mark.parametrize(
    ("per_ph", "shown"),
    [(55.31, "1 PH/s earned 55.3 USD"), (4.2e12, "1 GH/s earned 4,200,000 USD"), (None, text.NOTHING)],
)
def test_hashprice_is_told_of_as_much_power_as_earns_a_sum_one_can_imagine(
    per_ph: float | None, shown: str
) -> None:
    """On a chain with a low difficulty the sum is that of 1 GH/s, because 1 PH/s would earn too much."""
    assert text.hashprice(per_ph, "USD").replace(text.GAP, " ") == shown


def test_hashprice_of_hardly_any_difficulty_is_a_power_of_ten() -> None:
    """On regtest even 1 H/s earns billions, so the sum is written with a power of ten."""
    assert (
        text.hashprice(1.184e26, "USD").replace(text.GAP, " ")
        == "1 H/s earned 1.18 \N{MULTIPLICATION SIGN} 10¹¹ USD"
    )


def test_a_count_beyond_counting_is_a_power_of_ten() -> None:
    """A count below 10^15 is written with every digit, and a larger one with a power of ten."""
    assert text.count(123_456_789_012) == "123,456,789,012"
    assert text.count(1.767e32).replace(text.GAP, " ") == "1.77 \N{MULTIPLICATION SIGN} 10³²"


def test_effects_and_chances_are_written_as_papers_do() -> None:
    """An effect size has a true minus sign, and a tiny p value is written as `<0.001`."""
    assert text.signed(-0.525) == "\N{MINUS SIGN}0.53"
    assert text.signed(0.2) == "+0.20"
    assert text.p_value(1e-300) == "<0.001"
    assert text.p_claim(1e-300) == "p < 0.001"
    assert text.p_claim(0.0321) == "p = 0.032"


def test_a_window_names_one_day_once() -> None:
    """A span in UTC that begins and ends on one day names the day once."""
    first = dt.datetime(2026, 3, 2, 10, 0, 59, tzinfo=dt.UTC)

    assert text.span(first, first.replace(hour=12)) == "2026-03-02 10:00 to 12:00 UTC"
    assert text.span(first, first.replace(day=3)) == "2026-03-02 10:00 to 2026-03-03 10:00 UTC"
    assert text.span(None, first) == text.NOTHING


def test_sentences_list_and_count_as_people_do() -> None:
    """Names are joined with commas and "and", and a noun takes the plural unless the count is 1."""
    assert [text.listed(list("abc")[:n]) for n in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert text.plural(1, "block") == "1 block"
    assert text.plural(2016, "block") == "2,016 blocks"
    assert text.plural(0, "match", "matches") == "0 matches"


def test_changes_quotients_and_indices_have_the_digits_of_other_numbers() -> None:
    """Each has three digits and its own sign; a whole index has no decimals, a missing number is a dash."""
    assert text.growth(0.00123).replace(text.GAP, " ") == "+0.123 %"
    assert text.growth_range(-0.0001, 0.00123).replace(text.GAP, " ") == "\N{MINUS SIGN}0.0100 to +0.123 %"
    assert text.quotient_range(0.912, 1.2) == "\N{MULTIPLICATION SIGN}0.912 to \N{MULTIPLICATION SIGN}1.20"
    assert text.share_change_range(-0.004, 0.0132) == "\N{MINUS SIGN}0.4 to +1.3"
    assert text.index_range(3.0, 0.1844) == "3 to 0.184"
    assert {write(None) for write in (text.growth, text.quotient, text.share_change)} == {text.NOTHING}
    assert text.index_number(None) == text.growth_range(None, None) == text.NOTHING


def test_of_several_sentences_only_the_first_interval_has_its_name() -> None:
    """The words stand where a reader meets the first interval; one without numbers beside it keeps them."""
    row = {"share_ratio": 0.289, "share_low_ratio": 0.22, "share_high_ratio": 0.368}
    sentence = f"Alpha mined {text.with_interval(row, 'share')}."

    first, second, third = text.intervals_named_once(["No number.", sentence, f"{sentence} {sentence}"])

    assert (first, second) == ("No number.", sentence)
    assert third.count("22.0 to 36.8") == 2
    assert text.INTERVAL not in third
    assert text.intervals_unnamed(sentence).replace(text.GAP, " ") == "Alpha mined 28.9 % (22.0 to 36.8 %)."
