"""Test the search for a bitcoind: the places, their order, and the error if there is none."""

import hashlib
import io
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from collector.errors import RegtestError
from collector.regtest import bitcoind as finder
from collector.regtest import debian, release
from collector.regtest.bitcoind import Bitcoind, cache_folder, find_bitcoind, probe


def program(path: Path, says: str = "Bitcoin Core daemon version v0.0.1", status: int = 0) -> Path:
    """Write a program that answers --version like a bitcoind."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Put a bitcoind in each of the four places on this machine, each with a version of its own."""
    cache = tmp_path / "cache" / "pool-measurement"
    found = {
        "flag": program(tmp_path / "flag" / "node", "Core daemon version flag"),
        "environment": program(tmp_path / "environment" / "node", "Core daemon version environment"),
        "path": program(tmp_path / "path" / "bitcoind", "Core daemon version path"),
        "cache": program(
            cache / f"core-{release.RELEASE_VERSION}-{finder.platform.machine()}" / "bin" / "bitcoind",
            "Core daemon version cache",
        ),
    }
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BITCOIND", str(found["environment"]))
    monkeypatch.setenv("PATH", f"{found['path'].parent}:/usr/bin:/bin")
    return found


def test_the_path_given_beats_environment_path_and_cache(places: dict[str, Path]) -> None:
    """`--bitcoind` is used even where every other place has one too."""
    assert find_bitcoind(places["flag"]).version.endswith("flag")


