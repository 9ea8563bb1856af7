"""Test `pool-collector fetch` from its command line against a real server."""

import gzip
import io
import json
import re
import resource
import sys
import tarfile
from pathlib import Path

import pytest

from collector.cli import main
from collector.dataset.open import Dataset
from collector.dataset.schema import EXTERNAL_ARRIVALS, EXTERNAL_POOL_LABELS, EXTERNAL_SOURCES, TABLES
from collector.fetch.contents import unpacked
from collector.fetch.data_sets import RemoteFile

from .conftest import Site

LABELS = b"height,pool\n" + b"".join(b"%d,F2Pool\n" % height for height in range(500))
ARRIVALS = b"".join(b"%d,%064x,%d\n" % (800_000 + i, i + 1, 1_690_000_000_000 + i) for i in range(50))

# Blocks 0 and 1 of the main chain
GENESIS = bytes.fromhex(
    "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e"
    "67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c"
)
FIRST = bytes.fromhex(
    "010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e"
    "1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299"
)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run `pool-collector fetch` in this process; return its exit status."""
    monkeypatch.setattr(sys, "argv", ["pool-collector", "fetch", *arguments])
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def data_set(name: str, url: str, *, kind: str = "labels", history: bool = True, file: str = "") -> str:
    """Return an entry of a list."""
    return f"""
