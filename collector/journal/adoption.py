"""What a journal finds in the segments of earlier runs: messages without rows, states, claims."""

from pathlib import Path
from typing import NamedTuple

from collector.dataset.open import Dataset
from collector.journal.frames import CONSUMED, MESSAGES, SIZES, STATES, merged, messages_outside, update
from collector.journal.recovery import CoverageClaims
from collector.journal.segment import Segment, SegmentContents
from collector.receive.records import Message


class EarlierRuns(NamedTuple):
    """What earlier runs left in segments."""

    segments: list[Segment]  # those that are to be sealed, oldest first
    coverage_sealed: set[str]  # stems of those whose coverage was being sealed
    messages: list[tuple[int, Message]]  # without rows, by ordinal
    next_ordinal: int
    states: dict[str, bytes]
    claims: CoverageClaims


def read_earlier_runs(segments: list[Segment], dataset: Dataset, node: str) -> EarlierRuns:
    """Read segments, oldest first; one ordinal is one message. OSError when a file cannot be used."""
    contents = dict(zip(segments, _read_all(segments), strict=True))
    coverage_sealed = set()
    for segment, content in list(contents.items()):
        files = list(dataset.folder.glob(f"*/*/{segment.stem}.parquet"))
        # Cut between two frames it looks whole, and the later segment that knows better may be lost.
        is_whole = segment.whole_bytes > 0 and not content.lost_bytes
        if any(path.parts[-3] == "coverage" for path in files):  # which is written last
            coverage_sealed.add(segment.stem)
            if not is_whole:  # its rows are sealed, and what had none was carried over: it is not needed
                segment.remove(keep=False)
                del contents[segment]
        elif files and not is_whole:
            _take_back(dataset, files)
    claims = CoverageClaims(node)
    for segment, content in contents.items():
        claims.read(content, is_vouched=segment.stem in coverage_sealed)
    messages, next_ordinal, states = _read_own(list(contents.values()))
    return EarlierRuns(list(contents), coverage_sealed, messages, next_ordinal, states, claims)


def _read_all(segments: list[Segment]) -> list[SegmentContents]:
    """Read segments, of which the later know how long the earlier were."""
    contents = [segment.read() for segment in segments]
    batches = [batch for content in contents for batch in content.batches.get(SIZES, [])]
    sizes = {row["stem"]: row["size_bytes"] for batch in batches for row in batch.to_pylist()}
    for at, segment in enumerate(segments):
        segment.whole_bytes = sizes.get(segment.stem, 0)
        if segment.whole_bytes > segment.path.stat().st_size:
            contents[at] = segment.read()
    return contents


def _take_back(dataset: Dataset, files: list[Path]) -> None:
    """Remove what was sealed of a segment of which a frame may be lost that says what it was made of.

    What is whole is sealed again.
    """
    with dataset.write_lock():
        for path in files:
            path.unlink()


def _read_own(contents: list[SegmentContents]) -> tuple[list[tuple[int, Message]], int, dict[str, bytes]]:
    """Read the messages that are not consumed, the next ordinal, and the states."""
    parts = [part for content in contents for part in content.parts]
    marks = [row for part in parts if part.name == CONSUMED for row in part.batch.to_pylist()]
    spans = merged((row["first"], row["last"]) for row in marks)
    messages: dict[int, Message] = {}
    states: dict[str, bytes] = {}
    last = spans[-1][1] if spans else -1
    for part in parts:
        if part.name == MESSAGES:
            last = max(last, part.batch.column(0)[-1].as_py())
            messages |= messages_outside(spans, part.batch)
        elif part.name == STATES:
            update(states, {row["name"]: row["value"] for row in part.batch.to_pylist()})
    return sorted(messages.items()), last + 1, states
