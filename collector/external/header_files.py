"""Read block headers of others, and refuse them unless their proof of work, links and targets are right.

A file of headers holds 80 bytes per header one after the other, plain or packed with zstd (.zst), or one
header in hex per line, or the checkpoints of bitcoinj: one header per retarget. A list of stale blocks is a
CSV file of height, hash and header, as in bitcoin-data/stale-blocks.
"""

import base64
import binascii
import csv
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from collector.dataset.open import Dataset
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import DATASET_MARKER, EXTERNAL_HEADERS, hash_hex
from collector.errors import DecodeError
from collector.external import fields
from collector.external.kinds import Values
from collector.external.readers import MAX_FILE_BYTES, check_size, open_text
from collector.log import counted
from gpuhash import sha256d_headers, target_from_bits
from gpuhash.chain import HeaderFault, Position, header_faults, header_numbers
from gpuhash.chain_rules import (
    MEDIAN_HEADERS,
    MOST_CHANGE,
    PERIOD,
    PERIOD_S,
    ChainRules,
    retargeted,
    rules_of,
)

HEADER_BYTES: Final = 80
HEX_LINE: Final = re.compile(rb"[0-9a-fA-F]{160}\s")
CHECKPOINTS: Final = re.compile(rb"TXT CHECKPOINTS 1\r?\n")
# In base64 the work of the chain (12 or 32 bytes), the height and the header, with or without its padding.
CHECKPOINT: Final = re.compile(r"[A-Za-z0-9+/]{128}|[A-Za-z0-9+/]{155}=?")
MAX_SIGNATURES: Final = 256  # bitcoinj takes no more
HEIGHT_BYTES: Final = 4  # before the header in a checkpoint
STALE_COLUMNS: Final = ("height", "hash", "header")
FEW: Final = 50_000  # so many headers are hashed before a faster backend is ready
NO_PARENT: Final = bytes(32)

Headers = npt.NDArray[np.uint8]
RowByHash = dict[bytes, dict[str, Any]]


def read_headers(
    path: Path, chain: str, *, first_height: int | None = None, stored: RowByHash | None = None
) -> list[Values]:
    """Return a row of `external_headers` per header of a file whose headers form a part of `chain`.

    The first header is block 0, or follows one of the headers `stored`, or has `first_height`. Raises
    DecodeError, which names height and reason, if any header breaks a rule of the chain.
    """
    check_size(path, MAX_FILE_BYTES)
    content = _unpacked(path)
    if CHECKPOINTS.match(content):
        return _checkpoints(path, content.decode("ascii", errors="replace"), chain)
    if HEX_LINE.match(content[: 2 * HEADER_BYTES + 1] + b"\n"):
        content = _from_hex(path, content)
    if not content or len(content) % HEADER_BYTES:
        raise DecodeError(
            f"{path} has {counted(len(content), 'byte')}, which are no headers of {HEADER_BYTES} bytes each"
        )
    headers = np.frombuffer(content, np.uint8).reshape(-1, HEADER_BYTES)
    first, before = _begin(path, headers, first_height, stored or {})
    if first + len(headers) > fields.MAX_HEIGHT:
        raise DecodeError(f"{path} ends above height {fields.MAX_HEIGHT:,}, where there is no block")
    at = Position(rules=rules_of(chain), first_height=first - len(before))
    joined = np.concatenate([before, headers])
    found = header_faults(joined, at=at, backend=_backend(joined))
    _refuse(path, [fault for fault in found if fault.index >= len(before)], at.first_height)
    return list(_rows(headers, range(first, first + len(headers))))


def read_stale_blocks(path: Path, chain: str) -> Iterator[Values]:
    """Yield a row of `external_stale_blocks` per line of a file: height, hash and header in hex.

    A line without a header is skipped: nothing shows that there was such a block. Raises DecodeError if a
    header does not have its hash or carries no work that the chain would accept.
    """
    check_size(path, MAX_FILE_BYTES)
    with open_text(path) as file:
        lines = [line for line in csv.reader(file, strict=True) if line != list(STALE_COLUMNS)]
    if not any(line[2:] != [""] for line in lines):
        raise DecodeError(f"{path} has no stale block with its header")
    heights, hashes, headers = [], [], []
    for number, line in enumerate(lines, start=1):
        if len(line) == len(STALE_COLUMNS) and not line[2]:
            continue
        if len(line) != len(STALE_COLUMNS) or len(line[2]) != 2 * HEADER_BYTES:
            raise DecodeError(f"{path}, block {number}: {','.join(line)!r:.60} is not height,hash,header")
        try:
            heights.append(fields.height(line[0]))
            hashes.append(fields.block_hash(line[1]))
            headers.append(bytes.fromhex(line[2]))
        except ValueError as error:
            raise DecodeError(f"{path}, block {number}: {error}") from None
    matrix = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, HEADER_BYTES)
    for row, height, block_hash in zip(_rows(matrix, heights), heights, hashes, strict=True):
        if row["block_hash"] != block_hash:
            raise DecodeError(
                f"{path}: the header at height {height} does not have the hash {hash_hex(block_hash)}"
            )
    # Without links, positions are not heights: 1 is not the first block of the chain.
    at = Position(rules=rules_of(chain), first_height=1)
    for fault in header_faults(matrix, linked=False, at=at, backend=_backend(matrix)):
        raise DecodeError(f"{path}: stale block at height {heights[fault.index]}: {fault.reason}")
    yield from _rows(matrix, heights)


