"""What a check says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"  # worth knowing, and no breach of the contract
BREACH: Final = "breach"
SHOWN: Final = 5  # findings of a kind that are named one by one

Tell = Callable[..., tuple[str, str]]  # from the columns of a row: what is wrong, and what to do about it


class Finding(NamedTuple):
    """One thing that is not as it should be, and what to do about it."""

    what: str
    mend: str


class Found(NamedTuple):
    """What a query found: how many rows, and the first of them."""

    n_rows: int
    examples: Sequence[tuple[Any, ...]]


@dataclass
class Outcome:
    """What came of one check."""

    name: str
    title: str
    n_rows: int = 0  # that were looked at
    n_found: int = 0
    status: str = OK
    findings: list[Finding] = field(default_factory=list)

    def breach(self, what: str, mend: str, count: int = 1) -> None:
        """Note a breach of the contract; `count` rows or files are concerned."""
        self._add(BREACH, what, mend, count)

    def note(self, what: str, mend: str, count: int = 1) -> None:
        """Note what is worth knowing and no breach."""
        self._add(NOTE, what, mend, count)

    def breaches(self, found: Found, tell: Tell) -> None:
        """Note what a query found as breaches: all are counted, the examples are told."""
        self._add_found(BREACH, found, tell)

    def notes(self, found: Found, tell: Tell) -> None:
        """Note what a query found, and no breach."""
        self._add_found(NOTE, found, tell)

    def _add_found(self, status: str, found: Found, tell: Tell) -> None:
        for row in found.examples:
            self._add(status, *tell(*row), count=0)
        self.n_found += found.n_rows

    def _add(self, status: str, what: str, mend: str, count: int) -> None:
        self.status = BREACH if BREACH in {status, self.status} else NOTE
        self.n_found += count
        if len(self.findings) < SHOWN:
            self.findings.append(Finding(what, mend))
