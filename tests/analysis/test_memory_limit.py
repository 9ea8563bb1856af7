"""Test that pool-analysis says in one line that it may use too little memory, and does not crash."""

import resource
import subprocess
import sys

import pytest


@pytest.mark.parametrize("limit", [100 << 20, 700_000 << 10])
def test_too_little_memory_is_one_sentence(limit: int) -> None:
    """With too little address space the program ends with status 1 and one line."""

    def limit_memory() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    command = [sys.executable, "-m", "analysis", "build"]
    outcome = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, preexec_fn=limit_memory
    )
    assert outcome.returncode == 1
    assert len(outcome.stderr.splitlines()) == 1
    assert "ulimit -v" in outcome.stderr
