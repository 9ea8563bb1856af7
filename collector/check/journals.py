"""What the journals of a dataset hold that is not in Parquet yet: it is no breach that it is not."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from collector import locks
from collector.frames import MESSAGES, STATES
from collector.schema import TABLES
from collector.segment import Segment, journal_folders

STATE_OF_COVERAGE = "coverage/"


@dataclass
class Journals:
    """Rows, messages and open intervals by what they are; which nodes a collector watches now."""

    segments: list[Path] = field(default_factory=list)
    rows: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    messages: list[pa.RecordBatch] = field(default_factory=list)
    open_intervals: list[dict[str, Any]] = field(default_factory=list)
    running: set[str] = field(default_factory=set)  # nodes whose journal a process holds

    @property
    def stems(self) -> set[str]:
        """Names of the files into which the segments will be sealed, or are being."""
        return {path.stem for path in self.segments}


def read_journals(root: Path, chain: str) -> Journals:
    """Read every journal of a chain. A segment that is sealed meanwhile is left out."""
    found = Journals()
    for folder in journal_folders(root, chain):
        if locks.is_held(folder / locks.NAME):
            found.running.add(folder.name)
        for segment in Segment.all_in(folder):
            try:
                batches = segment.read().batches
            except FileNotFoundError:
                continue
            found.segments.append(segment.path)
            _take(found, folder.name, batches)
    return found


def _take(found: Journals, node: str, batches: dict[str, list[pa.RecordBatch]]) -> None:
    for name, parts in batches.items():
        if name in TABLES:
            found.rows.setdefault(name, []).extend(parts)
    found.messages += [
        part.select(["node", "session", "topic", "sequence"]) for part in batches.get(MESSAGES, [])
    ]
    states = {row["name"]: row["value"] for part in batches.get(STATES, []) for row in part.to_pylist()}
    for name, state in states.items():
        if name.startswith(STATE_OF_COVERAGE) and state is not None:
            found.open_intervals += _intervals(node, name.removeprefix(STATE_OF_COVERAGE), state)


def _intervals(node: str, session: str, state: bytes) -> Iterator[dict[str, Any]]:
    """Read the open intervals in a state of `collector.coverage.Ledger`."""
    for topic, values in json.loads(state).items():
        from_us, to_us, first, last, n_messages, *_ = values
        yield {
            "node": node,
            "session": session,
            "topic": topic,
            "from_at": from_us,
            "to_at": to_us,
            "first_sequence": first,
            "last_sequence": last,
            "n_messages": n_messages,
            "end_reason": "sealed",  # as far as anybody knows it goes on
            "detail": None,
        }


def messages_table(parts: Sequence[pa.RecordBatch]) -> pa.Table:
    """Join what is known of journalled messages: node, session, topic, sequence."""
    schema = pa.schema(
        [("node", pa.string()), ("session", pa.string()), ("topic", pa.string()), ("sequence", pa.int64())]
    )
    return pa.Table.from_batches([part.cast(schema) for part in parts], schema=schema)
