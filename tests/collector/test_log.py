"""Test logging to a stderr that cannot be written."""

import subprocess
import sys

import pytest

from collector.log import counted

LOGGING = """
import os, sys

from collector.log import configure_logging
import structlog
configure_logging("json")
structlog.get_logger().warning("disk.full")
print("alive", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("where", ["/dev/full", "closed pipe"])
def test_a_line_that_finds_no_room_ends_nothing(where: str) -> None:
    """Logging to a full disk or a closed pipe raises nothing."""
    with subprocess.Popen(["true"], stdin=subprocess.PIPE) as gone:
        gone.wait()
        assert gone.stdin is not None
        stderr = gone.stdin if where == "closed pipe" else open(where, "wb")  # noqa: PTH123, SIM115 - closed below
        with stderr:
            ended = subprocess.run(
                [sys.executable, "-c", LOGGING], check=False, stdout=subprocess.PIPE, stderr=stderr
            )
    assert ended.stdout == b"alive\n"


def test_a_number_agrees_with_its_noun() -> None:
    """One block, no blocks, two thousand blocks."""
    assert [counted(number, "block") for number in (0, 1, 2000)] == ["0 blocks", "1 block", "2,000 blocks"]
