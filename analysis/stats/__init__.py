"""Provide statistics that SQL lacks, as SQL functions of DuckDB.

FUNCTIONS holds all of them. Each module lists its own functions in a tuple of the same name.
"""

from typing import Final

from analysis.stats import (
    algorithm_posterior,
    block_algorithms,
    block_order,
    chunk_feerates,
    concentration,
    count_tests,
    event_study,
    growth,
    inclusion_model,
    intervals,
    rank_tests,
    survival,
    threshold,
)

FUNCTIONS: Final = (
    *intervals.FUNCTIONS,
    *rank_tests.FUNCTIONS,
    *count_tests.FUNCTIONS,
    *concentration.FUNCTIONS,
    *threshold.FUNCTIONS,
    *growth.FUNCTIONS,
    *event_study.FUNCTIONS,
    *inclusion_model.FUNCTIONS,
    *chunk_feerates.FUNCTIONS,
    *survival.FUNCTIONS,
    *block_order.FUNCTIONS,
    *block_algorithms.FUNCTIONS,
    *algorithm_posterior.FUNCTIONS,
)
