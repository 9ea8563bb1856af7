"""Compare the cpu backend with hashcat per second of CPU time: python -m tests.gpuhash.bench_hashcat.

`gpuhash bench --peers` compares speeds, which needs a machine where nothing else runs. Here both are divided
by the CPU time that they got, so other programs disturb less. hashcat prints its speed; how many CPUs it had
meanwhile is read from /proc while its benchmark runs, without its first third and last tenth. Printed are the
median and the range of ROUNDS pairs.
"""

import os
import re
import statistics
import subprocess
import time
from pathlib import Path

from gpuhash.measure import peers
from gpuhash.reference import Algorithm
from tests.gpuhash.bench_share import MESSAGES, NONCES, thread_s, work_of

ROUNDS = 3
CASES = {"header-search": None, "keccak256": Algorithm.KECCAK256, "sha3-256": Algorithm.SHA3_256}
POLL_S = 0.1
OURS_S = 2.0


def main() -> None:
    """Print one line per algorithm."""
    for name, which in CASES.items():
        pairs = [(ours(which), theirs(peers.HASHCAT_MODES[name])) for _ in range(ROUNDS)]
        ratios = sorted(mine / other for mine, other in pairs)
        mine, other = (statistics.median(rates) / 1e6 for rates in zip(*pairs, strict=True))
        print(
            f"{name}: {mine:.1f} MH/s per CPU, hashcat -m {peers.HASHCAT_MODES[name]} {other:.1f}; "
            f"{statistics.median(ratios):.2f} times ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        )


def ours(which: Algorithm | None) -> float:
    """Return the hashes per second of CPU time of one thread; `which` is None for a header search."""
    hash_all = work_of(which)
    hash_all()
    end = time.monotonic() + OURS_S
    taken = [thread_s(hash_all)]
    while time.monotonic() < end:
        taken.append(thread_s(hash_all))
    return (NONCES if which is None else MESSAGES) / statistics.median(taken)


def theirs(mode: int) -> float:
    """Return the hashes per second of CPU time of hashcat's own benchmark."""
    command = ["hashcat", "-b", "-D", peers.HASHCAT_TYPES["cpu"], "-m", str(mode), "--force"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        samples = []
        while program.poll() is None:
            samples.append((time.monotonic(), cpu_s(program.pid)))
            time.sleep(POLL_S)
        assert program.stdout is not None
        text = program.stdout.read()
    speed = re.search(r"^Speed\.#\S+?\.*: +([\d.]+) ([kMG]?)H/s", text, re.MULTILINE)
    if speed is None:
        raise SystemExit(f"hashcat -m {mode} gave no speed: {text.strip()[-300:]}")
    (begin, before), (end, after) = samples[len(samples) // 3], samples[len(samples) * 9 // 10]
    return float(speed[1]) * peers.UNITS[speed[2]] * (end - begin) / (after - before)


def cpu_s(process: int) -> float:
    """Return the seconds of CPU time that all threads of a process have had."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
