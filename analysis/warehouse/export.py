"""Write the models as a folder of SQL files for another engine, with what is needed to run them there."""

import re
from collections.abc import Collection
from importlib import resources
from pathlib import Path
from typing import Final

from analysis.catalog import load_catalog
from analysis.errors import WarehouseError
from analysis.warehouse.translate import translated
from collector.dataset.files import why_unwritable

# Files that are written beside the SQL files as they stand in the folder `spark_files`.
BESIDE: Final = ("README.md", "functions.py", "run.py")
FILES: Final = "spark_files"
# What a file makes, as its first line says.
STAGING, STEP, MART = "staging", "step", "mart"
OUR_NAME: Final = re.compile(r"\d+_\w+\.sql")
OUR_LINE: Final = re.compile(rf"-- (?:{STAGING}|{STEP}|{MART}): ")


def write_folder(folder: Path, marts: Collection[str] | None = None) -> int:
    """Write the models in Spark's SQL into a folder; return the number of SQL files.

    A file holds one SELECT and is called `<number>_<relation>.sql`; the relations can be made in the order of
    the numbers. With `marts`, only these and the models that they read are written. Files of an earlier call
    are replaced or removed. Raises WarehouseError for a folder that cannot be written or has other files.
    """
    _refuse_other_files(folder)
    catalog = load_catalog() if marts is None else load_catalog().restricted_to(marts)
    texts: dict[str, str] = {}
    for model in (*catalog.layer("staging"), *catalog.layer("marts")):
        for statement in translated(model, catalog):
            kind = STAGING if model.layer == "staging" else MART if statement.name == model.name else STEP
            about = model.summary if statement.name == model.name else f"A part of {model.name}."
            name = f"{len(texts) + 1:03}_{statement.name}.sql"
            texts[name] = f"-- {kind}: {about}\n{statement.sql}\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob("*.sql"):
            old.unlink()
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
        for name in BESIDE:
            (folder / name).write_text(_text_beside(name), encoding="utf-8")
    except OSError as error:
        raise _unwritable(folder, error) from None
    return len(texts)


def _refuse_other_files(folder: Path) -> None:
    """Raise WarehouseError for a folder that has files of others, before the models are translated."""
    try:
        strange = next((path.name for path in sorted(folder.iterdir()) if not _is_ours(path)), None)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unwritable(folder, error) from None
    if strange is not None:
        raise WarehouseError(f"{folder} has other files ({strange}); name a new or an empty folder")


def _unwritable(folder: Path, error: OSError) -> WarehouseError:
    return WarehouseError(f"{folder} cannot be written ({why_unwritable(error)}); choose another folder")


def _text_beside(name: str) -> str:
    """Return the text of a file that is written beside the SQL files."""
    return (resources.files("analysis.warehouse") / FILES / name).read_text(encoding="utf-8")


def _is_ours(path: Path) -> bool:
    """Return whether `write_folder` wrote a file, by its name and its first line; any version may have."""
    begins = OUR_LINE if OUR_NAME.fullmatch(path.name) else None
    if path.name in BESIDE:
        begins = re.compile(re.escape(_text_beside(path.name).splitlines()[0]))
    if begins is None or not path.is_file():
        return False
    with path.open(encoding="utf-8", errors="replace") as lines:
        return begins.match(lines.readline()) is not None
