"""Test the real program in a process: it prints one line and ends with the right status."""

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector.dataset.open import Dataset
from collector.dataset.schema import DATASET_MARKER, MEMPOOL_EVENTS
from tests.collector.compaction.made_files import write_events
from tests.collector.node.hostile_server import HostileServer, dripping, endless, silent, whole

PROGRAM = [sys.executable, "-m", "collector"]
TIMEOUT_S = 60.0
# Sends a signal to itself as soon as a library of the program is imported, or the command has begun.
SIGNALLED = """
import os, signal, sys
number, moment = int(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]
def look(event, arguments):
    global moment
    if moment and event in ("import", "open") and str(arguments[0]).rpartition("/")[2] == moment:
        moment = None
        os.kill(os.getpid(), number)
sys.addaudithook(look)
from collector.__main__ import main
main()
"""
# The same in a callback of Python, which drops what a handler of signals raises there.
IN_A_CALLBACK = """
import weakref
class Gone:
    pass
""" + SIGNALLED.replace(
    "os.kill(os.getpid(), number)",
    "gone = Gone(); reference = weakref.ref(gone, lambda _: os.kill(os.getpid(), number)); del gone",
)


@pytest.fixture
def server() -> Iterator[HostileServer]:
    """Start a server that gives whatever answer the test chooses."""
    serving = HostileServer(silent)
    yield serving
    serving.close()


def run_of(server: HostileServer, folder: Path, **settings: Any) -> list[str]:
    """Return the command line of a collector whose node is `server`."""
    (folder / "cookie").write_text("u:p")
    node = {"rpc_url": server.url, "cookie_file": str(folder / "cookie"), "rpc_timeout_s": 1} | settings
    lines = [f"{name} = {json.dumps(value)}" for name, value in node.items()]
    text = (
        f'chain = "regtest"\ndataset = "{folder}/d"\nstartup_patience_s = 0\nlog_format = "json"\n[[node]]\n'
    )
    (folder / "settings.toml").write_text(text + "\n".join(lines))
    return [*PROGRAM, "run", "--config", str(folder / "settings.toml")]


def ended(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command until it ends; return its status and output."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, errors="replace", **options
    )


@pytest.mark.parametrize("moment", ["typer", "pyarrow", "the command"])
@pytest.mark.parametrize(
    ("number", "command", "status", "line"),
    [
        (signal.SIGINT, "check", 130, "stopped by Ctrl-C\n"),
        (signal.SIGTERM, "check", 143, "stopped by SIGTERM\n"),
        (signal.SIGALRM, "check", 142, ""),
        (signal.SIGINT, "demo", 130, "stopped by Ctrl-C\n"),
        (signal.SIGINT, "run", 0, "stopped before the start: nothing was received\n"),
    ],
)
def test_a_signal_while_the_program_loads_is_one_line(  # noqa: PLR0917 - one fixture beside the parameters
    tmp_path: Path, moment: str, number: int, command: str, status: int, line: str
) -> None:
    """A signal in the second in which libraries load has the same meaning as later."""
    own = {
        "check": "collector.check.run",
        "demo": "collector.regtest.demo",
        "run": "collector.service.service",
    }
    moment = own[command] if moment == "the command" else moment
    Dataset.open(tmp_path / "dataset", "regtest", create=True)  # else it says at once that there is none
    arguments = [
        str(int(number)),
        moment,
        command,
        *([str(tmp_path / "dataset")] if command == "check" else []),
    ]
    outcome = ended([sys.executable, "-c", SIGNALLED, *arguments])
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (status, "", line)


@pytest.mark.parametrize(
    ("number", "status", "line"),
    [(signal.SIGINT, 130, "stopped by Ctrl-C\n"), (signal.SIGTERM, 143, "stopped by SIGTERM\n")],
    ids=["ctrl-c", "sigterm"],
)
@pytest.mark.parametrize("moment", ["typer", DATASET_MARKER])
def test_a_signal_in_a_callback_of_python_is_not_lost(
    tmp_path: Path, number: int, status: int, line: str, moment: str
) -> None:
    """Python drops what a signal raises while it clears a weak reference; the program ends all the same."""
    Dataset.open(tmp_path / "dataset", "regtest", create=True)
    arguments = [str(int(number)), moment, "check", str(tmp_path / "dataset")]
    outcome = ended([sys.executable, "-c", IN_A_CALLBACK, *arguments])
    assert (outcome.returncode, outcome.stdout, outcome.stderr) == (status, "", line)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_run_without_a_node_ends_soon_after_a_signal(
    server: HostileServer, tmp_path: Path, number: int
) -> None:
    """A request that may take a minute does not delay the end after a signal."""
    command = run_of(server, tmp_path, rpc_timeout_s=3600)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert server.asked.wait(TIMEOUT_S)
        process.send_signal(number)
        _, said = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert said.splitlines()[-1] == "stopped before a node answered: nothing was received"
    assert "Traceback" not in said


