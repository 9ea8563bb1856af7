"""Hash many messages at once with double SHA-256 or Keccak, on a GPU or the CPU.

All hashes are in internal byte order, as hashlib returns them; block explorers show the 32 bytes of a txid or
block hash reversed. The docstring of each function states the array shapes and the errors.
"""

from gpuhash.errors import (
    BackendUnavailableError,
    GpuhashError,
    InvalidInputError,
    MeasurementRefusedError,
    UnknownAlgorithmError,
    WrongHashError,
)
from gpuhash.hashing import (
    hash_batch,
    keccak256_batch,
    sha3_256_batch,
    sha256_batch,
    sha256d_batch,
    sha256d_headers,
    txids,
)
from gpuhash.merkle import MerkleResult, merkle_root, merkle_roots
from gpuhash.packing import join
from gpuhash.search import search_header, target_from_bits

__all__ = [
    "BackendUnavailableError",
    "GpuhashError",
    "InvalidInputError",
    "MeasurementRefusedError",
    "MerkleResult",
    "UnknownAlgorithmError",
    "WrongHashError",
    "hash_batch",
    "join",
    "keccak256_batch",
    "merkle_root",
    "merkle_roots",
    "search_header",
    "sha3_256_batch",
    "sha256_batch",
    "sha256d_batch",
    "sha256d_headers",
    "target_from_bits",
    "txids",
]
