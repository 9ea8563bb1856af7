"""List the names of the relations that a query can read: the marts, the staging views and the raw tables.

A mart or a view has the name of an SQL file of this package, so no file has to be read for them.
"""

import difflib
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Final

from analysis.errors import UnknownRelationError

FOLDERS = ("staging", "marts")
CHECKS: Final = "checks"
ENDING = ".sql"
# The names of collector.dataset.schema.TABLES, which loads pyarrow.
RAW_TABLES: Final = (
    *("block_arrivals", "blocks", "chain_tips", "coverage"),
    *("external_accelerated", "external_arrivals", "external_block_sizes", "external_blocks"),
    *("external_headers", "external_pool_hashrate", "external_pool_labels", "external_prices"),
    *("external_sources", "external_stale_blocks", "member_clocks", "mempool_bodies"),
    *("mempool_events", "mempool_stats", "mempool_txs", "nodes"),
    *("rejects", "template_txs", "templates", "transactions"),
)


@cache
def relation_names() -> tuple[str, ...]:
    """Return the names of all staging views and marts, sorted."""
    return _names_in(FOLDERS)


@cache
def check_names() -> tuple[str, ...]:
    """Return the names of all checks of a build, sorted; a check has no rows that a query can read."""
    return _names_in((CHECKS,))


def check_relation(name: str) -> None:
    """Raise UnknownRelationError, with the nearest names, where no relation has this name."""
    names = (*relation_names(), *RAW_TABLES)
    if name not in names:
        raise unknown_relation(name, names)


def unknown_relation(name: str, names: Iterable[str]) -> UnknownRelationError:
    """Return the error for a name that no relation has; its text gives the nearest of `names`.

    A name that differs only in case is near. For the name of a check, if none of `names`, the text says where
    its result is.
    """
    written = {each.lower(): each for each in names}
    wanted = name.lower()
    if wanted in check_names() and wanted not in written:
        return UnknownRelationError(
            f"{wanted} is a check, so it has no rows to show; pool-analysis check shows its result"
        )
    near = [written[each] for each in difflib.get_close_matches(wanted, list(written), n=3)]
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return UnknownRelationError(f"there is no relation {name!r}; {hint}pool-analysis list names them all")


def _names_in(folders: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the SQL files in some folders of this package, sorted and without their ending."""
    root = resources.files("analysis") / "sql"
    files = (file.name for folder in folders for file in (root / folder).iterdir())
    return tuple(sorted(name.removesuffix(ENDING) for name in files if name.endswith(ENDING)))
