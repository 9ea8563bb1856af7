"""Test that what a killed process leaves is removed by the next one, and what is in use is not."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from collector.dataset.files import replaced_atomically
from collector.dataset.open import Dataset
from collector.dataset.temporary_folders import temporary_folder

# Writes a row and comes to the moment before the file is forced to disk: it says so, and waits for ever.
WRITE = """
import os, signal, sys
from pathlib import Path
from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from tests.collector.compaction.made_files import event

def wait(handle):
    print("at work", flush=True)
    signal.pause()

dataset = Dataset.open(Path(sys.argv[1]), "regtest", create=True)
dataset.write(MEMPOOL_EVENTS, [event(1)], stem="whole")
os.fsync = wait
dataset.write(MEMPOOL_EVENTS, [event(2)], stem="killed")
"""
# Holds a folder, and waits for ever.
HOLD = """
import signal, sys
from pathlib import Path
from collector.dataset.temporary_folders import temporary_folder

with temporary_folder("work-", Path(sys.argv[1])) as folder:
    (folder / "spilled").touch()
    print("at work", flush=True)
    signal.pause()
"""


@contextmanager
def at_work(program: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a program until it says that it is at work; kill it at the end of the `with` block."""
    command = [sys.executable, "-c", program, str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "at work\n"
            yield process
        finally:
            process.kill()


def names(folder: Path, pattern: str = "*") -> list[str]:
    """Return the sorted names of what is in a folder."""
    return sorted(path.name for path in folder.glob(pattern))


def test_a_killed_writer_of_a_table_leaves_nothing_for_long(tmp_path: Path) -> None:
    """A temporary file stays while its writer lives; after SIGKILL the next command removes it."""
    with at_work(WRITE, tmp_path) as writer:
        dataset = Dataset.open(tmp_path, "regtest")
        dataset.remove_unfinished_files()
        assert names(dataset.folder, "*/*/*") == [".killed.parquet.tmp", "whole.parquet"]
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert names(dataset.folder, "*/*/*") == [".killed.parquet.tmp", "whole.parquet"]

    subprocess.run([sys.executable, "-m", "collector", "compact", tmp_path], check=True)

    assert names(dataset.folder, "*/*/*") == ["whole.parquet"]


def test_a_reader_keeps_temporary_files_where_they_are(tmp_path: Path) -> None:
    """Whoever holds the lock of the files, removing waits for another time instead of for the lock."""
    with at_work(WRITE, tmp_path):
        pass
    dataset = Dataset.open(tmp_path, "regtest")

    with dataset.read_lock():
        dataset.remove_unfinished_files()
        assert names(dataset.folder, "*/*/.*") == [".killed.parquet.tmp"]
    dataset.remove_unfinished_files()

    assert names(dataset.folder, "*/*/.*") == []


def test_a_killed_process_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    """A folder stays while its process lives; after SIGKILL the next folder of that kind replaces it."""
    with at_work(HOLD, tmp_path) as holder:
        with temporary_folder("work-", tmp_path) as own:
            assert len(names(tmp_path)) == 2
            (own / "inside").touch()
        assert [names(each) for each in tmp_path.iterdir()] == [["spilled"]]
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    assert len(names(tmp_path)) == 1

    with temporary_folder("work-", tmp_path) as own:
        assert names(tmp_path) == [own.name]
    assert names(tmp_path) == []


def test_folders_of_others_stay(tmp_path: Path) -> None:
    """A folder of another kind, and a link that has the name of ours, are left alone."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    (tmp_path / "work-link").symlink_to(tmp_path / "other")

    with temporary_folder("work-", tmp_path):
        pass

    assert names(tmp_path) == ["other", "work-link"]
    assert names(tmp_path / "other") == ["kept"]


@pytest.mark.parametrize("command", ["check", "status"])
def test_a_killed_check_leaves_no_spilled_files(command: str, tmp_path: Path) -> None:
    """The folder for what DuckDB spills is removed by the next run of the command."""
    dataset, temporary = tmp_path / "dataset", tmp_path / "temporary"
    with at_work(WRITE, dataset):
        temporary.mkdir()
    run = [sys.executable, "-m", "collector", command, str(dataset)]
    environment = os.environ | {"TMPDIR": str(temporary)}

    with subprocess.Popen(run, env=environment, stdout=subprocess.DEVNULL) as process:
        while not names(temporary, f"pool-collector-{command}-*"):
            assert process.poll() is None, "it ended by itself"
        process.kill()
    assert len(names(temporary, f"pool-collector-{command}-*")) == 1
    subprocess.run(run, env=environment, stdout=subprocess.DEVNULL, check=command == "status")

    assert names(temporary, f"pool-collector-{command}-*") == []


def test_a_file_that_a_program_was_killed_making_is_removed(tmp_path: Path) -> None:
    """The next file made in the same folder takes the place of what a kill left, whatever its name."""
    left = tmp_path / ".building-abcdefgh"
    left.mkdir()
    (left / "half.duckdb").touch()

    with replaced_atomically(tmp_path / "whole") as path:
        path.write_bytes(b"whole")

    assert names(tmp_path) == ["whole"]
