"""Test the command line without a node: printing the contract and the version, and ending on signals."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import TABLES
from collector.errors import DatasetError


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the command with these arguments in this process; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["pool-collector", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main()
    return int(exit_.value.code or 0)


def test_the_contract_is_printed_in_every_format(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each format of `schema` prints every table and every column."""
    for output in ("table", "json", "markdown"):
        assert run(monkeypatch, "schema", "--format", output) == 0
        text = capsys.readouterr().out
        for table in TABLES.values():
            assert table.name in text
            assert all(column.name in text for column in table.columns)
        if output == "json":
            assert [each["name"] for each in json.loads(text)] == list(TABLES)


STOPPED = """
import os, signal, sys, threading
from collector.cli import _stop_on_signals
stop = threading.Event()
_stop_on_signals(stop)
for name in sys.argv[1].split():
    os.kill(os.getpid(), getattr(signal, name))
sys.exit(0 if stop.wait(0.5) else 3)
"""


def test_the_version_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--version` prints the name and the version."""
    assert run(monkeypatch, "--version") == 0
    assert capsys.readouterr().out.startswith("pool-collector ")


@pytest.mark.parametrize(
    ("signals", "status"), [("SIGTERM", 0), ("SIGINT", 0), ("SIGHUP", 0), ("SIGTERM SIGINT", 1)]
)
def test_the_second_signal_ends_at_once(signals: str, status: int) -> None:
    """The first signal sets the stop event; the second one ends the process with status 1."""
    heard = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_DFL)\n"  # also under nohup
    assert subprocess.run([sys.executable, "-c", heard + STOPPED, signals], check=False).returncode == status


INTERRUPTED_WAIT = """
import os, signal, threading
from collector.cli import _stop_on_signals
for number in range(200):
    stop = threading.Event()
    _stop_on_signals(stop)
    kill = threading.Timer(0.001 + number / 1e5, os.kill, (os.getpid(), signal.SIGTERM))
    kill.start()
    while not stop.wait(0):
        pass
"""


def test_a_signal_may_interrupt_the_wait_for_the_stop() -> None:
    """A signal that comes while the main thread holds the lock of the stop event still stops the process."""
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED_WAIT], check=False, timeout=120)
    assert ended.returncode == 0


def test_what_began_under_nohup_outlives_its_terminal() -> None:
    """A process under nohup ignores SIGHUP, also after our handlers are set."""
    command = ["nohup", sys.executable, "-c", STOPPED, "SIGHUP"]
    ended = subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)
    assert ended.returncode == 3


def test_a_missing_settings_file_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A missing file gives status 1 and one line on stderr, without a traceback."""
    assert run(monkeypatch, "run", "--config", str(tmp_path / "none.toml")) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == f"error: there is no settings file {tmp_path / 'none.toml'}\n"


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_dry_run_refuses_what_a_run_would(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dataset cannot be made where a file is, and a dry run says so as `run` does."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(DatasetError) as refused:
        Dataset.open(tmp_path / place, "main", create=True)

    assert run(monkeypatch, "run", "--dry-run", "--dataset", str(tmp_path / place)) == 1

    assert capsys.readouterr().err == f"error: {refused.value}\n"
    assert f"{tmp_path / 'file'} is no folder; choose another" in str(refused.value)
