"""Define the fuzz targets: functions of bytes that must not raise, whatever the bytes are.

Each target compares the code under test with something else: python-bitcoinlib, the dataset's contract, or
what follows from how the input was made. hypothesis uses them in the test suite, atheris in `make fuzz`.
"""

import struct
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from bitcoin.core import CTransaction
from bitcoin.core.serialize import SerializationError

from collector.blocks.tracker import reject_row
from collector.codec.block import ParsedBlock, decode_block, parse_block
from collector.codec.coinbase import bip34_height, witness_commitment
from collector.codec.rows import block_rows
from collector.codec.transaction import Transaction, TxOut, decode_transaction
from collector.codec.verify import verify_block
from collector.dataset.open import Dataset
from collector.dataset.parquet_files import to_batch
from collector.dataset.schema import (
    BLOCKS,
    MEMPOOL_EVENTS,
    OUTPUT_TYPES,
    REJECTS,
    TRANSACTIONS,
    VERDICTS,
    ZMQ_TOPICS,
)
from collector.errors import DecodeError
from collector.journal.batches import Batches
from collector.journal.journal import Journal
from collector.journal.segment import Segment
from collector.mempool.sync import (
    Event,
    MempoolSnapshot,
    MempoolSync,
    Output,
    WantBlock,
    WantSnapshot,
    parse_event,
)
from collector.receive.records import Message
from tests.collector.codec.compiled_scripts import output_types_of
from tests.collector.codec.plain_scripts import plain_output_type

N_HASHES = 8  # so few that a few bytes meet the same one twice
TODAY_NS = 1_790_000_000_000_000_000
IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - a new folder in it, as in /tmp
STEP = struct.Struct("<BBb")  # what happens, to which hash, how far the number is off


def transaction(data: bytes) -> None:
    """Decode a transaction: it is refused with DecodeError, or read as python-bitcoinlib reads it."""
    try:
        ours = decode_transaction(data)
    except DecodeError:
        return
    with suppress(SerializationError, struct.error, ValueError):  # it refuses some that are sound
        _compare(ours, CTransaction.deserialize(data))
    _contract(ours)


def block(data: bytes) -> None:
    """Decode and verify a block and make its rows: it is refused, or its rows fit the dataset's contract."""
    try:
        decoded = decode_block(data)
    except DecodeError:
        return
    verdict = verify_block(decoded, "regtest", None)
    assert verdict in VERDICTS
    assert decoded.size_bytes == len(data)
    bip34_height(decoded)
    body = parse_block(data)
    assert body.block == decoded
    _rows(body, verdict)


def coinbase(data: bytes) -> None:
    """Classify the bytes as an output script, and look for a witness commitment in them."""
    assert output_types_of([data]) == [plain_output_type(data)]
    found = witness_commitment([TxOut(0, data), TxOut(0, data[1:])])
    assert found is None or (len(found) == 32 and found in data)


def event(data: bytes) -> None:
    """Parse the body of a `sequence` message: it is refused, or the event encodes to the same bytes."""
    try:
        parsed = parse_event(data, 7, 9)
    except DecodeError:
        return
    number = b"" if parsed.mempool_sequence is None else parsed.mempool_sequence.to_bytes(8, "little")
    assert parsed.hash[::-1] + parsed.event.encode() + number == data


