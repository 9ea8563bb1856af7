"""The command line: what it prints, how it fails."""

import hashlib
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuhash import cli

Run = Callable[..., tuple[int, str, str]]

SHORT_BENCH = (
    *("bench", "--backend", "cpu", "--batch", "64", "--seconds", "0.01"),
    *("--no-peers", "--energy-seconds", "0"),
)
GENESIS = (
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e"
    "67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)
BLOCK_1 = (
    "010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e"
    "1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299"
)


def gpuhash(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Run the command in this process; return exit status, output and errors."""
    monkeypatch.setattr(sys, "argv", ["gpuhash", *arguments])
    status = 0
    try:
        cli.main()
    except SystemExit as stopped:
        status = int(stopped.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command with arguments."""
    return lambda *arguments: gpuhash(monkeypatch, capsys, *arguments)


def test_verify_prints_digests_that_other_programs_print(run: Run, tmp_path: Path) -> None:
    """SHA-256 of abc from FIPS 180-4, Keccak-256 of nothing as every Ethereum client has it."""
    (tmp_path / "abc").write_bytes(b"abc")
    (tmp_path / "empty").write_bytes(b"")

    status, out, _ = run("verify", str(tmp_path / "abc"), "--algorithm", "sha256")
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (status, out) == (0, f"sha256  {digest}  {tmp_path / 'abc'}\n")
    status, out, _ = run("verify", str(tmp_path / "empty"), "--algorithm", "keccak256")
    digest = "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"
    assert (status, out) == (0, f"keccak256  {digest}  {tmp_path / 'empty'}\n")


def test_verify_says_that_it_hashes_twice(run: Run, tmp_path: Path) -> None:
    """Without `--algorithm` the digest is double SHA-256, unlike that of sha256sum, and the line says so."""
    (tmp_path / "abc").write_bytes(b"abc")
    digest = hashlib.sha256(hashlib.sha256(b"abc").digest()).hexdigest()

    assert run("verify", str(tmp_path / "abc"))[:2] == (0, f"sha256d  {digest}  {tmp_path / 'abc'}\n")


@pytest.mark.parametrize("message_bytes", [1 << 50, 10**20])
def test_too_little_memory_is_one_line(run: Run, message_bytes: int) -> None:
    """A batch that no machine holds is refused without a traceback."""
    status, _, err = run(
        "bench", "--no-peers", "--algorithm", "sha256", "--batch", "1", "--message-bytes", str(message_bytes)
    )

    assert status == 1
    assert err.splitlines()[-1].startswith("gpuhash: out of memory: ")
    assert "Traceback" not in err


@pytest.mark.parametrize("limit", [300_000 << 10, 700_000 << 10])
@pytest.mark.parametrize("command", [["info"], ["check", "--messages", "20"]], ids=["info", "check"])
def test_too_little_address_space_is_one_line(command: list[str], limit: int) -> None:
    """With too little address space the program ends with status 1 and one line, not by a crash."""

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    outcome = subprocess.run(
        [sys.executable, "-m", "gpuhash", *command],
        preexec_fn=limit_memory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (outcome.returncode, outcome.stdout) == (1, "")
    assert len(outcome.stderr.splitlines()) == 1
    assert "ulimit -v" in outcome.stderr


def test_verify_reads_standard_input(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """`-` in place of a file means standard input."""
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"abc")))

    _, out, _ = run("verify", "-", "--algorithm", "sha3-256")

    assert out == "sha3-256  3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532  -\n"


def test_headers_that_form_a_chain_pass(run: Run, tmp_path: Path) -> None:
    """The headers of blocks 0 and 1 pass as a chain."""
    (tmp_path / "headers").write_bytes(bytes.fromhex(GENESIS + BLOCK_1))

    status, out, _ = run("verify", "--headers", str(tmp_path / "headers"))

    assert (status, out) == (0, "headers: 2; every hash is at most its target, every link holds\n")


def test_headers_are_held_to_the_rules_of_a_chain(run: Run, tmp_path: Path) -> None:
    """Blocks 0 and 1 belong to main, and to no other chain; the options need each other."""
    path = tmp_path / "headers"
    path.write_bytes(bytes.fromhex(GENESIS + BLOCK_1))

    status, out, _ = run("verify", "--headers", str(path), "--chain", "main")
    assert (status, "every target and time follows the rules of main (retargets: 0)" in out) == (0, True)
    status, _, err = run("verify", "--headers", str(path), "--chain", "signet")
    assert (status, "height 0: hash 000000000019d6689c" in err) == (1, True)
    status, _, err = run("verify", "--headers", str(path), "--chain", "regtest", "--first-height", "9")
    assert (status, "height 10: target 0x1d00ffff is stated, 0x207fffff is required" in err) == (1, True)
    assert run("verify", str(path), "--chain", "main")[0] == 2
    assert run("verify", "--headers", str(path), "--first-height", "9")[0] == 2
    assert run("verify", "--headers", str(path), "--chain", "moon")[0] == 2


def test_headers_that_are_wrong_fail_one_by_one(run: Run, tmp_path: Path) -> None:
    """A flipped bit breaks the work of its header and the link from the next."""
    data = bytearray.fromhex(GENESIS + BLOCK_1)
    data[40] ^= 1
    (tmp_path / "headers").write_bytes(data)

    status, _, err = run("verify", "--headers", str(tmp_path / "headers"))

    assert status == 1
    assert "header 0: hash" in err
    assert "header 1: does not name the hash" in err
    assert err.endswith("gpuhash: headers: 2, faults: 2\n")


def test_a_file_of_wrong_headers_is_told_in_few_lines(run: Run, tmp_path: Path) -> None:
    """The first faults are shown and the others counted."""
    (tmp_path / "headers").write_bytes(bytes(80 * 500))

    status, _, err = run("verify", "--headers", str(tmp_path / "headers"))

    lines = err.splitlines()
    assert status == 1
    assert len(lines) == 22
    n_faults = int(lines[-1].rpartition(" ")[2])
    assert n_faults >= 500
    assert lines[-2] == f"and {n_faults - 20} faults more"


def test_failures_are_one_line_and_exit_1(run: Run, tmp_path: Path) -> None:
    """A missing file, a cut header, a card without counts: no traceback."""
    (tmp_path / "cut").write_bytes(bytes(81))
    for arguments, complaint in (
        (("verify", "no-such-file"), "cannot read no-such-file"),
        (("verify", "--headers", str(tmp_path / "cut")), "81 is no multiple"),
        (("limits", "--arch", "sm_1"), "no instruction counts for sm_1"),
        (("sweep",), "--allow-clock-changes"),
    ):
        status, _, err = run(*arguments)
        assert status == 1
        assert err.splitlines()[-1].startswith("gpuhash: ")
        assert complaint in err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("verify", __file__, "--algorithm", "md5"), "gpuhash: no algorithm 'md5'"),
        (("verify", __file__, "--backend", "tpu"), "gpuhash: no backend 'tpu'"),
        (("bench", "--algorithm", "md5"), "gpuhash: no algorithm 'md5'"),
    ],
)
def test_a_name_that_does_not_exist_exits_2(run: Run, arguments: tuple[str, ...], complaint: str) -> None:
    """An algorithm or a backend that does not exist."""
    status, _, err = run(*arguments)

    assert status == 2
    assert complaint in err


