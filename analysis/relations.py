"""List the names of the relations that a query can read: the marts and the staging views.

Each is the name of an SQL file of this package, so no file has to be read for them.
"""

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import resources

from analysis.errors import UnknownRelationError

FOLDERS = ("staging", "marts")
ENDING = ".sql"


@cache
def relation_names() -> tuple[str, ...]:
    """Return the names of all staging views and marts, sorted."""
    root = resources.files("analysis") / "sql"
    files = (file.name for folder in FOLDERS for file in (root / folder).iterdir())
    return tuple(sorted(name.removesuffix(ENDING) for name in files if name.endswith(ENDING)))


def check_relation(name: str) -> None:
    """Raise UnknownRelationError, with the nearest names, where no mart and no staging view has this name."""
    if name not in relation_names():
        raise unknown_relation(name, relation_names())


def unknown_relation(name: str, names: Iterable[str]) -> UnknownRelationError:
    """Return the error for a name that no relation has; its text gives the nearest of `names`."""
    near = difflib.get_close_matches(name, list(names), n=3)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UnknownRelationError(f"there is no relation {name!r}; {hint}pool-analysis list names them all")
