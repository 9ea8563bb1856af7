"""Decide which kernel hashes a batch, and with which arguments: the part of the cuda backend without CuPy.

A call names a kernel of kernels/*.cu and holds its arguments: integers as NumPy scalars, structs as arrays of
one element whose dtype has the layout of the C struct, arrays by device address.
"""

from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuhash.keccak import KECCAK_DOMAIN, SHA3_DOMAIN
from gpuhash.reference import Algorithm
from gpuhash.sha256 import HEADER_BITS, MASK, PAD_WORD, prepare, run_rounds, small_sigma0, small_sigma1

Struct = npt.NDArray[np.void]

OPAQUE = np.dtype([("one", "<u4", 32), ("one_for_constants", "<u4")])
MESSAGES = np.dtype([(name, "<i8") for name in ("flat", "offsets", "order", "length", "count")])
JOB = np.dtype(
    [("midstate", "<u4", 8), ("early", "<u4", 8)]
    + [
        (name, "<u4")
        for name in (
            "round3_e",
            "round3_a",
            "w16",
            "w17",
            "w18_rest",
            "w19_rest",
            "w31_rest",
            "target_top",
        )
    ]
)

LOW_NONCES = 1 << 24  # a thread has one value of the low 24 bits and counts the highest byte
FAST_LENGTH = 64  # length of the messages that have a kernel of their own
FAST_ALIGNMENT = 16
MODULE_SOURCES = {
    "sha256": ("prelude.cuh", "sha256.cuh", "sha256.cu"),
    "keccak": ("prelude.cuh", "keccak.cuh", "keccak.cu"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelCall:
    """Describes one launch of a GPU kernel: which kernel, its arguments, and how many items it works on."""

    module: str  # sha256 or keccak
    kernel: str
    arguments: tuple[Any, ...]
    items: int  # messages, or low 24 bits of nonces: one per thread


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Holds the device addresses of the arrays of a batch; 0 for an array that the batch does not have."""

    flat: int
    count: int
    length: int = -1  # bytes per message when all are equal
    offsets: int = 0  # int64[count + 1]
    order: int = 0  # int64[count]: messages by rising number of blocks


def source(module: str) -> str:
    """Return the C++ source of a module of kernels as one text, its include files pasted in."""
    folder = resources.files("gpuhash") / "kernels"
    return "\n".join((folder / name).read_text() for name in MODULE_SOURCES[module])


def opaque() -> Struct:
    """Return ones as a kernel argument, so that the GPU's compiler cannot see their values.

    It would replace a multiplication by a one that it knew by an addition, on the busier pipe of the GPU.
    kernels/prelude.cuh says why there are so many.
    """
    return np.ones(1, OPAQUE)


def module_of(which: Algorithm) -> str:
    """Return the name of the module of kernels that computes an algorithm: sha256 or keccak."""
    return "sha256" if which in (Algorithm.SHA256, Algorithm.SHA256D) else "keccak"


def hash_call(which: Algorithm, layout: Layout, digests: int) -> KernelCall:
    """Return the kernel launch that hashes a batch; `digests` is the device address of uint8[count, 32]."""
    module = module_of(which)
    sha2 = module == "sha256"
    domain = np.uint32(KECCAK_DOMAIN if which is Algorithm.KECCAK256 else SHA3_DOMAIN)
    aligned = layout.flat % FAST_ALIGNMENT == 0 == digests % FAST_ALIGNMENT
    if layout.length == FAST_LENGTH and aligned and which is not Algorithm.SHA256:
        flat, count = np.uint64(layout.flat), np.int64(layout.count)
        middle: tuple[Any, ...] = (opaque(), count) if sha2 else (count, domain)
        return KernelCall(
            module=module,
            kernel="merkle_nodes" if sha2 else "hash_64_bytes",
            arguments=(flat, *middle, np.uint64(digests)),
            items=layout.count,
        )
    messages = np.array(
        [(layout.flat, layout.offsets, layout.order, max(layout.length, 0), layout.count)], MESSAGES
    )
    options: tuple[Any, ...] = (opaque(), np.uint32(which is Algorithm.SHA256D)) if sha2 else (domain,)
    return KernelCall(
        module=module,
        kernel="hash_batch",
        arguments=(messages, *options, np.uint64(digests)),
        items=layout.count,
    )


def search_calls(
    header: bytes, target: int, start: int, count: int, *, found: int, capacity: int
) -> list[KernelCall]:
    """Return the kernel launches that together search the nonces in [start, start + count) of a header.

    `found` is the device address of uint32[1 + capacity]: a counter, which the caller has set to 0, and the
    candidates. Each launch searches a rectangle of nonces: a range of the low 24 bits times a range of the
    high 8.
    """
    job = search_job(header, target)
    calls = []
    for first_low, lows, first_high, highs in _rectangles(start, start + count):
        numbers = tuple(np.uint32(number) for number in (first_low, lows, first_high, highs))
        calls.append(
            KernelCall(
                module="sha256",
                kernel="search",
                arguments=(job, opaque(), *numbers, np.uint64(found), np.uint32(capacity)),
                items=lows,
            )
        )
    return calls


def search_job(header: bytes, target: int) -> Struct:
    """Return everything about a header that does not depend on its nonce, as the C struct Job."""
    base = prepare(header, target)
    tail = base.tail
    w16 = (tail[0] + small_sigma0(tail[1])) & MASK
    w17 = (tail[1] + small_sigma0(tail[2]) + small_sigma1(HEADER_BITS)) & MASK
    after_round3 = run_rounds(base.early, (0, 0, 0, 0), 3, 4)  # with nonce 0; the kernel adds it
    job = np.zeros(1, JOB)
    job["midstate"], job["early"] = base.midstate, base.early
    job["round3_a"], job["round3_e"] = after_round3[0], after_round3[4]
    job["w16"], job["w17"] = w16, w17
    job["w18_rest"] = (tail[2] + small_sigma1(w16)) & MASK
    job["w19_rest"] = (small_sigma1(w17) + small_sigma0(PAD_WORD)) & MASK
    job["w31_rest"] = (HEADER_BITS + small_sigma0(w16)) & MASK
    job["target_top"] = base.target_top
    return job


def _rectangles(start: int, end: int) -> list[tuple[int, int, int, int]]:
    """Return the nonces [start, end) cut into rectangles (first low, lows, first high, highs).

    Low is the lower 24 bits of a nonce, high the upper 8. As many nonces as possible lie in one rectangle
    with all 2^24 low values.
    """
    first_row, last_row = -(-start // LOW_NONCES), end // LOW_NONCES
    if first_row > last_row:  # inside one row
        return [(start % LOW_NONCES, end - start, start // LOW_NONCES, 1)]
    cuts = []
    if start < first_row * LOW_NONCES:
        cuts.append((start % LOW_NONCES, first_row * LOW_NONCES - start, first_row - 1, 1))
    if first_row < last_row:
        cuts.append((0, LOW_NONCES, first_row, last_row - first_row))
    if last_row * LOW_NONCES < end:
        cuts.append((0, end - last_row * LOW_NONCES, last_row, 1))
    return cuts
