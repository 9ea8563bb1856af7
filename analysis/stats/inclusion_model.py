"""Model which transactions a block takes, by logistic regression on ranks.

As SQL function:

    inclusion_model(taken, block, package, waiting, size)    coefficients with 95 % intervals
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from analysis.stats.intervals import CONFIDENCE
from analysis.stats.sql_functions import Numbers, SqlFunction, by_row, struct_sql

FACTORS: Final = ("package", "waiting", "size")
PRIOR_SD: Final = 10.0
FIRST_STEP: Final = 16.0  # length of the first step at most; coefficients of ranks are up to about 30
CHUNK: Final = 16_384
MODEL: Final = pa.struct(
    [(f"{factor}{bound}", pa.float64()) for factor in FACTORS for bound in ("", "_low", "_high")]
)


def inclusion_model(taken: Numbers, block: Numbers, *factors: Numbers) -> tuple[float, ...] | None:
    """Fit a logistic regression of which waiting transactions blocks took.

    It returns coefficient, lower and upper 95 % bound of each factor in turn, in one tuple. Each element of
    the arguments is a pair of a block and a transaction that waited: `taken` is 1 where the block took it,
    else 0; `block` identifies the block; each of `factors` has one value per pair. The result is None unless
    there are taken and left transactions and at least two blocks.

    The fit is maximum likelihood with an intercept by scipy.optimize.minimize, under a normal prior of
    standard deviation 10 on coefficients. The prior only matters where a factor separates taken from left
    transactions without error. The covariance is the sandwich over blocks: K.-Y. Liang and S. L. Zeger, 1986,
    doi:10.1093/biomet/73.1.13. For G blocks, Student's t with G - 1 degrees of freedom and the factor G / (G
    - 1) keep the intervals of few blocks from being too narrow: A. C. Cameron and D. L. Miller, 2015,
    doi:10.3368/jhr.50.2.317.
    """
    _, cluster = np.unique(block, return_inverse=True)
    if len(taken) == 0 or np.ptp(taken) == 0 or cluster.max() == 0:
        return None
    from scipy import optimize, special  # noqa: PLC0415 - SciPy loads slowly, and only a fit needs it

    fit = _Fit(taken, factors)
    beta = optimize.minimize(
        fit.loss,
        np.zeros(len(factors) + 1),
        jac=fit.gradient,
        hess=fit.hessian,
        method="trust-exact",
        options={"initial_trust_radius": FIRST_STEP},
    ).x
    n_blocks = int(cluster.max()) + 1
    by_block = fit.residuals(beta, cluster, n_blocks)
    meat = np.array([[(one * other).sum() for other in by_block] for one in by_block])
    bread = np.linalg.pinv(fit.hessian(beta))
    variance = np.diag(bread @ meat @ bread) * n_blocks / (n_blocks - 1)
    spread = np.sqrt(np.maximum(variance, 0))  # rounding may leave a zero below zero
    half = special.stdtrit(n_blocks - 1, (1 + CONFIDENCE) / 2) * spread  # scipy.stats.t.ppf
    terms = np.column_stack([beta, beta - half, beta + half])[1:]
    return tuple(float(number) for number in terms.ravel())


class _Fit:
    """Computes the loss of coefficients and its derivatives, chunk by chunk of the pairs.

    No product of matrices is as long as the pairs: its digits would depend on the threads of the library
    that computes it, and so on the machine.
    """

    def __init__(self, taken: Numbers, factors: tuple[Numbers, ...]) -> None:
        self._taken = taken
        self._factors = factors
        self._precision = np.array([0.0, *([PRIOR_SD**-2] * len(factors))])
        self._at: bytes | None = None

    def loss(self, beta: Numbers) -> float:
        """Return the negative logarithm of the posterior density, up to a constant."""
        self._evaluate(beta)
        return self._loss

    def gradient(self, beta: Numbers) -> Numbers:
        """Return the first derivatives of the loss at the coefficients `beta`."""
        self._evaluate(beta)
        return self._gradient

    def hessian(self, beta: Numbers) -> Numbers:
        """Return the second derivatives of the loss at the coefficients `beta`."""
        self._evaluate(beta)
        return self._hessian

    def residuals(self, beta: Numbers, cluster: npt.NDArray[np.intp], n_blocks: int) -> list[Numbers]:
        """Return the gradient of the loss without the prior, summed over the pairs of each block.

        There is one array per coefficient, float64[n_blocks]. `cluster` has the number of each pair's block.
        """
        sums = [np.zeros(n_blocks) for _ in beta]
        for part, columns in self._chunks():
            _, _, chance = _likelihood(beta, columns)
            error = chance - self._taken[part]
            for number, column in enumerate(columns):
                sums[number] += np.bincount(cluster[part], error * column, n_blocks)
        return sums

    def _evaluate(self, beta: Numbers) -> None:
        """Compute loss, gradient and Hessian together; keep them for the next call with the same `beta`."""
        if self._at == beta.tobytes():
            return
        self._at = beta.tobytes()
        loss = float((self._precision * beta**2).sum()) / 2
        gradient = self._precision * beta
        hessian = np.diag(self._precision)
        for part, columns in self._chunks():
            score, log_partition, chance = _likelihood(beta, columns)
            taken = self._taken[part]
            loss += float((log_partition - taken * score).sum())
            error, weight = chance - taken, chance * (1 - chance)
            for i, column in enumerate(columns):
                gradient[i] += (error * column).sum()
                weighted = weight * column
                for j in range(i + 1):
                    hessian[i, j] += (weighted * columns[j]).sum()
        self._loss, self._gradient = loss, gradient
        self._hessian = np.tril(hessian) + np.tril(hessian, -1).T

    def _chunks(self) -> Iterator[tuple[slice, list[Numbers]]]:
        """Yield the factors of the pairs in chunks that fit in a processor's cache, with a column of ones."""
        for begin in range(0, len(self._taken), CHUNK):
            part = slice(begin, begin + CHUNK)
            columns = [factor[part] for factor in self._factors]
            yield part, [np.ones(len(columns[0])), *columns]


def _likelihood(beta: Numbers, columns: list[Numbers]) -> tuple[Numbers, Numbers, Numbers]:
    """Return log odds, log(1 + odds) and probability of being taken for each pair, without overflow."""
    score: Numbers = beta[0] * columns[0]
    for coefficient, column in zip(beta[1:], columns[1:], strict=True):
        score += coefficient * column
    small = np.exp(-np.abs(score))
    chance = np.where(score >= 0, 1.0, small) / (1 + small)
    return score, np.maximum(score, 0) + np.log1p(small), chance


FUNCTIONS: Final = (
    SqlFunction(
        "inclusion_model",
        lambda taken, block, package, waiting, size: by_row(
            inclusion_model, MODEL, taken, block, package, waiting, size
        ),
        ["DOUBLE[]"] * 5,
        struct_sql(MODEL),
    ),
)
