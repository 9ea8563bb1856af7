"""The GPU kernels, compiled by the C++ compiler, against the reference: every variant of the same source."""

import base64
import ctypes
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuhash import join
from gpuhash.backend import EDGE_LENGTHS
from gpuhash.kernel_calls import Layout, _rectangles, hash_call, search_calls
from gpuhash.packing import pack
from gpuhash.reference import Algorithm, ReferenceBackend
from gpuhash.search import target_from_bits
from gpuhash.variants import VARIANTS, Variant
from tests.gpuhash import host_kernels

REFERENCE = ReferenceBackend()
SHA256_VARIANTS = [variant for variant in VARIANTS if variant.module == "sha256"]
ALGORITHMS = {
    "sha256": (Algorithm.SHA256, Algorithm.SHA256D),
    "keccak": (Algorithm.KECCAK256, Algorithm.SHA3_256),
}


def name_of(variant: Variant) -> str:
    """Return the name of a variant as test ids show it."""
    return f"{variant.module}-{variant.name}"


@pytest.fixture(scope="module")
def folder(repo_root: Path) -> Path:
    """Return the folder where compiled kernels are kept between test runs."""
    return repo_root / ".cache" / "host-kernels"


@pytest.fixture(params=VARIANTS, ids=name_of)
def compiled(request: pytest.FixtureRequest, folder: Path) -> tuple[Variant, ctypes.CDLL]:
    """Return every variant, compiled for the host."""
    variant: Variant = request.param
    return variant, host_kernels.compile_for_host(variant.module, variant.defines, folder)


def guarded(data: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Copy data to the end of a buffer, as device memory ends: aligned, and nothing behind it is read."""
    buffer = np.full(len(data) + 64 + 16, 0xAA, np.uint8)
    start = -buffer.ctypes.data % 16
    view = buffer[start : start + len(data)]
    view[:] = np.frombuffer(data, np.uint8)
    return buffer, view


@pytest.mark.parametrize("length", EDGE_LENGTHS)
def test_equal_lengths_at_padding_edges(compiled: tuple[Variant, ctypes.CDLL], length: int) -> None:
    """A matrix of 35 messages; the last block has threads without one."""
    variant, library = compiled
    matrix = np.random.default_rng(length).integers(0, 256, (35, length), np.uint8)
    _buffer, flat = guarded(matrix.tobytes())
    for algorithm in ALGORITHMS[variant.module]:
        digests = np.zeros((35, 32), np.uint8)
        layout = Layout(flat=flat.ctypes.data, count=35, length=length)
        host_kernels.run(library, hash_call(algorithm, layout, digests.ctypes.data))
        assert np.array_equal(digests, REFERENCE.hash_batch(algorithm, pack(matrix)))


@settings(max_examples=50, deadline=None)
@given(messages=st.lists(st.binary(max_size=400), min_size=1, max_size=12), seed=st.integers(0, 999))
@pytest.mark.parametrize("variant", VARIANTS, ids=name_of)
def test_mixed_lengths_in_any_order(folder: Path, variant: Variant, messages: list[bytes], seed: int) -> None:
    """Messages at any alignment, handed to the threads in any order, land in their own rows."""
    library = host_kernels.compile_for_host(variant.module, variant.defines, folder)
    flat, offsets = join(messages)
    _buffer, data = guarded(flat.tobytes())
    order = np.random.default_rng(seed).permutation(len(messages))
    for algorithm in ALGORITHMS[variant.module]:
        digests = np.zeros((len(messages), 32), np.uint8)
        layout = Layout(
            flat=data.ctypes.data, count=len(messages), offsets=offsets.ctypes.data, order=order.ctypes.data
        )
        host_kernels.run(library, hash_call(algorithm, layout, digests.ctypes.data))
        assert np.array_equal(digests, REFERENCE.hash_batch(algorithm, pack((flat, offsets))))


@pytest.mark.parametrize("variant", SHA256_VARIANTS, ids=name_of)
@pytest.mark.parametrize(
    ("start", "count"), [(0, 900), ((1 << 24) - 200, 400), ((1 << 32) - 300, 300), (77, 1)]
)
def test_search_offers_every_candidate(folder: Path, variant: Variant, start: int, count: int) -> None:
    """All nonces whose top word is low enough, also where the highest byte of the nonce changes."""
    library = host_kernels.compile_for_host("sha256", variant.defines, folder)
    header = np.random.default_rng(count).bytes(80)
    target = (0x04000000 << 224) | ((1 << 224) - 1)
    found = np.zeros(1001, np.uint32)

    for call in search_calls(header, target, start, count, found=found.ctypes.data, capacity=1000):
        host_kernels.run(library, call)

    expected = REFERENCE.search(header, target, start, count)
    assert sorted(found[1 : 1 + found[0]].tolist()) == expected
    assert count == 1 or expected


@pytest.mark.data
@pytest.mark.parametrize("variant", SHA256_VARIANTS, ids=name_of)
def test_search_finds_the_nonces_of_real_headers(folder: Path, data_dir: Path, variant: Variant) -> None:
    """For one header of every tenth retarget of mainnet the kernel offers the nonce that was mined."""
    library = host_kernels.compile_for_host("sha256", variant.defines, folder)
    headers = checkpoint_headers(data_dir)
    for header in headers[::10]:
        nonce = int.from_bytes(header[76:], "little")
        start = max(nonce - 20, 0)
        found = np.zeros(11, np.uint32)
        target = target_from_bits(int.from_bytes(header[72:76], "little"))
        for call in search_calls(header, target, start, 40, found=found.ctypes.data, capacity=10):
            host_kernels.run(library, call)
        assert found[: 1 + found[0]].tolist() == [1, nonce]
    assert len(headers) > 400


def checkpoint_headers(data_dir: Path) -> list[bytes]:
    """Headers of bitcoinj's checkpoints: base64 of chainwork, height and header."""
    lines = (data_dir / "bitcoinj/production.checkpoints.txt").read_text().split()
    records = [base64.b64decode(line + "=" * (-len(line) % 4)) for line in lines if len(line) > 100]
    return [record[-80:] for record in records]


def test_search_counts_what_it_cannot_keep(folder: Path) -> None:
    """Beyond the capacity candidates are counted and not written."""
    library = host_kernels.compile_for_host("sha256", {}, folder)
    found = np.zeros(12, np.uint32)

    for call in search_calls(bytes(80), (1 << 256) - 1, 0, 50, found=found.ctypes.data, capacity=10):
        host_kernels.run(library, call)

    assert found[0] == 50
    assert sorted(found[1:11].tolist()) == list(range(10))
    assert found[11] == 0


@given(st.integers(0, 1 << 32), st.integers(0, 1 << 32))
def test_rectangles_cover_a_range_of_nonces_once(first: int, second: int) -> None:
    """The rectangles follow one another without a gap and never overlap."""
    start, end = sorted((first, second))
    position = start
    for first_low, lows, first_high, highs in _rectangles(start, end):
        assert first_low + (first_high << 24) == position
        assert highs == 1 or (first_low, lows) == (0, 1 << 24)
        assert first_low + lows <= 1 << 24
        position += lows * highs
    assert position == end
