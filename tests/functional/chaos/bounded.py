"""A fault in a small form, as the suite plays it; in several files of tests, which run at the same time."""

from pathlib import Path

import pytest

from tests.functional.chaos.catalogue import FAULTS
from tests.functional.chaos.registry import NotHereError

SEED = 7


def must_hold(name: str, folder: Path, *, scale: float) -> None:
    """Play a fault and fail when something is wrong with the dataset; skip what cannot be played here."""
    try:
        verdict = FAULTS[name].run(folder, seed=SEED, scale=scale)
    except NotHereError as reason:
        pytest.skip(str(reason))
    assert verdict.faults == []
    assert verdict.figures["events"] > 0
