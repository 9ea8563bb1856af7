"""Choose what hashes a batch, and say in the log what was chosen and why."""

import logging
from functools import cache
from typing import Protocol

from gpuhash.errors import UnknownAlgorithmError
from gpuhash.packing import Batch, Bytes
from gpuhash.reference import Algorithm, ReferenceBackend

log = logging.getLogger("gpuhash")

NAMES = ("auto", "reference")


class Backend(Protocol):
    """What every backend can do; inputs are checked before they get here."""

    @property
    def name(self) -> str:
        """Name as the caller writes it."""

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Return uint8[n, 32], row i the digest of message i."""

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return nonces in [start, start + count) whose header hash may be at most target, rising."""


def choose(name: str) -> Backend:
    """Return the backend called name; "auto" takes the fastest one that is proven here.

    Raises UnknownAlgorithmError for a name that is none, BackendUnavailableError when it cannot run here.
    """
    if name not in NAMES:
        raise UnknownAlgorithmError(f"no backend {name!r}; choose one of {', '.join(NAMES)}")
    return _auto() if name == "auto" else _reference()


@cache
def _reference() -> Backend:
    return ReferenceBackend()


@cache
def _auto() -> Backend:
    backend = _reference()
    log.info("backend=auto chose %s: it is the only one", backend.name)
    return backend
