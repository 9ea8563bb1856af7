"""The cuda backend over host-compiled kernels: streaming, memory, several devices, device-resident input."""

import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import gpuhash
from gpuhash import backend as backends
from gpuhash import check, cli, cuda, cuda_device
from gpuhash.cuda import CudaBackend
from gpuhash.cuda_device import CudaDevice
from gpuhash.measure import ceiling, energy, machine, stages
from gpuhash.measure import cli as cli_bench
from gpuhash.measure import sweep as clock_sweep
from gpuhash.measure.bench import SEARCH, Case, run
from gpuhash.measure.sweep import Point, Sweep
from gpuhash.packing import pack
from gpuhash.reference import Algorithm, ReferenceBackend
from gpuhash.variants import VARIANTS
from tests.gpuhash.host_cupy import HostCupy

REFERENCE = ReferenceBackend()
Start = Callable[..., HostCupy]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, repo_root: Path) -> Iterator[Start]:
    """Put a host CuPy in place of CuPy, with as many devices and as much memory as the test wants."""

    def begin(**options: int) -> HostCupy:
        cupy = HostCupy(repo_root / ".cache" / "host-kernels", **options)
        monkeypatch.setitem(sys.modules, "cupy", cupy)
        return cupy

    forget()
    yield begin
    forget()


def forget() -> None:
    """Forget which devices were found; the next use looks again."""
    for remembered in (cuda_device.devices, backends._backend, backends._missing_cuda, backends._log_choice):
        remembered.cache_clear()


