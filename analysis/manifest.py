"""Record what the results of a build depend on, and apart from that where and when the build was made.

Two builds with the same facts have the same rows, digits and order in every mart. So the facts hold a hash of
the dataset's rows and one of our own sources, beside the hash of the pool rules and the versions of what
computes: Python, DuckDB, NumPy, SciPy and PyArrow.
"""

import datetime as dt
import hashlib
import json
import platform
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Final

import pyarrow as pa

import analysis
import collector.dataset
from analysis.raw_contents import Content
from collector.dataset.open import Dataset

DISTRIBUTION: Final = "pool-measurement"
LIBRARIES: Final = ("duckdb", "pyarrow", "scipy", "numpy")
SOURCES: Final = ("*.py", "*.sql")
NO_COMMIT: Final = "unknown: the sources are not in a git work tree"
GIT_TIMEOUT_S: Final = 10.0


def build_facts(dataset: Dataset, contents: Mapping[str, Content], rules_hash: str) -> pa.Table:
    """Return an Arrow table of keys and values with everything that the results of a build depend on.

    They are versions, hashes of sources, dataset and rules, and the chain. `contents` has the number of rows
    and the sum of the hashes of the rows of each raw table.
    """
    return _pairs(
        {
            "analysis_version": _version(DISTRIBUTION),
            "commit": commit(),
            "sources_hash": sources_hash(),
            "python_version": platform.python_version(),
            **{f"{name}_version": _version(name) for name in LIBRARIES},
            "rules_hash": rules_hash,
            "dataset_hash": dataset_hash(contents),
            "chain": dataset.chain,
        }
    )


def build_log(dataset: Dataset, folder: Path) -> pa.Table:
    """Return an Arrow table of keys and values that differ between equal builds: two folders and the time."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    return _pairs({"dataset": str(dataset.root), "built_at": now, "parts": str(folder)})


def dataset_hash(contents: Mapping[str, Content]) -> str:
    """Return a hash of the rows of all raw tables, in hex; names, order and number of files do not matter.

    It is the SHA-256 of a line per table: name, number of rows, sum of DuckDB's 64-bit hashes of the rows.
    It finds changes that happen by accident. Whoever can write the dataset could make another with this hash.
    """
    digest = hashlib.sha256()
    for name, content in contents.items():
        digest.update(f"{name} {content.n_rows} {content.total}\n".encode())
    return digest.hexdigest()


@cache
def sources_hash() -> str:
    """Return the SHA-256 of the sources that a build runs, in hex, also where there is no git.

    It covers the paths and contents of the Python and SQL files of `analysis` and `collector.dataset`.
    """
    digest = hashlib.sha256()
    for package in (analysis, collector.dataset):
        root = _folder(package.__path__[0])
        files = sorted(path for pattern in SOURCES for path in root.rglob(pattern))
        for path in files:
            content = path.read_bytes()
            digest.update(f"{package.__name__}/{path.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


@cache
def commit() -> str:
    """Return the git commit of our sources, with `-dirty` where a file differs.

    The text NO_COMMIT is returned where no commit is known. pip writes down the commit of a package that it
    installed from a repository; git names that of a checkout.
    """
    written = metadata.distribution(DISTRIBUTION).read_text("direct_url.json")
    installed = json.loads(written).get("vcs_info", {}).get("commit_id") if written else None
    root, git = _folder(analysis.__path__[0]).parent, shutil.which("git")
    if installed or git is None or not (root / ".git").exists():
        return installed or NO_COMMIT
    command = [git, "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(  # noqa: S603 - git on PATH and our own folder
            command, capture_output=True, text=True, check=True, timeout=GIT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return NO_COMMIT
    return result.stdout.strip()


@cache
def _version(distribution: str) -> str:
    return metadata.version(distribution)


def _folder(path: str) -> Path:
    return Path(path).resolve()


def _pairs(facts: dict[str, str]) -> pa.Table:
    return pa.table({"key": list(facts), "value": list(facts.values())})
