"""Find figures of a benchmark's document that contradict each other.

A digest shows that nothing was changed by accident. Whoever changes a figure on purpose can compute the
digest anew, but has to change every other figure that follows from it as well. The rates, shares and spreads
in a document follow from its counts and times, so they are computed again here.
"""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

TOLERANCE: Final = 1e-6  # relative; a figure is written with all its digits
Row = dict[str, Any]


def first_contradiction(document: Row) -> str:
    """Return a sentence on the first contradiction in a document that has the form of the schema, or "".

    The sentence begins with a verb, for a message that begins with the name of the file.
    """
    for number, row in enumerate(document["results"], 1):
        for name, is_right, expected in RULES:
            if not is_right(row):
                return (
                    f"contradicts itself: result {number} ({row['algorithm']}, {row['backend']}, "
                    f"{row['stage']}) has {name} {row[name]!r}; {expected}"
                )
    return _of_document(document)


def _of_document(document: Row) -> str:
    least = min(row["verified_hashes"] for row in document["results"])
    if document["verification"]["least_hashes_per_line"] != least:
        return f"contradicts itself: least_hashes_per_line is not {least}, the least verified_hashes"
    if not document["method"]["energy_window_s"] and any(
        row["joules_per_hash"] is not None for row in document["results"]
    ):
        return "contradicts itself: it has an energy, and a window of energy of 0 s"
    try:
        datetime.fromisoformat(document["conditions"]["begun_at"])
    except ValueError:
        return f"contradicts itself: begun_at {document['conditions']['begun_at']} is no time"
    return ""


def _equal(value: float | None, expected: float | None) -> bool:
    if value is None or expected is None:
        return value is expected
    return math.isclose(value, expected, rel_tol=TOLERANCE, abs_tol=1e-12)


def _has_all_of_energy(row: Row) -> bool:
    """Return whether a figure has either all fields of a measured energy or none of them."""
    names = ("joules_per_hash", "net_joules_per_hash", "mean_w")
    return {row[name] is not None for name in names} == {bool(row["power_source"])}


def _share(row: Row) -> float | None:
    limit = row["limit_hashes_per_s"]
    return None if limit is None else row["hashes_per_s"] / limit


# Of each rule: the field that is wrong, whether a row keeps the rule, and what was expected.
RULES: Final[tuple[tuple[str, Callable[[Row], bool], str], ...]] = (
    (
        "seconds",
        lambda row: (
            row["lower_quartile_s"] <= row["seconds"] * (1 + TOLERANCE)
            and row["seconds"] <= row["upper_quartile_s"] * (1 + TOLERANCE)
        ),
        "a median lies between its quartiles",
    ),
    (
        "hashes_per_s",
        lambda row: _equal(row["hashes_per_s"], row["count"] / row["seconds"]),
        "it is count / seconds",
    ),
    (
        "gigabytes_per_s",
        lambda row: _equal(row["gigabytes_per_s"], row["hashes_per_s"] * row["message_bytes"] / 1e9),
        "it is hashes_per_s * message_bytes / 10^9",
    ),
    (
        "spread_ratio",
        lambda row: _equal(
            row["spread_ratio"], (row["upper_quartile_s"] - row["lower_quartile_s"]) / row["seconds"]
        ),
        "it is (upper_quartile_s - lower_quartile_s) / seconds",
    ),
    (
        "share_of_limit",
        lambda row: _equal(row["share_of_limit"], _share(row)),
        "it is hashes_per_s / limit_hashes_per_s",
    ),
    (
        "limit_formula",
        lambda row: bool(row["limit_formula"]) == (row["limit_hashes_per_s"] is not None),
        "a limit has a formula, and no limit has none",
    ),
    (
        "power_source",
        _has_all_of_energy,
        "an energy has a counter, joules gross and net, and watts; without a counter there is none of them",
    ),
    (
        "net_joules_per_hash",
        lambda row: row["joules_per_hash"] is None or row["net_joules_per_hash"] <= row["joules_per_hash"],
        "it is joules_per_hash less what the idle device would have used",
    ),
)
