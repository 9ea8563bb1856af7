"""Download the official Bitcoin Core release and check it against a pinned SHA-256.

The digests are those of `29.1/*/all.SHA256SUMS` and `noncodesigned.SHA256SUMS` in
https://github.com/bitcoin-core/guix.sigs, where independent builders attest the same values.
"""

import hashlib
import shutil
import tarfile
from pathlib import Path
from typing import Final

import requests

from collector.errors import RegtestError

RELEASE_VERSION: Final = "29.1"
RELEASE_SHA256: Final = {
    "x86_64": "2dddeaa8c0626ec446b6f21b64c0f3565a1e7e67ff0b586d25043cbd686c9455",
    "aarch64": "d6be913e1abc5effe57f50630b4bff2f89b38c092182c47f1fcde0ae12afc71c",
}
RELEASE_URL: Final = f"https://bitcoincore.org/bin/bitcoin-core-{RELEASE_VERSION}"
TIMEOUT_S: Final = (5.0, 20.0)  # to connect, and between two reads
CHUNK_BYTES: Final = 1 << 20


def install_release(folder: Path, machine: str, *, base_url: str = RELEASE_URL) -> None:
    """Download Bitcoin Core's release for `machine`, check its SHA-256 and put bitcoind in `folder/bin`.

    Raises RegtestError if there is none, or it has another SHA-256.
    """
    if machine not in RELEASE_SHA256:
        raise RegtestError(f"no digest is pinned for {machine}, only for {', '.join(RELEASE_SHA256)}")
    name = f"bitcoin-{RELEASE_VERSION}-{machine}-linux-gnu.tar.gz"
    archive = folder / name
    digest = _download(f"{base_url}/{name}", archive)
    if digest != RELEASE_SHA256[machine]:
        raise RegtestError(
            f"{base_url}/{name} has SHA-256 {digest}, pinned is {RELEASE_SHA256[machine]}; not used"
        )
    _extract_bitcoind(archive, folder / "bin" / "bitcoind")
    archive.unlink()


def _download(url: str, target: Path) -> str:
    """Download `url` into `target` and return the SHA-256 of the file, as hex."""
    digest = hashlib.sha256()
    try:
        with requests.get(url, stream=True, timeout=TIMEOUT_S) as answer, target.open("wb") as out:
            answer.raise_for_status()
            for chunk in answer.iter_content(CHUNK_BYTES):
                digest.update(chunk)
                out.write(chunk)
    except requests.RequestException as error:
        raise RegtestError(f"cannot download {url} ({type(error).__name__})") from error
    return digest.hexdigest()


def _extract_bitcoind(archive: Path, target: Path) -> None:
    member = f"bitcoin-{RELEASE_VERSION}/bin/bitcoind"
    with tarfile.open(archive) as tar:
        source = tar.extractfile(member)
        if source is None:
            raise RegtestError(f"{archive.name} holds no file {member}")
        target.parent.mkdir(parents=True)
        with source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
    target.chmod(0o755)
