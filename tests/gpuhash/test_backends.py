"""Backends against the reference: every padding edge, any lengths, odd counts, hostile layouts."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuhash
from gpuhash import cpu_sha256
from gpuhash.backend import EDGE_LENGTHS, ProvenBackend
from gpuhash.cpu import BUSY_RATIO, CpuBackend
from gpuhash.keccak import KECCAK_DOMAIN, SHA3_DOMAIN, sponge
from gpuhash.packing import Batch, Bytes, Messages, pack
from gpuhash.reference import Algorithm, keccak256
from gpuhash.sharing import share, usable_cpus

ALGORITHMS = list(Algorithm)


def same_as_reference(algorithm: str, messages: Messages, backend: str = "cpu") -> bool:
    """Compare a backend's digests with the reference's, byte by byte."""
    expected = gpuhash.hash_batch(algorithm, messages, backend="reference")
    return np.array_equal(gpuhash.hash_batch(algorithm, messages, backend=backend), expected)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_length_up_to_three_blocks(algorithm: str) -> None:
    """Messages of 0 to 420 bytes in one batch, shuffled."""
    rng = np.random.default_rng(3)
    messages = [rng.bytes(length) for length in rng.permutation(421)]

    assert same_as_reference(algorithm, gpuhash.join(messages))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("length", EDGE_LENGTHS)
def test_matrices_at_padding_edges(algorithm: str, length: int) -> None:
    """Equal lengths take their own way; counts around a full group of lanes, and none."""
    rng = np.random.default_rng(length)

    for count in (0, 1, 7, 8, 9, 15, 16, 17, 40):
        assert same_as_reference(algorithm, rng.integers(0, 256, (count, length), np.uint8))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@settings(max_examples=60, deadline=None)
@given(messages=st.lists(st.binary(max_size=700), max_size=40))
def test_any_messages(algorithm: str, messages: list[bytes]) -> None:
    """Hypothesis looks for a batch on which the cpu backend differs."""
    assert same_as_reference(algorithm, gpuhash.join(messages))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_ten_thousand_random_messages(algorithm: str) -> None:
    """Lengths as transactions have them: most are short, a few are long."""
    rng = np.random.default_rng(11)
    lengths = np.minimum(rng.lognormal(5, 1, 10_000).astype(np.int64), 20_000)
    offsets = np.concatenate(([0], np.cumsum(lengths)))

    assert same_as_reference(algorithm, (rng.integers(0, 256, offsets[-1], np.uint8), offsets))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("count", [1, 5, 17, 22, 31])
def test_few_long_messages_of_one_length(algorithm: str, count: int) -> None:
    """Too few for a group of lanes, or a rest that is too few."""
    matrix = np.random.default_rng(count).integers(0, 256, (count, 5000), np.uint8)

    assert same_as_reference(algorithm, matrix)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_one_huge_message_among_small_ones(algorithm: str) -> None:
    """Three megabytes beside empty and short messages."""
    huge = np.random.default_rng(5).bytes(3_000_001)

    assert same_as_reference(algorithm, gpuhash.join([b"", huge, b"abc", *[bytes(i) for i in range(50)]]))
    assert same_as_reference(algorithm, gpuhash.join([huge]))


def test_bytes_next_to_a_message_do_not_matter() -> None:
    """Equal messages surrounded by different bytes, at the very end of the buffer, hash alike."""
    message = b"x" * 70
    quiet, loud = (np.frombuffer(fill * 100 + message, np.uint8) for fill in (b"\0", b"\xff"))
    offsets = np.array([100, 170])

    for algorithm in ALGORITHMS:
        first, second = (
            gpuhash.hash_batch(algorithm, (flat, offsets), backend="cpu") for flat in (quiet, loud)
        )
        assert np.array_equal(first, second)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 400_000), max_size=100), st.sampled_from([Algorithm.SHA256, Algorithm.KECCAK256])
)
def test_every_message_is_planned_once(lengths: list[int], algorithm: Algorithm) -> None:
    """Groups and lonely messages together are all messages; a group that stays is busy enough."""
    limits = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    lanes, block_bytes, padding = (16, 64, 9) if algorithm is Algorithm.SHA256 else (8, 136, 1)

    plan = CpuBackend(thread_count=3)._plan_mixed(limits, lanes, block_bytes, padding)

    order, alone = plan.order, plan.alone
    assert sorted([*order[order >= 0].tolist(), *alone.tolist()]) == list(range(len(lengths)))
    assert sorted(group for first, last in plan.ranges for group in range(first, last)) == list(
        range(len(order))
    )
    for group in order:
        used = [(lengths[message] + padding - 1) // block_bytes + 1 for message in group if message >= 0]
        assert sum(used) >= BUSY_RATIO[block_bytes] * lanes * max(used) or max(used) <= lanes


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5", "257", "²"])
def test_a_thread_count_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """GPUHASH_THREADS has to be a number from 1 to 256; the message shows what it is."""
    monkeypatch.setenv("GPUHASH_THREADS", text)

    with pytest.raises(gpuhash.InvalidInputError, match=f"GPUHASH_THREADS is '{text}'"):
        CpuBackend()


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUHASH_THREADS counts, an argument counts more, and without either there is one per CPU."""
    monkeypatch.setenv("GPUHASH_THREADS", "3")
    assert CpuBackend().thread_count == 3
    assert CpuBackend(thread_count=2).thread_count == 2
    monkeypatch.delenv("GPUHASH_THREADS")
    assert CpuBackend().thread_count == usable_cpus()


