"""Define the stages of hashing, from message to digest, that a benchmark times separately.

kernel      only the compiled loops: everything is prepared, and digests go to the same place every time;
            on a GPU there is also "kernel <name>" for each variant that was not chosen
resident    from messages in the backend's memory to new digests in the same memory
end-to-end  the public function, from NumPy arrays to NumPy arrays
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpuhash import cuda, hashing, kernel_calls, search
from gpuhash.cpu import CpuBackend
from gpuhash.cuda import CudaBackend
from gpuhash.cuda_device import CudaDevice, devices
from gpuhash.kernel_calls import KernelCall
from gpuhash.packing import DIGEST_BYTES, Messages, pack
from gpuhash.reference import Algorithm
from gpuhash.sharing import share
from gpuhash.variants import VARIANTS

NO_TARGET = 0  # no hash meets this target, so the time is that of searching alone
SEARCH_NONCES = {"reference": 1 << 14, "cpu": 1 << 22, "cuda": 1 << 30}
PEER_BYTES = 64
PEER_NONCES = {
    "cpu": 1 << 27,
    "cuda": 1 << 32,
}  # long enough that the idle time of threads at the end is a small part
PEER_MESSAGES = {"cpu": 1 << 14, "cuda": 1 << 20}
PEER_REPEATS = 1 << 9


def _nothing() -> None:
    """Return at once: the default wait of a Stage, whose work is done when its function returns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Holds one stage of a benchmark on one backend: its name, how many hashes it does, its functions."""

    backend: str
    name: str  # kernel, resident or end-to-end
    hashes: int  # number of hashes that one call of work does
    work: Callable[[], Any]  # starts the work
    wait: Callable[[], Any] = _nothing  # returns when all started work is done


def of_batch(backend: str, which: Algorithm, messages: Messages) -> list[Stage]:
    """Return the stages, to be timed, of hashing a batch of messages with one backend."""
    batch = pack(messages)
    whole = Stage(
        backend=backend,
        name="end-to-end",
        hashes=batch.count,
        work=lambda: hashing.hash_batch(which, messages, backend=backend),
    )
    if backend == "cpu":
        cpu = CpuBackend()
        digests = np.empty((batch.count, DIGEST_BYTES), np.uint8)
        tasks = cpu.tasks(which, batch, digests)
        parts = [
            ("kernel", lambda: share(tasks, cpu.thread_count)),
            ("resident", lambda: cpu.hash_batch(which, batch)),
        ]
        return [Stage(backend="cpu", name=name, hashes=batch.count, work=work) for name, work in parts] + [
            whole
        ]
    if backend == "cuda":
        return [*_cuda_stages(devices()[0], which, messages), whole]
    return [whole]


def beside_peer(backend: str, which: Algorithm | None) -> Stage:
    """Return the kernel stage to time in turn with another program; `which` is None for a header search.

    Programs such as hashcat make their candidates in the memory in which they hash them. The messages here
    are therefore few enough to stay in the cache of a CPU, and they are hashed again and again.
    """
    if which is None:
        return of_search(backend, bytes(80), PEER_NONCES[backend])[0]
    count = PEER_MESSAGES[backend]
    messages = np.random.default_rng(1).integers(0, 256, (count, PEER_BYTES), np.uint8)
    stage = of_batch(backend, which, messages)[0]
    if backend == "cpu":
        threads = CpuBackend().thread_count
        alone = CpuBackend(thread_count=1)
        work = [
            partial(_repeat, alone.tasks(which, pack(messages), np.empty((count, DIGEST_BYTES), np.uint8)))
            for _ in range(threads)
        ]
        stage = replace(stage, hashes=count * PEER_REPEATS * threads, work=partial(share, work))
    return stage


def _repeat(tasks: list[Callable[[], None]]) -> None:
    for _ in range(PEER_REPEATS):
        for task in tasks:
            task()


def of_search(backend: str, header: bytes, count: int) -> list[Stage]:
    """Return the stages, to be timed, of a header search with one backend: kernel alone and end to end.

    Each tries `count` nonces for a target that no hash meets.
    """
    whole = Stage(
        backend=backend,
        name="end-to-end",
        hashes=count,
        work=lambda: search.search_header(header, NO_TARGET, 0, count, backend=backend),
    )
    if backend == "cpu":
        cpu = CpuBackend()
        return [replace(whole, name="kernel", work=lambda: cpu.search(header, NO_TARGET, 0, count)), whole]
    if backend == "cuda":
        return [*cuda_search(devices()[0], header, count), whole]
    return [whole]


def _cuda_stages(device: CudaDevice, which: Algorithm, messages: Messages) -> list[Stage]:
    batch = pack(messages)
    cupy = device.cupy
    with device.current():
        flat, digests = cupy.asarray(batch.flat), cupy.empty((batch.count, DIGEST_BYTES), np.uint8)
        offsets = order = None
        resident: Any = (flat, batch.limits)
        if batch.limits is None:
            resident = flat.reshape(batch.count, batch.length)
        else:
            offsets, order = cupy.asarray(batch.limits), cupy.asarray(cuda.block_order(which, batch.limits))
        layout = cuda.layout(batch.count, batch.length, flat, offsets, order)
    call = kernel_calls.hash_call(which, layout, digests.data.ptr)
    kept = (flat, offsets, order, digests)  # kept alive: a call holds only their addresses
    backend = CudaBackend((device,))
    whole = Stage(
        backend="cuda",
        name="resident",
        hashes=batch.count,
        work=lambda: backend.hash_batch(which, pack(resident)),
        wait=partial(_synchronize, device),
    )
    return [*_kernel_stages(device, [call], batch.count, kept), whole]


def cuda_search(device: CudaDevice, header: bytes, count: int) -> list[Stage]:
    """Return the stages, to be timed, of a header search's kernel on one GPU, the chosen variant first."""
    with device.current():
        found = device.cupy.zeros(2, np.uint32)
    calls = kernel_calls.search_calls(header, NO_TARGET, 0, count, found=found.data.ptr, capacity=1)
    return _kernel_stages(device, calls, count, (found,))


def _kernel_stages(
    device: CudaDevice, calls: list[KernelCall], hashes: int, kept: tuple[Any, ...]
) -> list[Stage]:
    """Return a stage to be timed for each kernel variant, the chosen one first, to check the choice.

    `kept` are the arrays whose addresses the calls hold; the stages keep them alive.
    """
    module = calls[0].module
    first = device.variant(module)
    variants = [first, *(other for other in VARIANTS if other.module == module and other != first)]
    return [
        Stage(
            backend="cuda",
            name="kernel" if variant is first else f"kernel {variant.name}",
            hashes=hashes,
            work=partial(_launch, CudaDevice(device.cupy, device.number, {module: variant}), calls, kept),
            wait=partial(_synchronize, device),
        )
        for variant in variants
    ]


def _launch(device: CudaDevice, calls: list[KernelCall], _kept: tuple[Any, ...]) -> None:
    with device.current():
        for call in calls:
            device.launch(call)


def _synchronize(device: CudaDevice) -> None:
    with device.current():
        device.cupy.cuda.get_current_stream().synchronize()