def reader_for(
    kind: str, root: Path, chain: str, first_height: int | None
) -> Callable[[Path], Iterable[Values]] | None:
    """Return the function that reads a file of headers or stale blocks; None for files read by columns.

    `root` is the folder of a dataset, whose headers a file may continue; it need not exist. Each file of
    headers may also continue those that were read before it. `first_height` is that of the first file.
    """
    if kind == "stale-blocks":
        return functools.partial(read_stale_blocks, chain=chain)
    if kind != "headers":
        return None
    stored = _stored(Dataset.open(root, chain)) if (root / DATASET_MARKER).exists() else {}
    heights = iter([first_height])

    def read(path: Path) -> list[Values]:
        rows = read_headers(path, chain, first_height=next(heights, None), stored=stored)
        # Through Arrow, so that they have the types of stored rows.
        stored.update(
            _by_hash(to_batch(EXTERNAL_HEADERS, [{"source": "", **row} for row in rows]).to_pylist())
        )
        return rows

    return read


def header_bytes(row: Mapping[str, Any]) -> bytes:
    """Return the 80 bytes of the header whose fields are in a row of `blocks` or of a table of headers."""
    numbers = (int(row["header_time"].timestamp()), row["bits"], row["nonce"])
    first = row["version"].to_bytes(4, "little", signed=True)
    return b"".join(
        (first, row["prev_hash"], row["merkle_root"], *(each.to_bytes(4, "little") for each in numbers))
    )


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file, unpacked if its name ends in .zst; raise DecodeError if that fails."""
    packing = "zstd" if path.suffix == ".zst" else None
    try:
        with pa.input_stream(str(path), compression=packing) as stream:
            content = bytes(stream.read(MAX_FILE_BYTES + 1))
    except (pa.ArrowException, OSError) as error:
        raise DecodeError(f"{path} cannot be read: {error}; fetch it anew") from None
    if len(content) > MAX_FILE_BYTES:
        raise DecodeError(f"{path} unfolds to more than {MAX_FILE_BYTES:,} bytes; split it")
    return content


def _from_hex(path: Path, content: bytes) -> bytes:
    try:
        return b"".join(binascii.unhexlify(line) for line in content.split())
    except binascii.Error as error:
        raise DecodeError(f"{path} has a line that is no header in hex: {error}") from None


def _begin(path: Path, headers: Headers, first_height: int | None, stored: RowByHash) -> tuple[int, Headers]:
    """Return the height of a file's first header, and the stored headers before it that the rules need.

    Raises DecodeError if the height is not known or another one is stated.
    """
    none = np.zeros((0, HEADER_BYTES), np.uint8)
    parent = headers[0, 4:36].tobytes()
    if parent == NO_PARENT:
        return 0, none
    if parent in stored:
        first = stored[parent]["height"] + 1
        if first_height not in {None, first}:
            raise DecodeError(
                f"{path} begins at height {first}, not at {first_height}: the dataset has its parent"
            )
        before: list[bytes] = []
        while parent in stored and len(before) < PERIOD + MEDIAN_HEADERS:
            before.append(header_bytes(stored[parent]))
            parent = stored[parent]["prev_hash"]
        return first, np.frombuffer(b"".join(reversed(before)), np.uint8).reshape(-1, HEADER_BYTES)
    if first_height is None:
        raise DecodeError(
            f"{path} begins neither at block 0 nor after a header that the dataset or an earlier file has; "
            "name the height of its first header with `pool-collector import headers FILE --first-height`"
        )
    return first_height, none


def _stored(dataset: Dataset) -> RowByHash:
    """Map the hash of each imported header of a dataset to its row."""
    return _by_hash(dataset.read(EXTERNAL_HEADERS).to_pylist())


def _by_hash(rows: Iterable[dict[str, Any]]) -> RowByHash:
    return {row["block_hash"]: row for row in rows}


def _checkpoints(path: Path, text: str, chain: str) -> list[Values]:
    """Return the rows of `external_headers` for a file of bitcoinj's checkpoints.

    Raises DecodeError if the file is not whole or a header breaks a rule. Between two retargets in a row a
    target changes at most by the factor that the rules of `chain` allow.
    """
    records = _checkpoint_records(path, text.splitlines())
    heights = [
        int.from_bytes(record[-HEADER_BYTES - HEIGHT_BYTES : -HEADER_BYTES], "big") for record in records
    ]
    headers = np.frombuffer(b"".join(record[-HEADER_BYTES:] for record in records), np.uint8)
    headers = headers.reshape(-1, HEADER_BYTES)
    if any(height % PERIOD or not 0 < height <= fields.MAX_HEIGHT for height in heights):
        raise DecodeError(f"{path} has a checkpoint at another height than that of a retarget")
    at = Position(rules=rules_of(chain), first_height=heights[0])
    for fault in header_faults(headers, linked=False, at=at, backend=_backend(headers)):
        raise DecodeError(f"{path}: height {heights[fault.index]}: {fault.reason}")
    bits = header_numbers(headers, 72).tolist()
    for (below, before), (height, stated) in itertools.pairwise(zip(heights, bits, strict=True)):
        if height == below + PERIOD and not _is_next(at.rules, before, stated):
            raise DecodeError(
                f"{path}: height {height}: target {stated:#010x} cannot follow {before:#010x}, "
                f"which one retarget changes at most by {MOST_CHANGE}"
            )
    return list(_rows(headers, heights))


def _checkpoint_records(path: Path, lines: Sequence[str]) -> list[bytes]:
    """Return the records in the lines of a file of bitcoinj's checkpoints.

    The first line names the form. Then come the number of signatures and the signatures, and the number of
    checkpoints and the checkpoints, one a line. Raises DecodeError for fewer lines, or more, or others.
    """
    at = 2 + _stated(path, lines, 1, MAX_SIGNATURES)
    n_stated, found = _stated(path, lines, at, fields.MAX_HEIGHT), lines[at + 1 :]
    for number, line in enumerate(found, start=at + 2):
        if not CHECKPOINT.fullmatch(line):
            raise DecodeError(f"{path}:{number}: {line!r:.60} is no checkpoint; fetch the file anew")
    if len(found) != n_stated or not found:
        raise DecodeError(
            f"{path} has {counted(len(found), 'checkpoint')}, its line {at + 1} states {n_stated:,}; "
            "fetch it anew"
        )
    return [base64.b64decode(line + "=" * (-len(line) % 4)) for line in found]


def _stated(path: Path, lines: Sequence[str], at: int, most: int) -> int:
    """Return the number in line `at` (from 0) of a file of checkpoints; raise DecodeError if it has none."""
    try:
        return fields.whole(lines[at], high=most)
    except (IndexError, ValueError):
        raise DecodeError(
            f"{path}:{at + 1} states no number of signatures or checkpoints; fetch the file anew"
        ) from None


def _is_next(rules: ChainRules, before: int, bits: int) -> bool:
    """Return whether one retarget can lead from the target `before` to `bits` (both in compact form)."""
    hardest, easiest = (retargeted(rules, before, took_s) for took_s in (0, MOST_CHANGE * PERIOD_S))
    return target_from_bits(hardest) <= target_from_bits(bits) <= target_from_bits(easiest)


def _rows(headers: Headers, heights: Iterable[int]) -> Iterator[Values]:
    """Yield for each header a row with its hash, its height and its six fields."""
    hashes = sha256d_headers(headers, backend=_backend(headers))
    for header, block_hash, height in zip(headers, hashes, heights, strict=True):
        raw = header.tobytes()
        time_s, bits, nonce = (int.from_bytes(raw[at : at + 4], "little") for at in (68, 72, 76))
        yield {
            "block_hash": block_hash.tobytes(),
            "height": height,
            "prev_hash": raw[4:36],
            "header_time": time_s,
            "version": int.from_bytes(raw[:4], "little", signed=True),
            "merkle_root": raw[36:68],
            "bits": bits,
            "nonce": nonce,
        }


def _backend(headers: Headers) -> str:
    return "reference" if len(headers) <= FEW else "auto"


def _refuse(path: Path, faults: Sequence[HeaderFault], first_height: int) -> None:
    if faults:
        first = faults[0]
        more = f", and {counted(len(faults) - 1, 'more fault')}" if len(faults) > 1 else ""
        raise DecodeError(f"{path}: height {first_height + first.index}: {first.reason}{more}")
