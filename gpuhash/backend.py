"""Choose the backend that hashes a batch, and log which one was chosen and why.

No backend is trusted unchecked. Before the first use of an algorithm in a process, the backend hashes
messages of lengths around every padding edge, and its digests are compared with those of the reference.
"""

import logging
from functools import cache
from typing import Protocol

import numpy as np

from gpuhash.arrays import is_device_array
from gpuhash.errors import BackendUnavailableError, UnknownAlgorithmError, WrongHashError
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes, join, pack
from gpuhash.reference import Algorithm, ReferenceBackend

log = logging.getLogger("gpuhash")

NAMES = ("auto", "cuda", "cpu", "reference")

# Copying fewer bytes than this to the GPU and back takes longer than hashing them on the CPU.
LEAST_CUDA_BYTES = 1 << 20

# Lengths around the ends of one and two blocks of SHA-256 (64 bytes) and Keccak (136 bytes).
EDGE_LENGTHS = (0, 1, 3, 31, 32, 55, 56, 63, 64, 65, 80, 119, 120, 127, 128, 135, 136, 137, 271, 272, 300)
EASY_TARGET = (1 << 254) - 1  # all below its top 32 bits are ones: a candidate is a nonce that meets it
SEARCH_HEADER_BYTES = 80
SEARCH_WINDOW = (5, 203)  # start and count: full groups of lanes, and a rest
EDGE_ROWS = 19  # a full group of lanes of the widest registers, which has a loop of its own, and a rest


class Backend(Protocol):
    """Declares the methods of every backend (reference, cpu, cuda). Callers have checked all inputs."""

    @property
    def name(self) -> str:
        """The name of the backend, as callers pass it in `backend=`."""

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Hash a batch with the algorithm `which`; return uint8[n, 32], one digest per row."""

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return, rising, the nonces in [start, start + count) whose header hash may be at most target.

        Every nonce that meets the target is in the list. A nonce that does not meet it may be in the list
        only if the top 32 bits of its hash are at most those of the target.
        """


class ProvenBackend:
    """Wraps a backend so that it is compared with the reference before each algorithm is used first."""

    def __init__(self, backend: Backend) -> None:
        self.name = backend.name
        self._backend = backend
        self._proven: set[Algorithm] = set()
        self._search_is_proven = False

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return the digests of a batch, uint8[n, 32]; raise WrongHashError if the backend is wrong."""
        if which not in self._proven:
            prove(self._backend, which)
            self._proven.add(which)
        return self._backend.hash_batch(which, batch)

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return candidate nonces; raise WrongHashError if the backend does not find those of a known search.

        The candidates are not checked here: `search_header` hashes each one again with the reference.
        """
        if not self._search_is_proven:
            prove_search(self._backend)
            self._search_is_proven = True
        return self._backend.search(header, target, start, count)


def prove(backend: Backend, which: Algorithm) -> None:
    """Compare a backend's digests with those of the reference; raise WrongHashError if one differs.

    The messages have the lengths EDGE_LENGTHS, around the padding edges. They are hashed all in one batch,
    and then for each length as a matrix of EDGE_ROWS different messages.
    """
    messages = [bytes(range(length % 256)) + bytes(length - length % 256) for length in EDGE_LENGTHS]
    shifts = np.arange(EDGE_ROWS, dtype=np.uint8)[:, None]
    matrices = [join([message])[0] + shifts for message in messages]
    for batch in (pack(join(messages)), *(pack(matrix) for matrix in matrices)):
        expected = ReferenceBackend().hash_batch(which, batch)
        if not (backend.hash_batch(which, batch) == expected).all():
            raise WrongHashError(
                f"backend {backend.name} gives wrong {which} digests here; use backend='reference' "
                "and report this machine"
            )


def prove_search(backend: Backend) -> None:
    """Search a known nonce range with a backend; raise WrongHashError unless it finds the reference's nonces.

    The target is easy. A nonce that is lost would never be noticed otherwise, because only those found are
    hashed again.
    """
    header = bytes(range(SEARCH_HEADER_BYTES))
    expected = ReferenceBackend().search(header, EASY_TARGET, *SEARCH_WINDOW)
    if backend.search(header, EASY_TARGET, *SEARCH_WINDOW) != expected:
        raise WrongHashError(
            f"backend {backend.name} finds wrong nonces here; use backend='reference' and report this machine"
        )


def choose(name: str, batch: Batch | None = None) -> Backend:
    """Return the backend called `name`; "auto" chooses one for this batch.

    "auto" takes cuda for messages in device memory, and for batches of a megabyte and more if there is a GPU;
    otherwise cpu. With many cores the cpu backend may be faster on messages in host memory.
    Raises UnknownAlgorithmError for an unknown name, and BackendUnavailableError if the backend cannot run on
    this machine.
    """
    if name not in NAMES:
        raise UnknownAlgorithmError(f"no backend {name!r}; choose one of {', '.join(NAMES)}")
    if name == "auto":
        name, reason = _fastest(batch)
        _log_choice(name, reason)
    return _backend(name)


@cache
def _backend(name: str) -> Backend:
    if name == "reference":
        return ReferenceBackend()
    if name == "cpu":
        try:
            from gpuhash.cpu import CpuBackend  # noqa: PLC0415 - numba is loaded only for this backend
        except ModuleNotFoundError as missing:
            raise BackendUnavailableError(
                f"the cpu backend needs numba ({missing}); pip install numba, or use backend='reference'"
            ) from missing
        return ProvenBackend(CpuBackend())
    from gpuhash.cuda import CudaBackend  # noqa: PLC0415 - CuPy is loaded only for this backend

    return ProvenBackend(CudaBackend())


def _fastest(batch: Batch | None) -> tuple[str, str]:
    if batch is not None and is_device_array(batch.flat):
        return "cuda", "the messages are in device memory"
    missing = _missing_cuda()
    if missing:
        return "cpu", missing
    if batch is not None and batch.size_bytes + batch.count * DIGEST_BYTES < LEAST_CUDA_BYTES:
        return "cpu", f"a batch below {LEAST_CUDA_BYTES} bytes is hashed faster than it is copied to the GPU"
    return "cuda", "there is a CUDA device"


@cache
def _missing_cuda() -> str:
    """Return why CUDA cannot be used on this machine; an empty string if it can."""
    from gpuhash.cuda_device import devices  # noqa: PLC0415 - CuPy is loaded only when it is wanted

    try:
        for device in devices():
            device.prepare()
    except BackendUnavailableError as error:
        return str(error)
    return ""


@cache
def _log_choice(name: str, reason: str) -> None:
    """Log which backend "auto" chose and the reason; the same choice and reason are logged only once."""
    log.info("backend auto: %s, because %s", name, reason)
