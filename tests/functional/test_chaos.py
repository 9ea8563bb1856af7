"""Play a few faults of our own processes at a small scale; `make chaos` plays all faults in full.

The faults of the node are in test_chaos_node.py.
"""

from pathlib import Path

import pytest

from tests.functional.chaos.bounded import must_hold

pytestmark = pytest.mark.bitcoind


@pytest.mark.parametrize(("name", "scale"), [("kill", 0.07), ("receiver_killed", 0.1)])
def test_the_dataset_survives(name: str, scale: float, tmp_path: Path) -> None:
    """No row is lost or doubled and every gap is named, as the node's log and a recorder show."""
    must_hold(name, tmp_path, scale=scale)