def test_one_thread_hashes_and_searches_alike() -> None:
    """The caller alone gives the same digests and nonces as several threads."""
    batch = pack(np.random.default_rng(8).integers(0, 256, (3000, 70), np.uint8))
    one, many = CpuBackend(thread_count=1), CpuBackend(thread_count=5)

    for algorithm in ALGORITHMS:
        assert np.array_equal(one.hash_batch(algorithm, batch), many.hash_batch(algorithm, batch))
    assert one.search(bytes(80), 1 << 240, 0, 1 << 20) == many.search(bytes(80), 1 << 240, 0, 1 << 20)


def test_an_error_in_a_thread_reaches_the_caller() -> None:
    """A task that fails in a helper thread fails the call, and the other tasks stop."""

    def fail() -> None:
        raise MemoryError("no memory left")

    with pytest.raises(MemoryError, match="no memory left"):
        share([fail] * 8, thread_count=2)


def test_hashing_still_works_while_the_interpreter_ends(repo_root: Path) -> None:
    """An exit handler that hashes a large batch gets its digests, from one thread."""
    program = """
import atexit, hashlib, numpy, gpuhash
batch = numpy.zeros((100_000, 64), numpy.uint8)
gpuhash.sha256_batch(batch[:1], backend="cpu")  # numba cannot be imported any more at the end
def late():
    print(gpuhash.sha256_batch(batch, backend="cpu")[-1].tobytes() == hashlib.sha256(bytes(64)).digest())
atexit.register(late)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=repo_root, capture_output=True, text=True, check=False
    )

    assert done.stdout == "True\n", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_hashes_with_threads_of_its_own(repo_root: Path) -> None:
    """The threads of the parent are not in the child; it starts its own."""
    program = """
import os, numpy, gpuhash
batch = numpy.zeros((100_000, 64), numpy.uint8)
before = gpuhash.sha256_batch(batch, backend="cpu")
child = os.fork()
if child == 0:
    os._exit(0 if (gpuhash.sha256_batch(batch, backend="cpu") == before).all() else 1)
print(os.waitpid(child, 0)[1])
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )

    assert done.stdout == "0\n", done.stderr


def test_a_backend_that_is_wrong_is_refused() -> None:
    """One flipped bit in one digest of one edge length is enough."""

    class Flipped:
        name = "flipped"

        def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
            digests = CpuBackend().hash_batch(which, batch)
            if batch.length == 136:
                digests[-1, 31] ^= 1
            return digests

        def search(self, _header: bytes, _target: int, _start: int, _count: int) -> list[int]:
            return []

    with pytest.raises(gpuhash.WrongHashError, match="flipped gives wrong keccak256"):
        ProvenBackend(Flipped()).hash_batch(
            Algorithm.KECCAK256, Batch(flat=np.zeros(1, np.uint8), count=1, length=1)
        )


