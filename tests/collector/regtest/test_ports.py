"""Test that a port that was drawn stays with the process that drew it."""

import subprocess
import sys

import pytest

from collector.regtest import ports
from collector.regtest.ports import KERNELS_PORTS, free_ports

# Draws four ports of a few, says which, and keeps them until its input ends.
DRAWING = """
import sys
from collector.regtest import ports
ports._ports_to_draw = lambda: range(int(sys.argv[1]), int(sys.argv[2]))
print(*ports.free_ports(4), flush=True)
sys.stdin.read()
"""


def drawing(ports: range) -> "subprocess.Popen[str]":
    """Start a process that draws ports."""
    command = [sys.executable, "-c", DRAWING, str(ports.start), str(ports.stop)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ports_of(process: "subprocess.Popen[str]") -> set[int]:
    """Return the ports that a process has drawn."""
    assert process.stdout is not None
    return {int(port) for port in process.stdout.readline().split()}


@pytest.mark.skipif(not KERNELS_PORTS.exists(), reason="only Linux says which ports it takes by itself")
def test_a_port_is_none_that_the_kernel_takes_by_itself() -> None:
    """A connection of another process never takes a port between its draw and its use."""
    first, last = map(int, KERNELS_PORTS.read_text().split())
    if first < ports.FIRST_PORT + 1000:
        pytest.skip("the kernel takes nearly all ports by itself")

    assert [port for port in free_ports(50) if first <= port <= last] == []


def test_no_two_processes_draw_a_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a dozen ports, two other processes and this one, twice, draw no port again."""
    (below,) = free_ports(1)
    few = range(below + 1, below + 13)
    monkeypatch.setattr(ports, "_ports_to_draw", lambda: few)
    with drawing(few) as first:
        theirs = ports_of(first)
        with drawing(few) as second:
            drawn = [*theirs, *ports_of(second), *free_ports(2), *free_ports(2)]
            assert len(set(drawn)) == 12
