"""Verify a release: its checksums, and that its marts come from its dataset, bit by bit.

What a mart rests on is compared before its bytes: the same rows and rules must be at hand. A build by other
versions of the software may differ in its last digits; the answer then names the versions.
"""

import hashlib
import json
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from analysis.database import connect, open_database
from analysis.engine import Progress, build
from analysis.errors import NoRoomError, NoSuchChainError, ReleaseError
from analysis.manifest import dataset_hash
from analysis.raw_contents import contents_of_relations
from analysis.raw_views import create_views, listed_files, open_dataset
from analysis.release.mart_files import MANIFEST_MART, pack_rows, read_facts, write_marts
from analysis.release.write import DATASET, FORM, MANIFEST, MARTS, PACKAGE, POOLS, SUMS
from collector.dataset.temporary_folders import temporary_folder

LINE: Final = re.compile(r"(?P<digest>[0-9a-f]{64}) [ *](?P<path>.+)")
# Facts that tell by what a build was made, not what was measured.
SOFTWARE_FACTS: Final = re.compile(r"commit|sources_hash|\w+_version")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Holds the findings of the verification of a release, which is good if `faults` is empty.

    `n_rebuilt` is the number of marts that were rebuilt, None if there was no dataset. `other_software` has a
    sentence per version that differs from the release's.
    """

    n_files: int
    n_rebuilt: int | None  # marts that were made again; None where no dataset was at hand
    faults: tuple[str, ...]  # a sentence each
    other_software: tuple[str, ...]  # facts of the software that differ here


def verify_release(
    folder: Path, dataset: Path | None = None, *, progress: Progress = lambda _name: None
) -> Verdict:
    """Compare every file of a release with its checksum, rebuild the marts from a dataset, return a Verdict.

    Without `dataset`, the release's own is used; if it has none, nothing is rebuilt. Raises ReleaseError for
    a folder that is no release of ours, and what `build` raises. A release with wrong checksums, or with
    documents that tell other of its files than these show, is not rebuilt.
    """
    sums = _read_sums(folder)
    faults = _wrong_files(folder, sums)
    if not faults:
        manifest = _read_manifest(folder)
        faults = _wrong_documents(folder, sums, manifest)
    source = dataset or (folder / DATASET if (folder / DATASET).is_dir() else None)
    if faults or source is None:
        return Verdict(n_files=len(sums), n_rebuilt=None, faults=tuple(faults), other_software=())
    _refuse_other_rows(source, manifest["facts"])
    with temporary_folder("pool-release-") as scratch:
        database = scratch / "rebuilt.duckdb"
        try:
            build(source, folder / POOLS, database, manifest["facts"]["chain"], progress=progress)
        except NoRoomError as error:
            raise ReleaseError(
                f"the marts cannot be rebuilt: {error.fault}; set TMPDIR to a folder with more room, or use"
                " a machine with more memory"
            ) from None
        with open_database(database) as connection:
            facts = read_facts(connection, anonymous=manifest["anonymous"])
            rebuilt = write_marts(connection, scratch, anonymous=manifest["anonymous"])
        faults = _differing_marts(folder / MARTS, {name: path for name, (path, _) in rebuilt.items()})
    changed = _differing_facts(manifest["facts"], facts)
    software = [text for key, text in changed.items() if SOFTWARE_FACTS.fullmatch(key)]
    faults += [text for key, text in changed.items() if not SOFTWARE_FACTS.fullmatch(key)]
    return Verdict(
        n_files=len(sums), n_rebuilt=len(rebuilt), faults=tuple(faults), other_software=tuple(software)
    )


def _refuse_other_rows(dataset: Path, facts: Mapping[str, str]) -> None:
    """Raise ReleaseError if a dataset does not have the rows that the release's marts were made of."""
    try:
        opened = open_dataset(dataset, facts["chain"])
    except NoSuchChainError:
        raise ReleaseError(
            f"this release is of chain {facts['chain']}, of which {dataset} has nothing;"
            " name the dataset that it was made of"
        ) from None
    with opened.read_lock(), connect() as connection:
        create_views(connection, opened, listed_files(opened))
        if dataset_hash(contents_of_relations(connection)) != facts.get("dataset_hash"):
            raise ReleaseError(f"{dataset} has other rows than this release was made of; name that dataset")


