"""Check and make the marker: the file that says that a folder is a dataset of ours, and of which version."""

import json
import os
from pathlib import Path
from typing import Final

from collector.dataset.files import make_folder, temporary_path, write_atomically
from collector.errors import DatasetError

DATASET_FORMAT: Final = "pool-measurement"
DATASET_VERSION: Final = 1
DATASET_MARKER: Final = "dataset.json"


def has_marker(root: Path) -> bool:
    """Return whether a marker is in the folder `root`; also true where this user may not look."""
    try:
        (root / DATASET_MARKER).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def check_marker(root: Path) -> None:
    """Raise DatasetError unless `root` is a dataset of ours, in a version that this software reads."""
    marker = root / DATASET_MARKER
    if not root.exists():
        raise DatasetError(
            f"there is no dataset {root}; name another, or make one: pool-collector run watches a node,"
            " fetch --history needs none, demo makes one of two regtest nodes"
        )
    if not root.is_dir():
        raise DatasetError(f"{root} is no folder; name the dataset that pool-collector writes")
    try:
        content = marker.read_bytes()
    except FileNotFoundError:
        raise DatasetError(
            f"{root} is not a dataset: it has no {DATASET_MARKER}; choose another folder"
        ) from None
    except OSError as error:
        raise DatasetError(
            f"cannot read {marker}: {error.strerror or error}; check its rights, or choose another folder"
        ) from None
    check_marker_content(content, str(root), "folder")


def check_marker_content(content: bytes, root: str, kind: str) -> None:
    """Raise DatasetError unless `content` is that of the marker of a dataset that this software reads.

    `root` and `kind` say in the message where the dataset is, and what its place is called.
    """
    marker = f"{root}/{DATASET_MARKER}"
    try:
        found = json.loads(content.decode())
    except (ValueError, RecursionError):
        raise DatasetError(
            f"{marker} cannot be read as the marker of a dataset; restore it, or choose another {kind}"
        ) from None
    if not isinstance(found, dict) or found.get("format") != DATASET_FORMAT:
        raise DatasetError(f"{marker} marks the data of another program; choose another {kind}")
    if found.get("version") != DATASET_VERSION:
        raise DatasetError(
            f"{root} has version {found.get('version')!r}, this software reads {DATASET_VERSION}; "
            "use the release that wrote it"
        )


def check_place(root: Path) -> None:
    """Raise DatasetError where `make_marker` could not make a dataset; `root` is missing, empty or a file."""
    place = next(path for path in (root, *root.absolute().parents) if os.path.lexists(path))
    if not place.is_dir():
        raise DatasetError(f"{place} is no folder; choose another for the dataset")
    if not os.access(place, os.W_OK | os.X_OK):
        raise DatasetError(
            f"cannot make the dataset {root}: {place} cannot be written; choose a folder that can be written"
        )


def make_marker(root: Path) -> None:
    """Make a dataset in the missing or empty folder `root`; leave an existing dataset as it is.

    Raises DatasetError if the folder holds other files or cannot be written.
    """
    marker = root / DATASET_MARKER
    text = json.dumps({"format": DATASET_FORMAT, "version": DATASET_VERSION}) + "\n"
    try:
        if marker.exists():
            return
        left_by_a_kill = temporary_path(marker)
        if root.is_dir() and any(path != left_by_a_kill for path in root.iterdir()):
            raise DatasetError(f"{root} is neither empty nor a dataset; choose another folder")
        make_folder(root)
        write_atomically(marker, lambda sink: sink.write(text.encode()))
    except FileExistsError as error:
        raise DatasetError(f"{error.filename} is no folder; choose another for the dataset") from None
    except OSError as error:
        raise DatasetError(
            f"cannot make the dataset {root}: {error.strerror or error}; choose a folder that can be written"
        ) from None
