"""Test that lists of data sets are read strictly, and that the project's own list is whole."""

import datetime as dt
from pathlib import Path

import pytest

from collector.errors import SettingsError
from collector.external.kinds import KINDS
from collector.fetch.data_sets import FILES, load_lists

ENTRY = """
[[data_set]]
name = "some-labels"
what = "Pool of each block"
publisher = "somebody"
homepage = "https://example.org"
licence = "CC0-1.0"
kind = "labels"
source = "somebody"
feeds = "shares"
size = "1 MB"
{more}
[[data_set.file]]
url = "{url}"
{file}
"""


def written(
    folder: Path, *, more: str = "", url: str = "https://example.org/labels.csv", file: str = ""
) -> Path:
    """Write a list with one data set."""
    path = folder / "list.toml"
    path.write_text(ENTRY.format(more=more, url=url, file=file))
    return path


def test_every_data_set_of_our_list_says_what_it_is() -> None:
    """Licence, homepage and kind are there; each file is https and pinned by a digest or made daily."""
    found = load_lists([])

    assert {"pool-labels", "blockchair-blocks", "kit-arrivals", "brk-prices"} <= found.keys()
    assert any(each.history for each in found.values())
    for each in found.values():
        assert each.provider or each.kind in (*KINDS, FILES)
        assert each.homepage.startswith("https://")
        for file in each.file:
            assert file.url.startswith("https://")
            assert file.is_pinned or not each.checked
            if "raw.githubusercontent.com" in file.url and file.is_pinned:
                assert len(file.url.split("/")[5]) == 40, "an address of pinned content names a commit"


@pytest.mark.data
def test_the_digests_of_our_list_are_those_of_the_real_files(data_dir: Path) -> None:
    """What a file of the shared data is called by git is what the list demands."""
    import hashlib

    by_name = {file.file_name: file for each in load_lists([]).values() for file in each.file if each.checked}
    n_compared = 0
    for path in [*data_dir.glob("block-arrival-times/*"), *data_dir.glob("paper/*"), *data_dir.glob("brk/*")]:
        file = by_name.get(path.name)
        if file is None:
            continue
        content = path.read_bytes()
        header = b"blob %d\0" % len(content)
        assert file.git_blob == hashlib.sha1(header + content, usedforsecurity=False).hexdigest()
        assert file.size_bytes == len(content)
        assert file.sha256 in (None, hashlib.sha256(content).hexdigest())
        n_compared += 1
    assert n_compared == 12


def test_a_file_per_day_is_named_by_the_days() -> None:
    """The last days are those that are over; a range is taken whole."""
    daily = load_lists([])["blockchair-blocks"]
    yesterday = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1)

    days = daily.days(dt.date(2025, 2, 27), dt.date(2025, 3, 1))
    names = [file.file_name for file in daily.files_of(days)]

    assert names == [
        f"blockchair_bitcoin_blocks_{day}.tsv.gz" for day in ("20250227", "20250228", "20250301")
    ]
    assert daily.days(None, None)[-1] <= yesterday
    assert len(daily.days(None, None)) == daily.last_days
    assert daily.days(dt.date(2000, 1, 1), dt.date(2009, 1, 4)) == [dt.date(2009, 1, 3), dt.date(2009, 1, 4)]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"url": "http://example.org/labels.csv"}, "is not encrypted"),
        ({"url": "file:///etc/passwd"}, "no address that begins with https"),
        ({"url": "https://me:secret@example.org/labels.csv"}, "must not hold a user or a password"),
        ({"url": "https://example.org/"}, "cannot be the name of a file"),
        ({"file": 'name = "../labels.csv"'}, "cannot be the name of a file"),
        ({"file": 'sha256 = "123"'}, "should match pattern"),
        ({"file": 'md5 = "123"'}, "Extra inputs"),
        ({"url": "https://example.org/labels.tar.gz"}, "a .tar.gz needs it"),
        ({"url": "https://example.org/labels_{day}.csv"}, "needs `first_day`"),
        ({"more": 'colour = "red"'}, "Extra inputs"),
        ({"more": "[[other]]\n[[data_set]]"}, "data_set"),
    ],
)
def test_a_wrong_entry_is_named(tmp_path: Path, more: dict[str, str], says: str) -> None:
    """The error has the list, the data set and the reason."""
    with pytest.raises(SettingsError, match=says):
        load_lists([written(tmp_path, **more)])


def test_a_kind_that_no_import_has_is_named(tmp_path: Path) -> None:
    """The error lists the kinds."""
    path = written(tmp_path)
    path.write_text(path.read_text().replace('"labels"', '"colours"'))

    with pytest.raises(SettingsError, match=r"some-labels: kind 'colours' is none of arrivals"):
        load_lists([path])


def test_a_list_that_is_no_list_is_named(tmp_path: Path) -> None:
    """No TOML, no table, no file, twice the same name."""
    for content, says in (
        ("a = ", "is no TOML"),
        ("", "must hold tables"),
        ("data_set = 1", "must hold tables"),
    ):
        (tmp_path / "bad.toml").write_text(content)
        with pytest.raises(SettingsError, match=says):
            load_lists([tmp_path / "bad.toml"])
    with pytest.raises(SettingsError, match="cannot read the list"):
        load_lists([tmp_path / "missing.toml"])
    with pytest.raises(SettingsError, match="some-labels stands twice"):
        load_lists([written(tmp_path), written(tmp_path)])


def test_a_list_without_end_is_refused() -> None:
    """A device that never ends is refused before it takes the memory."""
    with pytest.raises(SettingsError, match="/dev/zero has more than 1,048,576 bytes: it is no list"):
        load_lists([Path("/dev/zero")])
