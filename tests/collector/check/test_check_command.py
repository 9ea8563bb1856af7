"""Test `check` during compactions, on a read-only dataset, and on one that cannot be read."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest

from collector.check.dataset_view import retry_while_files_move
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_STATS
from collector.errors import DatasetError
from tests.collector.check.made_dataset import ORIGIN, START_US, make_rows, write
from tests.rights import without_rights

N_DAYS = 50
DAY_US = 86_400_000_000
# For a process that sees a folder read-only.
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'


def collector(*arguments: object, prefix: Sequence[object] = ()) -> subprocess.CompletedProcess[str]:
    """Run the program `pool-collector` as a process; return its status and output."""
    command = [*prefix, sys.executable, "-m", "collector", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)


def sort_in_little_memory() -> None:
    """Sort more than fits, without files to sort on; DuckDB raises its error of too little memory."""
    with duckdb.connect(config={"memory_limit": "1MB", "max_temp_directory_size": "0B"}) as connection:
        connection.execute("SELECT range FROM range(10_000_000) ORDER BY hash(range)").fetchone()


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Make a clean dataset."""
    return write(tmp_path / "dataset", make_rows()).root


def stats_row(day: int, number: int) -> dict[str, Any]:
    """Make a row of mempool_stats."""
    row = {**ORIGIN, "taken_at": START_US + day * DAY_US + number, "n_tx": 1, "vsize_vb": 100, "fees_sat": 10}
    return row | {"usage_bytes": 1, "max_usage_bytes": 9, "min_feerate_sat_vb": 1.0, "histogram": []}


def test_checks_beside_a_compaction_find_nothing_and_lose_no_file(dataset: Path) -> None:
    """Checks that run while compaction replaces folders find no fault."""
    for number in range(2):
        rows = [stats_row(day, number) for day in range(N_DAYS)]
        write(dataset, {"mempool_stats": rows}, stem=f"{number}")
    said = []
    command = [sys.executable, "-m", "collector", "compact", str(dataset)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as compacting:
        while compacting.poll() is None or len(said) < 2:
            said += [collector("check", dataset), collector("status", dataset)]
    assert compacting.returncode == 0
    assert [each.stdout + each.stderr for each in said if each.returncode] == []
    days = (dataset / "chain=regtest" / MEMPOOL_STATS.name).iterdir()
    assert {len(list(day.iterdir())) for day in days} == {1}


def test_a_dataset_that_cannot_be_written_can_be_looked_at(dataset: Path) -> None:
    """A read-only dataset can be checked, because no lock file or other file must be made."""
    (dataset / "chain=regtest" / ".write.lock").unlink()
    prefix = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, dataset)
    if subprocess.run(list(map(str, [*prefix, "true"])), capture_output=True, check=False).returncode:
        pytest.skip("no mount of our own: unshare of util-linux, or the right to it, is missing")
    touched = subprocess.run(
        list(map(str, [*prefix, "touch", dataset / "x"])), capture_output=True, check=False
    )
    assert touched.returncode
    assert "no breach" in collector("check", dataset, prefix=prefix).stdout
    status = collector("status", dataset, prefix=prefix)
    assert (status.returncode, "no collector is running" in status.stdout) == (0, True)
    refused = collector("compact", dataset, prefix=prefix)
    assert (refused.returncode, "Read-only file system" in refused.stderr) == (1, True)


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("status", "journal/regtest/n"),
        ("check", "chain=regtest/blocks"),
        ("check", "chain=regtest/blocks/*/*"),
        ("status", "chain=regtest/blocks/*/*"),
    ],
)
def test_what_may_not_be_read_is_said_and_no_breach(dataset: Path, command: str, place: str) -> None:
    """A place that this user may not read is an error, not missing rows."""
    prefix = without_rights()
    (dataset / "journal" / "regtest" / "n").mkdir(parents=True)
    (path,) = dataset.glob(place)
    path.chmod(0)
    result = collector(command, dataset, prefix=prefix)
    path.chmod(0o700)
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("error: this user may not read")
    assert path.name in result.stderr
    assert result.stderr.count("\n") == 1


def test_too_little_memory_is_said_and_no_file_is_blamed(dataset: Path) -> None:
    """The error asks for memory; it does not send the user to look for a damaged file."""
    with pytest.raises(DatasetError, match=r"not enough memory or disk space to read .*; give this process"):
        retry_while_files_move(Dataset.open(dataset, "main"), sort_in_little_memory)
