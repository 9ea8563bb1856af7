"""Run other programs that hash in turn with ours, if they are installed, and compare the speeds.

hashcat makes its candidates on the device and keeps no digest, so it is compared with our kernel stage. Its
mode 21400, SHA-256 of a binary SHA-256, is the closest published mode to a header search; mode 17800 is
Keccak-256. openssl speed hashes one buffer again and again, on every core.
"""

import os
import re
import shutil
import statistics
import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuhash.errors import GpuhashError

HASHCAT_MODES = {"header-search": 21400, "sha256": 1400, "keccak256": 17800, "sha3-256": 17400}
HASHCAT_TYPES = {"cpu": "1", "cuda": "2"}  # OpenCL device types
UNITS = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
OPENSSL_NAMES = {"sha256": "sha256", "sha3-256": "sha3-256"}
TIMEOUT_S = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """Holds the speeds of gpuhash and of another program that ran in turn, and their ratio."""

    algorithm: str
    backend: str
    peer: str  # name of the other program, with its mode or options
    rounds: int
    hashes_per_s: float  # ours, median
    peer_hashes_per_s: float  # median
    ratio: float  # ours / peer, median of the rounds


def with_peers(algorithms: Iterable[str]) -> list[str]:
    """Return those of the algorithms that an installed other program (hashcat or openssl) has as well."""
    found = set(HASHCAT_MODES if shutil.which("hashcat") else ())
    found |= set(OPENSSL_NAMES if shutil.which("openssl") else ())
    return [name for name in algorithms if name in found]


def beside_hashcat(
    algorithm: str, backend: str, ours: Callable[[], float], rounds: int = 3
) -> PeerResult | None:
    """Run our hashing and hashcat's in turn, and return both speeds.

    `ours` measures and returns our hashes per second. Returns None if hashcat is not installed or has no mode
    for the algorithm. Raises GpuhashError with hashcat's output if it prints no speed.
    """
    mode = HASHCAT_MODES.get(algorithm)
    if mode is None or shutil.which("hashcat") is None:
        return None
    pairs = [(ours(), hashcat(mode, backend)) for _ in range(rounds)]
    return _median(algorithm, backend, f"hashcat -m {mode}", pairs)


def beside_openssl(
    algorithm: str, backend: str, message_bytes: int, ours: Callable[[], float], rounds: int = 3
) -> PeerResult | None:
    """Run our hashing and that of openssl speed in turn, on all cores, and return both speeds.

    `ours` measures and returns our hashes per second. Returns None if openssl is not installed or lacks the
    algorithm, and for a backend other than cpu. Raises GpuhashError if openssl prints no speed.
    """
    name = OPENSSL_NAMES.get(algorithm)
    if name is None or backend != "cpu" or shutil.which("openssl") is None:
        return None
    pairs = [(ours(), openssl(name, message_bytes)) for _ in range(rounds)]
    return _median(algorithm, backend, f"openssl speed -bytes {message_bytes}", pairs)


def hashcat(mode: int, backend: str) -> float:
    """Run hashcat's own benchmark; return its hashes per second on all CPUs, or on the first GPU.

    `mode` is hashcat's number of the algorithm, `backend` is cpu or cuda. Raises GpuhashError if it prints no
    speed or takes longer than TIMEOUT_S seconds, FileNotFoundError if it is not installed.
    """
    text = _output_of(["hashcat", "-b", "-D", HASHCAT_TYPES[backend], "-m", str(mode), "--force"])
    speeds = re.findall(r"^Speed\.#(\S+?)\.*: +([\d.]+) ([kMG]?)H/s", text, re.MULTILINE)
    if not speeds:
        raise GpuhashError(f"hashcat -m {mode} gave no speed: {text.strip()[-300:]}")
    # With several devices the last line, #*, is the sum of all. Our kernel stage runs on one GPU only.
    _device, number, unit = speeds[0 if backend == "cuda" else -1]
    return float(number) * UNITS[unit]


def openssl(name: str, message_bytes: int) -> float:
    """Run openssl speed on every core; return its hashes per second for messages of `message_bytes`.

    `name` is openssl's name of the algorithm. Raises GpuhashError if it prints no speed.
    """
    cores = str(len(os.sched_getaffinity(0)))
    command = ["openssl", "speed", "-mr", "-seconds", "1", "-bytes", str(message_bytes), "-multi", cores]
    text = _output_of([*command, "-evp", name])
    match = re.search(r"^\+F:\d+:[^:]+:([\d.]+)", text, re.MULTILINE)
    if match is None:
        raise GpuhashError(f"openssl speed {name} gave no speed: {text.strip()[-300:]}")
    return float(match[1]) / message_bytes


def _median(algorithm: str, backend: str, peer: str, pairs: list[tuple[float, float]]) -> PeerResult:
    return PeerResult(
        algorithm=algorithm,
        backend=backend,
        peer=peer,
        rounds=len(pairs),
        hashes_per_s=statistics.median(ours for ours, _ in pairs),
        peer_hashes_per_s=statistics.median(theirs for _, theirs in pairs),
        ratio=statistics.median(ours / theirs for ours, theirs in pairs),
    )


def _output_of(command: list[str]) -> str:
    """Run a program and return all that it printed, whatever its exit status.

    Raises GpuhashError if it takes longer than TIMEOUT_S seconds.
    """
    try:
        done = subprocess.run(  # noqa: S603 - programs named above
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise GpuhashError(f"{command[0]} did not end within {TIMEOUT_S} s") from error
    return done.stdout + done.stderr
