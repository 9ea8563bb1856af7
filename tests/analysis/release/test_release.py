"""Test releases: whole, valid, free of names where asked, and verified down to a byte."""

import errno
import hashlib
import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import duckdb
import frictionless
import jsonschema
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from analysis.attribution.rules import default_rules_dir
from analysis.catalog import read_models
from analysis.database import open_database
from analysis.engine import build
from analysis.errors import DatasetError
from analysis.release import verify, write
from analysis.release.mart_files import ROW_GROUP_ROWS, pack_rows, regrouped
from tests.analysis.test_cli import Result, run
from tests.analysis.world import write_world

MARTS = sorted(model.name for model in read_models() if model.layer == "marts")
SCHEMA = Path(__file__).resolve().parents[2] / "vectors" / "cff-1.2.0.schema.json"
# Names that break SQL, a table in Markdown, or the parser of a session's name where they are not escaped.
NODES = ("attic 10.1.2.3", "cellar'; | <b>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a dataset of four blocks that two nodes saw, with a hole whose text has an address."""
    folder = tmp_path_factory.mktemp("release")
    blocks = [
        {
            "block_hash": f"a{height}",
            "prev_hash": f"a{height - 1}",
            "height": height,
            "arrived_at": 9.5 * height,
        }
        for height in range(1, 5)
    ]
    nodes = [{"node": node, "session": "s1"} for node in NODES]
    coverage = [
        {"node": node, "session": "s1", "from_at": start, "to_at": start + 9, "detail": detail}
        for node in NODES
        for start, detail in ((0, "tcp://192.168.7.7:28332 is away"), (20, None))
    ]
    rows = {"blocks": blocks, "nodes": nodes, "coverage": coverage}
    build(write_world(folder / "dataset", rows), default_rules_dir(), folder / "a.duckdb")
    return folder


@pytest.fixture(scope="module")
def released(folder: Path) -> Path:
    """Write a release with the dataset."""
    out = folder / "whole"
    options = ("--with-dataset", "--author", "A. Node Runner", "--licence", "cc-by-4.0")
    result = run("release", folder / "a.duckdb", "--out", out, *options)
    assert result.returncode == 0, result.stderr
    return out


@pytest.fixture
def copy(released: Path, tmp_path: Path) -> Path:
    """Copy the release, to be broken."""
    return Path(shutil.copytree(released, tmp_path / "copy"))


def redescribed(release: Path) -> None:
    """Write size and checksum of each mart into the data package anew, as a forger would."""
    package = json.loads((release / "datapackage.json").read_text())
    for each in package["resources"]:
        content = (release / each["path"]).read_bytes()
        each |= {"bytes": len(content), "hash": f"sha256:{hashlib.sha256(content).hexdigest()}"}
    (release / "datapackage.json").write_text(json.dumps(package))


def resealed(release: Path) -> Result:
    """Write new checksums, as a forger would, and verify."""
    files = sorted(path for path in release.rglob("*") if path.is_file() and path.name != "SHA256SUMS")
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(release)}\n" for path in files
    ]
    (release / "SHA256SUMS").write_text("".join(lines))
    return run("verify", release)


def test_every_mart_is_released_with_its_rows(folder: Path, released: Path) -> None:
    """The Parquet files hold what the database holds, in the order of the grain."""
    with open_database(folder / "a.duckdb") as connection, duckdb.connect() as plain:
        for name in MARTS:
            path = released / "marts" / f"{name}.parquet"
            summed = "SELECT count(*), sum(hash(columns(*)))"
            ours = connection.sql(f"{summed} FROM {name}").fetchall()
            theirs = plain.sql(f"{summed} FROM '{path}'").fetchall()
            assert theirs == ours, name
    heights = pq.read_table(released / "marts" / "chain_blocks.parquet").column("height").to_pylist()
    assert sorted(heights) == [1, 2, 3, 4]


