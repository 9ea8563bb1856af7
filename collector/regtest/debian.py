"""Unpack Debian's package `bitcoin-knots` into a folder, without installing it.

apt downloads from the machine's own mirror and checks with its keyring. Lists, cache and status are in the
folder, so apt needs no root and changes nothing of the system. The package comes from Debian unstable, whose
C library is newer than that of most machines; so a launcher starts bitcoind with the unpacked C library.
"""

import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from collector.errors import RegtestError

PACKAGE: Final = "bitcoin-knots"
SUITE: Final = "unstable"
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
COMMAND_TIMEOUT_S: Final = 180
LOADERS: Final = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}

# apt reads these after the files of the machine (-c), so these values hold and its hooks are removed.
APT_CONF: Final = """\
Dir::Etc::sourcelist "{folder}/apt/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::Lists "{folder}/apt/lists";
Dir::State::status "/dev/null";
Dir::Cache "{folder}/apt/cache";
Acquire::Retries "1";
Acquire::http::Timeout "10";
Acquire::https::Timeout "10";
APT::Sandbox::User "";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"""

LAUNCHER: Final = """\
#!/bin/sh
# Starts bitcoind with the C library that was unpacked beside it.
root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd) || exit 1
libraries="$root/usr/lib/{triplet}"
exec "$libraries/{loader}" --library-path "$libraries" "$root/usr/bin/bitcoind" "$@"
"""


def install_debian_package(folder: Path, machine: str) -> None:
    """Unpack the package `bitcoin-knots` and its libraries in `folder`, with a launcher in `folder/bin`.

    Raises RegtestError where apt, a Debian mirror or the package is missing.
    """
    if machine not in LOADERS:
        raise RegtestError(f"the machine is {machine}; this package exists for {', '.join(LOADERS)}")
    for tool in ("apt-get", "apt-cache", "dpkg-deb"):
        if shutil.which(tool) is None:
            raise RegtestError(f"this machine has no {tool}")
    apt = folder / "apt"
    (apt / "lists" / "partial").mkdir(parents=True)
    (apt / "cache" / "archives" / "partial").mkdir(parents=True)
    (apt / "apt.conf").write_text(APT_CONF.format(folder=folder), encoding="utf-8")
    signed_by = f" signed-by={KEYRING}" if KEYRING.exists() else ""
    # Fetch only the list of packages, although the machine may be set to fetch translations and icons too.
    source = f"deb [target=Packages{signed_by}] {debian_mirror(apt)} {SUITE} main\n"
    (apt / "sources.list").write_text(source, encoding="utf-8")

    settings = ("-c", str(apt / "apt.conf"))
    _run(["apt-get", *settings, "--error-on=any", "update"], folder)
    packages = [PACKAGE, *_libraries(settings, folder)]
    _run(["apt-get", *settings, "download", *packages], apt)
    for archive in sorted(apt.glob("*.deb")):
        _run(["dpkg-deb", "--extract", str(archive), str(folder)], folder)
    shutil.rmtree(apt)
    _write_launcher(folder, machine)


def debian_mirror(apt: Path, *, sources: Path = Path("/etc/apt")) -> str:
    """Return the address of the Debian mirror that this machine uses.

    apt itself reads the files in `sources`, so one-line and deb822 files both work. `apt` is a folder for the
    lists and caches that apt opens while it reads.
    """
    system = platform.freedesktop_os_release()
    if system.get("ID") != "debian":
        raise RegtestError(f"the machine runs {system.get('PRETTY_NAME')}, which is not Debian")
    private = ["-o", f"Dir::State::Lists={apt / 'lists'}", "-o", f"Dir::Cache={apt / 'cache'}"]
    answer = _run(["apt-get", *private, "-o", f"Dir::Etc={sources}", "update", "--print-uris"], apt)
    suites = {system.get("VERSION_CODENAME"), "stable", "oldstable", "testing", "unstable", "sid"}
    for base, suite in re.findall(r"^'(\S+?)/?/dists/([^/\s']+)/InRelease'", answer, re.MULTILINE):
        if suite in suites:
            return str(base)
    raise RegtestError("the machine's apt sources name no Debian mirror; see /etc/apt/sources.list.d")


def _libraries(settings: Sequence[str], folder: Path) -> list[str]:
    """Return the names of all shared libraries that `bitcoin-knots` needs, directly or indirectly."""
    edges = ["--no-recommends", "--no-suggests", "--no-conflicts", "--no-breaks", "--no-replaces"]
    depends = ["apt-cache", *settings, "depends", *edges, "--no-enhances"]
    direct = re.findall(r"Depends: (z?lib\S+)", _run([*depends, PACKAGE], folder))
    closure = _run([*depends, "--recurse", *direct], folder)
    return sorted(set(re.findall(r"^(z?lib[^:\s]+)$", closure, re.MULTILINE)))


def _write_launcher(folder: Path, machine: str) -> None:
    launcher = folder / "bin" / "bitcoind"
    launcher.parent.mkdir(exist_ok=True)
    triplet = f"{machine}-linux-gnu"
    launcher.write_text(LAUNCHER.format(triplet=triplet, loader=LOADERS[machine]), encoding="utf-8")
    launcher.chmod(0o755)


def _run(command: Sequence[str], folder: Path) -> str:
    """Run one of apt's programs in `folder` and return what it printed."""
    try:
        answer = subprocess.run(  # noqa: S603 - fixed programs with arguments of our own, no shell
            command, cwd=folder, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=True
        )
    except subprocess.CalledProcessError as error:
        lines = [line for line in error.stderr.splitlines() if line.startswith("E:")]
        reason = " ".join(lines) or f"exit status {error.returncode}"
        raise RegtestError(f"{command[0]} failed: {reason}") from error
    except subprocess.TimeoutExpired as error:
        raise RegtestError(f"{command[0]} took longer than {COMMAND_TIMEOUT_S} s") from error
    return answer.stdout
