"""Play a few faults of the object store at a small scale; `make chaos` plays all faults in full."""

from pathlib import Path

import pytest

from tests.functional.chaos.bounded import must_hold

pytestmark = pytest.mark.bitcoind


@pytest.mark.parametrize(("name", "scale"), [("store_away", 0.1), ("store_killed", 0.1)])
def test_the_store_has_what_was_sealed(name: str, scale: float, tmp_path: Path) -> None:
    """The dataset survives, and the store has each sealed file once, byte for byte."""
    must_hold(name, tmp_path, scale=scale)
