"""Compute cuts of growth and intervals of concentration again, in plain Python from their definitions."""

import itertools
import math
import random
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pytest

from analysis.stats import concentration, growth

SHORTEST, MOST_BREAKS = 10, 5
EXACT = 1e-9
HALF = 0.5


class Line(NamedTuple):
    """Is the best line through some points, and the residuals that it leaves."""

    slope: float
    intercept: float
    residuals: list[float]
    variation: float

    @property
    def error(self) -> float:
        """Return the sum of squared residuals."""
        return math.fsum(each**2 for each in self.residuals)


def line_through(t: Sequence[float], y: Sequence[float]) -> Line:
    """Fit a line by least squares."""
    mean_t, mean_y = math.fsum(t) / len(t), math.fsum(y) / len(y)
    slope = math.fsum((a - mean_t) * (b - mean_y) for a, b in zip(t, y, strict=True))
    slope /= math.fsum((a - mean_t) ** 2 for a in t)
    intercept = mean_y - slope * mean_t
    residuals = [b - slope * a - intercept for a, b in zip(t, y, strict=True)]
    return Line(slope, intercept, residuals, math.fsum((b - mean_y) ** 2 for b in y))


class Series:
    """Is the logarithm of a daily series, and the lines through all its pieces."""

    def __init__(self, values: Sequence[float]) -> None:
        known = [(float(day), math.log(value)) for day, value in enumerate(values) if value > 0]
        self.t, self.y = [day for day, _ in known], [value for _, value in known]
        self.n = len(known)
        self.shortest = max(SHORTEST, math.ceil(self.n / 10))
        self.floor = 1e-18 * max(max(self.y) - min(self.y), 1.0)
        self.piece = cache(lambda first, last: line_through(self.t[first:last], self.y[first:last]))
        self.best = cache(self._best)

    def _best(self, n_cuts: int, end: int) -> tuple[float, tuple[int, ...]]:
        """Return the least error of the points before `end` with so many cuts, and these cuts."""
        if n_cuts == 0:
            return self.piece(0, end).error, ()
        found = []
        for cut in range(n_cuts * self.shortest, end - self.shortest + 1):
            error, cuts = self.best(n_cuts - 1, cut)
            found.append((error + self.piece(cut, end).error, (*cuts, cut)))
        return min(found)

    def correlation(self, edges: Sequence[int]) -> float:
        """Return the correlation of neighbouring residuals within pieces, from 0 to 0.97."""
        lines = [self.piece(*pair) for pair in itertools.pairwise(edges)]
        squares = math.fsum(line.error for line in lines)
        mean_n = self.n / len(lines)
        if squares <= 1e-18 * self.n:
            return 0.0
        products = math.fsum(a * b for line in lines for a, b in itertools.pairwise(line.residuals))
        return min(max((mean_n * products / squares + 2) / (mean_n - 4), 0.0), 0.97)

    def edges(self) -> list[int]:
        """Return the ends of the pieces that the criterion of Liu, Wu and Zidek chooses."""
        most = min(MOST_BREAKS, self.n // self.shortest - 1)
        found = [self.best(n_cuts, self.n) for n_cuts in range(most + 1)]
        r = self.correlation([0, *found[-1][1], self.n])
        criteria = []
        for n_cuts, (error, cuts) in enumerate(found):
            parameters = 2 * (n_cuts + 1) + n_cuts
            penalty = parameters * 0.299 * math.log(self.n) ** 2.1 * (1 + r) / (1 - r) / self.n
            criteria.append((math.log(max(error / (self.n - parameters), self.floor)) + penalty, cuts))
        return [0, *min(criteria)[1], self.n]

    def bounds(self, edges: Sequence[int], number: int) -> tuple[float, float]:
        """Return the days between which the break lies that begins a piece."""
        before, cut, after = edges[number - 1 : number + 2]
        r, n_pieces = self.correlation(edges), len(edges) - 1
        total = math.fsum(self.piece(*pair).error for pair in itertools.pairwise(edges))
        variance = max(total / (self.n - (3 * n_pieces - 1)), self.floor) * (1 + r) / (1 - r)

        def error(place: int) -> float:
            return self.piece(before, place).error + self.piece(place, after).error

        places = range(before + SHORTEST, after - SHORTEST + 1)
        inside = [self.t[each] for each in places if error(each) - error(cut) <= 7.35 * variance]
        return inside[0], inside[-1]


def planted_series(seed: int) -> list[float]:
    """Return a series of 40 to 110 days with 0 to 2 breaks of slope, correlated noise and empty days."""
    rng = random.Random(seed)  # noqa: S311 - a planted world
    n_days, n_breaks = rng.randint(40, 110), seed % 3
    breaks = [n_days * (each + 1) // (n_breaks + 1) for each in range(n_breaks)]
    y, noise, slope, values = 40.0, 0.0, 0.01, []
    for day in range(n_days):
        if day in breaks:
            slope, y = rng.uniform(-0.05, 0.05), y + rng.choice([-0.5, 0.0, 0.5])
        y += slope
        noise = rng.choice([0.0, 0.5]) * noise + rng.gauss(0, 0.08)
        values.append(0.0 if rng.random() < HALF / 10 else math.exp(y + noise))
    return values


@pytest.mark.parametrize("seed", range(9))
def test_cuts_of_growth_are_those_of_their_definition(seed: int) -> None:
    """Cuts, the bounds of each, and the line of each piece equal those of plain Python."""
    values = planted_series(seed)
    series = Series(values)
    edges = series.edges()

    found = growth.growth_segments(np.arange(len(values), dtype=float), np.array(values))

    assert [piece.first_t for piece in found] == [series.t[edge] for edge in edges[:-1]]
    assert [piece.last_t for piece in found] == [series.t[edge - 1] for edge in edges[1:]]
    assert (found[0].first_low_t, found[0].first_high_t) == (None, None)
    for number, piece in enumerate(found):
        line = series.piece(edges[number], edges[number + 1])
        fit = (line.slope, line.intercept, 1 - line.error / line.variation)
        assert (piece.lambda_per_day, piece.intercept, piece.r_squared) == pytest.approx(fit, rel=EXACT)
        if number:
            assert (piece.first_low_t, piece.first_high_t) == series.bounds(edges, number)


def four_indices(counts: Sequence[float]) -> tuple[float, float, float, float]:
    """Return hhi, nakamoto, gini and entropy in bits, each by its definition."""
    total, falling = sum(counts), sorted(counts, reverse=True)
    shares = [count / total for count in counts]
    majority = next(n for n in range(1, len(counts) + 1) if 2 * sum(falling[:n]) > total)
    pairs = sum(abs(a - b) for a in counts for b in counts)
    entropy = -math.fsum(share * math.log2(share) for share in shares if share)
    return math.fsum(s**2 for s in shares), majority, pairs / (2 * len(counts) * total), entropy


def quantile(values: Sequence[float], tail: float) -> float:
    """Return the least value that at least this part of all values does not exceed."""
    return sorted(values)[max(math.ceil(tail * len(values) - EXACT), 1) - 1]


def wilson(successes: float, trials: float) -> tuple[float, float]:
    """Return Wilson's bounds, as the two solutions of his quadratic equation."""
    z = NormalDist().inv_cdf(0.975)
    a, b, c = trials + z**2, -(2 * successes + z**2), successes**2 / trials
    root = math.sqrt(max(b**2 - 4 * a * c, 0.0))
    low, high = (-b - root) / (2 * a), (-b + root) / (2 * a)
    return (0.0 if successes == 0 else low), (1.0 if successes == trials else high)


def drawn(counts: Sequence[int], n_draws: int) -> list[list[int]]:
    """Return the seeded draws that the indices are made of."""
    shares = np.array(counts, dtype=float) / sum(counts)
    return np.random.default_rng(20190221).multinomial(sum(counts), shares, size=n_draws).tolist()


def bounds_of(counts: Sequence[int]) -> list[float]:
    """Return the bounds of the four indices, low and high in turn."""
    found, n_blocks = four_indices(counts), sum(counts)
    of_draws = [four_indices(draw) for draw in drawn(counts, 999)]
    most = (1.0, len(counts), 1.0, math.log2(n_blocks))
    bounds: list[float] = []
    for number, index in enumerate(found):
        values = [draw[number] for draw in of_draws]
        bias = math.fsum(values) / len(values) - index
        low, high = quantile(values, 0.025), quantile(values, 0.975)
        low, high = min(low - bias, low - 3 * bias, index), max(high - bias, high - 3 * bias, index)
        bounds += [min(max(low, 0), most[number]), min(max(high, 0), most[number])]
    falling = sorted(counts, reverse=True)
    tops = [sorted(draw, reverse=True) for draw in drawn([*falling, 0], 299)]
    lows = highs = 0
    for n in range(1, len(falling) + 1):
        top = sum(falling[:n])
        low, high = wilson(top, n_blocks)
        bias = max(sum(sum(draw[:n]) for draw in tops) / len(tops) - top, 0)
        lows += max(low - 2 * bias / n_blocks, 0) <= HALF
        highs += high <= HALF
    bounds[2:4] = [1 + highs, min(1 + lows, len(falling))]
    return bounds


ODD = ([1, 1], [2, 1], [1, 1, 1, 1], [5, 5], [50, 1], [1, 50], [10] * 9, [2, 2, 1, 1], [144, 1, 1], [3, 3, 3])


@pytest.mark.parametrize("counts", [*ODD, *range(6)], ids=str)
def test_intervals_of_concentration_are_those_of_their_definition(counts: list[int] | int) -> None:
    """The bounds of all four indices equal those of plain Python, from the same draws."""
    if isinstance(counts, int):
        rng = random.Random(counts)  # noqa: S311 - a planted world
        counts = [rng.randint(1, 40) for _ in range(rng.randint(2, 15))]

    found = concentration.concentration_intervals(np.array(counts, dtype=float))

    assert found == pytest.approx(bounds_of(counts), rel=EXACT, abs=EXACT)


@pytest.mark.parametrize("counts", [[], [7], [7, 0]], ids=str)
def test_one_owner_has_no_interval_of_concentration(counts: list[int]) -> None:
    """Without two owners there is nothing to draw."""
    assert concentration.concentration_intervals(np.array(counts, dtype=float)) is None
