"""Say what a build would do with a mart, and why: its inputs are compared with those of the last build."""

from dataclasses import dataclass
from typing import Final

from analysis.fingerprints import READS, UNKNOWN
from analysis.parts import Inputs, MadeInRanges, Part


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMart:
    """Says what a build would do with one mart, and why; `last_s` is the time that making it took last.

    `action` is `keep`, `make`, or `perhaps` where that depends on the rows of marts that are made first.
    """

    name: str
    action: str
    reason: str
    last_s: float | None

    @property
    def row(self) -> tuple[str, str, str, float | None]:
        """Return the plan for a mart as a tuple, in the order of PLAN_COLUMNS."""
        return self.name, self.action, self.reason, self.last_s


PLAN_COLUMNS: Final = ("name", "action", "reason", "last_s")


def planned(name: str, inputs: Inputs, latest: Part | MadeInRanges | None, *, is_made: bool) -> PlannedMart:
    """Return what a build would do with a mart.

    `latest` tells how the mart was made last, if it was. `is_made` says that its parts of these inputs exist.
    """
    if is_made:
        action, reason = "keep", "nothing changed"
    elif latest is None:
        action, reason = "make", "it has not been made"
    else:
        action, reason = _action_and_reason(*_changed(inputs, latest))
    last_s = None if latest is None else latest.wall_s
    return PlannedMart(name=name, action=action, reason=reason, last_s=last_s)


def _action_and_reason(changed: list[str], unknown: list[str]) -> tuple[str, str]:
    """Return whether a mart is made and why, or on which relations it depends whether it is."""
    if changed:
        return "make", f"changed: {', '.join(changed)}"
    if unknown:
        return "perhaps", f"if the rows change: {', '.join(unknown)}"
    return "make", "its file is missing or damaged"


def _changed(inputs: Inputs, latest: Part | MadeInRanges) -> tuple[list[str], list[str]]:
    """Return the names of the inputs that differ from an earlier part's, and of those not yet known."""
    names = {key: key.removeprefix(READS) for key in [*inputs, *(latest.inputs.keys() - inputs.keys())]}
    unknown = [name for key, name in names.items() if key.startswith(READS) and inputs.get(key) == UNKNOWN]
    changed = [name for key, name in names.items() if inputs.get(key) != latest.inputs.get(key)]
    return [name for name in changed if name not in unknown], unknown
