"""Choose what hashes a batch, and say in the log what was chosen and why.

No backend's word is taken for granted: before its first result for an algorithm is used in a process, it
hashes messages around every padding edge, and the digests are compared with the reference.
"""

import logging
from functools import cache
from typing import Protocol

from gpuhash.arrays import is_device_array
from gpuhash.errors import BackendUnavailableError, UnknownAlgorithmError, WrongHashError
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes, join, pack
from gpuhash.reference import Algorithm, ReferenceBackend

log = logging.getLogger("gpuhash")

NAMES = ("auto", "cuda", "cpu", "reference")

# Below this the way to the GPU and back takes longer than the CPU needs for the hashes.
LEAST_CUDA_BYTES = 1 << 20

# Around the ends of one and two blocks of SHA-256 (64 bytes) and Keccak (136 bytes).
EDGE_LENGTHS = (0, 1, 3, 31, 32, 55, 56, 63, 64, 65, 80, 119, 120, 127, 128, 135, 136, 137, 271, 272, 300)


class Backend(Protocol):
    """What every backend can do; inputs are checked before they get here."""

    @property
    def name(self) -> str:
        """Name as the caller writes it."""

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return uint8[n, 32], row i the digest of message i."""

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return nonces in [start, start + count) whose header hash may be at most target, rising.

        Every nonce that meets the target is among them; one that does not has at least a hash whose top
        32 bits are no larger than the target's.
        """


class ProvenBackend:
    """A backend that is compared with the reference before each algorithm's first use."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend
        self._proven: set[Algorithm] = set()

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return uint8[n, 32]; raises WrongHashError when the backend fails its proof."""
        if which not in self._proven:
            prove(self._backend, which)
            self._proven.add(which)
        return self._backend.hash_batch(which, batch)

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return candidates; each is hashed again by search_header."""
        return self._backend.search(header, target, start, count)


def prove(backend: Backend, which: Algorithm) -> None:
    """Compare a backend with the reference on every edge length, mixed and as matrices."""
    messages = [bytes(range(length % 256)) + bytes(length - length % 256) for length in EDGE_LENGTHS]
    matrices = [join([message])[0].reshape(1, -1).repeat(3, axis=0) for message in messages]
    for batch in (pack(join(messages)), *(pack(matrix) for matrix in matrices)):
        expected = ReferenceBackend().hash_batch(which, batch)
        if not (backend.hash_batch(which, batch) == expected).all():
            raise WrongHashError(
                f"backend {backend.name} gives wrong {which} digests here; use backend='reference' "
                "and report this machine"
            )


def choose(name: str, batch: Batch | None = None) -> Backend:
    """Return the backend called name; "auto" takes what should be fastest for this batch here.

    That is cuda for messages in device memory, and for large batches where there is a device; otherwise
    cpu. Raises UnknownAlgorithmError for an unknown name, BackendUnavailableError when it cannot run.
    """
    if name not in NAMES:
        raise UnknownAlgorithmError(f"no backend {name!r}; choose one of {', '.join(NAMES)}")
    if name == "auto":
        name, reason = _fastest(batch)
        _say(name, reason)
    return _backend(name)


@cache
def _backend(name: str) -> Backend:
    if name == "reference":
        return ReferenceBackend()
    if name == "cpu":
        from gpuhash.cpu import CpuBackend  # noqa: PLC0415 - numba is loaded when it is needed

        return ProvenBackend(CpuBackend())
    from gpuhash.cuda import CudaBackend  # noqa: PLC0415 - and CuPy too

    return ProvenBackend(CudaBackend())


def _fastest(batch: Batch | None) -> tuple[str, str]:
    if batch is not None and is_device_array(batch.flat):
        return "cuda", "the messages are in device memory"
    missing = _missing_cuda()
    if missing:
        return "cpu", missing
    if batch is not None and batch.size_bytes + batch.count * DIGEST_BYTES < LEAST_CUDA_BYTES:
        return "cpu", f"a batch below {LEAST_CUDA_BYTES} bytes is not worth the way to the GPU"
    return "cuda", "there is a CUDA device"


@cache
def _missing_cuda() -> str:
    """Say why there is no CUDA here; empty when there is."""
    from gpuhash.cuda_device import devices  # noqa: PLC0415 - CuPy is looked for when it is wanted

    try:
        for device in devices():
            device.prepare()
    except BackendUnavailableError as error:
        return str(error)
    return ""


@cache
def _say(name: str, reason: str) -> None:
    """Log a choice once per reason, not per batch."""
    log.info("backend auto: %s, because %s", name, reason)