def test_a_benchmark_knows_every_name_before_it_measures(run: Run) -> None:
    """Nothing is measured where one of several names is wrong; the header search is among the right ones."""
    status, out, err = run("bench", "--backend", "cpu", "--algorithm", "sha256d", "--algorithm", "md5")

    assert (status, out) == (2, "")
    assert "choose one of header-search, sha256d, sha256, keccak256, sha3-256" in err


def test_hostile_headers_are_faults_not_crashes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Impossible targets are named header by header; no header, or no input at all, is a failure."""
    (tmp_path / "rubbish").write_bytes(bytes(72) + b"\xff" * 8 + bytes.fromhex(BLOCK_1))
    (tmp_path / "none").write_bytes(b"")

    status, _, err = run("verify", "--headers", str(tmp_path / "rubbish"))
    assert status == 1
    assert "header 0: compact target 0xffffffff is negative" in err
    assert err.endswith("gpuhash: headers: 2, faults: 2\n")
    assert run("verify", "--headers", str(tmp_path / "none"))[::2] == (
        1,
        "gpuhash: there is no header: the input is empty\n",
    )
    monkeypatch.setattr(sys, "stdin", None)
    assert run("verify", "-")[::2] == (1, "gpuhash: cannot read standard input: it is closed\n")


def test_results_that_cannot_be_kept_are_refused_before_measuring(run: Run, tmp_path: Path) -> None:
    """A folder that does not exist, a chart that is no SVG, two files without a line in common."""
    assert "cannot write" in run("bench", "--json", str(tmp_path / "no" / "x.json"))[2]
    status, _, err = run("bench", "--plot", str(tmp_path / "x.png"))
    assert (status, list(tmp_path.iterdir())) == (1, [])
    assert "does not end in .svg" in err
    paths = [str(tmp_path / f"{name}.json") for name in ("sha256", "sha256d")]
    for name, path in zip(("sha256", "sha256d"), paths, strict=True):
        run(*SHORT_BENCH, "--algorithm", name, "--json", path)
    assert "measured nothing in common" in run("bench", "--compare", *paths)[2]
    status, _, err = run("bench", "--no-peers", "--algorithm", "header-search", "--sizes")
    assert (status, "nothing was measured" in err) == (1, True)


def test_wrong_usage_exits_2(run: Run) -> None:
    """An option that does not exist ends the command with status 2."""
    assert run("verify", "--no-such-option")[0] == 2


def test_info_names_the_machine(run: Run) -> None:
    """`info` prints the CPU, the packages, and which backend `auto` would choose."""
    status, out, _ = run("info")

    assert status == 0
    assert "numba" in out
    assert "backend auto" in out


def test_threads_can_be_set(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The option and the variable name the threads of the cpu backend; nonsense is one line."""
    monkeypatch.setenv("GPUHASH_THREADS", "7")
    assert re.search(r"^cpu threads +7$", run("info")[1], re.MULTILINE)
    assert re.search(r"^cpu threads +3$", run("--threads", "3", "info")[1], re.MULTILINE)
    assert run("--threads", "0", "info")[0] == 2
    monkeypatch.setenv("GPUHASH_THREADS", "many")
    status, _, err = run("info")
    assert (status, err) == (
        1,
        "gpuhash: GPUHASH_THREADS is 'many'; set it to a number from 1 to 256, or unset it\n",
    )


