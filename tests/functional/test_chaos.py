"""A few faults of the chaos list, in a small form: `make chaos` plays all of them in full.

Here are those of our own processes; test_chaos_node.py has those of the node.
"""

from pathlib import Path

import pytest

from tests.functional.chaos.bounded import must_hold

pytestmark = pytest.mark.bitcoind


@pytest.mark.parametrize(("name", "scale"), [("kill", 0.07), ("receiver_killed", 0.1)])
def test_the_dataset_survives(name: str, scale: float, tmp_path: Path) -> None:
    """Nothing received is lost, nothing double, every hole named, as the node and a bare recorder have it."""
    must_hold(name, tmp_path, scale=scale)
