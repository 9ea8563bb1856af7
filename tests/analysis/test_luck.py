"""Test luck and runs where shares are constant, and where one pool was lucky or mined in clumps."""

import random
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest

from analysis.database import open_database
from analysis.engine import build
from tests.analysis.test_cases import RULES
from tests.analysis.world import write_world

EPOCH_BLOCKS = 2016
N_EPOCHS = 6
SHARES = {"Alpha": 0.3, "Beta": 0.25, "Gamma": 0.05, "Nobody we know": 0.4}

AFTER_S = 2 * 86_400  # from the third day on the rules of the cases name the same owners

Rows = list[dict[str, Any]]


def drawn(seed: int) -> list[str]:
    """Draw the pool of each block of some epochs, with constant shares."""
    chance = random.Random(seed)  # noqa: S311 - a planted world, no secret
    return chance.choices(list(SHARES), list(SHARES.values()), k=N_EPOCHS * EPOCH_BLOCKS)


def marts(tmp_path: Path, labels: Sequence[str], *names: str) -> list[Rows]:
    """Build marts of a list of labels, one label per height from 0 on; return the rows of each."""
    rows = [
        {"source": "l", "height": height, "label": label, "header_time": AFTER_S + 600 * height}
        for height, label in enumerate(labels)
    ]
    dataset = write_world(tmp_path / "dataset", {"external_pool_labels": rows})
    result = build(dataset, RULES, tmp_path / "analysis.duckdb", marts=names)
    with open_database(result.database) as connection:
        return [connection.table(name).to_arrow_table().to_pylist() for name in names]


def unusual(rows: Rows) -> Rows:
    """Return the rows whose corrected chance is below 0.05."""
    return [row for row in rows if row["adjusted_p_value"] < 0.05]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_constant_shares_are_neither_lucky_nor_clumped(seed: int, tmp_path: Path) -> None:
    """Nothing is flagged, most intervals hold 1, and runs of two are as many as expected."""
    luck, runs = marts(tmp_path, drawn(seed), "luck", "block_runs")

    assert {row["owner"] for row in luck if row["grouped_by"] == "pool"} == {"alpha", "beta", "gamma"}
    assert unusual(luck) == unusual(runs) == []
    held = [row["luck_low_multiple"] < 1 < row["luck_high_multiple"] for row in luck]
    assert sum(held) > 0.8 * len(held)  # neighbouring epochs share blocks
    pairs = [row for row in runs if row["run_length"] == 2 and row["owner"] in {"alpha", "beta"}]
    assert all(row["found_multiple"] == pytest.approx(1, abs=0.12) for row in pairs)


def test_a_lucky_epoch_is_found(tmp_path: Path) -> None:
    """In one epoch every third block of nobody is Gamma's, which has 5 % before and after."""
    labels = drawn(4)
    for height in range(3 * EPOCH_BLOCKS, 4 * EPOCH_BLOCKS):
        if labels[height] == "Nobody we know" and height % 3 == 0:
            labels[height] = "Gamma"

    (luck,) = marts(tmp_path, labels, "luck")

    most = max((row for row in luck if row["grouped_by"] == "pool"), key=itemgetter("luck_multiple"))
    assert (most["owner"], most["epoch"]) == ("gamma", 3)
    assert most["luck_low_multiple"] < (0.05 + 0.4 / 3) / 0.05 < most["luck_high_multiple"]
    # The epochs beside it seem unlucky, as half of what they are compared with is that epoch.
    assert {row["epoch"] for row in unusual(luck) if row["owner"] == "gamma"} == {2, 3, 4}
    assert {row["owner"] for row in unusual(luck)} == {"gamma", "beta-and-gamma"}


def test_blocks_in_clumps_are_found(tmp_path: Path) -> None:
    """A pool that holds back every tenth block until its next one has no more blocks, but more in a row."""
    labels = drawn(5)
    chance = random.Random(6)  # noqa: S311 - a planted world, no secret
    for height in range(1, len(labels) - 1):
        if labels[height] == "Beta" and chance.random() < 0.1:
            later = next((h for h in range(height + 1, len(labels)) if labels[h] == "Beta"), height + 1)
            labels.insert(later - 1, labels.pop(height))

    luck, runs = marts(tmp_path, labels, "luck", "block_runs")

    flagged = {row["owner"] for row in unusual(runs) if row["grouped_by"] == "pool"}
    assert flagged == {"beta"}
    assert unusual(luck) == []
