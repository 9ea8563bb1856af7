"""Model which transactions a block takes, by logistic regression on ranks.

As SQL function:

    inclusion_model(taken, block, package, waiting, size)    coefficients with 95 % intervals
"""

from typing import Final

import numpy as np
import pyarrow as pa

from analysis.stats.intervals import CONFIDENCE
from analysis.stats.sql_functions import Numbers, SqlFunction, by_row, struct_sql

FACTORS: Final = ("package", "waiting", "size")
PRIOR_SD: Final = 10.0
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
    from scipy import optimize, special, stats  # noqa: PLC0415 - SciPy loads slowly, only a build needs it

    _, cluster = np.unique(block, return_inverse=True)
    if len(taken) == 0 or np.ptp(taken) == 0 or cluster.max() == 0:
        return None
    design = np.column_stack([np.ones(len(taken)), *factors])
    precision = np.array([0.0, *([PRIOR_SD**-2] * len(factors))])

    def loss(beta: Numbers) -> float:
        score = design @ beta
        penalty = float(precision @ beta**2) / 2
        return float((np.logaddexp(0, score) - taken * score).sum()) + penalty

    def gradient(beta: Numbers) -> Numbers:
        slope: Numbers = design.T @ (special.expit(design @ beta) - taken) + precision * beta
        return slope

    def hessian(beta: Numbers) -> Numbers:
        chance = special.expit(design @ beta)
        curve: Numbers = (design.T * (chance * (1 - chance))) @ design + np.diag(precision)
        return curve

    beta = optimize.minimize(
        loss, np.zeros(design.shape[1]), jac=gradient, hess=hessian, method="trust-exact"
    ).x
    residuals = design * (special.expit(design @ beta) - taken)[:, None]
    by_block = np.zeros((cluster.max() + 1, design.shape[1]))
    np.add.at(by_block, cluster, residuals)
    bread = np.linalg.pinv(hessian(beta))
    n_blocks = len(by_block)
    variance = np.diag(bread @ (by_block.T @ by_block) @ bread) * n_blocks / (n_blocks - 1)
    spread = np.sqrt(np.maximum(variance, 0))  # rounding may leave a zero below zero
    half = stats.t.ppf((1 + CONFIDENCE) / 2, n_blocks - 1) * spread
    terms = np.column_stack([beta, beta - half, beta + half])[1:]
    return tuple(float(number) for number in terms.ravel())


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
