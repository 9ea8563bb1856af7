"""Test a backfill on a Spark cluster: real workers, one of them killed, and every row there once."""

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from collector.backfill.cluster import SparkPool
from collector.dataset.open import Dataset
from collector.errors import SettingsError
from tests.collector.backfill.conftest import Rows, rows_of

TWO_WORKERS = "local-cluster[2,1,1024]"
WAIT_S = 500.0
# A backfill whose first worker is killed when its unit is written, and before Spark hears of it.
KILLED = """
import os, signal, sys
from pathlib import Path
from rich.console import Console
from collector.backfill import run
from collector.backfill.blockfiles import BlockFolder
from collector.backfill.progress import ProgressView
from collector.backfill.selection import BlockSelection
from collector.dataset.open import Dataset

class KilledOnce:
    def __init__(self, work):
        self.work = work
    def __call__(self, unit):
        result = self.work(unit)
        try:
            marker.touch(exist_ok=False)
        except FileExistsError:
            return result
        os.kill(os.getpid(), signal.SIGKILL)

blocks, root, marker, master = *map(Path, sys.argv[1:4]), sys.argv[4]
work = run.FileWork
run.FileWork = lambda *parts: KilledOnce(work(*parts))
into = Dataset.open(root, "regtest")
with ProgressView(Console(quiet=True), 1) as progress:
    run.from_files(
        BlockFolder(blocks, None), into, BlockSelection(), workers=1, progress=progress, engine=master
    )
"""
needs_spark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None or shutil.which("java") is None,
    reason="PySpark or Java is not installed",
)


@needs_spark
@pytest.mark.bitcoind
@pytest.mark.timeout(600)
def test_workers_of_a_cluster_write_every_row_once(
    blocks_dir: Path, dataset: Dataset, expected: Rows, tmp_path: Path
) -> None:
    """A unit whose worker is killed is done again, once, and nothing is written twice."""
    marker = tmp_path / "killed"
    command = [sys.executable, "-c", KILLED, blocks_dir, dataset.root, marker, TWO_WORKERS]
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=WAIT_S
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert marker.exists()
    assert rows_of(dataset) == expected


@pytest.mark.parametrize("master", ["spark", "local", "http://127.0.0.1:1", "spark://a b"])
def test_other_engines_are_refused(master: str) -> None:
    """The error says how a cluster is named."""
    with pytest.raises(SettingsError, match="is no engine"):
        SparkPool(master)


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sentence has the command that installs it."""
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SettingsError, match=r"pip install 'pool-measurement\[spark\]'"):
        SparkPool("spark://127.0.0.1:7077")