def test_a_backend_that_is_wrong_in_full_groups_alone_is_refused() -> None:
    """Full groups of lanes have loops of their own: the proof hashes more messages than a register holds."""

    class MixedUp:
        name = "mixed-up"

        def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
            digests = CpuBackend().hash_batch(which, batch)
            if batch.length == 64 and batch.count > cpu_sha256.LANES:
                digests[[2, 3]] = digests[[3, 2]]
            return digests

        def search(self, _header: bytes, _target: int, _start: int, _count: int) -> list[int]:
            return []

    with pytest.raises(gpuhash.WrongHashError, match="mixed-up gives wrong sha256d"):
        ProvenBackend(MixedUp()).hash_batch(
            Algorithm.SHA256D, Batch(flat=np.zeros(1, np.uint8), count=1, length=1)
        )


WITHOUT = """
import runpy, sys
sys.modules[{missing!r}] = None
{code}
"""


def without(missing: str, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a Python in which one package cannot be imported."""
    command = [sys.executable, "-c", WITHOUT.format(missing=missing, code=code)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_bare_machine_is_told_what_to_install() -> None:
    """Without typer the command says so in one line; without numba the reference still hashes."""
    command = without("typer", "runpy.run_module('gpuhash', run_name='__main__')")
    assert command.returncode == 1
    (line,) = command.stderr.splitlines()
    assert line.startswith("gpuhash: error: import of typer halted")
    assert line.endswith("the command needs: pip install numpy numba typer rich")
    library = without(
        "numba",
        "import gpuhash, numpy\n"
        "rows = numpy.zeros((2, 64), numpy.uint8)\n"
        "print(gpuhash.sha256_batch(rows, backend='reference').shape)\n"
        "try: gpuhash.sha256_batch(rows)\n"
        "except gpuhash.BackendUnavailableError as error: print(error)",
    )
    assert library.stdout.startswith("(2, 32)\nthe cpu backend needs numba"), library.stderr


@pytest.mark.parametrize("length", [0, 1, 135, 136, 137, 300])
def test_the_plain_sponge_equals_both_libraries(length: int) -> None:
    """What stands in for pycryptodome is the same function; hashlib confirms the permutation."""
    message = np.random.default_rng(length).bytes(length)

    assert sponge(message, KECCAK_DOMAIN) == keccak256(message)
    assert sponge(message, SHA3_DOMAIN) == hashlib.sha3_256(message).digest()


NARROW_CPUS = {
    "x86-64 with AVX2": ("haswell", "+avx2,+avx,+sse4.2,+ssse3,+bmi,+bmi2,+popcnt,+fma", 8),
    "x86-64 with SSE": ("nehalem", "+sse4.2,+ssse3,+popcnt", 4),
}
PROOF = """
from gpuhash import cpu, cpu_sha256, backend, reference, search
for algorithm in reference.Algorithm:
    backend.prove(cpu.CpuBackend(), algorithm)
genesis = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e"
    "67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c")
nonces = search.search_header(genesis, 0xFFFF << 208, 2083236893 - 1000, 1001, backend="cpu")
print(cpu_sha256.LANES, nonces)
"""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="compiles for older x86 CPUs")
@pytest.mark.parametrize("cpu", NARROW_CPUS)
def test_narrower_vectors_give_the_same_digests(repo_root: Path, cpu: str) -> None:
    """The same loops compiled for CPUs without AVX-512, in a process of their own."""
    name, features, lanes = NARROW_CPUS[cpu]
    environment = os.environ | {
        "NUMBA_CPU_NAME": name,
        "NUMBA_CPU_FEATURES": features,
        "NUMBA_CACHE_DIR": str(repo_root / ".cache" / f"numba-{name}"),
    }

    proof = subprocess.run(
        [sys.executable, "-c", PROOF],
        env=environment,
        cwd=repo_root,
        capture_output=True,
        text=True,
        check=False,
    )

    assert proof.stdout == f"{lanes} [2083236893]\n", proof.stderr
