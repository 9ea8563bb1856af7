"""What the CUDA compiler makes of the kernels: registers, spills and instructions per hash, without a GPU."""

from functools import cache

import pytest

from gpuhash.errors import BackendUnavailableError, InvalidInputError
from gpuhash.measure import limits, nvrtc, sass
from gpuhash.measure.machine_code import HEADER, ONE_HASH, csv_line
from gpuhash.variants import CHOSEN, VARIANTS, Variant, chosen, variant

# Clocks of one SM per hash on the H200 (sm_90) that the chosen variants may take.
BUDGET = {"search": 29.1, "merkle_nodes": 42.7, "hash_64_bytes": 65.3}
# Compilers change a little between versions.
SLACK = 1.01
# A thread may hold as many registers as let this many threads live on an SM of 65,536.
THREADS_PER_SM = {"search": 1536, "merkle_nodes": 1024, "hash_64_bytes": 768}
MOST_THREADS = {"sm_75": 1024}  # that an SM takes at all, where it is less than 1536


@cache
def compiled_by_name(module: str, name: str, architecture: str, *, unroll_all: bool) -> nvrtc.Compiled:
    """Compile a variant once per test run."""
    return nvrtc.compile_variant(variant(module, name), architecture, unroll_all=unroll_all)


def compiled_code(picked: Variant, architecture: str) -> nvrtc.Compiled:
    """Compile a variant as a GPU runs it, or take what an earlier test compiled."""
    return compiled_by_name(picked.module, picked.name, architecture, unroll_all=False)


def unrolled_code(picked: Variant, architecture: str) -> bytes:
    """Return machine code in which every instruction of a hash stands, as the counts need it."""
    return compiled_by_name(picked.module, picked.name, architecture, unroll_all=True).cubin


@pytest.fixture(scope="module", autouse=True)
def _tools() -> None:
    try:
        sass.count(compiled_code(variant("sha256", "plain"), "sm_90").cubin, "search")
    except BackendUnavailableError as missing:
        pytest.skip(str(missing))


@pytest.mark.parametrize("module", CHOSEN)
@pytest.mark.parametrize("architecture", nvrtc.ARCHITECTURES)
def test_chosen_variants_compile_within_budget(architecture: str, module: str) -> None:
    """On every architecture: no spills, registers for full occupancy, instructions as recorded."""
    picked = chosen(module, architecture.removeprefix("sm_"))
    compiled = compiled_code(picked, architecture)
    recorded = {
        limit.kernel: limit for limit in limits.for_architecture(architecture) if limit.variant == picked.name
    }

    assert compiled.kernels
    for name, resources in compiled.kernels.items():
        assert resources.spill_bytes == resources.stack_bytes == 0, name
    for kernel in ONE_HASH[module]:
        counted = sass.count(unrolled_code(picked, architecture), kernel)
        expected = recorded[kernel].instructions
        assert counted.local == 0
        assert counted.alu <= expected.alu * SLACK
        assert counted.fma <= expected.fma * SLACK
        assert counted.total <= expected.total * SLACK
        threads = min(THREADS_PER_SM[kernel], MOST_THREADS.get(architecture, 1536))
        assert compiled.kernels[kernel].registers * threads <= 65_536
        assert recorded[kernel].cycles_per_hash <= BUDGET[kernel] * SLACK


@pytest.mark.parametrize("kernel", BUDGET)
def test_chosen_variants_meet_the_budget_of_the_h200(kernel: str) -> None:
    """The static model's clocks per hash, compiled now, not as recorded."""
    module = next(module for module, kernels in ONE_HASH.items() if kernel in kernels)
    counted = sass.count(unrolled_code(chosen(module, "90"), "sm_90"), kernel)

    assert max(counted.alu, counted.fma, counted.total / 2, counted.reads / 2) / 64 <= BUDGET[kernel]


@pytest.mark.parametrize(
    "number", range(len(VARIANTS)), ids=lambda i: f"{VARIANTS[i].module}-{VARIANTS[i].name}"
)
def test_recorded_counts_are_those_of_the_compiler(number: int) -> None:
    """kernels/instructions.csv, which the model prints, agrees with the machine code of sm_90."""
    cubin = unrolled_code(VARIANTS[number], "sm_90")
    for limit in limits.for_architecture("sm_90"):
        if (limit.module, limit.variant) == (VARIANTS[number].module, VARIANTS[number].name):
            counted = sass.count(cubin, limit.kernel)
            assert counted.alu == pytest.approx(limit.instructions.alu, rel=SLACK - 1)
            assert counted.fma == pytest.approx(limit.instructions.fma, rel=SLACK - 1, abs=5)
            assert counted.total == pytest.approx(limit.instructions.total, rel=SLACK - 1)
            assert counted.reads == pytest.approx(limit.instructions.reads, rel=0.1)


def test_assembly_is_the_logic_it_stands_for() -> None:
    """The truth tables in the machine code are those the host build computes: XOR, choose, majority, chi."""
    sha256 = sass.tables(compiled_code(variant("sha256", "adds"), "sm_90").cubin, "search")
    keccak = sass.tables(unrolled_code(variant("keccak", "plain"), "sm_90"), "hash_64_bytes")

    # Two hashes of up to 64 rounds: three-way XORs of Sigma0, Sigma1, sigma0, sigma1; one choose and one
    # majority per round, less what the search leaves out and the constants swallow.
    assert 380 <= sha256[0x96] <= 420
    assert 110 <= sha256[0xCA] <= 121
    assert 110 <= sha256[0xE8] <= 117
    # 23 whole rounds of 25 words and a last one of 4, two halves each: chi. Theta has two XORs per column
    # and one per word, less those with words that are still zero.
    assert keccak[0xD2] == 2 * (23 * 25 + 4)
    assert 2 * 23 * 35 <= keccak[0x96] <= 2 * 24 * 35


def test_a_kernel_that_does_not_compile_says_why() -> None:
    """An architecture NVRTC does not know comes back as an error with its words."""
    with pytest.raises(InvalidInputError, match=r"sm_10.*gpu-architecture"):
        compiled_code(variant("sha256", "plain"), "sm_10")


def test_counts_can_be_written_as_recorded() -> None:
    """What `gpuhash limits --recount` prints is the recorded file."""
    from importlib.resources import files

    recorded = (files("gpuhash") / "kernels" / "instructions.csv").read_text().splitlines()

    assert recorded == [HEADER, *map(csv_line, limits.counted())]
