"""Write a release: the marts of a build as Parquet, with all that a reader needs to cite and check them.

    marts/<name>.parquet   every mart
    pools/*.toml           the pool rules that named the pools
    dataset/               the dataset itself, on request
    datapackage.json METHODS.md CITATION.cff manifest.json
    SHA256SUMS             of all other files, as sha256sum writes them

The folder appears whole, by rename, or not at all.
"""

import datetime as dt
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import duckdb

from analysis.attribution.rules import load_rules
from analysis.checks import read_results
from analysis.database import built_from, connect, open_database
from analysis.errors import ReleaseError
from analysis.manifest import dataset_hash
from analysis.raw_contents import contents_of_relations
from analysis.raw_views import create_views, listed_files, unreadable_named
from analysis.release.documents import About, ReleasedFile, citation, data_package, methods
from analysis.release.mart_files import read_facts, released_marts, write_marts
from collector.dataset.files import sync_file, sync_folder, why_unwritable
from collector.dataset.open import Dataset, is_utf8
from collector.dataset.schema import DATASET_MARKER, TABLES
from collector.dataset.temporary_folders import temporary_folder

FORM: Final = 1  # of manifest.json
SUMS: Final = "SHA256SUMS"
MANIFEST: Final = "manifest.json"
PACKAGE: Final = "datapackage.json"
MARTS, POOLS, DATASET = "marts", "pools", "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Says what a release contains: the dataset or not, anonymous or not, and title, authors, licence."""

    with_dataset: bool = False
    anonymous: bool = False
    about: About = field(default_factory=About)


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """Describes a finished release: its folder, and the number and total size in bytes of its files."""

    folder: Path
    n_files: int
    n_bytes: int


def write_release(database: Path, rules: Path, out: Path, choices: Choices) -> Release:
    """Write the release of a built database into the new folder `out`, and return its Release.

    `rules` is the folder of pool rules that the build used. Raises ReleaseError where `out` exists or cannot
    be written, where a check of the build failed, where the rules or the dataset are not those of the build,
    and for an anonymous release with the dataset, which holds names and addresses in its raw rows. Raises
    DatasetError where a file of the dataset cannot be read.
    """
    if choices.anonymous and choices.with_dataset:
        raise ReleaseError(
            "--anonymous and --with-dataset contradict each other: a dataset holds names and addresses;"
            " leave one of the two out"
        )
    if os.path.lexists(out):
        raise ReleaseError(f"{out} exists; name a new folder, a release is never changed")
    with open_database(database) as connection, _appearing(out) as folder:
        _refuse_another_version(connection)
        _refuse_failed_checks(connection)
        facts = read_facts(connection, anonymous=choices.anonymous)
        _copy_rules(rules, folder / POOLS, facts["rules_hash"])
        if choices.with_dataset:
            _copy_dataset(connection, folder / DATASET, facts["dataset_hash"])
        _write_contents(connection, folder, facts, choices)
        sums = {path: _sha256(folder / path) for path in _files(folder)}
        lines = "".join(f"{digest}  {path}\n" for path, digest in sums.items())
        (folder / SUMS).write_text(lines, encoding="utf-8")
        n_bytes = sum((folder / path).stat().st_size for path in sums)
    return Release(folder=out, n_files=len(sums) + 1, n_bytes=n_bytes + len(lines.encode()))


def _write_contents(
    connection: duckdb.DuckDBPyConnection, folder: Path, facts: dict[str, str], choices: Choices
) -> None:
    """Write the marts, data package, methods, citation and manifest of a release into a folder."""
    (folder / MARTS).mkdir()
    written = write_marts(connection, folder / MARTS, anonymous=choices.anonymous)
    models = released_marts()
    files = [
        ReleasedFile(
            path=f"{MARTS}/{written[model.name][0].name}",
            n_bytes=written[model.name][0].stat().st_size,
            sha256=_sha256(written[model.name][0]),
            n_rows=written[model.name][1],
            model=model,
        )
        for model in models
    ]
    today = dt.datetime.now(dt.UTC).date()
    manifest = {
        "form": FORM,
        "anonymous": choices.anonymous,
        "rows": {file.model.name: file.n_rows for file in files},
        "facts": facts,
    }
    texts = {
        PACKAGE: data_package(files, facts, choices.about),
        "METHODS.md": methods(models, facts),
        "CITATION.cff": citation(facts, choices.about, today),
        MANIFEST: json.dumps(manifest, indent=2, ensure_ascii=False) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")


def _refuse_another_version(connection: duckdb.DuckDBPyConnection) -> None:
    """Raise ReleaseError for a database that lacks marts or columns that this version makes."""
    rows = connection.execute("SELECT table_name, column_name FROM information_schema.columns").fetchall()
    found = set(rows)
    missing = {
        model.name
        for model in released_marts()
        if not {(model.name, column) for column in model.column_names} <= found
    }
    if missing:
        raise ReleaseError(
            f"another version built the database: {', '.join(sorted(missing))} is missing or has other "
            "columns; run pool-analysis build again"
        )


def _refuse_failed_checks(connection: duckdb.DuckDBPyConnection) -> None:
    failed = [result.name for result in read_results(connection) if result.is_failure]
    if failed:
        raise ReleaseError(f"checks of the build failed: {', '.join(failed)}; do not publish these results")


def _copy_rules(rules: Path, target: Path, expected: str) -> None:
    """Copy the pool rules to `target`; raise ReleaseError if their hash is not the one of the build."""
    found = load_rules(rules).hash
    if found != expected:
        raise ReleaseError(
            f"the build used other pool rules than {rules} (hash {expected[:12]}, not {found[:12]});"
            " name their folder with --pools, or build anew"
        )
    target.mkdir()
    for path in sorted(rules.glob("*.toml")):
        shutil.copyfile(path, target / path.name)


def _copy_dataset(connection: duckdb.DuckDBPyConnection, target: Path, expected: str) -> None:
    """Copy the dataset's files to `target`; raise ReleaseError if it has other rows than the build read.

    Raises DatasetError with the name of a file that cannot be read.
    """
    dataset = built_from(connection)
    if dataset is None:
        raise ReleaseError("the dataset is not where it was at the build; build anew, then release")
    target.mkdir()
    with unreadable_named(dataset), dataset.read_lock():
        shutil.copyfile(dataset.root / DATASET_MARKER, target / DATASET_MARKER)
        for path in [path for table in TABLES.values() for path in dataset.paths(table)]:
            copy = target / path.relative_to(dataset.root)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    with connect() as copied:
        copy_of = Dataset(target, dataset.chain)
        create_views(copied, copy_of, listed_files(copy_of))
        if dataset_hash(contents_of_relations(copied)) != expected:
            raise ReleaseError(f"{dataset.root} has changed since the build; build anew, then release")


@contextmanager
def _appearing(out: Path) -> Iterator[Path]:
    """Yield a temporary folder to write a release in; at the end force it to disk and rename it to `out`.

    Raises ReleaseError if it cannot be written.
    """
    if not is_utf8(out.absolute()):
        raise ReleaseError(f"{out} is not UTF-8, which the libraries for Parquet need; choose another --out")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(".releasing-", out.parent) as temporary:
            folder = temporary / "release"
            folder.mkdir()
            yield folder
            for path in [*folder.rglob("*"), folder]:
                sync_file(path)
            folder.rename(out)
            sync_folder(out.parent)
    except OSError as error:
        raise ReleaseError(
            f"{out} cannot be written ({why_unwritable(error)}); choose another --out"
        ) from None


def _files(folder: Path) -> list[str]:
    """Return the paths of all files below a folder, relative to the folder, sorted."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
