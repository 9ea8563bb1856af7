"""Hash many messages at once with double SHA-256 or Keccak, on a GPU or the CPU.

All hashes are in internal byte order, as hashlib returns them; block explorers show the 32 bytes of a txid or
block hash reversed. The docstring of each function states the array shapes and the errors.

The first use of a function imports NumPy, so that the command gpuhash starts without it.
"""

import importlib
from typing import TYPE_CHECKING, Any, Final

from gpuhash.errors import (
    BackendUnavailableError,
    GpuhashError,
    InvalidInputError,
    MeasurementRefusedError,
    UnknownAlgorithmError,
    WrongHashError,
)

if TYPE_CHECKING:
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

# Which module defines a name that is imported late.
_MODULE_OF: Final = {
    "hash_batch": "gpuhash.hashing",
    "keccak256_batch": "gpuhash.hashing",
    "sha3_256_batch": "gpuhash.hashing",
    "sha256_batch": "gpuhash.hashing",
    "sha256d_batch": "gpuhash.hashing",
    "sha256d_headers": "gpuhash.hashing",
    "txids": "gpuhash.hashing",
    "MerkleResult": "gpuhash.merkle",
    "merkle_root": "gpuhash.merkle",
    "merkle_roots": "gpuhash.merkle",
    "join": "gpuhash.packing",
    "search_header": "gpuhash.search",
    "target_from_bits": "gpuhash.search",
}


def __getattr__(name: str) -> Any:
    """Import the module that defines a name of __all__ when the name is first used, and return its value."""
    if name in _MODULE_OF:
        return getattr(importlib.import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
