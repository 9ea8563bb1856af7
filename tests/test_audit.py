"""The audit of dependencies: fails for what is vulnerable, and calls nothing clean that nobody looked at."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.audit import UNKNOWN, judged, read

CLEAN = {"name": "a", "version": "1", "vulns": []}
FAULT = {"id": "PYSEC-1", "fix_versions": ["2"], "aliases": [], "description": "d"}
SKIPPED = {"name": "c", "skip_reason": "Dependency not found on PyPI and could not be audited: c (1)"}


@pytest.mark.parametrize(
    ("dependencies", "status", "words"),
    [
        ([CLEAN], 0, "audited: 1 packages, no known vulnerability"),
        ([CLEAN, SKIPPED], 0, "not audited: c"),
        ([CLEAN, {"name": "b", "version": "1", "vulns": [FAULT]}], 1, "b 1: PYSEC-1, mended in 2"),
        ([{"name": "b", "version": "1", "vulns": [FAULT | {"fix_versions": []}]}], 1, "mended in no version"),
        ([SKIPPED], 0, "out of reach"),
    ],
)
def test_a_report_is_judged_by_what_was_looked_at(dependencies: list[Any], status: int, words: str) -> None:
    """Status 1 only for what is vulnerable; what was skipped is named, or why nothing was audited."""
    found, lines = judged(read({"dependencies": dependencies, "fixes": []}), ["out of reach"])
    assert found == status
    assert words in "\n".join(lines)
    assert ("no known" in "\n".join(lines)) == (CLEAN in dependencies and status == 0)


@pytest.mark.parametrize(("flags", "status"), [([], 0), (["--strict"], 1)])
def test_without_a_network_it_says_so_and_lints_on(
    repo_root: Path, tmp_path: Path, flags: list[str], status: int
) -> None:
    """An index nobody can reach gives a line per service, and a failure only where that was asked for."""
    lock = tmp_path / "requirements.lock"
    lock.write_text(f"attrs==26.1.0 --hash=sha256:{'0' * 64}\n")
    nowhere = "http://127.0.0.1:9"
    result = subprocess.run(
        [sys.executable, repo_root / "tests" / "audit.py", *flags, lock],
        env={"PATH": "/usr/bin:/bin", "HTTPS_PROXY": nowhere, "HTTP_PROXY": nowhere, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == status, result.stderr
    *services, last = result.stdout.splitlines()
    assert last == UNKNOWN, result.stderr
    for service, line in zip(["pypi", "osv"], services, strict=True):
        assert re.fullmatch(rf"not audited by {service}: [a-z.]+ is out of reach", line)
