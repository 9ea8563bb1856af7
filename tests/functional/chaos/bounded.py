"""Play one fault at a small scale, as the test suite does; several test files use this at the same time."""

from pathlib import Path

import pytest

from tests.functional.chaos.catalogue import FAULTS
from tests.functional.chaos.registry import NotHereError

SEED = 7


def must_hold(name: str, folder: Path, *, scale: float) -> None:
    """Play the named fault and fail when the dataset is wrong; skip when this machine cannot play it."""
    try:
        verdict = FAULTS[name].run(folder, seed=SEED, scale=scale)
    except NotHereError as reason:
        pytest.skip(str(reason))
    assert verdict.faults == []
    assert verdict.figures["events"] > 0
