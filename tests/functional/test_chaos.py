"""A few faults of the chaos list, in a small form: `make chaos` plays all of them in full."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from tests.functional.chaos.catalogue import FAULTS
from tests.functional.chaos.judge import judge
from tests.functional.chaos.registry import NotHereError
from tests.functional.chaos.world import make_world

pytestmark = pytest.mark.bitcoind
SEED = 7
QUICK = {"kill": 0.07, "receiver_killed": 0.1, "drops": 0.1, "reorgs": 0.2}


@pytest.mark.parametrize("name", QUICK)
def test_the_dataset_survives(name: str, tmp_path: Path) -> None:
    """Nothing received is lost, nothing double, every hole named, as the node and a bare recorder have it."""
    try:
        verdict = FAULTS[name].run(tmp_path, seed=SEED, scale=QUICK[name])
    except NotHereError as reason:
        pytest.skip(str(reason))
    assert verdict.faults == []
    assert verdict.figures["events"] > 0


def test_the_judge_is_not_blind(tmp_path: Path) -> None:
    """A sound dataset is found sound; without a file, or with one twice, it is not."""
    with make_world(tmp_path, n_coins=1000) as world:
        world.collector.start()
        world.traffic.busy(1.5)
        assert world.conclude().faults == []
        assert world.evidence is not None
        evidence = replace(world.evidence, wants_check=False)
        files = evidence.dataset / "chain=regtest"
        for table, words in (
            ("mempool_events", "claimed by coverage, not in the dataset"),
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
