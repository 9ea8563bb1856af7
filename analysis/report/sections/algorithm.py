"""Describes by which algorithm a pool builds its blocks, and makes the table with the probabilities.

The section on what each pool runs shows both.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from analysis.report.data import Marts, Row
from analysis.report.model import Table
from analysis.report.tables import MartColumn, column, mart_table, pool_head
from analysis.report.text import count, percent

NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "ancestor_sets": "ancestor sets",
        "chunks": "chunks of clusters",
        "data_cost": "ancestor sets without the discount for inscribed data",
        "plain": "the feerate of each transaction alone",
        "first_come": "time of arrival",
        "own": "none of these",
    }
)


def told_apart(segments: Sequence[Row]) -> bool:
    """Return whether rows of pool_algorithm show two ways of ordering blocks, of two pools or of one pool."""
    orders = {(row["algorithm"], *row["left_open"]) for row in segments if says_something(row)}
    return len(orders) > 1


def says_something(segment: Row) -> bool:
    """Return whether a segment (a run of a pool's blocks) excludes any way of ordering transactions."""
    return len(segment["left_open"]) < len(NAMES)


def algorithm_words(segments: Sequence[Row]) -> list[str]:
    """Return words on how one pool orders its blocks, and since when; an empty list if every order is open.

    `segments` are its rows of pool_algorithm, in order of height.
    """
    if not segments or not says_something(segments[-1]):
        return []
    now = segments[-1]
    since = f" from height {count(now['first_height'])} on" if len(segments) > 1 else ""
    if now["algorithm"] == "mixed":
        return [f"orders its blocks in more than one way{since}"]
    if now["left_open"] == ["own"]:
        return [f"orders its blocks by none of the ways that we know{since}"]
    return [f"orders its blocks by {left_open_words(now)}{since}"]


def left_open_words(segment: Row) -> str:
    """Return the names of the orders that a segment leaves open: `ancestor sets or chunks of clusters`."""
    if not says_something(segment):
        return "any order"
    return " or ".join(NAMES[name] for name in segment["left_open"])


def algorithm_table(marts: Marts, segments: Sequence[Row]) -> Table:
    """Return the table of all pools' segments of blocks, with the probability of each order."""
    return mart_table(
        "algorithm-table",
        "By which algorithm each pool orders its blocks",
        pool_head(marts),
        [
            column("first_height", "First height", count),
            column("last_height", "Last height", count),
            column("n_blocks", "Blocks", count),
            column("n_against", "Against", count),
            *(
                column(f"{name}_probability", words.capitalize(), percent, group="Probability")
                for name, words in NAMES.items()
            ),
            MartColumn("Left open", left_open_words, kind="text"),
        ],
        segments,
        mart="pool_algorithm",
        note=(
            "From the order of transactions alone. Algorithms that give the same order in every "
            "block cannot be told apart, and other software may order in the same way."
        ),
        is_folded=True,
    )
