"""Compare a backend with the reference on this machine, as `gpuhash check` does.

The test suite compares the same things and more, but it needs packages that a bare GPU machine lacks.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gpuhash import kernel_calls
from gpuhash.arrays import to_host
from gpuhash.backend import Backend, prove
from gpuhash.cuda import CudaBackend
from gpuhash.cuda_device import CudaDevice, devices
from gpuhash.errors import WrongHashError
from gpuhash.merkle import merkle_roots
from gpuhash.packing import Batch, Bytes, Messages, Offsets, pack
from gpuhash.reference import Algorithm, ReferenceBackend
from gpuhash.variants import VARIANTS

REFERENCE = ReferenceBackend()
SHORTEST_BATCH = 1000
SEARCHED_NONCES = 20 * SHORTEST_BATCH
_DIGESTS: dict[tuple[object, ...], Bytes] = {}  # of the reference, by the messages that it hashed


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Holds the result of one comparison of a backend with the reference; `fault` is empty if they agree."""

    name: str
    fault: str = ""  # what differed; empty when all was equal

    @property
    def passed(self) -> bool:
        """Whether the backend gave what the reference gave."""
        return not self.fault


def run(
    backend: Backend, message_count: int, seed: int = 1, algorithms: Iterable[Algorithm] = tuple(Algorithm)
) -> Iterator[Check]:
    """Compare a backend with the reference, step by step, and yield a Check for each step.

    For each algorithm the steps are: messages around the padding edges, message_count random messages of
    mixed lengths, and as many of 64 bytes. The last step is a header search, if double SHA-256 is among the
    algorithms. Random messages depend on `seed` only.
    """
    chosen = list(algorithms)
    mixed = random_messages(message_count, seed)
    nodes = np.random.default_rng(seed).integers(0, 256, (message_count, 64), np.uint8)
    for which in chosen:
        title = f"{backend.name} {which}"
        yield _check(f"{title}: padding edges", partial(prove, backend, which))
        for name, messages in (("mixed lengths", mixed), ("of 64 bytes", nodes)):
            comparison = partial(_compare_once, backend, which, messages, (which, name, message_count, seed))
            yield _check(f"{title}: {message_count} {name}", comparison)
    if Algorithm.SHA256D in chosen:
        yield _check(f"{backend.name}: header search", partial(compare_search, backend, seed))


def run_cuda(message_count: int) -> Iterator[Check]:
    """Compare every kernel variant on every GPU with the reference; yield a Check for each step of `run`.

    A variant is compared for the algorithms of its module of kernels.
    On each GPU one more Check covers messages that are already in its memory.
    """
    for device in devices():
        for variant in VARIANTS:
            single = CudaDevice(device.cupy, device.number, {variant.module: variant})
            backend = CudaBackend((single,))
            algorithms = [which for which in Algorithm if kernel_calls.module_of(which) == variant.module]
            for check in run(backend, message_count, algorithms=algorithms):
                yield Check(
                    name=f"{device.name}, {variant.module} {variant.name}: {check.name}", fault=check.fault
                )
        yield _check(f"{device.name}: messages in device memory", partial(compare_resident, device))


def random_messages(count: int, seed: int) -> tuple[Bytes, Offsets]:
    """Return `count` random messages with lengths like those of transactions, as flat bytes and offsets.

    Most messages have 100 to 500 bytes, a few have thousands, and about one in a hundred is empty.
    """
    rng = np.random.default_rng(seed)
    lengths = np.minimum(rng.lognormal(5.3, 0.8, count), 20_000).astype(np.int64)
    lengths[rng.integers(0, 100, count) == 0] = 0
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return rng.integers(0, 256, offsets[-1], np.uint8), offsets


def compare(backend: Backend, which: Algorithm, messages: Messages) -> None:
    """Hash messages with a backend; raise WrongHashError if a digest differs from the reference's."""
    batch = pack(messages)
    expected = REFERENCE.hash_batch(which, replace(batch, flat=to_host(batch.flat)))
    _compare_digests(backend, which, batch, expected)


def _compare_once(backend: Backend, which: Algorithm, messages: Messages, key: tuple[object, ...]) -> None:
    """Hash messages with a backend; raise WrongHashError if a digest differs from the reference's.

    The reference's digests are computed once per `key` and kept for the next backend. The kernels of
    SHA-256 have several variants, and the reference is slow: without pycryptodome it computes Keccak-256 in
    plain Python.
    """
    batch = pack(messages)
    if key not in _DIGESTS:
        _DIGESTS[key] = REFERENCE.hash_batch(which, batch)
    _compare_digests(backend, which, batch, _DIGESTS[key])


def _compare_digests(backend: Backend, which: Algorithm, batch: Batch, expected: Bytes) -> None:
    equal = (to_host(backend.hash_batch(which, batch)) == expected).all(axis=1)
    if not equal.all():
        raise WrongHashError(
            f"{int((~equal).sum())} digests differ, the first is number {int(equal.argmin())}"
        )


def compare_search(backend: Backend, seed: int) -> None:
    """Search nonces of a random header; raise WrongHashError if a backend finds others than the reference."""
    header = np.random.default_rng(seed).bytes(80)
    target = (1 << 248) - 1
    # The range crosses a nonce at which the highest byte changes.
    start, count = (1 << 24) - SHORTEST_BATCH, SEARCHED_NONCES
    if backend.search(header, target, start, count) != REFERENCE.search(header, target, start, count):
        raise WrongHashError("the search returns other nonces than the reference")


def compare_resident(device: CudaDevice) -> None:
    """Hash messages that lie in the memory of a GPU; raise WrongHashError if any digest is wrong.

    All algorithms are compared with the reference, and then the roots of merkle trees over device memory.
    """
    rng = np.random.default_rng(1)
    leaves = rng.integers(0, 256, (SHORTEST_BATCH, 32), np.uint8)
    limits = np.array([0, 1, 3, 300, SHORTEST_BATCH])
    with device.current():
        for which in Algorithm:
            compare(CudaBackend(), which, device.cupy.asarray(leaves))
        roots, _mutated = merkle_roots(device.cupy.asarray(leaves), limits, backend="cuda")
    if not np.array_equal(to_host(roots), merkle_roots(leaves, limits, backend="reference")[0]):
        raise WrongHashError("merkle roots over device memory differ")


def _check(name: str, comparison: Callable[[], None]) -> Check:
    try:
        comparison()
    except WrongHashError as error:
        return Check(name=name, fault=str(error))
    return Check(name=name)