def test_what_a_release_says_of_itself_is_valid(released: Path) -> None:
    """The data package, the citation and the checksums are read by the tools of others."""
    package = frictionless.Package.from_descriptor(str(released / "datapackage.json"))
    assert sorted(resource.title for resource in package.resources) == MARTS
    assert all((released / resource.path).stat().st_size == resource.bytes for resource in package.resources)

    citation = yaml.safe_load((released / "CITATION.cff").read_text())
    jsonschema.Draft7Validator(json.loads(SCHEMA.read_text())).validate(citation)
    assert citation["authors"] == [{"name": "A. Node Runner"}]
    assert citation["license"] == "CC-BY-4.0"

    done = subprocess.run(["sha256sum", "--strict", "--quiet", "-c", "SHA256SUMS"], cwd=released, check=False)
    assert done.returncode == 0
    methods = (released / "METHODS.md").read_text()
    assert all(f"\n## {name}\n" in methods for name in MARTS)
    assert "<b>" not in methods


def test_an_anonymous_release_has_no_name_and_no_address(folder: Path, tmp_path: Path) -> None:
    """No file holds a node's name or an address, and the dataset still proves the marts."""
    out = tmp_path / "anonymous"
    assert run("release", folder / "a.duckdb", "--out", out, "--anonymous").returncode == 0

    for path in (out / "marts").glob("*.parquet"):
        text = str(pq.read_table(path).to_pylist())
        assert not any(secret in text for secret in ("attic", "cellar", "10.1.2.3", "192.168.7.7")), path.name
    others = "".join(path.read_text() for path in out.iterdir() if path.is_file())
    assert not any(secret in others for secret in ("attic", "cellar", "10.1.2.3"))
    nodes = pq.read_table(out / "marts" / "coverage_hole.parquet").column("node").to_pylist()
    assert sorted(nodes) == ["node-1", "node-2"]
    result = run("verify", out, "--dataset", folder / "dataset")
    assert result.returncode == 0, result.stderr
    assert f"{len(MARTS)} marts rebuilt, equal bit by bit" in result.stdout


def test_a_changed_missing_or_added_file_is_named(copy: Path) -> None:
    """Each of them is a fault, and the exit status is 1."""
    (copy / "METHODS.md").write_text("other words")
    (copy / "marts" / "pool_share.parquet").unlink()
    (copy / "marts" / "more.parquet").write_bytes(b"")

    result = run("verify", copy)

    assert result.returncode == 1
    assert "METHODS.md has changed" in result.stderr
    assert "marts/pool_share.parquet is missing" in result.stderr
    assert "marts/more.parquet is not in SHA256SUMS" in result.stderr


def test_what_a_release_says_cannot_act_on_a_terminal(copy: Path) -> None:
    """Names of files and facts of the manifest are shown without the control characters in them."""
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["facts"]["commit"] = "\x1b]0;owned\x07"
    (copy / "manifest.json").write_text(json.dumps(manifest))
    of_facts = resealed(copy)
    (copy / "\x1b[2Jadded").write_text("")

    of_names = run("verify", copy)

    assert "commit is \ufffd]0;owned\ufffd in the release" in of_facts.stderr
    assert "\ufffd[2Jadded is not in SHA256SUMS" in of_names.stderr
    assert "\x1b" not in of_facts.stderr + of_names.stderr


def test_a_changed_number_is_found_behind_correct_checksums(copy: Path) -> None:
    """Whoever changes a mart and its checksum is found out by the dataset; another packing is no change."""
    marts = copy / "marts"
    table = pq.read_table(marts / "chain_blocks.parquet")
    place = table.column_names.index("height")
    heights = pa.array([9, *table.column(place).to_pylist()[1:]], table.field(place).type)
    pq.write_table(table.set_column(place, table.field(place), heights), marts / "chain_blocks.parquet")
    pq.write_table(
        pq.read_table(marts / "pool_share.parquet"), marts / "pool_share.parquet", compression="none"
    )
    redescribed(copy)

    result = resealed(copy)

    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        "mart chain_blocks is not what its dataset gives",
        f"pool-analysis: {copy} is not what was released: faults: 1, named above",
    ]


