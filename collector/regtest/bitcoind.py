"""Find a bitcoind on this machine, or fetch one into a cache folder.

It is looked for in this order: the path given, `$BITCOIND`, PATH, the cache, the official release (checked
against a pinned SHA-256), Debian's package. The first bitcoind that answers `--version` is used. If the user
names a path, that program must work; if it does not run, that is an error.
"""

import fcntl
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog

from collector.errors import RegtestError
from collector.regtest.debian import install_debian_package
from collector.regtest.release import RELEASE_VERSION, install_release

log = structlog.get_logger(__name__)

VERSION_TIMEOUT_S = 20
BITCOIND_VARIABLE = "BITCOIND"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bitcoind:
    """Names a bitcoind program that has answered `--version`, with its version and how it was found."""

    path: Path
    version: str  # first line of `bitcoind --version`
    source: str  # how it was found, in words for a log or a report

    @property
    def is_knots(self) -> bool:
        """Return whether this is Bitcoin Knots; its mining and policy defaults are not Bitcoin Core's."""
        return "knots" in self.version.lower()


def cache_folder() -> Path:
    """Return the folder for fetched nodes: `pool-measurement` below `$XDG_CACHE_HOME` or `~/.cache`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "pool-measurement"


def find_bitcoind(
    explicit: Path | None = None, *, cache: Path | None = None, download: bool = True
) -> Bitcoind:
    """Return a bitcoind that runs. Fetch one if the machine has none and `download` is true.

    Raises RegtestError with every way that was tried and why it failed.
    """
    found = _named_by_user(explicit) or _on_path()
    if found is None:
        found = _cached_or_fetched(cache or cache_folder(), download=download)
    log.info("bitcoind.found", path=str(found.path), version=found.version, source=found.source)
    return found


def probe(path: Path, source: str) -> Bitcoind:
    """Return the program at `path` with its version; raise RegtestError if it is not bitcoind."""
    path = path.absolute()
    if not path.is_file():
        raise RegtestError(f"{source}: there is no file {path}")
    try:
        answer = subprocess.run(  # noqa: S603 - the path is the user's own choice, and no shell is involved
            [path, "--version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        reason = error.stderr.strip().splitlines()[-1:] or [f"exit status {error.returncode}"]
        raise RegtestError(f"{source}: {path} --version failed: {reason[0]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RegtestError(f"{source}: {path} does not run: {error}") from error
    first_line = answer.stdout.partition("\n")[0].strip()
    if "daemon version" not in first_line:
        raise RegtestError(f"{source}: {path} is not bitcoind; it says {first_line[:80]!r}")
    return Bitcoind(path=path, version=first_line, source=source)


def _named_by_user(explicit: Path | None) -> Bitcoind | None:
    if explicit is not None:
        return probe(explicit, "--bitcoind")
    from_environment = os.environ.get(BITCOIND_VARIABLE)
    return probe(Path(from_environment), f"${BITCOIND_VARIABLE}") if from_environment else None


def _on_path() -> Bitcoind | None:
    on_path = shutil.which("bitcoind")
    if on_path is None:
        return None
    try:
        return probe(Path(on_path), "PATH")
    except RegtestError as error:
        log.warning("bitcoind.skipped", reason=str(error))
        return None


def _cached_or_fetched(cache: Path, *, download: bool) -> Bitcoind:
    """Return a node from the cache, or download one: first Bitcoin Core, then Bitcoin Knots."""
    machine = platform.machine()
    ways: list[tuple[str, Path, Callable[[Path, str], None]]] = [
        (
            f"official Bitcoin Core {RELEASE_VERSION}",
            cache / f"core-{RELEASE_VERSION}-{machine}",
            install_release,
        ),
        ("Debian package bitcoin-knots", cache / f"knots-debian-{machine}", install_debian_package),
    ]
    tried = ["--bitcoind: not given", f"${BITCOIND_VARIABLE}: not set", "PATH: no bitcoind there"]
    for name, folder, _ in ways:
        if folder.is_dir():
            try:
                return probe(folder / "bin" / "bitcoind", f"cache ({name})")
            except RegtestError as error:
                tried.append(str(error))
    if not download:
        tried.append("download: not allowed here")
    for name, folder, install in ways if download else ():
        log.info("bitcoind.fetching", what=name, into=str(folder))
        try:
            with _exclusive(cache):
                _install(folder, install, machine)
            return probe(folder / "bin" / "bitcoind", name)
        except (RegtestError, OSError) as error:
            log.info("bitcoind.not_fetched", what=name, reason=str(error))
            tried.append(f"{name}: {error}")
    raise RegtestError(
        "no bitcoind found; install Bitcoin Core or name one with --bitcoind PATH or $BITCOIND. "
        "Tried:\n  " + "\n  ".join(tried)
    )


def _install(folder: Path, install: Callable[[Path, str], None], machine: str) -> None:
    """Call `install` with a new folder beside `folder`, then rename the new folder to `folder`.

    Because of the rename a kill leaves no half-filled `folder`. Does nothing when a usable bitcoind is in
    `folder`.
    """
    try:
        probe(folder / "bin" / "bitcoind", "cache")
    except RegtestError:
        pass
    else:
        return  # another process fetched it while we waited for the lock
    partial = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        install(partial, machine)
        shutil.rmtree(folder, ignore_errors=True)
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def _exclusive(cache: Path) -> Iterator[None]:
    """Lock the cache in the `with` block, so that only one process fetches a node or removes leftovers."""
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
