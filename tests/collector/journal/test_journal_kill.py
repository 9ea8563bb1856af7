"""Test that a writer which is killed at random moments loses no message and writes no row twice."""

import subprocess
import sys
from pathlib import Path

from collector.dataset.open import Dataset
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.journal.journal import Journal

KILLS = 60
SPAN = 1_000_000  # each run numbers its messages from a multiple of this
PER_FLUSH = 5

# Forks a writer that receives numbered messages, makes rows of them a little later and seals often. It
# reports each flush. After a random number of reports, which may be none, it is killed; so the moment does
# not depend on the speed of the machine. Prints the last number that was reported. Forking keeps a run short.
KILLER = """
import itertools, os, random, signal, sys, time
from pathlib import Path
from collector.journal.journal import Journal
from collector.log import configure_logging
from collector.unneeded import hide_unneeded
from collector.receive.records import Message
from collector.dataset.open import Dataset

configure_logging()  # to stderr: of a frame that a kill has cut
hide_unneeded()  # as the collector does; else each writer loads it for longer than it lives
folder, kills, span, per_flush = Path(sys.argv[1]), *map(int, sys.argv[2:])

def row(m):
    return {"node": "n", "session": "s", "sequence": m.sequence, "kind": "pushed", "event": "A",
            "received_at": m.sequence % 2 * 86_400_000_000, "hash": m.sequence.to_bytes(32, "big")}

def write(first, say):
    dataset = Dataset.open(folder / "dataset", "regtest", create=True)
    journal = Journal(folder / "journal")
    waiting = journal.recover(dataset)
    for step in itertools.count():
        numbers = range(first + per_flush * step, first + per_flush * (step + 1))
        new = [Message("n", "s", "sequence", number, 0, bytes(1000)) for number in numbers]
        journal.append_messages(new)
        journal.flush()
        os.write(say, b"%d\\n" % numbers[-1])
        waiting += new
        done, waiting = waiting[:7], waiting[7:]
        journal.append("mempool_events", [row(m) for m in done])
        journal.mark_consumed(len(done))
        journal.set_state("done", str(done[-1].sequence).encode())
        journal.flush()
        if step % 3 == 2:
            journal.seal(dataset)

chance = random.Random(20)
for first in range(0, kills * span, span):
    hear, say = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            write(first, say)
        finally:
            os._exit(1)
    os.close(say)
    with os.fdopen(hear) as said:
        words = [said.readline() for _ in range(chance.randrange(8))]
        time.sleep(chance.uniform(0, 0.3) ** 3)  # a flush takes far less than a seal
        os.kill(child, signal.SIGKILL)
        assert os.waitpid(child, 0)[1] == signal.SIGKILL, "the writer failed"
        print(int([first - 1, *words, *said.read().split()][-1]))
"""


def test_a_writer_killed_at_random_moments_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """After 60 kills during appends, flushes and seals, each number is a row or a waiting message, once."""
    arguments = [str(tmp_path), str(KILLS), str(SPAN), str(PER_FLUSH)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLER, *arguments], capture_output=True, text=True, check=False
    )
    assert killed.returncode == 0, killed.stderr
    flushed = [int(line) for line in killed.stdout.split()]

    dataset = Dataset.open(tmp_path / "dataset", "regtest")
    with Journal(tmp_path / "journal") as journal:
        waiting = [message.sequence for message in journal.recover(dataset)]
        last_done = int(journal.states["done"])
    rows = sorted(dataset.read(MEMPOOL_EVENTS).column("sequence").to_pylist())

    assert sorted(set(rows)) == rows
    assert not set(rows) & set(waiting)
    assert last_done == rows[-1]
    found = set(rows) | set(waiting)
    for first, safe in zip(range(0, KILLS * SPAN, SPAN), flushed, strict=True):
        seen = sorted(number for number in found if first <= number < first + SPAN)
        # All that was flushed, and at most one more flush whose report did not get out.
        assert seen == list(range(first, first + len(seen)))
        assert seen[-1:] in ([safe], [safe + PER_FLUSH], [])
        assert len(seen) >= safe - first + 1
    assert len(rows) > KILLS
