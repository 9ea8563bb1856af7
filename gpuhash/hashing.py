"""Hash batches of messages: every function takes many messages and returns a 32-byte digest of each.

Messages are uint8[n, L], or (flat uint8[total], offsets int64[n + 1]) for mixed lengths of 0 bytes to
megabytes. Every function returns uint8[n, 32] in the memory that holds the input. Hashes are in internal byte
order, as hashlib returns them; reverse the 32 bytes to get what block explorers show. All functions raise
InvalidInputError for a wrong dtype, shape or offsets, UnknownAlgorithmError for a backend other than "auto",
"cuda", "cpu" and "reference", and BackendUnavailableError if that backend cannot run on this machine.
"""

from dataclasses import replace

from gpuhash.arrays import array_module, is_device_array, to_host
from gpuhash.backend import choose
from gpuhash.packing import Bytes, Messages, Offsets, pack, rows
from gpuhash.reference import Algorithm, algorithm

HEADER_BYTES = 80


def hash_batch(name: str, messages: Messages, *, backend: str = "auto") -> Bytes:
    """Return the digest of every message, uint8[n, 32], by the algorithm called `name`.

    The names are sha256d, sha256, keccak256 and sha3-256. The digests lie in the memory that holds the
    messages.
    """
    which, batch = algorithm(name), pack(messages)
    chosen = choose(backend, batch)
    if chosen.name == "cuda" or not is_device_array(batch.flat):
        return chosen.hash_batch(which, batch)
    on_host = replace(batch, flat=to_host(batch.flat))
    digests: Bytes = array_module(batch.flat).asarray(chosen.hash_batch(which, on_host))
    return digests


def sha256d_batch(messages: Messages, *, backend: str = "auto") -> Bytes:
    """Return the double SHA-256 of every message, uint8[n, 32] in internal byte order."""
    return hash_batch(Algorithm.SHA256D, messages, backend=backend)


def sha256_batch(messages: Messages, *, backend: str = "auto") -> Bytes:
    """Return the SHA-256 (FIPS 180-4) of every message, uint8[n, 32]."""
    return hash_batch(Algorithm.SHA256, messages, backend=backend)


def keccak256_batch(messages: Messages, *, backend: str = "auto") -> Bytes:
    """Return the Keccak-256 (original padding, as in Ethereum) of every message, uint8[n, 32]."""
    return hash_batch(Algorithm.KECCAK256, messages, backend=backend)


def sha3_256_batch(messages: Messages, *, backend: str = "auto") -> Bytes:
    """Return the SHA3-256 (FIPS 202) of every message, uint8[n, 32]."""
    return hash_batch(Algorithm.SHA3_256, messages, backend=backend)


def sha256d_headers(headers: Bytes, *, backend: str = "auto") -> Bytes:
    """Return the block hashes of headers uint8[n, 80] as uint8[n, 32], in internal byte order."""
    return sha256d_batch(rows(headers, HEADER_BYTES, "headers"), backend=backend)


def txids(flat: Bytes, offsets: Offsets, *, backend: str = "auto") -> Bytes:
    """Return the double SHA-256 of serialised transactions, uint8[n, 32] in internal byte order.

    Transaction i is flat[offsets[i]:offsets[i + 1]]. The serialisation without witness gives the txid, the
    one with witness the wtxid (for a coinbase the wtxid is 32 zero bytes by rule, BIP 141).
    """
    return sha256d_batch((flat, offsets), backend=backend)
