"""Test that a stock node's own template is not blamed for its choice among transactions that pay the same."""

from pathlib import Path

import pytest

from tests.bench.score_ties import collect, score

pytestmark = pytest.mark.bitcoind
SMALL_BLOCKS = ("-blockmaxweight=220000",)


def test_a_template_takes_the_top_when_ties_are_shared(tmp_path: Path) -> None:
    """Many pay what the last of the top X pays: with shared places all of the top is taken, by entry not."""
    found = score(collect(tmp_path, 800, seed=1, options=SMALL_BLOCKS), tmp_path / "analysis.duckdb")

    assert found.n_tied > 10
    assert found.shared_ratio == 1.0
    assert found.by_entry_ratio < 0.98
