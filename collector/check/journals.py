"""Read the rows and messages that the journals of a dataset hold and that are not in Parquet yet."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pyarrow as pa

from collector.dataset.files import FOLDER_LOCK, is_lock_held
from collector.dataset.rows import CoverageRow
from collector.dataset.schema import TABLES
from collector.journal.recovery import CoverageClaims
from collector.journal.segment import MESSAGES, Segment, SegmentContents, journal_folders

_OF_A_MESSAGE: Final = pa.schema(
    [("node", pa.string()), ("session", pa.string()), ("topic", pa.string()), ("sequence", pa.int64())]
)


@dataclass
class Journals:
    """Holds what the journals of a chain contain and Parquet does not yet, and which nodes are recorded now.

    A journal is the log of a node's messages and rows; its files are called segments.
    """

    segments: list[Path] = field(default_factory=list)
    rows: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)  # without those of `coverage`
    coverage: list[CoverageRow] = field(default_factory=list)
    messages: list[pa.RecordBatch] = field(default_factory=list)
    running: set[str] = field(default_factory=set)  # nodes whose journal a process has locked

    @property
    def stems(self) -> set[str]:
        """Return the names, without ending, of the Parquet files that the journals' files will become."""
        return {path.stem for path in self.segments}


def read_journals(root: Path, chain: str) -> Journals:
    """Return the contents of every journal of a chain.

    A journal file that is sealed meanwhile is left out.
    """
    found = Journals()
    for folder in journal_folders(root, chain):
        if is_lock_held(folder / FOLDER_LOCK):
            found.running.add(folder.name)
        claims = CoverageClaims(folder.name)
        for segment, contents in _readable(folder):
            found.segments.append(segment.path)
            claims.read(contents)
            for name, parts in contents.batches.items():
                if name in TABLES and name != "coverage":
                    found.rows.setdefault(name, []).extend(parts)
                elif name == MESSAGES:
                    found.messages += [part.select(_OF_A_MESSAGE.names) for part in parts]
        found.coverage += claims.rows_so_far()
    return found


def _readable(folder: Path) -> Iterator[tuple[Segment, SegmentContents]]:
    for segment in Segment.all_in(folder):
        with suppress(FileNotFoundError):
            yield segment, segment.read()


def messages_table(parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """Join batches of journalled messages into one table of node, session, topic and counter; return it."""
    return pa.Table.from_batches([part.cast(_OF_A_MESSAGE) for part in parts], schema=_OF_A_MESSAGE)
