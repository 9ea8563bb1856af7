"""Check a chain of block headers: each hash meets its target, and each header names the one before it."""

from dataclasses import dataclass

from gpuhash.errors import InvalidInputError
from gpuhash.hashing import HEADER_BYTES, sha256d_headers
from gpuhash.packing import Bytes
from gpuhash.search import target_from_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFault:
    """One fault of one header: the header's position and the reason."""

    index: int  # position in the input, from 0
    reason: str


def header_faults(headers: Bytes, *, linked: bool = True, backend: str = "auto") -> list[HeaderFault]:
    """Hash headers uint8[n, 80] and return every fault found, in the order of the headers.

    A header is at fault if its hash is above the target that it states, or if that target is impossible. With
    `linked`, it is also at fault if it does not name the hash of the header before it. Whether the stated
    target is the right one for its height is not checked. Raises InvalidInputError for an array of another
    shape.
    """
    hashes = sha256d_headers(headers, backend=backend)
    faults = []
    for index in range(len(hashes)):
        block_hash, header = hashes[index].tobytes(), headers[index].tobytes()
        fault = _work_fault(header, block_hash)
        if fault:
            faults.append(HeaderFault(index=index, reason=fault))
        if linked and index and header[4:36] != hashes[index - 1].tobytes():
            faults.append(HeaderFault(index=index, reason="does not name the hash of the header before it"))
    return faults


def _work_fault(header: bytes, block_hash: bytes) -> str:
    """Return what is wrong with the target or the proof of work of a header; empty if nothing is."""
    try:
        target = target_from_bits(int.from_bytes(header[72:76], "little"))
    except InvalidInputError as error:
        return str(error)
    above = int.from_bytes(block_hash, "little") > target
    return f"hash {block_hash[::-1].hex()} is above its target" if above else ""


def split_headers(data: Bytes) -> Bytes:
    """View bytes uint8[80 n] as headers uint8[n, 80]; raise InvalidInputError if the last is cut off."""
    if len(data) % HEADER_BYTES:
        raise InvalidInputError(f"{len(data)} bytes are no whole number of {HEADER_BYTES}-byte headers")
    return data.reshape(-1, HEADER_BYTES)
