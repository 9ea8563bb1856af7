"""Find nonces with which the hash of a block header meets a target: the inner loop of mining."""

import operator

from gpuhash import reference
from gpuhash.backend import choose
from gpuhash.errors import InvalidInputError, WrongHashError
from gpuhash.hashing import HEADER_BYTES

NONCES = 1 << 32
MAX_TARGET = (1 << 256) - 1
TOP_SHIFT = 224  # backends compare the top 32 bits; search_header compares all


def search_header(
    header: bytes, target: int, start: int = 0, count: int = NONCES, *, backend: str = "auto"
) -> list[int]:
    """Return, rising, every nonce in [start, start + count) for which the header hash is at most target.

    header is the 80 serialised bytes; its last four, the nonce, are replaced. A nonce is the number that
    those four bytes hold little-endian. The hash is compared as Bitcoin does: its 32 bytes in internal order,
    read as a little-endian number. The first 64 bytes are hashed only once (midstate).

    Every candidate of the backend is hashed again with hashlib before it is returned. WrongHashError is
    raised if the backend offers a nonce whose top 32 bits of the hash exceed the target's. InvalidInputError
    is raised for a header that is not 80 bytes, a target outside 0 .. 2^256 - 1, nonces outside 0 .. 2^32,
    and numbers that are not whole.
    """
    target, start, count = (
        _whole(number, name) for number, name in ((target, "target"), (start, "start"), (count, "count"))
    )
    _check(header, target, start, count)
    chosen = choose(backend)
    found = []
    for nonce in chosen.search(header, target, start, count):
        value = int.from_bytes(reference.sha256d(header[:76] + nonce.to_bytes(4, "little")), "little")
        if value >> TOP_SHIFT > target >> TOP_SHIFT:
            raise WrongHashError(
                f"backend {chosen.name} offered nonce {nonce}, but its hash {value:064x} is above the target"
            )
        if value <= target:
            found.append(nonce)
    return found


def target_from_bits(bits: int) -> int:
    """Return the target, the number a hash is compared with, for a header's compact form of it (nBits).

    Raises InvalidInputError if bits is not a whole number of 32 bits, and for the encodings that Bitcoin Core
    rejects: negative, zero or beyond 256 bits.
    """
    bits = _whole(bits, "the compact target")
    if not 0 <= bits < 1 << 32:
        raise InvalidInputError(f"compact target {bits:#x} does not fit 32 bits")
    exponent, mantissa = bits >> 24, bits & 0x007FFFFF
    target = mantissa << 8 * (exponent - 3) if exponent > 3 else mantissa >> 8 * (3 - exponent)  # noqa: PLR2004 - a mantissa has 3 bytes
    if bits & 0x00800000 or not 0 < target <= MAX_TARGET:
        raise InvalidInputError(f"compact target {bits:#010x} is negative, zero or larger than 256 bits")
    return target


def _whole(number: int, name: str) -> int:
    """Return a number as a Python integer; raise InvalidInputError if it is not whole.

    `name` is what the error message calls the number. NumPy's integers are converted too, because their
    shifts end at 64 bits.
    """
    try:
        return operator.index(number)
    except TypeError as error:
        raise InvalidInputError(
            f"{name} is {number!r}, a {type(number).__name__}; pass a whole number"
        ) from error


def _check(header: bytes, target: int, start: int, count: int) -> None:
    if not isinstance(header, bytes) or len(header) != HEADER_BYTES:
        size = len(header) if isinstance(header, bytes) else type(header).__name__
        raise InvalidInputError(f"the header is {size}; {HEADER_BYTES} bytes are needed")
    if not 0 <= target <= MAX_TARGET:
        raise InvalidInputError(f"target {target:#x} is outside 0 .. 2^256 - 1")
    if start < 0 or count < 0 or start + count > NONCES:
        raise InvalidInputError(f"nonces {start} to {start + count} do not fit 32 bits")
