"""Test that the model of inclusion finds planted coefficients, and gives None without a comparison."""

import numpy as np
import pytest
from scipy import stats

from analysis.stats.inclusion_model import inclusion_model


def test_coefficient_of_one_yes_or_no_factor_is_the_log_odds_ratio() -> None:
    """30 of 40 against 10 of 40 gives log(9), with the standard error of a two-by-two table.

    Each pair is a block of its own.
    """
    taken = np.repeat([1.0, 0.0, 1.0, 0.0], [30, 10, 10, 30])
    factor = np.repeat([1.0, 0.0], [40, 40])
    nothing = np.zeros(80)

    result = inclusion_model(taken, np.arange(80.0), factor, nothing, nothing)

    assert result is not None
    half = stats.t.ppf(0.975, 79) * np.sqrt((2 / 30 + 2 / 10) * 80 / 79)
    expected = (np.log(9), np.log(9) - half, np.log(9) + half)
    assert result[:3] == pytest.approx(expected, rel=0.01)
    assert result[3:] == pytest.approx([0] * 6, abs=1e-6)


@pytest.mark.parametrize("n_blocks", [5, 20])
def test_planted_coefficients_lie_in_their_intervals_about_as_often_as_said(n_blocks: int) -> None:
    """In at least 88 of 100 worlds each interval holds the planted coefficient.

    The blocks of a world differ in how much they take.
    """
    rng = np.random.default_rng(3)
    hits = np.zeros(3)
    planted = np.array([4.0, 1.0, 0.0])
    blocks = np.repeat(np.arange(float(n_blocks)), 40)
    for _ in range(100):
        factors = rng.uniform(size=(3, len(blocks)))
        chance = 1 / (1 + np.exp(2.5 + rng.normal(0, 0.3, n_blocks)[blocks.astype(int)] - planted @ factors))
        taken = (rng.uniform(size=len(blocks)) < chance).astype(float)
        result = inclusion_model(taken, blocks, *factors)
        assert result is not None
        terms = np.reshape(result, (3, 3))
        hits += (terms[:, 1] <= planted) & (planted <= terms[:, 2])

    assert (hits >= 88).all(), hits


@pytest.mark.parametrize(
    ("taken", "block"),
    [([], []), ([1, 1], [1, 2]), ([0, 0], [1, 2]), ([0, 1], [1, 1])],
    ids=["no-pairs", "all-taken", "none-taken", "one-block"],
)
def test_no_model_where_nothing_can_be_compared(taken: list[int], block: list[int]) -> None:
    """No pairs, only taken or only left ones, or a single block give None."""
    factors = [np.linspace(0, 1, len(taken))] * 3

    assert inclusion_model(np.array(taken, float), np.array(block, float), *factors) is None


def test_a_factor_that_separates_gives_a_finite_coefficient() -> None:
    """If exactly the better half is taken, the coefficient is large and not infinite."""
    rank = np.tile(np.linspace(0, 1, 50), 10)

    result = inclusion_model(
        (rank > 0.5).astype(float), np.repeat(np.arange(10.0), 50), rank, 0 * rank, 0 * rank
    )

    assert result is not None
    assert 15 < result[0] < 100
