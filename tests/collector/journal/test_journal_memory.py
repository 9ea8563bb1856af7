"""Test that the journal's memory does not grow with the number of rows that pass through it."""

import subprocess
import sys
from pathlib import Path

TURNS = 90
ROWS = 2_000
MOST_GROWTH_MB = 24.0

# Puts messages through ring, journal and dataset as a session does; prints resident memory after each third.
STREAM = """
import resource, sys
from pathlib import Path
from collector.journal.journal import Journal
from collector.receive.ring import Ring
from collector.dataset.schema import MEMPOOL_EVENTS
from collector.dataset.open import Dataset
from tests.collector.journal.journal_files import message, row

folder, turns, rows = Path(sys.argv[1]), *map(int, sys.argv[2:])
dataset = Dataset.open(folder / "dataset", "regtest", create=True)
with Journal(folder / "journal", ring_bytes=1 << 21) as journal:
    journal.recover(dataset)
    taking = journal.make_ring("n", "s", ("sequence",))
    putting = Ring.open(taking.path)
    for turn in range(turns):
        for number in range(turn * rows, (turn + 1) * rows):
            assert putting.put("sequence", number, number * 1000, number.to_bytes(33, "big"))
        messages = taking.take(rows)
        journal.append_messages(messages)
        journal.flush()
        journal.append("mempool_events", [row(each) for each in messages])
        journal.mark_consumed(len(messages))
        journal.flush()
        if turn % 5 == 4:
            journal.seal(dataset)
        if turn % (turns // 3) == turns // 3 - 1:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            print(pages * resource.getpagesize() / 1e6)
    journal.remove_ring()
    journal.seal(dataset)
print(sum(rows.num_rows for rows in dataset.read_columns(MEMPOOL_EVENTS, "sequence")))
"""


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """After 180,000 rows the process is as large as after 60,000, and all rows are in the dataset."""
    arguments = [str(tmp_path), str(TURNS), str(ROWS)]
    done = subprocess.run(
        [sys.executable, "-c", STREAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    first, _, last, n_rows = map(float, done.stdout.split())
    assert last - first < MOST_GROWTH_MB
    assert n_rows == TURNS * ROWS