@pytest.mark.parametrize(
    "change", [{"rows": 9_999}, {"bytes": 9}, {"hash": "sha256:00"}, {"path": "marts/no.parquet"}]
)
def test_what_the_data_package_tells_is_compared(copy: Path, change: dict[str, object]) -> None:
    """A resource with another path, hash, size or number of rows than its file is named."""
    package = json.loads((copy / "datapackage.json").read_text())
    first = package["resources"][0]
    path = first["path"]
    first |= change
    (copy / "datapackage.json").write_text(json.dumps(package))

    result = resealed(copy)

    assert result.returncode == 1
    assert f"datapackage.json tells other of {path} than it is" in result.stderr


def test_what_the_manifest_counts_is_compared(copy: Path) -> None:
    """A number of rows that the mart does not have is named; so is a mart that is described nowhere."""
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["rows"]["pool_share"] = 999
    (copy / "manifest.json").write_text(json.dumps(manifest))
    package = json.loads((copy / "datapackage.json").read_text())
    left = package["resources"].pop()
    (copy / "datapackage.json").write_text(json.dumps(package))

    result = resealed(copy)

    assert result.stderr.splitlines()[:2] == [
        f"datapackage.json tells other of {left['path']} than it is",
        "manifest.json has another number of rows of pool_share",
    ]


@pytest.mark.parametrize("path", ["METHODS.md", "./METHODS.md"])
def test_a_path_that_stands_twice_is_refused(copy: Path, path: str) -> None:
    """Of two checksums of one file none is the one."""
    with (copy / "SHA256SUMS").open("a") as sums:
        sums.write(f"{hashlib.sha256((copy / 'METHODS.md').read_bytes()).hexdigest()}  {path}\n")

    result = run("verify", copy)

    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "a path that stands in a line above, too" in result.stderr


@pytest.mark.parametrize("option", ["--title", "--author"])
def test_a_text_that_is_not_utf8_is_refused(folder: Path, tmp_path: Path, option: str) -> None:
    """No document could hold it; this is wrong usage, and nothing is written."""
    result = run("release", folder / "a.duckdb", "--out", tmp_path / "out", option, os.fsdecode(b"caf\xe9"))

    assert result.returncode == 2
    assert "caf\ufffd is not UTF-8; write it in that encoding" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_another_dataset_is_refused(copy: Path, tmp_path: Path) -> None:
    """A dataset with other rows is not that of the release; nothing is built from it."""
    other = write_world(tmp_path / "other", {"blocks": [{"block_hash": "b1", "height": 1, "arrived_at": 1}]})

    result = run("verify", copy, "--dataset", other)

    assert result.returncode == 1
    assert f"{other} has other rows" in result.stderr


def test_a_dataset_of_another_chain_is_refused(copy: Path, tmp_path: Path) -> None:
    """The line names the release's chain, and no option that `verify` lacks."""
    rows = {"blocks": [{"block_hash": "b1", "height": 1, "arrived_at": 1}]}
    other = write_world(tmp_path / "my data", rows, chain="main")

    result = run("verify", copy, "--dataset", other)

    said = f"of chain regtest, of which {other} has nothing; name the dataset that it was made of"
    assert (result.returncode, result.stderr) == (1, f"pool-analysis: this release is {said}\n")