def _read_sums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 in hex of each path in the file SHA256SUMS of a release.

    Raises ReleaseError for a file that is missing or malformed, and for a path that leads out of the release.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ReleaseError(f"{folder} is no release: it has no readable {SUMS}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        match = LINE.fullmatch(line)
        path = PurePosixPath(match["path"]) if match else None
        if match is None or path is None or path.is_absolute() or ".." in path.parts:
            raise ReleaseError(f"{folder / SUMS}, line {number}: not a digest and a path inside the release")
        if str(path) in found:
            raise ReleaseError(f"{folder / SUMS}, line {number}: a path that stands in a line above, too")
        found[str(path)] = match["digest"]
    return found


def _wrong_files(folder: Path, sums: Mapping[str, str]) -> list[str]:
    """Return a sentence for each file that is missing, changed, a link, or not listed in SHA256SUMS."""
    present = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*")}
    there = {name: path for name, path in present.items() if path.is_symlink() or not path.is_dir()}
    faults = [f"{name} is missing" for name in sums if name not in there]
    faults += [f"{name} is not in {SUMS}" for name in there if name not in sums and name != SUMS]
    for name, digest in sums.items():
        path = there.get(name)
        if path is None:
            continue
        if not stat.S_ISREG(path.lstat().st_mode):
            faults.append(f"{name} is not a plain file")
            continue
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                faults.append(f"{name} has changed: its SHA-256 is not that of {SUMS}")
    return faults


def _read_manifest(folder: Path) -> dict[str, Any]:
    """Return the content of a release's manifest.json; ReleaseError for another form or no manifest."""
    try:
        manifest: dict[str, Any] = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        is_ours = manifest["form"] == FORM and isinstance(manifest["facts"]["chain"], str)
        anonymous = manifest["anonymous"]
    except (OSError, ValueError, KeyError, TypeError):
        raise ReleaseError(f"{folder / MANIFEST} is no manifest of a release") from None
    if not is_ours or not isinstance(anonymous, bool):
        raise ReleaseError(f"{folder / MANIFEST} has another form than {FORM}; use the version that wrote it")
    return manifest


def _wrong_documents(folder: Path, sums: Mapping[str, str], manifest: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each mart of which the data package or the manifest tells other than its file."""
    files: dict[str, list[tuple[Any, ...]]] = {}
    n_rows: dict[str, int] = {}
    for path in sorted((folder / MARTS).glob("*.parquet")):
        name = path.relative_to(folder).as_posix()
        try:
            n_rows[path.stem] = pq.read_metadata(path).num_rows
        except (pa.ArrowException, OSError):  # OSError: of a footer that cannot be read
            return [f"{name} is no Parquet file"]
        files[name] = [(f"sha256:{sums[name]}", path.stat().st_size, n_rows[path.stem])]
    told: dict[str, list[tuple[Any, ...]]] = {}
    try:
        for each in json.loads((folder / PACKAGE).read_text(encoding="utf-8"))["resources"]:
            told.setdefault(str(each["path"]), []).append((each["hash"], each["bytes"], each["rows"]))
        rows = dict(manifest["rows"])
    except (OSError, ValueError, KeyError, TypeError):
        return [f"{PACKAGE} or {MANIFEST} is not as a release has it"]
    names = sorted({*files, *told})
    faults = [
        f"{PACKAGE} tells other of {name} than it is" for name in names if files.get(name) != told.get(name)
    ]
    marts = sorted({*n_rows, *rows})
    faults += [
        f"{MANIFEST} has another number of rows of {name}"
        for name in marts
        if n_rows.get(name) != rows.get(name)
    ]
    return faults


def _differing_facts(released: Mapping[str, str], rebuilt: Mapping[str, str]) -> dict[str, str]:
    """Return a sentence for each fact on the build that differs between a release and the rebuilt database.

    The sentences are by the key of the fact.
    """
    return {
        key: f"{key} is {released.get(key, 'absent')} in the release and {rebuilt.get(key, 'absent')} here"
        for key in sorted({*released, *rebuilt})
        if released.get(key) != rebuilt.get(key)
    }


def _differing_marts(released: Path, rebuilt: Mapping[str, Path]) -> list[str]:
    """Return a sentence for each mart that differs between a release and its rebuilt form.

    A mart differs in its rows, or is on one side only. `run_manifest` is compared elsewhere.
    """
    names = {path.stem for path in released.glob("*.parquet")}
    faults = [f"mart {name} is in the release only" for name in sorted(names - rebuilt.keys())]
    faults += [f"mart {name} is not in the release" for name in sorted(rebuilt.keys() - names)]
    for name in sorted(names & rebuilt.keys() - {MANIFEST_MART}):
        theirs, ours = released / f"{name}.parquet", rebuilt[name]
        if theirs.read_bytes() != ours.read_bytes() and not _same_rows(theirs, ours):
            faults.append(f"mart {name} is not what its dataset gives")
    return faults


def _same_rows(released: Path, rebuilt: Path) -> bool:
    """Return whether two Parquet files have equal columns and rows, bit by bit.

    Both are written anew first, so that files from different versions of Arrow can be equal.
    """
    packed: list[Path] = []
    for path in (released, rebuilt):
        table = pq.read_table(path)
        packed.append(rebuilt.with_name(f"{len(packed)}.packed"))
        pack_rows(packed[-1], table.schema, [table])
    return packed[0].read_bytes() == packed[1].read_bytes()
