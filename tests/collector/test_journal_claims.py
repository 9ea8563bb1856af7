"""What coverage claims after a kill is what is there, whatever became of the journal's files in between.

A run takes messages out of a ring, makes rows of them and seals, as a session does. Its files are copied at
some moment, as a kill leaves them, and damaged. After the next start each message that `coverage` claims must
be a row, and each row's message must be claimed.
"""

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collector.batches import Batch, Batches
from collector.check.model import BREACH
from collector.check.run import check
from collector.coverage import COVERAGE_STATE, LOST_WITH_JOURNAL, Ledger
from collector.journal import VOUCHING, Journal
from collector.records import Message, Notice
from collector.ring import LEAST_BYTES, Item, Ring
from collector.schema import COVERAGE, MEMPOOL_EVENTS, REJECTS
from collector.segment import journal_folder
from collector.writer import Dataset

NODE = "n"
TOPICS = ("sequence", "rawtx")
BEGAN_US = 1_790_000_000_000_000
Claimed = dict[str, list[int]]


class Run:
    """One session: `sequence` messages become events, those of `rawtx` become rejects."""

    def __init__(self, root: Path, session: str = "s1") -> None:
        self.root = root
        self.session = session
        self.dataset = Dataset.open(root, "regtest", create=True)
        self.folder = journal_folder(root, "regtest", NODE)
        self.journal = Journal(self.folder, ring_bytes=LEAST_BYTES)
        self.journal.recover(self.dataset)
        self.ledger = Ledger(NODE, session)
        self.batches = Batches(self.journal)
        self.open: list[tuple[Batch, list[Message]]] = []
        self.now_us = BEGAN_US
        self.next = dict.fromkeys(TOPICS, 0)
        for topic in (*TOPICS, "mempool"):
            self.ledger.open(topic, self.now_us + 1500)  # the first message comes before that
        self.give_out([])
        self.batches.commit()
        self.ring = self.journal.ring(NODE, session, TOPICS)
        self.putting = Ring.open(self.ring.path)

    def close(self) -> None:
        """End, as a kill does: nothing is flushed."""
        self.putting.close()
        self.journal.close()

    def put(self, count: int, topic: str = "sequence") -> None:
        """Receive messages."""
        for _ in range(count):
            self.now_us += 1000
            counter = self.next[topic]
            self.next[topic] += 1
            assert self.putting.put(topic, counter, self.now_us * 1000, counter.to_bytes(33, "big"))

    def turn(self, count: int) -> None:
        """Receive messages of each topic and journal them."""
        self.put(count)
        self.put(1, "rawtx")
        self.give_out(self.ledger.ripe(self.batches.unfinished))
        items = self.ring.take(1000)
        for each in items:
            self.account(each)
        messages = [item for item in items if isinstance(item, Message)]
        self.give_out([])
        batch = self.batches.begin(messages)
        batch.n_open = 1
        self.open.append((batch, messages))

    def complete(self, n_left: int) -> None:
        """Make rows of all batches but the last."""
        while len(self.open) > n_left:
            batch, messages = self.open.pop(0)
            for table, rows in rows_of(messages).items():
                batch.add(table, rows)
            batch.n_open = 0
        self.batches.commit()

    def account(self, item: Item) -> None:
        """Count a message, or end what a notice ends."""
        if isinstance(item, Message):
            self.ledger.count(item.topic, item.sequence, item.received_ns // 1000)
            if item.topic == "sequence" and self.ledger.is_open("mempool"):
                self.ledger.count("mempool", item.sequence, item.received_ns // 1000)
            return
        for topic in (item.topic, "mempool") if item.topic == "sequence" else (item.topic,):
            self.ledger.hold(self.ledger.close(str(topic), item.reason))

    def gap(self, topic: str) -> None:
        """Lose a message of a topic, which shows when there was one before."""
        if not self.next[topic]:
            return
        self.next[topic] += 1
        assert self.putting.note(Notice("gap", topic, self.now_us * 1000, "a jump"))

    def seal(self) -> None:
        """Seal."""
        self.batches.commit()
        self.give_out(self.ledger.seal(self.batches.unfinished))
        self.journal.flush()
        self.journal.seal(self.dataset)

    def seal_ended(self, table: str) -> None:
        """Seal, and be ended before a table is written, or before the segment is removed."""
        self.batches.commit()
        self.give_out(self.ledger.seal(self.batches.unfinished))
        self.journal.flush()
        before = {path: path.read_bytes() for path in self.folder.glob("*.journal")}
        self.journal.seal(self.dataset)
        for path, content in before.items():
            path.write_bytes(content)
            for file in self.dataset.folder.glob(f"*/*/{path.stem}.parquet"):
                later = (file.parts[-3] in VOUCHING, file.parts[-3]) >= (table in VOUCHING, table)
                if table and later:
                    file.unlink()

    def give_out(self, rows: list[dict[str, Any]]) -> None:
        """Do as `Observed` does."""
        if rows:
            self.journal.append("coverage", rows)
        self.journal.set_state(COVERAGE_STATE + self.session, self.ledger.state())


def rows_of(messages: Sequence[Message]) -> dict[str, list[dict[str, Any]]]:
    """Make the rows of messages."""
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


def start(root: Path, *, n_ended: int = 0) -> Dataset:
    """Start again after a kill, as a watch does; before that, start some times and be ended at once."""
    dataset = Dataset.open(root, "regtest")
    for _ in range(n_ended):
        with Journal(journal_folder(root, "regtest", NODE)) as journal:
            journal.recover(dataset)
    with Journal(journal_folder(root, "regtest", NODE)) as journal:
        left = journal.recover(dataset)
        for name, state in dict(journal.states).items():
            if name.startswith(COVERAGE_STATE):
                session = name.removeprefix(COVERAGE_STATE)
                journal.append("coverage", Ledger(NODE, session).close_killed(state))
                journal.set_state(name, None)
        for table, rows in rows_of(left).items():
            journal.append(table, rows)
        journal.mark_consumed(len(left))
        journal.seal(dataset)
    return dataset


def claimed(dataset: Dataset) -> Claimed:
    """List the counters that coverage claims."""
    found: Claimed = {}
    for row in dataset.read(COVERAGE).to_pylist():
        if row["n_messages"]:
            counters = range(row["first_sequence"], row["last_sequence"] + 1)
            assert row["n_messages"] == len(counters)
            found.setdefault(row["topic"], []).extend(counters)
    return {topic: sorted(counters) for topic, counters in found.items()}


def present(dataset: Dataset) -> Claimed:
    """List the counters of the messages that are rows."""
    tables = {"sequence": MEMPOOL_EVENTS, "rawtx": REJECTS}
    found = {
        topic: sorted(dataset.read(table).column("sequence").to_pylist()) for topic, table in tables.items()
    }
    return {topic: counters for topic, counters in found.items() if counters}


def verify(dataset: Dataset) -> None:
    """Compare claims and rows; nothing is there twice, what is sealed goes on, and no interval overlaps."""
    there, claims = present(dataset), claimed(dataset)
    in_mempool = claims.pop("mempool", [])
    assert claims == there
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
    """Begin a run."""
    begun = Run(tmp_path / "run")
    yield begun
    begun.close()


def killed(run: Run) -> Path:
    """Copy everything as a kill would leave it."""
    copy = run.root.with_name("killed")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(run.root, copy)
    return copy


def flip(path: Path, position: int, bits: int = 1) -> None:
    """Flip bits of a file."""
    content = bytearray(path.read_bytes())
    content[position % len(content)] ^= bits
    path.write_bytes(content)


def test_messages_lost_with_a_frame_are_a_hole_in_coverage(run: Run) -> None:
    """Of two flushes the first is damaged; the second has the state that counts both."""
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


STEPS: dict[str, Callable[[Run, int], None]] = {
    "turn": lambda run, number: run.turn(number),
    "complete": lambda run, number: run.complete(number % 3),
    "gap": lambda run, number: run.gap(TOPICS[number % 2]),
    "seal": lambda run, _: run.seal(),
    "put": lambda run, number: run.put(number),
}
Story = list[tuple[str, int]]
SEALING = st.sampled_from([None, None, "", "coverage", "mempool_events", "rejects"])
STORIES = st.lists(
    st.tuples(st.sampled_from(["turn", "turn", "turn", "complete", "complete", *STEPS]), st.integers(0, 4)),
    max_size=14,
)


def told(folder: Path, story: Story, sealing: str | None) -> Path:
    """Play a story, and leave what a kill leaves; `sealing`: as `Run.seal_ended` takes it."""
    run = Run(folder / "run")
    try:
        for what, number in story:
            STEPS[what](run, number)
        if sealing is not None:
            run.seal_ended(sealing)
        return killed(run)
    finally:
        run.close()


@settings(max_examples=40, deadline=None)
@given(STORIES, SEALING, st.integers(0, 2))
def test_after_a_kill_every_message_is_claimed(
    tmp_path_factory: pytest.TempPathFactory, story: Story, sealing: str | None, n_ended: int
) -> None:
    """Nothing that was received is lost, also when the start that follows is killed itself."""
    folder = tmp_path_factory.mktemp("killed")
    dataset = start(told(folder, story, sealing), n_ended=n_ended)
    verify(dataset)
    n_put = sum(number for what, number in story if what in ("turn", "put"))
    assert len(present(dataset).get("sequence", [])) == n_put


DAMAGE = st.tuples(st.integers(0, 20), st.floats(0, 1, exclude_max=True), st.integers(0, 255))


def damage(root: Path, damages: list[tuple[int, float, int]]) -> None:
    """Flip bits at places of files, or cut the file there when no bit is given."""
    for which, place, bits in damages:
        files = [
            path for path in sorted(journal_folder(root, "regtest", NODE).iterdir()) if path.name != "lock"
        ]
        path = files[which % len(files)]
        size = path.stat().st_size if path.suffix == ".journal" else 4096 + 2000  # of the ring's file
        if bits and size:
            flip(path, int(place * size), bits)
        elif path.suffix == ".journal":
            with path.open("r+b") as file:
                file.truncate(int(place * size))


@settings(max_examples=100, deadline=None)
@given(STORIES, SEALING, st.integers(0, 1), st.lists(DAMAGE, min_size=1, max_size=3))
@example([("turn", 1), ("seal", 0)], None, 0, [(0, 0.0, 0), (1, 0.0, 1)])  # no segment, no ring
@example([("turn", 1), ("seal", 0)], None, 1, [(0, 0.0, 0), (1, 0.0, 1)])
@example([("turn", 0), ("complete", 0)], "coverage", 0, [(0, 0.0, 0), (1, 0.0, 0)])  # rows, no segment
def test_damage_costs_what_coverage_then_does_not_claim(
    tmp_path_factory: pytest.TempPathFactory,
    story: Story,
    sealing: str | None,
    n_ended: int,
    damages: list[tuple[int, float, int]],
) -> None:
    """Flip bits of any file of the journal, or cut it: nothing is twice, every hole is named."""
    root = told(tmp_path_factory.mktemp("damaged"), story, sealing)
    damage(root, damages)
    verify(start(root, n_ended=n_ended))