def test_a_rebuild_without_room_names_what_verify_can_change(
    released: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` has no option for memory or for the place of its database; it takes the place from TMPDIR."""
    monkeypatch.setattr(verify, "build", partial(build, memory_gb=1e-4, temp_gb=1e-6))
    result = run("verify", released)
    assert result.returncode == 1
    assert result.stderr.startswith("pool-analysis: the marts cannot be rebuilt: DuckDB cannot build ")
    assert "set TMPDIR to a folder with more room" in result.stderr
    assert " --" not in result.stderr


@pytest.mark.parametrize("path", ["../outside", "/etc/hostname", "marts/../../outside"])
def test_a_path_out_of_the_release_is_refused(copy: Path, path: str) -> None:
    """SHA256SUMS of a stranger names files of the release only."""
    with (copy / "SHA256SUMS").open("a") as sums:
        sums.write(f"{'0' * 64}  {path}\n")

    result = run("verify", copy)

    assert result.returncode == 1
    assert "inside the release" in result.stderr


def test_a_link_in_place_of_a_file_is_a_fault(copy: Path) -> None:
    """A link may lead anywhere, so it is not followed."""
    (copy / "METHODS.md").rename(copy.parent / "METHODS.md")
    (copy / "METHODS.md").symlink_to(copy.parent / "METHODS.md")

    result = run("verify", copy)

    assert result.returncode == 1
    assert "METHODS.md is not a plain file" in result.stderr


@pytest.mark.parametrize("licence", ["FOO", "", "CC-BY-4.0 OR MIT", "LicenseRef-Mine"])
def test_a_licence_that_spdx_does_not_name_is_refused(folder: Path, tmp_path: Path, licence: str) -> None:
    """Wrong usage, before anything is written: CITATION.cff takes names of the list only."""
    result = run("release", folder / "a.duckdb", "--out", tmp_path / "out", "--licence", licence)
    assert result.returncode == 2
    assert f"{licence!r} is no licence" in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_released_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    """Other rules, a folder that exists, and an anonymous dataset are refused, each in one sentence."""
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "alder.toml").write_text('name = "Alder"\n[[rules]]\ntag = "/alder/"\nsource = "s"\n')
    out = tmp_path / "place" / "out"
    out.parent.mkdir()
    refusals = {
        "the build used other pool rules": ("--out", out, "--pools", rules),
        "exists; name a new folder": ("--out", rules),
        "contradict each other": ("--out", out, "--anonymous", "--with-dataset"),
    }
    for words, options in refusals.items():
        result = run("release", folder / "a.duckdb", *options)
        assert (result.returncode, words in result.stderr) == (1, True), result.stderr
    assert list(out.parent.iterdir()) == []
    assert run("verify", tmp_path).stderr.startswith(f"pool-analysis: {tmp_path} is no release")


def test_a_database_of_another_version_is_refused(folder: Path, tmp_path: Path) -> None:
    """A mart that the database lacks is named in one sentence, and so is what to do."""
    older = Path(shutil.copy(folder / "a.duckdb", tmp_path))
    with duckdb.connect(str(older)) as connection:
        connection.execute("DROP TABLE block_runs")
    result = run("release", older, "--out", tmp_path / "out")

    assert result.returncode == 1
    assert "another version built the database: block_runs is missing" in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_dataset_that_has_grown_is_not_released(folder: Path, tmp_path: Path) -> None:
    """Rows that came after the build would not give the marts of the release."""
    (file,) = (folder / "dataset").glob("*/blocks/*/*.parquet")
    added = file.with_name("more.parquet")
    shutil.copyfile(file, added)
    try:
        result = run("release", folder / "a.duckdb", "--out", tmp_path / "out", "--with-dataset")
    finally:
        added.unlink()

    assert result.returncode == 1
    assert "has changed since the build" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_the_dataset_that_cannot_be_read_is_named(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is about that file, not about the folder of the release."""
    copyfile = shutil.copyfile

    def refused(source: Path, target: Path) -> None:
        if source.suffix == ".parquet":
            raise PermissionError(errno.EACCES, "Permission denied", str(source))
        copyfile(source, target)

    monkeypatch.setattr(write.shutil, "copyfile", refused)
    with pytest.raises(DatasetError, match=r"\.parquet cannot be read \(Permission denied\)"):
        write.write_release(
            folder / "a.duckdb", default_rules_dir(), tmp_path / "out", write.Choices(with_dataset=True)
        )
    assert list(tmp_path.iterdir()) == []


def test_rows_are_packed_in_groups_of_one_size(tmp_path: Path) -> None:
    """Two ways of cutting the same rows into batches give the same bytes."""
    numbers = pa.table({"number": range(2 * ROW_GROUP_ROWS + 7)})
    files = []
    for size in (1_000, 33_333):
        reader = pa.RecordBatchReader.from_batches(numbers.schema, numbers.to_batches(max_chunksize=size))
        files.append(tmp_path / f"{size}.parquet")
        assert pack_rows(files[-1], numbers.schema, regrouped(reader)) == numbers.num_rows
    assert files[0].read_bytes() == files[1].read_bytes()
