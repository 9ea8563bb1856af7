"""Run every command that a README names, in a folder that is laid out as the README assumes."""

import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.bench.planted_files import write_world
from tests.bench.planted_world import Size, simulate

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "analysis/README.md",
    "analysis/BUILDS.md",
    "analysis/serve/README.md",
    "collector/README.md",
    "collector/IMPORTS.md",
    "collector/backfill/README.md",
    "collector/fetch/README.md",
    "collector/upload/README.md",
    "data/README.md",
    "gpuhash/SUBMITTING.md",
    "tests/site/pages/tutorial.md",
)
CALL = re.compile(r"^(?:\.venv/bin/)?((?:pool-collector|pool-analysis|gpuhash) .*)$")
# What cannot run here, with the tests that run it where its node, network, store or files are.
ELSEWHERE = {
    "pool-collector run": "tests/functional/test_live.py",
    "pool-collector backfill": "tests/collector/backfill/test_command.py",
    "pool-collector fetch .": "tests/collector/fetch/test_command.py",
    "pool-collector import": "tests/collector/external/test_providers.py",
    "pool-collector export": "tests/collector/external/test_exports.py",
    "pool-collector merge": "tests/collector/fleet",
    "s3://": "tests/collector/upload",
    "pool-collector catalog": "tests/collector/catalog",
    "data/fleet": "tests/collector/fleet",
    "out_of_band_score": "tests/analysis/test_out_of_band.py",
    "--watch": "tests/analysis/test_incremental.py",
    "pool-analysis serve": "tests/analysis/serve",
    "spark://": "tests/analysis/warehouse",
    "pool-analysis replicate": "tests/analysis/replication",
    "pool-analysis verify": "tests/analysis/release",
    "gpuhash bench": "tests/gpuhash/measure",
    "gpuhash results": "tests/gpuhash/measure/test_submissions.py",
}
WORDS = {"TIME": "2026-01-01T01:00:00Z", "BEFORE": "pools", "[AFTER]": "pools"}


def commands() -> list[str]:
    """Return the commands in the code blocks of all pages, without comments and pipes, each once."""
    found: dict[str, None] = {}
    for page in PAGES:
        blocks = re.findall(r"^```[a-z]*\n(.*?)^```", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
        for line in "\n".join(blocks).replace("\\\n", " ").splitlines():
            if call := CALL.match(re.split(r"  +# |  +#|\s[|;]\s", line)[0].strip()):
                found |= dict.fromkeys(re.split(r"\s+&&\s+", call[1]))
    return list(found)


def is_elsewhere(command: str) -> bool:
    """Tell whether a command needs what is not here."""
    return any(re.search(pattern, command) for pattern in ELSEWHERE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Lay out a planted dataset and its results where the pages have theirs."""
    folder = tmp_path_factory.mktemp("readme")
    world = write_world(simulate(Size(n_blocks=60, entering=8, taken=6, seed=3)), folder / "planted")
    (folder / "data").mkdir()
    shutil.copytree(world, folder / "data" / "dataset")
    shutil.copytree(folder / "planted" / "pools", folder / "pools")
    return folder


def run(command: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a command as a user would, with stand-ins for what the page leaves to the reader."""
    words = shlex.split(command)
    words = [WORDS.get(word, word) if word != "DIR" else f"written-by-{words[1]}" for word in words]
    path = f"{sysconfig.get_path('scripts')}{os.pathsep}{os.environ['PATH']}"
    options: dict[str, Any] = {"cwd": folder, "env": os.environ | {"PATH": path}, "stdin": subprocess.DEVNULL}
    return subprocess.run(words, capture_output=True, text=True, check=False, **options)


def test_every_command_of_a_page_works(folder: Path) -> None:
    """Each ends with 0 and says something; the first build makes what the others read."""
    assert run("pool-analysis build", folder).returncode == 0
    shutil.copytree(folder / "data" / "build", folder / "data" / "demo")
    (folder / "data" / "demo" / "analysis.duckdb").rename(folder / "data" / "demo" / "demo.duckdb")
    here = [command for command in commands() if not is_elsewhere(command)]
    assert len(here) > 15

    ended = {command: run(command, folder) for command in here}

    wrong = {command: done.stderr[-300:] for command, done in ended.items() if done.returncode}
    assert wrong == {}
    assert [command for command, done in ended.items() if not done.stdout + done.stderr] == []


def test_what_runs_elsewhere_is_named_by_a_page_and_has_tests() -> None:
    """No exception outlives its command or its tests."""
    named = commands()
    assert [pattern for pattern in ELSEWHERE if not any(re.search(pattern, each) for each in named)] == []
    assert [place for place in ELSEWHERE.values() if not (ROOT / place).exists()] == []