def mixed(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return messages of 0 to 199 bytes."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate(([0], np.cumsum(rng.integers(0, 200, count))))
    return rng.integers(0, 256, offsets[-1], np.uint8), offsets


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_host_messages_are_streamed_in_chunks(
    start: Start, monkeypatch: pytest.MonkeyPatch, algorithm: str
) -> None:
    """Many small chunks over the lazy streams of several threads give every digest its own row."""
    cupy = start()
    monkeypatch.setattr(cuda, "COPYING_THREADS", 3)
    monkeypatch.setattr(cuda, "CHUNK_BYTES", 2000)
    for messages in (mixed(150), np.random.default_rng(2).integers(0, 256, (150, 64), np.uint8)):
        cupy.launches.clear()

        digests = CudaBackend().hash_batch(Algorithm(algorithm), pack(messages))

        assert np.array_equal(digests, REFERENCE.hash_batch(Algorithm(algorithm), pack(messages)))
        assert len(cupy.launches) > 4


def test_a_device_without_memory_gets_halves(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An allocation that fails halves the chunk, says so, and nothing is lost."""
    start(largest_bytes=900)
    monkeypatch.setattr(cuda, "CHUNK_BYTES", 8000)
    messages = mixed(100)

    with caplog.at_level(logging.WARNING, "gpuhash"):
        digests = CudaBackend().hash_batch(Algorithm.SHA256D, pack(messages))

    assert np.array_equal(digests, REFERENCE.hash_batch(Algorithm.SHA256D, pack(messages)))
    assert "Host 0 is out of memory" in caplog.text
    assert "going on with halves" in caplog.text


@pytest.mark.parametrize(("count", "size", "memory"), [(12, 100_000, 250_000), (2000, 64, 10_000)])
def test_threads_leave_memory_to_one_another(
    start: Start, monkeypatch: pytest.MonkeyPatch, count: int, size: int, memory: int
) -> None:
    """What fits the device alone is hashed, although the chunks of all threads together do not fit."""
    start(memory_bytes=memory)
    monkeypatch.setattr(cuda, "COPYING_THREADS", 4)
    monkeypatch.setattr(cuda, "CHUNK_BYTES", 8000)
    messages = np.random.default_rng(5).integers(0, 256, (count, size), np.uint8)

    for _ in range(5):
        digests = CudaBackend().hash_batch(Algorithm.SHA256, pack(messages))

        assert np.array_equal(digests, REFERENCE.hash_batch(Algorithm.SHA256, pack(messages)))


def test_a_message_that_never_fits_is_refused(start: Start) -> None:
    """One message cannot be halved; the error names its size and the way out."""
    start(largest_bytes=900)

    with pytest.raises(gpuhash.BackendUnavailableError, match=r"one message of 1000 bytes.*backend='cpu'"):
        CudaBackend().hash_batch(Algorithm.SHA256, pack(np.zeros((3, 1000), np.uint8)))


def test_device_messages_without_room_for_digests_are_refused(start: Start) -> None:
    """Digests have to be where the messages are; when they do not fit, the error says so."""
    cupy = start(largest_bytes=3000)

    with pytest.raises(gpuhash.BackendUnavailableError, match="no memory left for 1000 digests"):
        CudaBackend().hash_batch(Algorithm.SHA256, pack(cupy.zeros((1000, 2), np.uint8)))


def test_several_devices_share_a_batch(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks and nonces of one call are worked on by all devices."""
    cupy = start(device_count=1)
    pair = tuple(CudaDevice(cupy, number) for number in range(2))
    monkeypatch.setattr(cuda, "share", lambda tasks: [task() for task in tasks])  # one after the other
    monkeypatch.setattr(cuda, "CHUNK_BYTES", 2000)
    header = bytes(range(80))

    nonces = CudaBackend(pair).search(header, 1 << 250, 5, 1000)

    assert [device for device, _, _ in cupy.launches] == [0, 1]
    assert nonces == REFERENCE.search(header, (1 << 250) | ((1 << 224) - 1), 5, 1000)


def test_device_messages_are_hashed_where_they_are(start: Start) -> None:
    """A CuPy array gives a CuPy array, mixed lengths and merkle roots too, and no chunk is copied."""
    cupy = start()
    matrix = np.random.default_rng(3).integers(0, 256, (77, 64), np.uint8)
    flat, offsets = mixed(60)

    resident = gpuhash.sha256d_batch(cupy.asarray(matrix), backend="cuda")
    several = gpuhash.keccak256_batch((cupy.asarray(flat), cupy.asarray(offsets)), backend="cuda")

    assert isinstance(resident, cupy.ndarray)
    assert isinstance(several, cupy.ndarray)
    assert np.array_equal(resident.get(), gpuhash.sha256d_batch(matrix, backend="reference"))
    assert np.array_equal(several.get(), gpuhash.keccak256_batch((flat, offsets), backend="reference"))
    leaves = matrix[:, :32]
    assert gpuhash.merkle_root(cupy.asarray(leaves), backend="cuda") == gpuhash.merkle_root(leaves)


def test_other_backends_bring_device_messages_home(start: Start) -> None:
    """The cpu backend hashes a copy; the digests go back to the device."""
    cupy = start()
    matrix = np.random.default_rng(4).integers(0, 256, (20, 33), np.uint8)

    digests = gpuhash.sha3_256_batch(cupy.asarray(matrix), backend="cpu")

    assert isinstance(digests, cupy.ndarray)
    assert np.array_equal(digests.get(), gpuhash.sha3_256_batch(matrix, backend="reference"))


def test_more_candidates_than_fit_are_all_found(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full list of candidates halves the range until every part fits."""
    start()
    monkeypatch.setattr(cuda, "MOST_CANDIDATES", 60)

    assert gpuhash.search_header(bytes(80), (1 << 256) - 1, 1000, 333, backend="cuda") == list(
        range(1000, 1333)
    )


def test_a_search_of_all_nonces_is_made_in_countable_ranges(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each range that is searched has fewer nonces than a kernel can count."""
    start()
    searched: list[tuple[int, int]] = []
    monkeypatch.setattr(cuda._Search, "_search", lambda _self, first, last: searched.append((first, last)))

    CudaBackend().search(bytes(80), (1 << 256) - 1, 0, 1 << 32)

    assert searched == [(0, 1 << 31), (1 << 31, 1 << 32)]


def test_candidates_for_all_nonces_are_counted_in_two_ranges() -> None:
    """The counter of a kernel has 32 bits, so no range may have 2^32 candidates."""
    assert cuda.countable(0, 1 << 32) == [(0, 1 << 31), (1 << 31, 1 << 32)]
    assert cuda.countable(1, 1 << 32) == [(1, 1 << 32)]
    assert cuda.countable(7, 7) == [(7, 7)]


def test_every_message_has_a_thread(start: Start) -> None:
    """A batch of any size gets as many blocks as it needs, the last one perhaps not full."""
    cupy = start()

    digests = gpuhash.sha256_batch(np.zeros((5000, 3), np.uint8), backend="cuda")

    assert [blocks for _, kernel, blocks in cupy.launches if kernel == "hash_batch"][-1] == 20
    assert np.array_equal(digests, np.repeat(gpuhash.sha256_batch(np.zeros((1, 3), np.uint8)), 5000, axis=0))


def test_auto_takes_the_gpu_for_large_batches(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a device, size and place of the messages decide, and the log says why."""
    cupy = start()
    monkeypatch.setattr(backends, "LEAST_CUDA_BYTES", 4000)

    with caplog.at_level(logging.INFO, "gpuhash"):
        names = [
            backends.choose("auto", pack(messages)).name
            for messages in (
                np.zeros((10, 64), np.uint8),
                np.zeros((100, 64), np.uint8),
                cupy.zeros((2, 2), np.uint8),
            )
        ]

    assert names == ["cpu", "cuda", "cuda"]
    assert "backend auto: cpu, because a batch below 4000 bytes" in caplog.text
    assert "backend auto: cuda, because the messages are in device memory" in caplog.text


def test_without_a_device_the_reason_is_given(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """No CuPy, or no device: asking for cuda says what is missing and what to do."""
    start(device_count=0)
    with pytest.raises(gpuhash.BackendUnavailableError, match=r"no CUDA device.*backend='cpu'"):
        gpuhash.sha256_batch(np.zeros((1, 1), np.uint8), backend="cuda")

    monkeypatch.setitem(sys.modules, "cupy", None)
    forget()
    with pytest.raises(gpuhash.BackendUnavailableError, match=r"needs CuPy.*pip install"):
        gpuhash.sha256_batch(np.zeros((1, 1), np.uint8), backend="cuda")


def test_auto_takes_the_cpu_when_kernels_do_not_compile(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CuPy without NVRTC is no CUDA: auto says so and goes on, cuda says what to install."""

    def fail(_: HostCupy) -> None:
        raise RuntimeError("CuPy failed to load libnvrtc.so.13")

    start()
    monkeypatch.setattr(HostCupy, "compile", fail)
    batch = np.zeros((100_000, 64), np.uint8)

    with pytest.raises(gpuhash.BackendUnavailableError, match=r"libnvrtc\.so\.13.*cupy-cuda13x\[ctk\]"):
        gpuhash.sha256_batch(batch, backend="cuda")
    with caplog.at_level(logging.INFO, "gpuhash"):
        assert backends.choose("auto", pack(batch)).name == "cpu"
    assert "backend auto: cpu, because Host 0: the kernels do not compile" in caplog.text


def test_a_machine_names_its_gpus(start: Start, capsys: pytest.CaptureFixture[str]) -> None:
    """The document of a benchmark and `gpuhash info` say on which GPUs, compiled how."""
    start(device_count=2)

    first, second = machine.describe().gpus
    cli.info()

    assert first == "Host 0, 2 SMs, up to 1980 MHz, compute capability 90; variants adds, plain"
    assert f"gpu 1         {second}\n" in capsys.readouterr().out


def test_an_amd_device_gets_the_plain_variants(start: Start) -> None:
    """Under HIP the architecture is a name; pipes and model of NVIDIA are not assumed."""
    cupy = start()
    cupy.cuda.runtime.is_hip = True
    device = cuda_device.devices()[0]
    device.properties["gcnArchName"] = b"gfx90a:sramecc+\0\0"

    assert device.capability == "gfx90a:sramecc+"
    assert [device.variant(module).name for module in ("sha256", "keccak")] == ["plain", "plain"]
    assert ceiling.of("cuda", None, 80) is None


def test_the_check_of_a_gpu_covers_every_variant(start: Start) -> None:
    """What `gpuhash check` runs on a GPU holds here for all variants and for device-resident messages."""
    start()

    results = list(check.run_cuda(message_count=30))

    assert [result for result in results if not result.passed] == []
    assert {result.name.split(":")[0] for result in results} == {
        "Host 0",
        *(f"Host 0, {variant.module} {variant.name}" for variant in VARIANTS),
    }


def test_a_sweep_works_on_the_gpu_whose_clocks_it_locks(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVML numbers GPUs in its own way, so a GPU is named by its slot; it is opened when the sweep asks."""
    cupy = start(device_count=2)
    asked: dict[str, object] = {}

    def swept(_nvml: object, work: Callable[[], int], **options: object) -> Sweep:
        asked.update(options, launches_before=len(cupy.launches), hashes=work())
        point = Point(locked_mhz=None, hashes_per_s=1.0, joules_per_hash=1.0, mean_w=1.0, clock_mhz=None)
        return Sweep(points=(point,))

    monkeypatch.setattr(energy, "load_nvml", lambda: None)
    monkeypatch.setattr(clock_sweep, "sweep", swept)
    monkeypatch.setitem(stages.SEARCH_NONCES, "cuda", 64)

    cli_bench.sweep(allow_clock_changes=True, gpu=1)

    assert asked["pci_bus_id"] == cupy.cuda.Device(1).pci_bus_id
    assert (asked["launches_before"], asked["hashes"]) == (0, 64)
    assert {number for number, _kernel, _blocks in cupy.launches} == {1}
    with pytest.raises(gpuhash.InvalidInputError, match="no GPU 2; CuPy sees 2"):
        cli_bench.sweep(allow_clock_changes=True, gpu=2)


def test_energy_and_limit_are_of_the_gpu_that_was_timed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first GPU's counter is read; its limit is not held against what two GPUs do together."""
    cupy = start(device_count=2)
    slots: list[str] = []
    monkeypatch.setattr(energy, "gpu_meter", slots.append)
    case = Case(algorithm=SEARCH, count=64, message_bytes=80)

    results = list(run([case], ["cuda"], seconds=0.001, energy_window_s=1))

    assert slots == [cupy.cuda.Device(0).pci_bus_id]
    limits = {result.stage: result.limit_hashes_per_s for result in results if result.backend == "cuda"}
    assert limits["kernel"] is not None
    assert limits["end-to-end"] is None


def test_the_benchmark_times_all_stages_of_a_gpu(start: Start) -> None:
    """Kernel, resident and end-to-end stages run, and the model of the device gives the limit."""
    start()
    cases = [
        Case(algorithm=SEARCH, count=64, message_bytes=80),
        Case(algorithm="sha256d", count=8, message_bytes=64),
        Case(algorithm="sha3-256", count=8, message_bytes=0, mixed=True),
    ]

    results = [result for result in run(cases, ["cuda"], seconds=0.001) if result.backend == "cuda"]

    lines = {(result.algorithm, result.stage): result for result in results}
    assert list(lines) == [
        *[(SEARCH, stage) for stage in ("kernel", "kernel plain", "end-to-end")],
        *[("sha256d", stage) for stage in ("kernel", "kernel plain", "resident", "end-to-end")],
        *[("sha3-256", stage) for stage in ("kernel", "resident", "end-to-end")],
    ]
    search, node = lines[SEARCH, "kernel"], lines["sha256d", "kernel"]
    assert search.limit_hashes_per_s == pytest.approx(2 * 1980e6 / 29.0, rel=0.01)
    assert node.limit_hashes_per_s == pytest.approx(2 * 1980e6 / 42.6, rel=0.01)
    assert "2 SMs, 1980 MHz" in search.limit_formula
    assert results[-1].limit_hashes_per_s is None


@pytest.mark.parametrize(
    ("which", "lengths", "order"),
    [
        (Algorithm.SHA256, [60, 10, 62, 5, 56, 55, 120, 119], [1, 3, 5, 0, 2, 4, 7, 6]),
        (Algorithm.KECCAK256, [136, 135, 271, 272, 0], [1, 4, 0, 2, 3]),
    ],
)
def test_messages_are_sorted_by_their_blocks_with_padding(
    which: Algorithm, lengths: list[int], order: list[int]
) -> None:
    """A message whose padding needs one more block stands with those that have as many."""
    limits = np.concatenate(([0], np.cumsum(lengths)))

    assert cuda.block_order(which, limits).tolist() == order
