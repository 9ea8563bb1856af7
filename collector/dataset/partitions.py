"""The names of the folders that hold a table's rows by height: `heights=<first>-<last>`.

The word is not `height`, because readers that know Hive partitioning make a column of it, and `height` is a
column of the rows. Earlier versions wrote `height=<first>-<last>`; such folders are read like the others,
and `pool-collector compact` moves their files.
"""

import re
from pathlib import Path
from typing import Final

from collector.dataset.schema import HEIGHT_SPAN

KEY: Final = "heights"
OLD_KEY: Final = "height"
SPAN_FOLDER: Final = re.compile(rf"(?:{KEY}|{OLD_KEY})=(\d+)-(\d+)")


def span_folder(height: int) -> str:
    """Return the name of the folder for the rows of a height, such as `heights=840000-840999`."""
    first = height // HEIGHT_SPAN * HEIGHT_SPAN
    return f"{KEY}={first}-{first + HEIGHT_SPAN - 1}"


def span_folders(height: int) -> tuple[str, str]:
    """Return both names that the folder of a height may have: the present one and that of older versions."""
    name = span_folder(height)
    return name, f"{OLD_KEY}{name.removeprefix(KEY)}"


def has_old_name(folder: Path) -> bool:
    """Return whether a folder of a span of heights has its name of older versions, `height=…`."""
    return SPAN_FOLDER.fullmatch(folder.name) is not None and folder.name.startswith(f"{OLD_KEY}=")


def new_name(folder: Path) -> Path:
    """Return the present path for a folder of heights that has a name of older versions."""
    return folder.with_name(f"{KEY}={folder.name.removeprefix(f'{OLD_KEY}=')}")


def path_of_file(table_folder: Path, partition: str, name: str) -> Path:
    """Return the path of the file `name` of a partition, in its folder.

    If the file is in the folder that older versions named, that path is returned.
    """
    if partition.startswith(f"{KEY}="):
        old = table_folder / f"{OLD_KEY}{partition.removeprefix(KEY)}" / name
        if old.exists():
            return old
    return table_folder / partition / name
