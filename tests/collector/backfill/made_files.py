"""Write block and undo files for tests, and read those of a node."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from collector.backfill.blockfiles import KEY_BYTES, KEY_FILE, MAGIC, BlockFolder, BlockRecord
from collector.backfill.undofiles import CHECKSUM_BYTES
from collector.backfill.undofiles import scan as scan_undo

REGTEST = MAGIC["regtest"]


def frame(body: bytes, magic: bytes = REGTEST) -> bytes:
    """Put magic and length before a block or undo data."""
    return magic + len(body).to_bytes(4, "little") + body


def write_files(
    folder: Path, files: Sequence[Iterable[bytes]], kind: str = "blk", magic: bytes = REGTEST
) -> Path:
    """Write block files, one per sequence of blocks, or undo files."""
    folder.mkdir(exist_ok=True)
    for number, blocks in enumerate(files):
        content = b"".join(frame(block, magic) for block in blocks)
        (folder / f"{kind}{number:05d}.dat").write_bytes(content)
    return folder


def read_blocks(path: Path) -> list[bytes]:
    """Return every block in a folder, in the order of the files."""
    folder = BlockFolder(path)
    found = [each for file in sorted(folder.numbers["blk"]) for each in folder.scan(file)]
    assert all(isinstance(each, BlockRecord) for each in found)
    blocks = [folder.read(each.file, each.at, each.size_bytes) for each in found]
    folder.close()
    return blocks


def used_bytes(folder: BlockFolder, file: int, kind: str = "blk") -> int:
    """Return the number of bytes up to the end of a file's last record; reserved space may follow.

    Zeros at the end may belong to the record: a stored byte is zero where it equals the key's, and a block
    may end with zeros.
    """
    if kind == "blk":
        *_, block = (each for each in folder.scan(file) if isinstance(each, BlockRecord))
        return block.at + block.size_bytes
    *_, (_, undo) = scan_undo(folder, file)
    return undo.at + undo.size_bytes + CHECKSUM_BYTES


def make_plain(path: Path) -> None:
    """Remove the obfuscation from every file of a folder; the space that the node reserved stays zero."""
    obfuscate(path, bytes(KEY_BYTES))
    (path / KEY_FILE).unlink()


def obfuscate(path: Path, key: bytes) -> None:
    """Write every file of a folder as a node with this key (8 bytes) does; reserved space stays zero."""
    folder = BlockFolder(path)
    for kind, numbers in folder.numbers.items():
        for number in numbers:
            used = folder.read(number, 0, used_bytes(folder, number, kind), kind)
            stored = np.frombuffer(used, np.uint8) ^ np.resize(np.frombuffer(key, np.uint8), len(used))
            size_bytes = folder.size_bytes(number, kind)
            (path / folder.name(number, kind)).write_bytes(stored.tobytes().ljust(size_bytes, b"\x00"))
    folder.close()
    (path / KEY_FILE).write_bytes(key)


def read_undo(path: Path) -> list[bytes]:
    """Return every undo record in a folder, with its checksum, in the order of the files."""
    folder = BlockFolder(path)
    found = [
        folder.read(file, place.at, place.size_bytes + CHECKSUM_BYTES, "rev")
        for file in sorted(folder.numbers["rev"])
        for _, place in scan_undo(folder, file)
    ]
    folder.close()
    return found
