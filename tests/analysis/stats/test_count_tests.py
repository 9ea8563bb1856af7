"""Compare intervals of counts and exact tests with published numbers, and test where they are undefined."""

import numpy as np
import pytest
from scipy import stats

from analysis.database import connect
from analysis.stats import count_tests


def test_poisson_interval_of_published_examples() -> None:
    """Garwood's table of 1936: 10 events give 4.80 to 18.39, no event gives 0 to 3.69."""
    low, high = count_tests.poisson_intervals(np.array([10.0, 0.0]))

    assert list(zip(low.round(2), high.round(2), strict=True)) == [(4.80, 18.39), (0.0, 3.69)]


def test_an_excess_is_the_upper_tail() -> None:
    """The same numbers as SciPy's Poisson distribution; no event is always reached."""
    found = count_tests.poisson_excesses(np.array([0.0, 1.0, 12.0]), np.array([2.0, 2.0, 5.5]))

    assert found == pytest.approx([1, 1 - np.exp(-2), stats.poisson.sf(11, 5.5)])


def test_two_rates_are_compared_given_the_sum_of_their_counts() -> None:
    """Of 35 events 15 fall into a third of the exposure: bounds and tails are SciPy's for a binomial part."""
    ratio, low, high, p_value = (
        column[0] for column in count_tests.rate_ratios(*(np.array([x]) for x in (15.0, 20.0, 20.0, 40.0)))
    )

    part = stats.binomtest(15, 35).proportion_ci(0.95)
    assert ratio == pytest.approx(1.5)
    assert (low, high) == pytest.approx([2 * bound / (1 - bound) for bound in part])
    assert p_value == pytest.approx(2 * stats.binom.sf(14, 35, 1 / 3))


def test_rates_without_events_have_open_ends() -> None:
    """Without events of the other there is no ratio; without any there is nothing to say."""
    none_here, none_there, none = zip(
        *count_tests.rate_ratios(
            np.array([0.0, 4.0, 0.0]), np.ones(3), np.array([4.0, 0.0, 0.0]), np.ones(3)
        ),
        strict=True,
    )

    assert none_here[:2] == (0, 0)
    assert none_here[2] > 1
    assert none_here[3] == pytest.approx(2 / 16)
    assert np.isnan([none_there[0], none_there[2]]).all()
    assert none_there[1] > 0
    assert np.isnan(none).all()


def test_fisher_test_of_the_lady_tasting_tea() -> None:
    """Fisher, 1935: 3 of 4 right cups give p = 34 / 70; the interval is that of R's fisher.test."""
    result = count_tests.fisher_test(3, 1, 1, 3)

    assert result is not None
    assert result.p_value == pytest.approx(34 / 70)
    assert result[:2] == pytest.approx((6.408309, 0.2117329), rel=1e-4)
    assert result.odds_high == pytest.approx(621.93, rel=0.01)  # R stops its search early


@pytest.mark.parametrize("table", [(3, 1, 1, 3), (0, 144, 6, 138), (2, 0, 0, 1), (12, 5, 7, 16)])
def test_the_exact_p_value_alone_is_that_of_the_whole_test(table: tuple[int, int, int, int]) -> None:
    """The p-value is the same with the odds ratio and without; an empty row or column gives None."""
    whole = count_tests.fisher_test(*table)
    assert whole is not None
    assert count_tests.fisher_p_value(*table) == whole.p_value
    assert count_tests.fisher_p_value(0, 5, 0, 7) is None


def test_functions_in_sql_are_null_where_there_is_nothing_to_say() -> None:
    """A null count, an empty row of a table and an infinite odds ratio give nulls."""
    with connect() as connection:
        rows = connection.execute(
            "SELECT poisson_interval(k).low, poisson_interval(k).high, fisher_test(k, 3, 0, 3).p_value,"
            " fisher_test(2, 0, 0, 2).odds_high, fisher_p_value(k, 3, 0, 3) FROM (VALUES (NULL), (0)) AS t(k)"
        ).fetchall()

    assert rows[0] == (None, None, None, None, None)
    assert rows[1] == (0, pytest.approx(3.6889, abs=1e-4), None, None, None)


def test_tables_are_compared_within_strata() -> None:
    """In Simpson's paradox the stratified odds ratio is the opposite of that of the summed table.

    80 of 100 against 9 of 10, and 1 of 10 against 20 of 100. Added up the first kind has the higher rate,
    within each stratum the lower. The odds by hand are (80 / 110 + 80 / 110) / (180 / 110 + 180 / 110).
    """
    a, b, c, d = (np.array(each, float) for each in ([80, 1], [20, 9], [9, 20], [1, 80]))

    result = count_tests.stratified_test(a, b, c, d)
    pooled = count_tests.fisher_test(81, 29, 29, 81)

    assert result is not None
    assert pooled is not None
    assert pooled.odds > 1 > result.odds == pytest.approx((160 / 110) / (360 / 110))
    assert result.odds_low < result.odds < result.odds_high


def test_the_stratified_test_of_one_table_is_the_textbook_one() -> None:
    """One table gives the odds ratio a d / b c, Woolf's interval and chi-square with correction."""
    tables = np.array([[12.0], [5.0], [7.0], [16.0]])

    result = count_tests.stratified_test(*tables)

    woolf = np.exp(1.959964 * np.sqrt((1 / tables).sum()))
    excess = 12 - 17 * 19 / 40
    chi_square = (excess - 0.5) ** 2 / (17 * 23 * 19 * 21 / (40**2 * 39))
    odds = 12 * 16 / 35
    assert result == pytest.approx((odds, odds / woolf, odds * woolf, stats.chi2.sf(chi_square, 1)), rel=1e-5)


