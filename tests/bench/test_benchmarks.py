"""Test that every benchmark runs to its end in its smallest form. No time is judged."""

import json
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.analysis.report.chromium import BROWSERS

BENCHMARKS = {
    "backfill": ("tests/bench/bench_backfill.py", "--smoke", "--chain", "WORK"),
    "collector": ("tests/bench/bench_collector.py", "--smoke", "--traffic", "WORK"),
    "analysis": ("-m", "tests.bench.bench_analysis", "--smoke"),
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
