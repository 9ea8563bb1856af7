"""Check a chain of block headers: proof of work and links."""

from dataclasses import dataclass

from gpuhash.errors import InvalidInputError
from gpuhash.hashing import HEADER_BYTES, sha256d_headers
from gpuhash.packing import Bytes
from gpuhash.search import target_from_bits


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderFault:
    """What is wrong with one header."""

    index: int  # position in the input, from 0
    reason: str


def header_faults(headers: Bytes, *, linked: bool = True, backend: str = "auto") -> list[HeaderFault]:
    """Hash headers uint8[n, 80] and return every one that breaks a rule, in order.

    Checked are that the hash is at most the target the header itself states, and, when linked, that each
    header names the hash of the one before. Whether the stated target is the right one is not checked;
    one that is impossible is a fault. Raises InvalidInputError for a wrong shape.
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
    """Say what is wrong with the work of a header; empty when nothing is."""
    try:
        target = target_from_bits(int.from_bytes(header[72:76], "little"))
    except InvalidInputError as error:
        return str(error)
    above = int.from_bytes(block_hash, "little") > target
    return f"hash {block_hash[::-1].hex()} is above its target" if above else ""


def split_headers(data: Bytes) -> Bytes:
    """View uint8[80 n] as uint8[n, 80]; raises InvalidInputError when a header is cut off."""
    if len(data) % HEADER_BYTES:
        raise InvalidInputError(f"{len(data)} bytes are no whole number of {HEADER_BYTES}-byte headers")
    return data.reshape(-1, HEADER_BYTES)
