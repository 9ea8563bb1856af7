"""Both kinds of loops for SHA-256, by vector lanes and by SHA instructions, give the same digests."""

from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuhash
from gpuhash import backend, cpu, cpu_sha256, cpu_sha_extensions
from gpuhash.cpu import CpuBackend
from gpuhash.measure import ceiling, sha_units
from gpuhash.packing import pack
from gpuhash.reference import Algorithm, ReferenceBackend

HEADER = bytes(range(80))
needs_sha = pytest.mark.skipif(not cpu_sha_extensions.HAS_SHA, reason="this CPU has no SHA instructions")


@pytest.fixture(params=[cpu_sha256, pytest.param(cpu_sha_extensions, marks=needs_sha)])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Let the cpu backend use one kind of loops, whichever it would choose."""
    monkeypatch.setattr(cpu, "sha256_loops", request.param)
    chosen: ModuleType = request.param
    return chosen


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("which", [Algorithm.SHA256, Algorithm.SHA256D])
def test_both_kinds_of_loops_are_proven(which: Algorithm) -> None:
    """The proof that comes before the first use passes: padding edges, mixed and equal lengths."""
    backend.prove(CpuBackend(), which)
    backend.prove_search(CpuBackend())


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize("which", [Algorithm.SHA256, Algorithm.SHA256D])
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 400), max_size=24), seed=st.integers(0, 1000))
def test_any_lengths_hash_as_the_reference_says(which: Algorithm, lengths: list[int], seed: int) -> None:
    """Hypothesis looks for lengths on which a loop differs from hashlib."""
    rng = np.random.default_rng(seed)
    batch = pack(gpuhash.join([rng.bytes(length) for length in lengths]))

    expected = ReferenceBackend().hash_batch(which, batch)

    assert np.array_equal(CpuBackend(thread_count=2).hash_batch(which, batch), expected)


@pytest.mark.usefixtures("loops")
@pytest.mark.parametrize(("start", "count"), [(0, 1), (3, 401), ((1 << 32) - 33, 33), (100, 0)])
def test_a_search_loses_and_invents_no_nonce(start: int, count: int) -> None:
    """Windows that end inside a group, and one that ends at the last nonce of all."""
    expected = ReferenceBackend().search(HEADER, backend.EASY_TARGET, start, count)

    assert CpuBackend().search(HEADER, backend.EASY_TARGET, start, count) == expected


@pytest.mark.parametrize("lost", [0, -1])
def test_a_backend_that_loses_a_nonce_is_refused(lost: int) -> None:
    """A search is proven before it is used first: a nonce that is left out would be noticed by nobody."""

    class Forgetful(CpuBackend):
        name = "forgetful"

        def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
            found = super().search(header, target, start, count)
            del found[lost]
            return found

    with pytest.raises(gpuhash.WrongHashError, match="forgetful finds wrong nonces"):
        backend.ProvenBackend(Forgetful()).search(HEADER, 1, 0, 10)


def test_sha_instructions_per_hash_follow_from_the_algorithm() -> None:
    """A block is 32 pairs of rounds and 12 steps of the schedule; a known block has no schedule."""
    one, two = (sha_units.instructions_per_hash(Algorithm.SHA256, length) for length in (55, 56))
    whole = sha_units.instructions_per_hash(Algorithm.SHA256, 64)
    search = sha_units.instructions_per_hash(None, 80)

    assert (one["sha256rnds2"], one["sha256msg1"], one["sha256msg2"]) == (32, 12, 12)
    assert two == one + one
    assert whole["sha256rnds2"] == two["sha256rnds2"]
    assert whole["sha256msg2"] == one["sha256msg2"]
    assert search["sha256rnds2"] == 2 * 32 - 1 - 1  # the first pair is known, the last one not needed
    assert search["sha256msg2"] == 24


@needs_sha
def test_the_limit_of_a_cpu_is_that_of_the_loops_it_uses(monkeypatch: pytest.MonkeyPatch) -> None:
    """SHA-256 by SHA instructions has their limit; by lanes, and for Keccak, the vector units set it."""
    monkeypatch.setattr(cpu, "sha256_loops", cpu_sha_extensions)
    by_sha, keccak = ceiling.of("cpu", None, 80), ceiling.of("cpu", Algorithm.KECCAK256, 64)
    monkeypatch.setattr(cpu, "sha256_loops", cpu_sha256)
    by_lanes = ceiling.of("cpu", None, 80)

    lanes = {ceiling.BY_UNITS, ceiling.BY_SHIFTS}
    formulas = [bound and bound.formula for bound in (by_sha, keccak, by_lanes)]
    assert formulas[0] == ceiling.BY_SHA
    assert set(formulas[1:]) <= lanes