def test_ctrl_c_while_loops_are_compiled_is_one_line(server: HostileServer, tmp_path: Path) -> None:
    """Ctrl-C, which reaches every process of a terminal, ends a first start at once, without a traceback."""
    with subprocess.Popen(
        run_of(server, tmp_path),
        env=os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stderr is not None
        assert json.loads(process.stderr.readline())["event"] == "loops.compiling"
        os.killpg(process.pid, signal.SIGINT)
        said = process.stderr.read()  # to its end, so no other process holds it open
        assert process.wait(TIMEOUT_S) == 0
    assert said == "stopped before a node answered: nothing was received\n"


@pytest.mark.parametrize("answer", [dripping, silent, endless])
def test_a_node_that_never_finishes_an_answer_is_one_sentence(
    server: HostileServer, tmp_path: Path, answer: Any
) -> None:
    """A slow answer reaches the deadline and an endless one the size limit; each is one error line."""
    server.answer = answer
    outcome = ended(run_of(server, tmp_path))
    assert outcome.returncode == 1
    assert outcome.stderr.splitlines()[-1].startswith(f"error: {server.url} ")
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    "result",
    [
        b"null",
        b"[]",
        b"7",
        b'"text"',
        b"{}",
        b'{"chain": null}',
        b'{"chain": "regtest", "blocks": "many", "bestblockhash": 1, "version": "new"}',
        b"[" * 100_000,
        b"NaN",
    ],
)
def test_a_node_that_answers_something_else_is_one_sentence(
    server: HostileServer, tmp_path: Path, result: bytes
) -> None:
    """A server that gives every call this result leads to status 1 without a traceback."""
    server.answer = whole(b'{"id": 1, "error": null, "result": ' + result + b"}")
    outcome = ended(run_of(server, tmp_path))
    assert outcome.returncode == 1
    assert outcome.stderr.startswith("error: ")
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize("limit", [100 << 20, 700_000 << 10])
def test_too_little_memory_is_one_sentence(limit: int, tmp_path: Path) -> None:
    """With too little memory the program ends with one line instead of a crash of a library."""

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    outcome = ended([*PROGRAM, "check", str(tmp_path)], preexec_fn=limit_memory)
    assert outcome.returncode == 1
    assert len(outcome.stderr.splitlines()) == 1
    assert "ulimit -v" in outcome.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["check"],
        ["compact"],
        ["backfill", "--blocks-dir"],
        ["run", "--config"],
        ["demo", "--out"],
        ["import", "prices", "--source", "s", "--licence", "l", "--url", "https://x.invalid"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_name_that_is_not_utf8_is_one_sentence(arguments: list[str], tmp_path: Path) -> None:
    """A folder or file whose name is not UTF-8 leads to one error line."""
    name = os.fsencode(tmp_path) + b"/\xff\xfe"
    if arguments[0] == "import":
        Path(os.fsdecode(name)).write_bytes(b"day,close\n2024-01-01,1\n\xff")
        arguments = [*arguments, "--dataset", str(tmp_path / "d")]
    else:
        Path(os.fsdecode(name)).mkdir()
        if arguments[0] in {"status", "check", "compact"}:
            made = Dataset.open(tmp_path / "made", "regtest", create=True)
            write_events(made, 2, 10)
            (tmp_path / "made").rename(os.fsdecode(name))
    outcome = ended([*PROGRAM, *arguments, os.fsdecode(name)])
    assert outcome.returncode == 1, outcome.stderr
    assert outcome.stderr.startswith("error: ")
    assert len(outcome.stderr.splitlines()) == 1


@pytest.mark.parametrize(("command", "status"), [("check", 1), ("compact", 1), ("mend", 0), ("status", 0)])
def test_a_file_whose_name_is_not_utf8_ends_no_command(command: str, status: int, tmp_path: Path) -> None:
    """`check` names such a file in a dataset, and `compact` leaves its folder as it is."""
    dataset = Dataset.open(tmp_path / "made", "regtest", create=True)
    write_events(dataset, 2, 10)
    first, _ = dataset.paths(MEMPOOL_EVENTS)
    first.rename(first.with_name(os.fsdecode(b"caf\xe9.parquet")))
    outcome = ended([*PROGRAM, command, str(tmp_path / "made")])
    assert (outcome.returncode, "Traceback" in outcome.stderr) == (status, False)
    assert command != "check" or "caf" in outcome.stdout
