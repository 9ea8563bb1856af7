"""Check the messages that callers pass and bring them into one form: flat bytes and offsets.

A batch of n messages is one flat uint8 array and n + 1 int64 offsets; message i is flat[offsets[i]:offsets[i
+ 1]]. A matrix uint8[n, L] has messages of one length L, which makes some backends faster. Contiguous input
is not copied. All checks are made here, so the backends may trust a Batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from gpuhash.arrays import array_module, is_device_array, to_host
from gpuhash.errors import InvalidInputError

Bytes: TypeAlias = npt.NDArray[np.uint8]
Offsets: TypeAlias = npt.NDArray[np.int64]
Messages: TypeAlias = Bytes | tuple[Bytes, Offsets]

DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Holds checked messages, all in host memory or all on one GPU, as flat bytes.

    Exactly one of `length` (all messages have it) and `limits` (where each begins) is None.
    """

    flat: Bytes  # every message back to back, contiguous; in host or device memory
    count: int  # number of messages
    length: int | None = None  # bytes of each message, if the caller passed a matrix
    limits: Offsets | None = None  # n + 1 offsets in flat, never falling, when lengths are mixed; on the host

    @property
    def offsets(self) -> Offsets:
        """The positions of the n messages in `flat`: n + 1 numbers.

        Message i ends where message i + 1 starts.
        """
        if self.limits is not None:
            return self.limits
        return np.arange(self.count + 1, dtype=np.int64) * (self.length or 0)

    @property
    def size_bytes(self) -> int:
        """The number of bytes of all messages together."""
        if self.limits is not None:
            return int(self.limits[-1] - self.limits[0])
        return self.count * (self.length or 0)


def pack(messages: Messages) -> Batch:
    """Check messages and return them as a Batch.

    `messages` is uint8[n, L], or (flat uint8[total], offsets integer[n + 1]). Raises InvalidInputError for
    any other dtype or shape, and for offsets that fall or lie outside the bytes.
    """
    if isinstance(messages, tuple):
        if len(messages) != 2:  # noqa: PLR2004 - a pair is what the signature says
            raise InvalidInputError(f"got a tuple of {len(messages)}; pass (flat bytes, offsets)")
        return _pack_flat(*messages)
    matrix = _require_uint8(messages, "messages", dimensions=2)
    count, length = matrix.shape
    return Batch(flat=matrix.reshape(-1), count=count, length=length)


def join(messages: Sequence[bytes]) -> tuple[Bytes, Offsets]:
    """Return byte strings as the pair (flat bytes, offsets) that the batch functions take.

    Raises InvalidInputError if an item is not a byte string, such as text or an array of larger numbers.
    """
    try:
        flat = b"".join(messages)
    except TypeError as error:
        raise InvalidInputError(f"messages have to be byte strings: {error}") from error
    offsets = np.zeros(len(messages) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, messages), np.int64, len(messages)), out=offsets[1:])
    if offsets[-1] != len(flat):  # len() of a memoryview counts elements, which need not be bytes
        raise InvalidInputError(f"messages of {offsets[-1]} elements hold {len(flat)} bytes; pass bytes")
    return np.frombuffer(flat, np.uint8), offsets


def integers(values: Any, wanted: str) -> Offsets:
    """Check that `values` is a one-dimensional array of whole numbers, and return it as contiguous int64.

    Raises InvalidInputError otherwise; `wanted` is the part of the message that says what is needed.
    """
    try:
        limits = np.asarray(to_host(values))
    except ValueError as error:  # rows of different lengths
        raise InvalidInputError(f"offsets are no row of integers: {error}") from error
    if limits.ndim != 1 or limits.dtype.kind not in "iu" or len(limits) == 0:
        raise InvalidInputError(f"offsets have dtype {limits.dtype} and shape {limits.shape}; {wanted}")
    if limits.dtype == np.uint64 and limits.max() > np.iinfo(np.int64).max:
        raise InvalidInputError(f"offset {limits.max()} is beyond 63 bits; {wanted}")
    return np.require(limits, np.int64, ["C", "W"])  # one array type for the compiled loops


def rows(array: Bytes, length: int, name: str) -> Bytes:
    """Check that an array is uint8[n, length] and return it contiguous; raise InvalidInputError otherwise.

    `name` is what the error message calls the array.
    """
    matrix = _require_uint8(array, name, dimensions=2)
    if matrix.shape[1] != length:
        raise InvalidInputError(f"{name} has rows of {matrix.shape[1]} bytes; {length} are needed")
    return matrix


def _pack_flat(flat: Bytes, offsets: Offsets) -> Batch:
    data = _require_uint8(flat, "flat bytes", dimensions=1)
    limits = integers(offsets, "n + 1 integers are needed, one 0 for no message at all")
    falls = limits[1:] < limits[:-1]
    if falls.any():
        first = int(falls.argmax())
        raise InvalidInputError(
            f"offset {first + 1} is {limits[first + 1]}, less than the {limits[first]} before it; "
            "offsets must not fall"
        )
    if limits[0] < 0 or limits[-1] > len(data):
        raise InvalidInputError(
            f"offsets run from {limits[0]} to {limits[-1]} over {len(data)} bytes; "
            "they must rise from 0 or more to at most the number of bytes"
        )
    return Batch(flat=data, count=len(limits) - 1, limits=limits)


def _require_uint8(array: Any, name: str, *, dimensions: int) -> Bytes:
    if not isinstance(array, np.ndarray) and not is_device_array(array):
        raise InvalidInputError(f"{name} is a {type(array).__name__}; pass a NumPy or CuPy uint8 array")
    if array.dtype != np.uint8 or array.ndim != dimensions:
        raise InvalidInputError(
            f"{name} has dtype {array.dtype} and shape {array.shape}; uint8 with {dimensions} "
            f"dimension{'s' if dimensions > 1 else ''} is needed"
        )
    contiguous: Bytes = array_module(array).ascontiguousarray(array)
    return contiguous
