"""Test that our three commands answer wrong words, and what the system refuses, with a status and a line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collector.dataset.files import write_atomically
from collector.dataset.open import Dataset
from tests.test_commands import PROGRAMS, ended

LONG = "x" * 300  # no file system of ours takes so long a name


@pytest.fixture
def dataset(tmp_path: Path) -> str:
    """Make an empty dataset."""
    return str(Dataset.open(tmp_path / "dataset", "regtest", create=True).root)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("collector demo --scenario nope --out {out}", "no scenario 'nope'; there are demo, smoke"),
        ("collector status {dataset} --chain moon", "there is no chain 'moon'; choose one of main"),
        ("collector merge {out} a={dataset} --chain moon", "there is no chain 'moon'"),
        ("collector import labels x --chain moon", "there is no chain 'moon'"),
        ("collector backfill --node --chain moon", "there is no chain 'moon'"),
        ("collector compact {dataset} --keep-bodies-days 9999999999", "--keep-bodies-days"),
        ("analysis build {dataset} {out} --engine sparkk", "'sparkk' is no engine; write local, or"),
        ("analysis build {dataset} {out} --chain moon", "there is no chain 'moon'"),
        ("analysis show blocks {out} --limit 99999999999999999999", "--limit"),
        ("analysis serve {out} --pools nowhere", "--pools is for the blocks of --collector; name a"),
        ("analysis build {dataset} .", ". is a folder; name the file of the database"),
        ("gpuhash check --messages 99999999999999999999", "--messages"),
        ("gpuhash bench --seconds inf", "--seconds"),
    ],
)
def test_a_word_that_the_command_does_not_take_is_wrong_usage(
    call: str, said: str, dataset: str, tmp_path: Path
) -> None:
    """Status 2, and the words that it does take; nothing is made."""
    words = call.format(dataset=dataset, out=tmp_path / "out").split()
    refused = ended("-m", *words, NO_COLOR="1", COLUMNS="300")
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("analysis list --format xml", "for '--format': 'xml' is not one of 'table', 'csv', 'json'."),
        ("collector run --log-format xml", "for '--log-format': 'xml' is not one of 'auto',"),
        ("collector export xml --node x --out y", "for 'kind': 'xml' is not one of 'arrivals',"),
        ("gpuhash verify --headers x --chain moon", "for '--chain': 'moon' is not one of 'main',"),
    ],
)
def test_a_word_of_another_list_is_told_without_a_prefix(call: str, said: str) -> None:
    """The sentence begins with the word itself, in each of the three commands."""
    refused = ended("-m", *call.split(), NO_COLOR="1", COLUMNS="300")
    assert refused.returncode == 2, refused.stderr
    assert said in refused.stderr


def test_a_text_file_is_no_database(tmp_path: Path) -> None:
    """The commands that read a database say so, and advise no build over that file."""
    (tmp_path / "p.db").write_text("price\n" * 9)
    refused = ended("-m", "analysis", "show", "pool_share", str(tmp_path / "p.db"))
    said = "is no DuckDB database; name the file that pool-analysis build wrote"
    assert (refused.returncode, refused.stderr) == (1, f"pool-analysis: {tmp_path / 'p.db'} {said}\n")


@pytest.mark.parametrize(
    "command", ["status", "check", "compact", "mend", "upload {} s3://bucket/copy", "merge {} a=x"]
)
def test_a_dataset_that_is_not_there_is_a_failure(command: str, tmp_path: Path) -> None:
    """Status 1 in every command: it may be there at the next call."""
    words = command.format(tmp_path / "none") if "{}" in command else f"{command} {tmp_path / 'none'}"
    refused = ended("-m", "collector", *words.split())
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: there is no dataset ")
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "call",
    [
        f"collector status {LONG}",
        f"collector merge {LONG} a={{dataset}}",
        f"collector backfill --blocks-dir {{dataset}} --report {LONG}/x",
        f"collector demo --out {{out}} --bitcoind {LONG}",
        f"collector demo --out {{out}} --scenario {LONG}",
        f"analysis report {LONG}",
        f"gpuhash verify {LONG}",
        f"gpuhash bench --backend reference --json {LONG}",
    ],
)
def test_a_path_that_no_system_takes_is_one_line(call: str, dataset: str, tmp_path: Path) -> None:
    """The line has the system's reason."""
    refused = ended("-m", *call.format(dataset=dataset, out=tmp_path / "out").split())
    assert refused.returncode == 1, refused.stderr
    assert "File name too long" in refused.stderr
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("call", ["collector schema", "analysis list --format csv", "gpuhash limits"])
def test_an_output_that_takes_no_more_is_one_line(call: str) -> None:
    """A full disk behind the output is told in one line; a closed pipe, as of `head`, has its own status."""
    module = call.split(maxsplit=1)[0]
    name = next(name for name, its in PROGRAMS.items() if its == module)
    command = [sys.executable, "-m", *call.split()]
    with Path("/dev/full").open("w") as full:
        refused = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    begin = "error" if module == "collector" else name
    assert refused.returncode == 1
    assert refused.stderr == (
        f"{begin}: the system refuses to go on: No space left on device; if the disk of the output is full, "
        "free space there\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    closed = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (closed.returncode, closed.stderr) == (128 + signal.SIGPIPE, "")


def test_a_settings_file_is_read_also_where_the_dataset_is_named(dataset: str, tmp_path: Path) -> None:
    """A mistake in its name does not pass unseen."""
    refused = ended("-m", "collector", "status", dataset, "--config", str(tmp_path / "none.toml"))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == f"error: there is no settings file {tmp_path / 'none.toml'}\n"


@pytest.mark.parametrize("is_linked", [False, True])
def test_no_file_replaces_a_pipe_or_a_device(tmp_path: Path, *, is_linked: bool) -> None:
    """As root, `--out /dev/null` would else turn the device into a file."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    out = tmp_path / "link" if is_linked else pipe
    if is_linked:
        out.symlink_to(pipe)
    with pytest.raises(OSError, match="it is a pipe or a device, which a file must not replace"):
        write_atomically(out, lambda sink: sink.write(b"x"))
    assert pipe.is_fifo()
    assert out.is_symlink() is is_linked
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({"pipe", out.name})
