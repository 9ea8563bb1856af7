"""What a check says."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

OK: Final = "ok"
NOTE: Final = "note"  # worth knowing, and no breach of the contract
BREACH: Final = "breach"
SHOWN: Final = 5  # findings of a kind that are named one by one


class Finding(NamedTuple):
    """One thing that is not as it should be, and what to do about it."""

    what: str
    mend: str


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

    def _add(self, status: str, what: str, mend: str, count: int) -> None:
        self.status = BREACH if BREACH in {status, self.status} else NOTE
        self.n_found += count
        if len(self.findings) < SHOWN:
            self.findings.append(Finding(what, mend))