@pytest.mark.parametrize("count", [40_000, 70_000, 10_000_000])
def test_the_stratified_test_takes_large_counts(count: int) -> None:
    """The product of the four sums of a table may be above 64 bits."""
    with connect() as connection:
        query = "SELECT stratified_test([?], [?], [?], [?]).odds"
        answer = connection.execute(query, [count, 2 * count, count, count]).fetchone()

    assert answer == (pytest.approx(0.5),)


def test_the_stratified_test_rejects_about_as_often_as_it_says() -> None:
    """Where rates differ only between strata, p is below 0.05 in at most 20 of 300 samples."""
    rng = np.random.default_rng(4)
    chance = np.array([0.02, 0.1, 0.3])
    after_same, after_other = np.array([200, 50, 10]), np.array([300, 250, 200])
    n_found = 0
    for _ in range(300):
        a, c = rng.binomial(after_same, chance), rng.binomial(after_other, chance)
        result = count_tests.stratified_test(a, after_same - a, c, after_other - c)
        n_found += result is not None and result.p_value < 0.05
    assert n_found <= 20


def test_strata_that_cannot_differ_say_nothing() -> None:
    """No table, tables without empty blocks and tables with an empty row give None."""
    nothing = np.zeros(2)
    assert count_tests.stratified_test(*[np.empty(0)] * 4) is None
    assert count_tests.stratified_test(nothing, np.ones(2), nothing, np.ones(2)) is None
    assert count_tests.stratified_test(np.ones(2), np.ones(2), nothing, nothing) is None


def test_the_odds_of_a_large_table_are_those_of_the_sample() -> None:
    """Above 20,000 counts the odds ratio is a d / b c with Woolf's interval, and an exact p-value."""
    table = (50, 6000, 200, 30_000)

    result = count_tests.fisher_test(*table)

    woolf = np.exp(1.959964 * np.sqrt(sum(1 / count for count in table)))
    assert result is not None
    assert result[:3] == pytest.approx((1.25, 1.25 / woolf, 1.25 * woolf), rel=1e-7)
    assert result.p_value == count_tests.fisher_p_value(*table)


def test_a_block_is_one_trial() -> None:
    """Seven equal blocks of two tables give t = 1.75 sqrt(7 / V), a single one nothing; odds 5 * 4 / (1 * 6).

    V is that of twelve transactions that go together, 11 of 16 times. Equal blocks do not tell the width of
    an interval.
    """
    blocks, (a, b, c, d) = np.repeat(np.arange(7), 2), (np.full(14, n) for n in (5, 1, 6, 4))

    result = count_tests.block_stratified_test(blocks, a, b, c, d)
    one = count_tests.block_stratified_test(np.zeros(14), a, b, c, d)

    assert result is not None
    t = 1.75 * np.sqrt(7) / (12 * np.sqrt(11 / 16 * 5 / 16))
    assert (result.odds, result.p_value) == pytest.approx((20 / 6, 2 * stats.t.sf(t, 6)))
    assert np.isnan(result.odds_low)
    assert one is not None
    assert (one.odds, one.p_value) == pytest.approx((20 / 6, 1))
    assert count_tests.block_stratified_test(*[np.empty(0)] * 5) is None


def test_a_rare_kind_that_misses_nothing_by_chance_is_no_finding() -> None:
    """One transaction a block is missed as often as others, hardly ever: p is below 0.05 in at most 5 of 100.

    A refusal of such a kind is found.
    """
    rng = np.random.default_rng(5)
    blocks, n_found = np.arange(50), 0
    for _ in range(100):
        missed, others = rng.binomial(1, 0.02, 50), rng.binomial(200, 0.02, 50)
        result = count_tests.block_stratified_test(blocks, 1 - missed, missed, 200 - others, others)
        n_found += result is not None and result.p_value < 0.05
    refused = count_tests.block_stratified_test(blocks, 0 * missed, 1 + 0 * missed, 200 - others, others)

    assert n_found <= 5
    assert refused is not None
    assert refused.p_value < 1e-6


def test_transactions_that_are_missed_together_are_no_finding() -> None:
    """A pool misses senders of ten transactions as often as others: p is below 0.05 in at most 12 of 100.

    The interval of the odds holds 1 in at least 88. Taken as independent, the transactions give a finding in
    more than 30.
    """
    rng = np.random.default_rng(4)
    n_found = n_apart = n_held = 0
    for _ in range(100):
        senders = rng.poisson(2, 100)
        missed, ordinary_missed = rng.binomial(senders, 0.03) * 10, rng.binomial(300, 0.03, 100)
        tables = (senders * 10 - missed, missed, 300 - ordinary_missed, ordinary_missed)
        result = count_tests.block_stratified_test(np.arange(100), *tables)
        apart = count_tests.stratified_test(*tables)
        assert result is not None
        assert apart is not None
        n_found += result.p_value < 0.05
        n_apart += apart.p_value < 0.05
        n_held += not (result.odds_low > 1 or result.odds_high < 1)
    assert n_found <= 12
    assert n_held >= 88
    assert n_apart > 30
