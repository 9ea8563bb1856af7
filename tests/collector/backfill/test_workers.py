"""Test worker processes: what they import, and how the command ends on Ctrl-C."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import BLOCKS
from tests.collector.backfill.made_files import write_files
from tests.collector.codec.made_blocks import solved_block

PROGRAM = """
from collector.__main__ import main

if __name__ == "__main__":
    main()
"""
TRAP = "import os, pathlib; pathlib.Path(os.environ['TRAP']).touch(); raise SystemExit('imported the trap')"


@pytest.fixture
def program(tmp_path: Path, repo_root: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command as an installed script starts it, and its environment."""
    script = tmp_path / "bin" / "pool-collector"
    script.parent.mkdir()
    script.write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": str(repo_root), "TRAP": str(tmp_path / "trapped")}
    environment.pop("PYTHONSAFEPATH", None)
    return [sys.executable, str(script), "backfill", "--dataset", str(tmp_path / "dataset")], environment


def test_no_file_of_the_current_folder_is_imported(
    tmp_path: Path, program: tuple[list[str], dict[str, str]]
) -> None:
    """A numpy.py or a module of the standard library in the current folder is not imported."""
    blocks_dir = write_files(tmp_path / "blocks", [[solved_block([], height=height) for height in (1, 2)]])
    here = tmp_path / "here"
    here.mkdir()
    for name in ("numpy", "pyarrow", "selectors", "socket"):
        (here / f"{name}.py").write_text(TRAP)
    command, environment = program

    done = subprocess.run(
        [*command, "--blocks-dir", str(blocks_dir), "--workers", "2"],
        cwd=here,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "trapped").exists()
    assert Dataset.open(tmp_path / "dataset", "regtest").read(BLOCKS).num_rows == 2


def test_ctrl_c_is_status_130_and_one_line(tmp_path: Path, program: tuple[list[str], dict[str, str]]) -> None:
    """Ctrl-C while the node leaves a request unanswered ends the command with 130 and one line."""
    (tmp_path / "cookie").write_text("a:b")
    command, environment = program
    with socket.create_server(("127.0.0.1", 0)) as node:
        url = f"http://127.0.0.1:{node.getsockname()[1]}"
        options = ["--node", "--chain", "regtest", "--rpc-url", url, "--cookie-file", tmp_path / "cookie"]
        with subprocess.Popen(
            [*command, *options], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            connection, _ = node.accept()
            with connection:
                assert connection.recv(1)
                running.send_signal(signal.SIGINT)
                out, err = running.communicate(timeout=60)

    assert running.returncode == 130
    assert out == ""
    assert err == "stopped; the blocks written so far stay: run the same command to go on\n"
