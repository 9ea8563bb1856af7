"""Hold the result of a check: whether the dataset keeps a rule, what breaks it, and how to mend that."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"  # worth knowing, and no breach of the contract
BREACH: Final = "breach"
MAX_FINDINGS: Final = 5  # that a check describes one by one; it counts the others

Describe = Callable[..., tuple[str, str]]  # makes of a row's columns: what is wrong, and how to mend it


class Finding(NamedTuple):
    """Describes one thing that is wrong or worth knowing, and what to do about it."""

    what: str
    mend: str


class Examples(NamedTuple):
    """Holds how many rows a query found, and the first few of them."""

    n_rows: int
    examples: Sequence[tuple[Any, ...]]


@dataclass
class CheckResult:
    """Holds what one check of a dataset counted and found.

    `status` says whether it found nothing, only notes, or a breach of the contract.
    """

    name: str
    title: str
    n_rows: int = 0  # that the check looked at
    n_found: int = 0
    status: str = OK
    findings: list[Finding] = field(default_factory=list)

    def breach(self, what: str, mend: str, count: int = 1) -> None:
        """Add a breach of the contract to this result: what is wrong, how to mend it, how often it occurs."""
        self._add(BREACH, what, mend, count)

    def note(self, what: str, mend: str, count: int = 1) -> None:
        """Add a note to this result: something worth knowing that does not break the contract."""
        self._add(NOTE, what, mend, count)

    def breaches(self, found: Examples, describe: Describe) -> None:
        """Add the rows that a query found to this result, as breaches of the contract.

        All of them count; `describe` turns each example into a text and a way to mend it.
        """
        self._add_found(BREACH, found, describe)

    def notes(self, found: Examples, describe: Describe) -> None:
        """Add the rows that a query found to this result, as notes, which do not break the contract.

        All of them count; `describe` turns each example into a text and a way to mend it.
        """
        self._add_found(NOTE, found, describe)

    def _add_found(self, status: str, found: Examples, describe: Describe) -> None:
        for row in found.examples:
            self._add(status, *describe(*row), count=0)
        self.n_found += found.n_rows

    def _add(self, status: str, what: str, mend: str, count: int) -> None:
        self.status = BREACH if BREACH in {status, self.status} else NOTE
        self.n_found += count
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(Finding(what, mend))


def display_hash(hex_text: str) -> str:
    """Return in display order (reversed) a hash that is given in hex in internal byte order."""
    return bytes.fromhex(hex_text)[::-1].hex()
