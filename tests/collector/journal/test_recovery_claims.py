"""Test that after a kill, `coverage` claims exactly the messages that are rows, even with a damaged journal.

A run takes messages out of a ring, makes rows of them and seals, as a session does. Its files are copied at
some moment, as a kill leaves them, and damaged. After the next start, each message that `coverage` claims
must be a row, and each row's message must be claimed.
"""

import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.check.model import BREACH
from collector.check.run import check
from collector.dataset.open import Dataset
from collector.dataset.rows import CoverageRow
from collector.dataset.schema import COVERAGE, MEMPOOL_EVENTS, REJECTS
from collector.journal.batches import Batch, Batches
from collector.journal.coverage_ledger import COVERAGE_STATE, LOST_WITH_JOURNAL, CoverageLedger
from collector.journal.journal import SEALED_LAST, Journal
from collector.journal.segment import journal_folder
from collector.receive.records import Message, Notice
from collector.receive.ring import MIN_CAPACITY_BYTES, Item, Ring

NODE, SESSION = "n", "s1"
TOPICS = ("sequence", "rawtx")
BEGAN_US = 1_790_000_000_000_000
Claimed = dict[str, list[int]]


class Run:
    """Runs one session that makes events of its `sequence` messages and rejects of its `rawtx` messages."""

    def __init__(self, root: Path, session: str = SESSION) -> None:
        self.root = root
        self.session = session
        self.dataset = Dataset.open(root, "regtest", create=True)
        self.folder = journal_folder(root, "regtest", NODE)
        self.journal = Journal(self.folder, ring_bytes=MIN_CAPACITY_BYTES)
        self.journal.recover(self.dataset)
        self.ledger = CoverageLedger(NODE, session)
        self.batches = Batches(self.journal)
        self.open: list[tuple[Batch, list[Message]]] = []
        self.now_us = BEGAN_US
        self.next = dict.fromkeys(TOPICS, 0)
        for topic in (*TOPICS, "mempool"):
            self.ledger.open(topic, self.now_us + 1500)  # the first message comes before that
        self.give_out([])
        self.batches.commit()
        self.ring = self.journal.make_ring(NODE, session, TOPICS)
        self.putting = Ring.open(self.ring.path)

    def close(self) -> None:
        """Close the files without a flush, as a kill does."""
        self.putting.close()
        self.journal.close()

    def put(self, count: int, topic: str = "sequence") -> None:
        """Put messages of a topic into the ring, as the receiver does."""
        for _ in range(count):
            self.now_us += 1000
            counter = self.next[topic]
            self.next[topic] += 1
            assert self.putting.put(topic, counter, self.now_us * 1000, counter.to_bytes(33, "big"))

    def turn(self, count: int) -> None:
        """Put messages of both topics, take them from the ring and journal them as one batch."""
        self.put(count)
        self.put(1, "rawtx")
        self.give_out(self.ledger.release_committed(self.batches.first_uncommitted))
        items = self.ring.take(1000)
        for each in items:
            self.count(each)
        messages = [item for item in items if isinstance(item, Message)]
        self.give_out([])
        batch = self.batches.begin(messages)
        batch.n_pending_rows = 1
        self.open.append((batch, messages))

    def complete(self, n_left: int) -> None:
        """Make the rows of all open batches but the last `n_left`, and commit."""
        while len(self.open) > n_left:
            batch, messages = self.open.pop(0)
            for table, rows in rows_of(messages).items():
                batch.add(table, rows)
            batch.n_pending_rows = 0
        self.batches.commit()

    def count(self, item: Item) -> None:
        """Count a message in the ledger, or end the intervals that a notice ends."""
        if isinstance(item, Message):
            self.ledger.count(item.topic, item.sequence, item.received_ns // 1000)
            if item.topic == "sequence" and self.ledger.is_open("mempool"):
                self.ledger.count("mempool", item.sequence, item.received_ns // 1000)
            return
        for topic in (item.topic, "mempool") if item.topic == "sequence" else (item.topic,):
            self.ledger.hold_back(self.ledger.close(str(topic), item.reason))

    def gap(self, topic: str) -> None:
        """Skip one message of a topic and put a notice of the gap; do nothing before its first message."""
        if not self.next[topic]:
            return
        self.next[topic] += 1
        assert self.putting.put_notice(Notice("gap", topic, self.now_us * 1000, "a jump"))

    def seal(self) -> None:
        """Commit the complete batches, and seal."""
        self.batches.commit()
        self.give_out(self.ledger.seal(self.batches.first_uncommitted))
        self.journal.flush()
        self.journal.seal(self.dataset)

    def seal_interrupted(self, table: str) -> None:
        """Seal as if a kill came before `table` is written; if it is empty, before the segment is removed."""
        self.batches.commit()
        self.give_out(self.ledger.seal(self.batches.first_uncommitted))
        self.journal.flush()
        before = {path: path.read_bytes() for path in self.folder.glob("*.journal")}
        self.journal.seal(self.dataset)
        for path, content in before.items():
            path.write_bytes(content)
            for file in self.dataset.folder.glob(f"*/*/{path.stem}.parquet"):
                later = (file.parts[-3] in SEALED_LAST, file.parts[-3]) >= (table in SEALED_LAST, table)
                if table and later:
                    file.unlink()

    def give_out(self, rows: list[CoverageRow]) -> None:
        """Journal coverage rows and the ledger's state, as `Observation` does."""
        if rows:
            self.journal.append("coverage", rows)
        self.journal.set_state(COVERAGE_STATE + self.session, self.ledger.state())


def rows_of(messages: Sequence[Message]) -> dict[str, list[dict[str, Any]]]:
    """Make the rows of messages, by table."""
    rows: dict[str, list[dict[str, Any]]] = {"mempool_events": [], "rejects": []}
    for each in messages:
        shared = {"node": NODE, "session": each.session, "sequence": each.sequence}
        shared["received_at"] = each.received_ns // 1000
        if each.topic == "sequence":
            event = {"kind": "pushed", "event": "D", "hash": each.body[:32]}
            rows["mempool_events"].append(shared | event)
        else:
            rows["rejects"].append(shared | {"topic": each.topic, "reason": "r", "body": each.body})
    return {table: made for table, made in rows.items() if made}


def start(root: Path, *, ends: Sequence[int] = (), per_turn: int = 1000) -> Dataset:
    """Start again after a kill, recover the messages, `per_turn` in each turn, and return the dataset.

    Each number in `ends` is an earlier start that is killed after so many turns.
    """
    dataset = Dataset.open(root, "regtest")
    for n_turns in (*ends, None):
        with Journal(journal_folder(root, "regtest", NODE)) as journal:
            take_again(journal, dataset, per_turn, n_turns)
    return dataset


def take_again(journal: Journal, dataset: Dataset, per_turn: int, n_turns: int | None) -> None:
    """Make rows of what was left and seal after each turn, as `Session.recover` does.

    Stop after `n_turns`.
    """
    left, batches = deque(journal.recover(dataset)), Batches(journal)
    batches.keep_recovered(left)
    ledger, state = CoverageLedger(NODE, SESSION), COVERAGE_STATE + SESSION
    ledger.hold_back(ledger.restore(journal.states.get(state)))
    ledger.hold_back(ledger.close("mempool", "killed"))

    def turns() -> Iterator[tuple[Sequence[Message], Batch]]:
        while left:
            yield batches.begin_recovered(per_turn)
        while items := journal.take_left_in_ring(SESSION, per_turn):
            ledger.hold_back(ledger.continue_with(items))
            journal.set_state(state, ledger.state())
            messages = [item for item in items if isinstance(item, Message)]
            yield messages, batches.begin(messages)

    for messages, batch in islice(turns(), n_turns):
        for table, rows in rows_of(messages).items():
            batch.add(table, rows)
        batches.commit()
        journal.append("coverage", ledger.seal(batches.first_uncommitted))
        journal.set_state(state, ledger.state())
        journal.seal(dataset)
    if n_turns is None:
        ledger.hold_back(ledger.close_all("killed"))
        journal.append("coverage", ledger.release_committed({}))
        journal.set_state(state, None)
        journal.seal(dataset)


def claimed(dataset: Dataset) -> Claimed:
    """Return by topic the counters that `coverage` claims."""
    found: Claimed = {}
    for row in dataset.read(COVERAGE).to_pylist():
        if row["n_messages"]:
            counters = range(row["first_sequence"], row["last_sequence"] + 1)
            assert row["n_messages"] == len(counters)
            found.setdefault(row["topic"], []).extend(counters)
    return {topic: sorted(counters) for topic, counters in found.items()}


def present(dataset: Dataset) -> Claimed:
    """Return by topic the counters of the messages that are rows."""
    tables = {"sequence": MEMPOOL_EVENTS, "rawtx": REJECTS}
    found = {
        topic: sorted(dataset.read(table).column("sequence").to_pylist()) for topic, table in tables.items()
    }
    return {topic: counters for topic, counters in found.items() if counters}


def verify(dataset: Dataset, *, claims_all: bool = True) -> None:
    """Assert that claims and rows agree, no row is repeated, and intervals neither overlap nor break off.

    Without `claims_all` there may be rows that no interval claims.
    """
    there, claims = present(dataset), claimed(dataset)
    in_mempool = claims.pop("mempool", [])
    if claims_all:
        assert claims == there
    assert all(set(counters) <= set(there.get(topic, [])) for topic, counters in claims.items())
    assert all(len(set(counters)) == len(counters) for counters in there.values())
    assert set(in_mempool) <= set(there.get("sequence", []))
    rows = sorted(
        dataset.read(COVERAGE).to_pylist(), key=lambda row: (row["topic"], row["from_at"], row["to_at"])
    )
    for before, after in pairwise([*rows, {"topic": "", "from_at": None}]):
        if before["topic"] == after["topic"]:
            assert before["from_at"] < after["from_at"]
            assert before["to_at"] <= after["from_at"]
        assert before["end_reason"] != "sealed" or before["to_at"] == after["from_at"]


@pytest.fixture
def run(tmp_path: Path) -> Any:
    """Make a run, and close it at the end."""
    begun = Run(tmp_path / "run")
    yield begun
    begun.close()


def killed(run: Run) -> Path:
    """Copy all files as a kill would leave them, close the run, and return the copy."""
    copy = run.root.with_name("killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run.root, copy)
    return copy


def flip(path: Path, position: int, bits: int = 1) -> None:
    """Flip bits of one byte of a file."""
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= bits
    path.write_bytes(content)


def test_messages_lost_with_a_frame_are_a_gap_in_coverage(run: Run) -> None:
    """Messages of a damaged first flush are not claimed, although the second flush's state counts them."""
    run.turn(3)
    end = run.journal.size_bytes
    run.turn(3)
    root = killed(run)
    (segment,) = journal_folder(root, "regtest", NODE).glob("*.journal")
    flip(segment, end - 9)
    dataset = start(root)
    assert present(dataset)["sequence"] == [3, 4, 5]
    spans = [
        (row["first_sequence"], row["last_sequence"], row["end_reason"], row["detail"] == LOST_WITH_JOURNAL)
        for row in dataset.read(COVERAGE).to_pylist()
        if row["topic"] == "sequence"
    ]
    assert spans == [(None, None, "killed", True), (3, 5, "killed", False)]
    verify(dataset)
    breaches = {each.name for each in check(dataset) if each.status == BREACH}
    assert breaches == {"sessions", "first_seen"}  # this run writes neither sessions nor arrivals


def test_a_removed_journal_ends_the_intervals_that_it_would_have_continued(run: Run) -> None:
    """When the journal is removed, sealed coverage stays, and the open interval ends and says why."""
    run.turn(3)
    run.complete(0)
    run.seal()
    run.turn(2)
    root = killed(run)
    shutil.rmtree(journal_folder(root, "regtest", NODE))
    dataset = start(root)
    verify(dataset)
    ends = {row["detail"] for row in dataset.read(COVERAGE).to_pylist() if row["end_reason"] == "killed"}
    assert ends == {LOST_WITH_JOURNAL}
    n_rows = dataset.read(COVERAGE).num_rows
    assert start(root).read(COVERAGE).num_rows == n_rows


def test_a_segment_cut_between_two_frames_gives_no_row_twice(run: Run) -> None:
    """No row is written twice when a sealed segment lost its last frame and the next segment is lost.

    The lost segment stated the length of the one before it. What is left of that one are messages without the
    mark that they are rows.
    """
    run.turn(3)
    end = run.journal.size_bytes
    run.complete(0)
    run.seal_interrupted("")
    root = killed(run)
    first, *later = sorted(journal_folder(root, "regtest", NODE).glob("*.journal"))
    assert (first.stat().st_size > end, len(later)) == (True, 1)
    with first.open("r+b") as file:
        file.truncate(end)
    later[0].unlink()
    dataset = start(root)
    assert present(dataset)["sequence"] == [0, 1, 2]
    verify(dataset)


STEPS: dict[str, Callable[[Run, int], None]] = {
    "turn": lambda run, number: run.turn(number),
    "complete": lambda run, number: run.complete(number % 3),
    "gap": lambda run, number: run.gap(TOPICS[number % 2]),
    "seal": lambda run, _: run.seal(),
    "put": lambda run, number: run.put(number),
}
Story = list[tuple[str, int]]
# How often a start is ended and after how many turns, and how many messages are in a turn.
STARTS = st.tuples(st.lists(st.integers(0, 3), max_size=2), st.sampled_from([3, 1000]))
SEALING = st.sampled_from([None, None, "", "coverage", "mempool_events", "rejects"])
STORIES = st.lists(
    st.tuples(st.sampled_from(["turn", "turn", "turn", "complete", "complete", *STEPS]), st.integers(0, 4)),
    max_size=14,
)


def played(folder: Path, story: Story, sealing: str | None) -> Path:
    """Run the steps of a story; return a copy of the files as a kill leaves them.

    With `sealing`, the kill comes in a seal, before the table `sealing` is written (`Run.seal_interrupted`).
    """
    run = Run(folder / "run")
    try:
        for what, number in story:
            STEPS[what](run, number)
        if sealing is not None:
            run.seal_interrupted(sealing)
        return killed(run)
    finally:
        run.close()


@settings(max_examples=40, deadline=None)
@given(STORIES, SEALING, STARTS)
def test_after_a_kill_every_message_is_claimed(
    tmp_path_factory: pytest.TempPathFactory,
    story: Story,
    sealing: str | None,
    starts: tuple[list[int], int],
) -> None:
    """After a kill no received message is lost, even when the starts that follow are killed too."""
    folder = tmp_path_factory.mktemp("killed")
    dataset = start(played(folder, story, sealing), ends=starts[0], per_turn=starts[1])
    verify(dataset)
    n_put = sum(number for what, number in story if what in ("turn", "put"))
    assert len(present(dataset).get("sequence", [])) == n_put


CUT, CUT_BETWEEN_FRAMES, REMOVED = 0, -1, -2  # other numbers are bits to flip
DAMAGE = st.tuples(st.integers(0, 20), st.floats(0, 1, exclude_max=True), st.integers(REMOVED, 255))


def damage(root: Path, damages: list[tuple[int, float, int]]) -> None:
    """Damage journal files: flip bits of one, cut it at a byte or before a frame, or remove it."""
    for which, place, bits in damages:
        files = [
            path for path in sorted(journal_folder(root, "regtest", NODE).iterdir()) if path.name != "lock"
        ]
        path = files[which % len(files)] if files else root / "none"
        if path.suffix == ".ring":
            if bits > 0:
                flip(path, int(place * (4096 + 2000)), bits)  # where its records are
        elif path.exists() and (content := path.read_bytes()):
            at = int(place * len(content))
            if bits == CUT_BETWEEN_FRAMES:
                key = bytes.fromhex(path.stem.partition("-")[2])
                at = max(content.rfind(key, 0, at + len(key)), 0)
            if bits > 0:
                flip(path, at, bits)
            elif bits == REMOVED:
                path.unlink()
            else:
                path.write_bytes(content[:at])


@settings(max_examples=100, deadline=None)
@given(STORIES, SEALING, STARTS, st.lists(DAMAGE, min_size=1, max_size=3))
@example([("turn", 1), ("seal", 0)], None, ([], 1000), [(0, 0.0, CUT), (1, 0.0, 1)])  # no segment, no ring
@example([("turn", 1), ("seal", 0)], None, ([0], 1000), [(0, 0.0, CUT), (1, 0.0, 1)])
@example([("turn", 0), ("complete", 0)], "coverage", ([], 1000), [(0, 0.0, CUT), (1, 0.0, CUT)])  # but rows
@example([("turn", 3), ("complete", 0)], "", ([], 1), [(0, 0.5, CUT_BETWEEN_FRAMES), (1, 0.0, REMOVED)])
@example([("turn", 0), ("complete", 0)], "coverage", ([], 3), [(0, 0.0, REMOVED)])
def test_coverage_does_not_claim_what_damage_lost(
    tmp_path_factory: pytest.TempPathFactory,
    story: Story,
    sealing: str | None,
    starts: tuple[list[int], int],
    damages: list[tuple[int, float, int]],
) -> None:
    """Flipped bits, a cut or the loss of any journal file double no row, and each gap ends an interval.

    A kill in the midst of a seal leaves rows whose coverage only the segment has. Where somebody removes it,
    no interval claims these rows.
    """
    root = played(tmp_path_factory.mktemp("damaged"), story, sealing)
    damage(root, damages)
    is_removed = bool(sealing) and any(bits == REMOVED for *_, bits in damages)
    verify(start(root, ends=starts[0], per_turn=starts[1]), claims_all=not is_removed)
