"""Play a few faults of the node at a small scale, and test the judge of chaos runs; see test_chaos.py."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.chaos.bounded import must_hold
from tests.functional.chaos.judge import judge
from tests.functional.chaos.world import make_world

pytestmark = pytest.mark.bitcoind


@pytest.mark.parametrize(("name", "scale"), [("drops", 0.1), ("reorgs", 0.2), ("stop_while_rpc_hangs", 0.1)])
def test_the_dataset_survives(name: str, scale: float, tmp_path: Path) -> None:
    """No row is lost or doubled and every gap is named, as the node's log and a recorder show."""
    must_hold(name, tmp_path, scale=scale)


def test_the_judge_finds_missing_and_double_files(tmp_path: Path) -> None:
    """The judge accepts a sound dataset, and rejects it when a file is missing or there twice."""
    with make_world(tmp_path, n_coins=1000) as world:
        world.collector.start()
        world.traffic.busy(1.5)
        assert world.conclude().faults == []
        assert world.evidence is not None
        evidence = replace(world.evidence, wants_check=False)
        files = evidence.dataset / "chain=regtest"
        for table, words in (
            ("mempool_events", "claimed by coverage, not in the dataset"),
            ("mempool_events", "said to be pushed, without their event"),
            ("blocks", "blocks missing"),
            ("transactions", "blocks that differ from getblock"),
            ("coverage", "in the dataset, outside coverage"),
        ):
            file = max((files / table).glob("*/*.parquet"), key=lambda path: path.stat().st_size)
            double = file.with_name(f"double-{file.name}")
            shutil.copy(file, double)
            assert any(f"rows twice in {table}" in each for each in judge(evidence).faults)
            double.unlink()
            aside = file.rename(tmp_path / file.name)
            assert any(words in each for each in judge(evidence).faults)
            aside.rename(file)