[[data_set]]
name = "{name}"
what = "what it holds"
publisher = "somebody"
homepage = "https://example.org"
licence = "CC0-1.0"
kind = "{kind}"
source = "{name}"
feeds = "shares"
size = "1 MB"
history = {str(history).lower()}
[[data_set.file]]
url = "{url}"
{file}
"""


class World:
    """A folder with a list, a cache and a dataset."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.monkeypatch = monkeypatch

    def fetch(self, entries: str, *arguments: str) -> int:
        """Fetch from a list with these entries."""
        (self.folder / "list.toml").write_text(entries)
        return run(
            self.monkeypatch,
            *arguments,
            *("--list", str(self.folder / "list.toml"), "--cache", str(self.cache)),
            *("--dataset", str(self.folder / "dataset")),
        )

    def rows(self, table: str) -> int:
        """Return how many rows a table has."""
        dataset = Dataset(self.folder / "dataset", "main")
        return dataset.read(TABLES[table]).num_rows if dataset.root.exists() else 0

    def cached(self) -> set[str]:
        """Return the names of the files in the cache."""
        return {path.name for path in self.cache.rglob("*") if path.is_file()} - {"lock"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Make an empty world."""
    return World(tmp_path, monkeypatch)


def test_without_a_name_the_list_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each data set with publisher, licence, size and use; also as JSON."""
    assert run(monkeypatch) == 0
    text = capsys.readouterr().out
    assert run(monkeypatch, "--json") == 0
    listed = json.loads(capsys.readouterr().out)

    for each in listed:
        assert f"{each['name']}" in text
        assert f"licence: {each['licence']}" in text
    assert "the content is checked against the publisher's digest" in text


def test_a_data_set_is_fetched_and_imported_with_its_origin(
    world: World, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The address and the licence stand in `external_sources`; the file is removed; again brings nothing."""
    site.put("/labels.csv", LABELS)
    entries = data_set("some", f"{site.url}/labels.csv")

    assert world.fetch(entries, "some") == 0
    assert world.fetch(entries, "some") == 0

    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"some: 1 file, {len(LABELS):,} bytes; 500 rows, 500 of them new"
    assert said[1].endswith("500 rows, 0 of them new")
    dataset = Dataset(world.folder / "dataset", "main")
    [source] = dataset.read(EXTERNAL_SOURCES).to_pylist()
    assert (source["url"], source["licence"]) == (f"{site.url}/labels.csv", "CC0-1.0")
    assert dataset.read(EXTERNAL_POOL_LABELS).num_rows == 500
    assert world.cached() == set()


def test_headers_go_on_from_those_of_an_earlier_file(world: World, site: Site) -> None:
    """Each file of headers is held to the rules of the chain, with the headers before it."""
    entries = ""
    for height, header in enumerate([GENESIS, FIRST]):
        site.put(f"/{height}.bin", header)
        entries += data_set(f"from-{height}", f"{site.url}/{height}.bin", kind="headers")

    assert world.fetch(entries, "from-1") == 1  # nobody knows yet how high it is
    assert world.fetch(entries, "from-0", "from-1") == 0
    assert world.rows("external_headers") == 2


def test_kept_files_are_not_downloaded_again(world: World, site: Site) -> None:
    """With --keep the second call asks the server nothing."""
    site.put("/labels.csv", LABELS)
    entries = data_set("some", f"{site.url}/labels.csv")

    assert world.fetch(entries, "some", "--keep") == 0
    assert world.fetch(entries, "some", "--keep") == 0

    assert len(site.requests) == 1
    assert world.cached() == {"labels.csv"}


def test_download_only_makes_no_dataset(world: World, site: Site) -> None:
    """The file lies in the cache under the name of its data set."""
    site.put("/labels.csv", LABELS)

    assert world.fetch(data_set("some", f"{site.url}/labels.csv"), "some", "--download-only") == 0

    assert (world.cache / "some" / "labels.csv").read_bytes() == LABELS
    assert not (world.folder / "dataset").exists()


def test_packed_files_are_unpacked(world: World, site: Site) -> None:
    """A .gz and one member of a repository's .tar.gz are imported like plain files."""
    tarball = io.BytesIO()
    with tarfile.open(fileobj=tarball, mode="w:gz") as archive:
        for name, content in (("repo-1/README.md", b"hello"), ("repo-1/data/node.csv", ARRIVALS)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    site.put("/labels.csv.gz", gzip.compress(LABELS))
    site.files["/repo.tar.gz"] = tarball.getvalue()
    entries = data_set("some", f"{site.url}/labels.csv.gz") + data_set(
        "tar", f"{site.url}/repo.tar.gz", kind="arrivals", file='member = "data/node.csv"'
    )

    assert world.fetch(entries, "--history") == 0

    dataset = Dataset(world.folder / "dataset", "main")
    assert dataset.read(EXTERNAL_POOL_LABELS).num_rows == 500
    assert dataset.read(EXTERNAL_ARRIVALS).num_rows == 50


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("/labels.csv", b"<!DOCTYPE html><html>Sign in</html>", "is a web page, not the data"),
        ("/labels.csv.gz", b"\n<html>error</html>", "is a web page, not the data"),
        ("/labels.csv.gz", gzip.compress(LABELS, mtime=0)[:-30], "cannot be unpacked"),
        ("/labels.csv.gz", gzip.compress(LABELS[:100], mtime=0) + b"garbage", "cannot be unpacked"),
        ("/labels.csv", b"\x00\xff" * 1000, "labels.csv"),
        ("/labels.csv", LABELS + b"7,F2Pool,too much\n", "502"),
        ("/labels.parquet", b"PAR1" + b"\0" * 500, "is no Parquet file"),
        ("/labels.tar.gz", b"nothing", "cannot be unpacked"),
    ],
    ids=["page", "packed page", "cut", "appended", "bytes", "field too many", "parquet", "tar"],
)
def test_garbage_is_refused_and_can_be_replaced(  # noqa: PLR0917 - three fixtures, three parameters
    world: World, site: Site, capsys: pytest.CaptureFixture[str], path: str, content: bytes, says: str
) -> None:
    """One line says what is wrong, no row is stored, and a later call takes what is right."""
    site.files[path] = content
    entries = data_set("some", site.url + path, file='member = "a"' if "tar" in path else "")

    assert world.fetch(entries, "some", "--keep") == 1
    said = capsys.readouterr().err
    assert says in said
    assert "Traceback" not in said
    assert world.rows("external_pool_labels") == world.rows("external_sources") == 0

    if path == "/labels.csv":
        site.put(path, LABELS)
        assert world.fetch(entries, "some", "--keep") == 0
        assert world.rows("external_pool_labels") == 500


def test_a_bomb_is_not_unfolded(tmp_path: Path) -> None:
    """A small .gz that would fill the disk ends at the limit, and leaves nothing behind."""
    path = tmp_path / "bomb.csv.gz"
    path.write_bytes(gzip.compress(bytes(10_000_000)))
    file = RemoteFile(url="https://example.org/bomb.csv.gz")

    with pytest.raises(Exception, match="unfolds to more than 1,000,000 bytes"):  # noqa: SIM117 - the inner one must fail
        with unpacked(file, path, most_bytes=1_000_000):
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["bomb.csv.gz"]


def test_a_bomb_in_front_of_the_member_is_not_unfolded(tmp_path: Path) -> None:
    """A header of a .tar.gz that would fill the memory ends at the limit too."""
    path = tmp_path / "bomb.tar.gz"
    with tarfile.open(path, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("repo-1/data.csv")
        member.pax_headers = {"comment": "0" * 10_000_000}
        archive.addfile(member)
    file = RemoteFile(url="https://example.org/bomb.tar.gz", member="data.csv")

    with pytest.raises(Exception, match="unfolds to more than 1,000,000 bytes"):  # noqa: SIM117 - the inner one must fail
        with unpacked(file, path, most_bytes=1_000_000):
            pass
    assert [each.name for each in tmp_path.iterdir()] == ["bomb.tar.gz"]


def test_a_disk_without_room_for_the_content_is_named(world: World, site: Site) -> None:
    """What was downloaded stays, and the next call, with room, goes on with it."""
    labels = b"height,pool\n" + b"".join(b"%d,F2Pool\n" % height for height in range(100_000))
    site.put("/labels.csv.gz", gzip.compress(labels))
    entries = data_set("some", f"{site.url}/labels.csv.gz")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, limits[1]))
    try:
        assert world.fetch(entries, "some") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [path.name for path in (world.cache / "some").iterdir()] == ["labels.csv.gz"]
    assert world.fetch(entries, "some") == 0