def test_limits_print_the_model_and_its_formula(run: Run) -> None:
    """The table has kernels, variants, instruction counts and GH/s of the H200."""
    status, out, _ = run("limits", "--arch", "sm_90", "--sm", "132", "--mhz", "1980")

    assert status == 0
    assert "SMs * clock / max(ALU / 64, FMA / 64, all / 128, reads of" in out
    assert "merkle_nodes" in out


def test_limits_of_this_cpu_are_measured(run: Run) -> None:
    """The table has the bounds of this CPU for the header search and for Keccak."""
    status, out, _ = run("limits", "--cpu")

    assert status == 0
    assert "chain: hashes/s" in out
    assert re.search(r"^header search +\d+ +\d+ +\d+ +[\d.]+ [kMG] ", out, re.MULTILINE)


def test_check_passes_on_this_machine(run: Run) -> None:
    """Each line of `gpuhash check` says ok."""
    status, out, _ = run("check", "--backend", "cpu", "--messages", "200")

    assert status == 0
    assert all(line.startswith("ok ") for line in out.splitlines())


def test_bench_writes_what_it_shows(run: Run, tmp_path: Path) -> None:
    """`bench` writes JSON and CSV, and compares a file with itself."""
    files = {name: str(tmp_path / f"out.{name}") for name in ("json", "csv")}

    status, out, _ = run(
        *SHORT_BENCH, "--algorithm", "sha256", "--json", files["json"], "--csv", files["csv"]
    )

    assert status == 0
    assert "end-to-end" in out
    assert "energy per hash: n/a, not measured" in out
    assert "nJ/hash" not in out
    assert "limit: hashes/s = measured " in out
    assert len(json.loads(Path(files["json"]).read_text())["results"]) == 4
    assert len(Path(files["csv"]).read_text().splitlines()) == 5
    status, out, _ = run("bench", "--compare", files["json"], files["json"])
    ratios = [line.split()[-1] for line in out.splitlines() if line.startswith("sha256 ")]
    assert ratios == ["1.000"] * 4


LIGHT = """
import sys
HIDDEN = "duckdb pyarrow pandas scipy altair Crypto bitcoin zmq structlog vl_convert requests".split()
HIDDEN.append("jsonschema")
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HIDDEN:
            raise ImportError(name + " is not on this machine")
sys.meta_path.insert(0, Absent())
sys.argv = ["gpuhash", "check", "--messages", "20"]
from gpuhash.cli import main
main()
"""


def test_the_package_runs_with_numpy_numba_typer_and_rich_alone(repo_root: Path) -> None:
    """A bare machine: everything else of the project is hidden, and all algorithms still check out."""
    bare = subprocess.run(
        [sys.executable, "-c", LIGHT], cwd=repo_root, capture_output=True, text=True, check=False
    )

    assert bare.returncode == 0, bare.stderr
    assert bare.stdout.count("ok ") == 13


def test_ctrl_c_is_one_line(tmp_path: Path) -> None:
    """A command that is stopped while it reads ends with 130 and says so, without a traceback."""
    headers = tmp_path / "headers"
    os.mkfifo(headers)
    command = [sys.executable, "-m", "gpuhash", "verify", "--headers", str(headers)]
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process,
        headers.open("wb"),  # opens when the command reads
    ):
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)

    assert process.returncode == 128 + signal.SIGINT
    assert said == "gpuhash: stopped by Ctrl-C\n"
