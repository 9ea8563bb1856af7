"""Test that a receiver puts what waited for room as soon as there is room."""

from pathlib import Path

from collector.receive.process import Receiver, Setup
from collector.receive.records import Message, Notice
from collector.receive.ring import MAX_TAKEN, MIN_CAPACITY_BYTES, Ring


def test_a_message_after_notices_that_waited_for_room_is_not_lost(tmp_path: Path) -> None:
    """Notices that found no room go first, and the message after them is put too."""
    receiver = Receiver(Setup({"rawtx": "tcp://127.0.0.1:1"}, 1000, 1.0))
    taking = Ring.create(
        tmp_path / "x.ring", node="n", session="s", topics=["rawtx"], capacity_bytes=MIN_CAPACITY_BYTES
    )
    receiver._begin_ring(taking.path)
    n_noted = 0
    while not receiver._notices:
        receiver._note(Notice("malformed", None, n_noted, "x" * 10_000))
        n_noted += 1
    filled = taking.take(MAX_TAKEN)
    assert len(filled) == n_noted - 1
    taking.release(n_noted)

    receiver._take([b"rawtx", b"body", bytes(4)], 5)
    late, message = taking.take(MAX_TAKEN)
    assert isinstance(late, Notice)
    assert (late.reason, late.received_ns) == ("malformed", n_noted - 1)
    assert isinstance(message, Message)
    assert (message.sequence, message.body) == (0, b"body")