def test_one_data_set_that_fails_does_not_stop_the_others(
    world: World, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--history` ends well if something came; a call by name says that something is missing."""
    site.put("/labels.csv", LABELS)
    entries = data_set("gone", f"{site.url}/gone.csv") + data_set("some", f"{site.url}/labels.csv")

    assert world.fetch(entries, "--history") == 0
    said = capsys.readouterr()
    assert "gone: " in said.err
    assert "HTTP 404" in said.err
    assert "some: 1 file" in said.out
    assert world.fetch(entries, "gone", "some") == 1
    assert "1 of 2 data sets are not complete" in capsys.readouterr().err


def test_if_nothing_comes_the_exit_status_says_so(
    world: World, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also with --history; no dataset is made."""
    assert world.fetch(data_set("gone", f"{site.url}/gone.csv"), "--history") == 1
    assert "nothing could be fetched; the lines above say why" in capsys.readouterr().err
    assert not (world.folder / "dataset").exists()


def test_without_a_network_the_error_says_what_to_do(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line has the address and the reason, one counts the other files, and one says what to check."""
    more = '[[data_set.file]]\nurl = "http://127.0.0.1:1/more.csv"'
    assert world.fetch(data_set("away", "http://127.0.0.1:1/labels.csv", file=more), "away") == 1
    said = capsys.readouterr().err
    assert "away: cannot reach http://127.0.0.1:1/labels.csv (Connection refused)" in said
    assert "away: and 1 more file that failed" in said
    assert "no server could be reached; check the network of this machine" in said


def test_a_misspelt_name_is_answered_with_the_right_one(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is downloaded."""
    assert world.fetch(data_set("some-labels", "https://example.org/labels.csv"), "some-label") == 2
    assert (
        "there is no data set 'some-label'; do you mean some-labels? `pool-collector fetch` lists them all"
        in capsys.readouterr().err
    )
    assert not world.cache.exists()


def test_days_of_a_data_set_without_days_are_refused(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    """A part of one file cannot be asked for, so the option is not passed over in silence."""
    listed = data_set("some-labels", "https://example.org/labels.csv")

    assert world.fetch(listed, "some-labels", "--from", "2025-03-01") == 2
    said = capsys.readouterr().err
    assert "some-labels" in said
    assert "leave them out" in said
    assert not world.cache.exists()


def test_a_file_in_the_place_of_the_cache_is_named(
    world: World, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is downloaded."""
    world.cache.write_text("mine")

    assert world.fetch(data_set("some", f"{site.url}/labels.csv"), "some") == 1
    said = capsys.readouterr().err
    assert f"{world.cache}: a part of this path is a file, not a folder; choose another --cache" in said
    assert site.requests == []


def test_two_fetches_do_not_share_a_cache(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one says that another one is running."""
    from collector.dataset.files import lock_taken

    world.cache.mkdir()
    with lock_taken(world.cache / "lock", "held"):
        assert world.fetch(data_set("some", "https://example.org/labels.csv"), "some") == 1
    assert "another fetch is using" in capsys.readouterr().err


def test_a_contradiction_with_an_earlier_import_is_told(
    world: World, site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """The publisher has changed a row: nothing of the new file is stored."""
    site.put("/labels.csv", LABELS)
    entries = data_set("some", f"{site.url}/labels.csv")
    assert world.fetch(entries, "some") == 0
    site.put("/labels.csv", LABELS.replace(b"7,F2Pool", b"7,AntPool"))

    assert world.fetch(entries, "some") == 1

    message = capsys.readouterr().err
    assert "said otherwise about" in message
    (kept,) = re.findall(r"the file stays at (\S+)", message)
    assert b"7,AntPool" in Path(kept).read_bytes()
    assert world.rows("external_pool_labels") == 500
