"""Hash one message at a time with hashlib and pycryptodome: the backend that defines what is correct.

Without pycryptodome, Keccak-256 comes from the plain sponge in `keccak`, which the tests compare with both
libraries. Digests are returned as the algorithms define them. For SHA-256d that is Bitcoin's internal byte
order; explorers show a block or transaction hash with its 32 bytes reversed.
"""

import hashlib
from collections.abc import Callable, Iterable
from enum import StrEnum
from types import ModuleType

import numpy as np

from gpuhash.errors import UnknownAlgorithmError
from gpuhash.keccak import KECCAK_DOMAIN, sponge
from gpuhash.packing import DIGEST_BYTES, Batch, Bytes

pycryptodome: ModuleType | None
try:
    from Crypto.Hash import keccak as pycryptodome
except ImportError:  # keccak.sponge replaces it: slower, same digests
    pycryptodome = None


class Algorithm(StrEnum):
    """Lists the hash functions that every backend has; each digest has 32 bytes."""

    SHA256D = "sha256d"
    SHA256 = "sha256"
    KECCAK256 = "keccak256"
    SHA3_256 = "sha3-256"


def algorithm(name: str) -> Algorithm:
    """Return the Algorithm with this name; raise UnknownAlgorithmError if there is none."""
    try:
        return Algorithm(name)
    except ValueError:
        known = ", ".join(Algorithm)
        raise UnknownAlgorithmError(f"no algorithm {name!r}; choose one of {known}") from None


def sha256(message: bytes | memoryview) -> bytes:
    """Return the SHA-256 (FIPS 180-4) of a message."""
    return hashlib.sha256(message).digest()


def sha256d(message: bytes | memoryview) -> bytes:
    """Return the SHA-256 of the SHA-256 of a message, as Bitcoin hashes headers and transactions."""
    return hashlib.sha256(hashlib.sha256(message).digest()).digest()


def sha3_256(message: bytes | memoryview) -> bytes:
    """Return the SHA3-256 (FIPS 202) of a message."""
    return hashlib.sha3_256(message).digest()


def keccak256(message: bytes | memoryview) -> bytes:
    """Return the Keccak-256 of a message, with the padding of the original submission as Ethereum uses it."""
    if pycryptodome is None:
        return sponge(message, KECCAK_DOMAIN)
    return bytes(pycryptodome.new(digest_bits=256, data=message).digest())


FUNCTIONS: dict[Algorithm, Callable[[bytes | memoryview], bytes]] = {
    Algorithm.SHA256D: sha256d,
    Algorithm.SHA256: sha256,
    Algorithm.KECCAK256: keccak256,
    Algorithm.SHA3_256: sha3_256,
}


class ReferenceBackend:
    """Hashes batches message by message and searches headers nonce by nonce: it defines what is correct."""

    name = "reference"

    def hash_batch(self, which: Algorithm, batch: Batch) -> Bytes:
        """Hash a batch with the algorithm `which`; return uint8[n, 32], one digest per row."""
        function = FUNCTIONS[which]
        data = memoryview(batch.flat.data)
        limits = batch.offsets.tolist()
        digests = (function(data[limits[i] : limits[i + 1]]) for i in range(batch.count))
        return _as_rows(digests)

    def search(self, header: bytes, target: int, start: int, count: int) -> list[int]:
        """Return every nonce in [start, start + count) whose header hash is at most target."""
        midstate = hashlib.sha256(header[:64])
        found = []
        for nonce in range(start, start + count):
            inner = midstate.copy()
            inner.update(header[64:76] + nonce.to_bytes(4, "little"))
            outer = hashlib.sha256(inner.digest()).digest()
            if int.from_bytes(outer, "little") <= target:
                found.append(nonce)
        return found


def _as_rows(digests: Iterable[bytes]) -> Bytes:
    return np.frombuffer(bytearray(b"".join(digests)), np.uint8).reshape(-1, DIGEST_BYTES)
