"""Test the growth of a pool that grew and then found nothing, beside one that is always large."""

import random
from collections.abc import Iterator

import duckdb
import pytest

from tests.analysis.shared_build import shared_build

N_UNKNOWN_DAYS, N_DAYS, BLOCKS_PER_DAY, DEAD_FROM = 5, 90, 24, 45
MARTS = ["hashrate_growth", "revenue_growth", "hashrate_segment"]


@pytest.fixture(scope="module")
def world() -> Iterator[duckdb.DuckDBPyConnection]:
    """Build 5 days of unknown blocks, then 90 in which Alpha finds 1 to 8 a day for 45 days and then none.

    There are 24 blocks a day; Beta finds the rest.
    """
    draw = random.Random(1)  # noqa: S311 - a test wants repeatable chance
    blocks = []
    for day in range(N_UNKNOWN_DAYS + N_DAYS):
        age = day - N_UNKNOWN_DAYS
        n_alpha = round(1 + 7 * age / DEAD_FROM) if 0 <= age < DEAD_FROM else 0
        alpha = draw.sample(range(BLOCKS_PER_DAY), n_alpha)
        for number in range(BLOCKS_PER_DAY):
            height = day * BLOCKS_PER_DAY + number
            parent = {"prev_hash": f"b{height - 1}"} if height else {}
            pool = "/Alpha/" if number in alpha else "/Beta/" if age >= 0 else "/Nobody/"
            block = {"block_hash": f"b{height}", "height": height, "header_time": height * 3600, **parent}
            reward = {"subsidy_sat": int(1e9 * 0.99**day), "fees_sat": 1000}
            blocks.append({**block, **reward, "bits": 486604799, "coinbase_script": pool, "rows": "-"})
    with shared_build() as shared, shared.built({"blocks": blocks}, MARTS) as connection:
        yield connection


def test_a_dead_pool_has_not_certainly_grown(world: duckdb.DuckDBPyConnection) -> None:
    """Every day with a known owner counts, in hashrate and in revenue; hashprice has the days with blocks."""
    fits = dict(
        world.execute(
            "SELECT metric, (n_days, lambda_low_per_day > 0, lambda_high_per_day < 0) FROM revenue_growth"
            " WHERE grouped_by = 'pool' AND owner = 'alpha'"
        ).fetchall()
    )
    own = world.execute(
        "SELECT n_days, lambda_low_per_day > 0, last_day - first_day FROM hashrate_growth"
        " WHERE grouped_by = 'pool' AND owner = 'alpha'"
    ).fetchone()

    assert fits == {
        "hashrate": (N_DAYS, False, False),
        "revenue_sat": (N_DAYS, False, False),
        "hashprice_sat": (DEAD_FROM, False, True),
    }
    assert own == (N_DAYS, False, DEAD_FROM - 1)


def test_only_pools_of_many_blocks_are_cut_into_pieces(world: duckdb.DuckDBPyConnection) -> None:
    """Beta, with 16 blocks a day or more, has pieces; Alpha, with fewer than 10, has none."""
    found = world.execute("SELECT DISTINCT owner FROM hashrate_segment WHERE grouped_by = 'pool'").fetchall()
    assert found == [("beta",)]
