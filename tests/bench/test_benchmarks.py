"""Test that every benchmark runs to its end in its smallest form. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from collector.regtest.transaction import RegtestTransaction, TxInput, TxOutput
from tests.analysis.report.chromium import BROWSERS
from tests.bench.bench_bodies import measure
from tests.bench.ratios import interval
from tests.collector.codec.made_blocks import solved_block

BENCHMARKS = {
    "backfill": ("tests/bench/bench_backfill.py", "--smoke", "--chain", "WORK"),
    "collector": ("tests/bench/bench_collector.py", "--smoke", "--traffic", "WORK"),
    "analysis": ("-m", "tests.bench.bench_analysis", "--smoke"),
    "builds": ("-m", "tests.bench.bench_builds", "--smoke"),
    "check": ("-m", "tests.bench.bench_check", "--smoke"),
    "workers": ("-m", "tests.bench.bench_workers", "--smoke"),
    "whole-chain": ("-m", "tests.bench.bench_whole_chain", "--smoke"),
    "pages": ("-m", "tests.bench.bench_pages", "--smoke"),
    "live": ("-m", "tests.bench.bench_live", "--smoke"),
    "gpuhash": (
        *("-m", "gpuhash", "bench", "--backend", "cpu", "--algorithm", "sha256d", "--batch", "64"),
        *("--seconds", "0.01", "--energy-seconds", "0", "--no-peers"),
    ),
}

HAS_BROWSER = which("chromedriver") is not None and any(map(which, BROWSERS))
NEEDS_BROWSER = pytest.mark.skipif(
    not HAS_BROWSER, reason="no headless browser: install chromium and chromium-driver"
)


@pytest.mark.bitcoind
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[NEEDS_BROWSER] * (name == "live")) for name in BENCHMARKS]
)
def test_a_benchmark_runs_to_its_end(name: str, tmp_path: Path, repo_root: Path) -> None:
    """A benchmark ends without an error and writes its figures."""
    options = [str(tmp_path / "work") if each == "WORK" else each for each in BENCHMARKS[name]]
    out = tmp_path / "figures.json"

    done = subprocess.run(
        [sys.executable, *options, "--json" if name == "gpuhash" else "--out", out],
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(out.read_text())


def test_the_bytes_of_kept_bodies_are_those_of_the_block(tmp_path: Path) -> None:
    """Every transaction but the coinbase counts; a day of a megabyte takes what a stored byte takes."""
    spends = [TxInput(bytes([number] * 32), 0, b"", (bytes(72), bytes(33))) for number in range(1, 4)]
    made = [RegtestTransaction((spend,), (TxOutput(900, b"\x51"),)) for spend in spends]
    block = tmp_path / "block.bin"
    block.write_bytes(solved_block(made, height=7))

    facts = measure([block], raw_bytes_per_day=1e6)

    assert facts["n_tx"] == 3
    assert facts["raw_bytes_per_tx"] == len(made[0].raw)
    assert facts["all_mb_per_day"] == pytest.approx(facts["stored_per_raw_byte"])


def test_an_interval_of_ratios_needs_pairs_and_holds_their_mean() -> None:
    """Worked by hand: ln(0.9) and ln(1/0.9) have mean 0 and error ln(1/0.9), and t(1; 97.5 %) is 12.706."""
    low, high = interval([0.9, 1 / 0.9]) or (0.0, 0.0)

    assert low == pytest.approx(0.9**12.7062, rel=1e-4)
    assert high == pytest.approx(1 / low)
    assert interval([0.9]) is None