def segment(data: bytes) -> None:
    """Read the bytes as a segment of the journal: no batch is found, and all bytes count as lost."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "00000001-0011223344556677.journal"
        path.write_bytes(data)
        contents = Segment(path).read()
    assert not contents.batches  # a frame needs a checksum over an Arrow stream
    assert contents.lost_bytes == len(data)


def sealed(data: bytes) -> None:
    """Receive the bytes on every topic, start again after a kill, and seal: each message has its rows."""
    messages = [Message("n", "s", topic, 7, TODAY_NS, data) for topic in ZMQ_TOPICS]
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        n_rows = sealed_rows(Path(folder), messages)
    made = [rows_of(message) for message in messages]
    assert n_rows == {table: sum(len(rows.get(table, ())) for rows in made) for table in n_rows}
    assert sum(n_rows.values()) >= len(messages)


def sealed_rows(folder: Path, messages: Sequence[Message]) -> dict[str, int]:
    """Journal messages, start again as after a kill, and seal; return the number of rows by table."""
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    with Journal(folder / "journal", fsync_interval_s=None) as journal:
        journal.recover(dataset)
        journal.append_messages(messages)
        journal.flush()
    for _ in range(2):
        with Journal(folder / "journal", fsync_interval_s=None) as journal:
            batches = Batches(journal)
            batches.keep_recovered(deque(journal.recover(dataset)))
            again, batch = batches.begin_recovered(len(messages))
            for message in again:
                for table, rows in rows_of(message).items():
                    batch.add(table, rows)
            batches.commit()
            journal.seal(dataset)
    found = {
        table.name: dataset.read(table).num_rows for table in (BLOCKS, TRANSACTIONS, MEMPOOL_EVENTS, REJECTS)
    }
    return {name: n_rows for name, n_rows in found.items() if n_rows}


def rows_of(message: Message) -> dict[str, list[Any] | pa.RecordBatch]:
    """Return the rows that a message becomes, by table: those of its event or block, or else a reject."""
    origin, received_us = (message.node, message.session), message.received_ns // 1000
    try:
        if message.topic == "rawblock":
            blocks, transactions = _block_rows(parse_block(message.body), "valid")
            return {"blocks": blocks, "transactions": transactions}
        if message.topic == "sequence":
            event = parse_event(message.body, message.sequence, received_us)
            row = {
                "node": message.node,
                "session": message.session,
                "sequence": event.sequence,
                "kind": "pushed",
                "received_at": received_us,
                "event": event.event,
                "hash": event.hash,
                "mempool_sequence": event.mempool_sequence,
            }
            return {"mempool_events": [row]}
        decode_transaction(message.body)
        reason = "kept for the test"
    except DecodeError as error:
        reason = str(error)
    return {
        "rejects": [
            reject_row(origin, message.topic, received_us, reason, message.body, sequence=message.sequence)
        ]
    }


def mempool_sync(data: bytes) -> None:
    """Drive the mempool sync with inputs in any order: it never fails, and all events come out in order."""
    drive = _Drive()
    for kind, which, off in STEP.iter_unpack(data[: len(data) // STEP.size * STEP.size]):
        drive.step(kind % 8, which, off)
    drive.end()
    assert drive.given == drive.sent
    assert drive.machine.n_waiting == 0


class _Drive:
    """Feeds a mempool sync with what a node and its RPC might say, in any order and with any numbers."""

    def __init__(self) -> None:
        self.machine = MempoolSync()
        self.sent: list[Event] = []
        self.given: list[Event] = []
        self._questions: list[WantSnapshot | WantBlock] = []
        self._now_us = 1_000_000
        self._number = 1
        self._take(self.machine.start())

    def step(self, kind: int, which: int, off: int) -> None:
        """Let one thing happen, by `kind`: an event (0-3), an answer (4, 5), time (6), a loss or a flush (7).

        `which` chooses a hash or a request, `off` makes a sequence number wrong by so much.
        """
        self._now_us += which * 1000
        hash_ = bytes([which % N_HASHES]) * 32
        if kind < 4:
            self._event("ARCD"[kind], hash_, off)
        elif kind < 6 and self._questions:
            self._answer(self._questions.pop(which % len(self._questions)), which, off)
        elif kind == 6:
            self._take(self.machine.tick(self._now_us))
        elif off % 2:
            self._take(self.machine.lose_step("gap", "said so"))
        else:
            self._take(self.machine.flush(lambda _: [hash_]))

    def end(self) -> None:
        """Release all events that still wait, and let a minute pass."""
        self._take(self.machine.flush(lambda _: []))
        self._take(self.machine.tick(self._now_us + 60_000_000))

    def _event(self, letter: str, hash_: bytes, off: int) -> None:
        is_numbered = letter in "AR"
        self._number = max(0, self._number + is_numbered + (off if off in {-1, 1, 2} else 0))
        number = self._number if is_numbered else None
        self.sent.append(Event(letter, hash_, number, len(self.sent), self._now_us))
        self._take(self.machine.event(self.sent[-1], self._now_us))

    def _answer(self, question: WantSnapshot | WantBlock, which: int, off: int) -> None:
        txids = [bytes([bit]) * 32 for bit in range(N_HASHES) if which >> bit & 1]
        if isinstance(question, WantBlock):
            self._take(self.machine.block(question.block_hash, txids))
        else:
            number = max(0, self._number + off)
            snapshot = MempoolSnapshot(number, frozenset(txids), self._now_us, self._now_us)
            self._take(self.machine.snapshot(question.request, snapshot))

    def _take(self, outputs: Iterable[Output]) -> None:
        for output in outputs:
            if isinstance(output, Event):
                self.given.append(output)
            elif isinstance(output, WantSnapshot | WantBlock):
                self._questions.append(output)


def _compare(ours: Transaction, peer: CTransaction) -> None:
    assert ours.txid == peer.GetTxid()
    assert ours.wtxid == peer.GetHash()
    assert ours.locktime == peer.nLockTime
    assert [(each.prev_txid, each.prev_index, each.script, each.sequence) for each in ours.inputs] == [
        (each.prevout.hash, each.prevout.n, bytes(each.scriptSig), each.nSequence) for each in peer.vin
    ]
    assert list(ours.outputs) == [TxOut(each.nValue, bytes(each.scriptPubKey)) for each in peer.vout]


def _contract(ours: Transaction) -> None:
    assert ours.stripped_bytes <= ours.size_bytes <= ours.weight_wu
    assert set(output_types_of([each.script for each in ours.outputs])) <= set(OUTPUT_TYPES)


def _rows(body: ParsedBlock, verdict: str) -> None:
    row, rows = _block_rows(body, verdict)
    assert len(to_batch(BLOCKS, row)) == 1
    assert len(to_batch(TRANSACTIONS, rows)) == len(body.block.transactions)


def _block_rows(body: ParsedBlock, verdict: str) -> tuple[Any, Any]:
    return block_rows(
        body,
        chain="regtest",
        height=1,
        height_source="rpc",
        source="zmq",
        verdict=verdict,
        verified_by="reference",
        fees=None,
    )


TARGETS = {
    target.__name__: target for target in (transaction, block, coinbase, event, segment, sealed, mempool_sync)
}
