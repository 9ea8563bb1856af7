"""Unpack a downloaded file within bounds, and refuse a web page that stands where the data should be."""

import gzip
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from collector.dataset.temporary_folders import temporary_folder
from collector.errors import FetchError, NotWritable
from collector.fetch.data_sets import RemoteFile, packing_of

MOST_UNPACKED_BYTES: Final = 1 << 30  # what an import reads at most
MOST_MEMBERS: Final = 100_000
CHUNK_BYTES: Final = 1 << 20
START_BYTES: Final = 512
WEB_PAGE: Final = (b"<!doctype html", b"<html", b"<head", b"<script")


class _Bounded:
    """Reads an archive as it unfolds, and refuses what comes after `most_bytes`.

    tarfile keeps some of an archive in memory, such as long names, before it tells of a member.
    """

    def __init__(self, file: RemoteFile, content: "Readable", most_bytes: int) -> None:
        self._file = file
        self._content = content
        self._most_bytes = most_bytes
        self._n_bytes = 0

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`; raise FetchError beyond the bound."""
        chunk = self._content.read(size)
        self._n_bytes += len(chunk)
        if self._n_bytes > self._most_bytes:
            raise _unfolds_too_far(self._file, self._most_bytes)
        return chunk


class Readable(Protocol):
    """Is anything that can be read in pieces of bytes, such as an open file."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes of the file, at most `size` of them, and none at its end."""


@contextmanager
def unpacked(file: RemoteFile, path: Path, *, most_bytes: int = MOST_UNPACKED_BYTES) -> Iterator[Path]:
    """Yield the path of the data in a downloaded file during the `with` block.

    A `.gz` or `.tar.gz` is unpacked into a folder beside it, which is removed afterwards. Raises FetchError
    for a web page, for a damaged archive, and for one that unfolds to more than `most_bytes`, and NotWritable
    where the disk does not take the content.
    """
    form = packing_of(file)
    if form == "plain":
        _refuse_web_page(file, path)
        yield path
        return
    with temporary_folder(".unpacked-", path.parent) as folder:
        name = file.member.rpartition("/")[2] if form == "tar" else path.name.removesuffix(".gz")
        target = folder / name
        try:
            if form == "tar":
                _unpack_member(file, path, target, most_bytes)
            else:
                with gzip.open(path) as content:
                    _copy(file, content, target, most_bytes)
        except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            _refuse_web_page(file, path)
            raise FetchError(f"{file.url} cannot be unpacked: {error}") from None
        except OSError as error:
            raise NotWritable(
                f"cannot unpack {path}: {error.strerror or error}; it is kept: free some room and run the "
                "same command"
            ) from None
        _refuse_web_page(file, target)
        yield target


def _unpack_member(file: RemoteFile, path: Path, target: Path, most_bytes: int) -> None:
    """Copy that file of a .tar.gz whose path ends in `file.member` to `target`; nothing else is unpacked.

    Raises FetchError if there is none, or the archive unfolds to more than `most_bytes` before its end.
    """
    with (
        gzip.open(path) as unfolded,
        tarfile.open(fileobj=cast("BinaryIO", _Bounded(file, unfolded, most_bytes)), mode="r|") as archive,
    ):
        for number, member in enumerate(archive):
            if number == MOST_MEMBERS:
                raise FetchError(f"{file.url} holds more than {MOST_MEMBERS:,} files; it is not used")
            if member.isfile() and f"/{member.name}".endswith(f"/{file.member}"):
                content = archive.extractfile(member)
                assert content is not None  # noqa: S101 - it is a file
                _copy(file, content, target, most_bytes)
                return
    raise FetchError(f"{file.url} holds no file {file.member}")


def _copy(file: RemoteFile, content: Readable, target: Path, most_bytes: int) -> None:
    n_bytes = 0
    with target.open("wb") as out:
        while chunk := content.read(CHUNK_BYTES):
            n_bytes += len(chunk)
            if n_bytes > most_bytes:
                raise _unfolds_too_far(file, most_bytes)
            out.write(chunk)


def _unfolds_too_far(file: RemoteFile, most_bytes: int) -> FetchError:
    return FetchError(f"{file.url} unfolds to more than {most_bytes:,} bytes; it is not used")


def _refuse_web_page(file: RemoteFile, path: Path) -> None:
    with path.open("rb") as content:
        start = content.read(START_BYTES).lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith(WEB_PAGE):
        raise FetchError(
            f"{file.url} is a web page, not the data: a login, an error page, or the file has moved"
        )