def test_places_are_tried_in_the_order_environment_path_cache(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking one place away each time leads to the next."""
    assert find_bitcoind().version.endswith("environment")
    monkeypatch.delenv("BITCOIND")
    assert find_bitcoind().version.endswith("path")
    places["path"].unlink()
    found = find_bitcoind()
    assert found.version.endswith("cache")
    assert found.source.startswith("cache")


@pytest.mark.parametrize("status", [0, 1])
def test_a_named_program_that_is_not_bitcoind_is_an_error(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    """A program that the user names must be a bitcoind; it is not skipped for another one."""
    program(places["flag"], "something else", status)
    with pytest.raises(RegtestError, match=f"--bitcoind.*{places['flag']}"):
        find_bitcoind(places["flag"])
    monkeypatch.setenv("BITCOIND", "/nowhere/bitcoind")
    with pytest.raises(RegtestError, match=r"\$BITCOIND: there is no file /nowhere/bitcoind"):
        find_bitcoind()


def test_a_broken_bitcoind_on_path_is_passed_over(
    places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A bitcoind on PATH that does not run is skipped for the next place."""
    monkeypatch.delenv("BITCOIND")
    program(places["path"], "broken", 1)
    assert find_bitcoind().version.endswith("cache")


def test_the_error_lists_every_way_that_was_tried(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without download and with an empty cache the message says what to do and what was tried."""
    monkeypatch.delenv("BITCOIND")
    places["path"].unlink()
    with pytest.raises(RegtestError) as caught:
        find_bitcoind(cache=tmp_path / "empty", download=False)
    message = str(caught.value)
    for words in ("install Bitcoin Core", "--bitcoind", "$BITCOIND", "PATH", "download"):
        assert words in message


def test_what_cannot_be_fetched_falls_through_and_leaves_nothing(
    tmp_path: Path, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A download that dies half way leaves no folder in the cache, and its reason is in the error."""

    def die(folder: Path, _machine: str) -> None:
        (folder / "half").write_text("written")
        raise RegtestError("the line went dead")

    monkeypatch.delenv("BITCOIND")
    places["path"].unlink()
    monkeypatch.setattr(finder, "install_release", die)
    monkeypatch.setattr(finder, "install_debian_package", die)
    with pytest.raises(RegtestError, match=r"(?s)Core.*the line went dead.*Debian.*the line went dead"):
        find_bitcoind(cache=tmp_path / "empty")
    assert [path.name for path in (tmp_path / "empty").iterdir()] == [".lock"]


def test_a_broken_cache_is_fetched_anew(places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """A cached program that does not run is replaced in one step, leftovers of a killed fetch included."""

    def install(folder: Path, _machine: str) -> None:
        assert list(folder.iterdir()) == []
        program(folder / "bin" / "bitcoind", "Core daemon version fetched")

    monkeypatch.delenv("BITCOIND")
    places["path"].unlink()
    program(places["cache"], "broken", 1)
    partial_folder = places["cache"].parent.parent
    leftover = partial_folder.with_name(f".{partial_folder.name}.partial")
    leftover.mkdir()
    (leftover / "half").touch()
    monkeypatch.setattr(finder, "install_release", install)
    assert find_bitcoind().version.endswith("fetched")
    assert not leftover.exists()


def test_the_cache_is_where_the_desktop_standard_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache is below `$XDG_CACHE_HOME` if set, or else below ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "pool-measurement"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "pool-measurement"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Start a web server that offers a folder; return its address and the folder."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}", folder
        http.shutdown()
        thread.join()


def archive(folder: Path) -> str:
    """Write a release archive that holds a bitcoind; return its SHA-256."""
    content = program(folder / "bitcoind", "Bitcoin Core daemon version archived").read_bytes()
    path = folder / f"bitcoin-{release.RELEASE_VERSION}-x86_64-linux-gnu.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo(f"bitcoin-{release.RELEASE_VERSION}/bin/bitcoind")
        member.size = len(content)
        tar.addfile(member, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_release_with_the_pinned_digest_is_unpacked(
    tmp_path: Path, server: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program of the archive runs from the folder, and the archive itself does not stay."""
    url, folder = server
    monkeypatch.setitem(release.RELEASE_SHA256, "x86_64", archive(folder))
    release.install_release(tmp_path, "x86_64", base_url=url)
    assert probe(tmp_path / "bin" / "bitcoind", "test").version.endswith("archived")
    assert not list(tmp_path.glob("*.tar.gz"))


def test_a_release_with_another_digest_is_refused(tmp_path: Path, server: tuple[str, Path]) -> None:
    """Both digests are named and nothing is unpacked."""
    url, folder = server
    digest = archive(folder)
    with pytest.raises(RegtestError, match=rf"{digest}.*{release.RELEASE_SHA256['x86_64']}"):
        release.install_release(tmp_path, "x86_64", base_url=url)
    assert not (tmp_path / "bin").exists()


def test_an_unreachable_server_and_an_unknown_machine_are_named(tmp_path: Path) -> None:
    """The error names the reason: no connection, or a machine for which there is no release."""
    with pytest.raises(RegtestError, match=r"cannot download http://127.0.0.1:9/bitcoin-"):
        release.install_release(tmp_path, "x86_64", base_url="http://127.0.0.1:9")
    with pytest.raises(RegtestError, match="riscv64"):
        release.install_release(tmp_path, "riscv64")
    with pytest.raises(RegtestError, match="riscv64"):
        debian.install_debian_package(tmp_path, "riscv64")


ONE_LINE = "deb [arch=amd64] http://mirror.example/debian bookworm main\n"
DEB822 = (
    "Types: deb\nURIs: https://mirror.example/debian/\nSuites: bookworm bookworm-updates\nComponents: main\n"
)
OTHER = "deb http://other.example/tools stable-tools main\n"
APT_FOUND = debian.shutil.which("apt-get") is not None


@pytest.mark.skipif(not APT_FOUND, reason="this machine has no apt-get")
@pytest.mark.parametrize(
    ("name", "content"), [("sources.list.d/one.list", ONE_LINE), ("sources.list.d/two.sources", DEB822)]
)
def test_the_mirror_is_the_one_of_the_machines_own_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str
) -> None:
    """Both formats of sources are read, and what is not Debian's archive is passed over."""
    etc, apt = tmp_path / "etc", tmp_path / "apt"
    for folder in (etc / "sources.list.d", etc / "apt.conf.d", apt / "lists" / "partial", apt / "cache"):
        folder.mkdir(parents=True)
    (etc / "sources.list.d" / "a.list").write_text(OTHER)
    (etc / name).write_text(content)
    system = {"ID": "debian", "VERSION_CODENAME": "bookworm"}
    monkeypatch.setattr(debian.platform, "freedesktop_os_release", lambda: system)
    assert debian.debian_mirror(apt, sources=etc).endswith("://mirror.example/debian")
    (etc / name).unlink()
    with pytest.raises(RegtestError, match="name no Debian mirror"):
        debian.debian_mirror(apt, sources=etc)


def test_a_machine_that_is_not_debian_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose apt sources name no Debian mirror gets an error."""
    system = {"ID": "fedora", "PRETTY_NAME": "Fedora Linux 43"}
    monkeypatch.setattr(debian.platform, "freedesktop_os_release", lambda: system)
    with pytest.raises(RegtestError, match="Fedora Linux 43, which is not Debian"):
        debian.debian_mirror(tmp_path)


def test_the_launcher_finds_its_libraries_wherever_it_stands(tmp_path: Path) -> None:
    """The launcher works after its folder is renamed, and passes arguments with blanks unchanged."""
    first = tmp_path / "before"
    program(first / "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2").write_text(
        '#!/bin/sh\nfor each; do echo "$each"; done\n', encoding="utf-8"
    )
    debian._write_launcher(first, "x86_64")
    folder = first.rename(tmp_path / "after")
    said = subprocess.run([folder / "bin/bitcoind", "-x=a b"], capture_output=True, text=True, check=True)
    libraries = f"{folder}/usr/lib/x86_64-linux-gnu"
    assert said.stdout.splitlines() == ["--library-path", libraries, f"{folder}/usr/bin/bitcoind", "-x=a b"]


@pytest.mark.bitcoind
def test_the_bitcoind_of_this_machine_says_what_it_is(bitcoind: Bitcoind) -> None:
    """The bitcoind found has a version, a source, and says whether it is Knots."""
    assert "daemon version" in bitcoind.version
    assert bitcoind.source
    assert bitcoind.is_knots == ("Knots" in bitcoind.version)
