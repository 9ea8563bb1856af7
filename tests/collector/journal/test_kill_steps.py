"""Test that a writer which ends before or within any step on disk loses no row and writes none twice.

`test_journal_kill` kills at random moments; this test ends the writer at each step in turn.
"""

import subprocess
import sys
from pathlib import Path

# Forks one writer for each step of its work and ends it at that step. Then it does the same with a recovery
# of what a writer left. After each end, a last recovery must find every number once.
STEPS = """
import itertools, os, shutil, sys
from pathlib import Path
from collector.journal.journal import Journal
from collector.receive.records import Message
from collector.receive.ring import MIN_CAPACITY_BYTES, Ring
from collector.dataset.open import Dataset
from collector.unneeded import hide_unneeded
from tests.collector.journal.journal_files import message, recovered, row, sealed

CALLS = ("open", "write", "writev", "pwrite", "fsync", "ftruncate", "posix_fallocate", "replace", "unlink",
         "mkdir")
folder = Path(sys.argv[1])
hide_unneeded()  # as the collector does; else each of the many writers loads it for longer than it lives

def end_at(step):
    \"\"\"End this process at a step; a write gets half of its bytes down before.\"\"\"
    steps, real = itertools.count(), os.write
    def ending(name, call):
        def called(*arguments, **named):
            if next(steps) == step:
                if name in ("write", "writev"):
                    data = b"".join(arguments[1]) if name == "writev" else bytes(arguments[1])
                    real(arguments[0], data[: len(data) // 2])
                os._exit(9)
            return call(*arguments, **named)
        return called
    for name in CALLS:
        setattr(os, name, ending(name, getattr(os, name)))

def put(ring, numbers):
    for number in numbers:
        assert ring.put("sequence", number, number * 1000, number.to_bytes(33, "big"))

def write(at, say):
    dataset = Dataset.open(at / "dataset", "regtest", create=True)
    journal = Journal(at / "journal", ring_bytes=MIN_CAPACITY_BYTES)
    waiting = journal.recover(dataset)
    ring = journal.make_ring("n", "s", ("sequence",))
    putting = Ring.open(ring.path)
    for step in range(4):
        numbers = range(step * 3, step * 3 + 3)
        put(putting, numbers)
        os.write(say, b"%d\\n" % numbers[-1])
        new = ring.take(100)
        journal.append_messages(new)
        journal.flush()
        waiting += new
        done, waiting = waiting[:2], waiting[2:]
        journal.append("mempool_events", [row(each) for each in done])
        journal.mark_consumed(len(done))
        journal.set_state("done", str(done[-1].sequence).encode())
        journal.flush()
        if step % 2:
            journal.seal(dataset)
    put(putting, [12])  # in the ring only
    os.write(say, b"12\\n")

def recover(at, say):
    dataset = Dataset.open(at / "dataset", "regtest", create=True)
    with Journal(at / "journal") as journal:
        waiting = recovered(journal, dataset, "s")
        journal.append("mempool_events", [row(each) for each in waiting])
        journal.mark_consumed(len(waiting))
        journal.seal(dataset)

def check(at, say):
    dataset = Dataset.open(at / "dataset", "regtest", create=True)
    with Journal(at / "journal") as journal:
        waiting = [each.sequence for each in recovered(journal, dataset, "s")]
        assert journal.lost_bytes <= 2000, journal.lost_bytes  # the half of a frame
    rows = sealed(dataset)
    assert sorted(rows + waiting) == list(range(len(rows) + len(waiting))), (rows, waiting)
    os.write(say, b"%d\\n" % (len(rows) + len(waiting) - 1))

def child(work, at, step=None):
    \"\"\"Run in a child; returns its status and the last number it said.\"\"\"
    hear, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            real = os.write
            if step is not None:
                end_at(step)
            write_to_pipe = os.write
            os.write = lambda where, data: real(where, data) if where == say else write_to_pipe(where, data)
            work(at, say)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.close(say)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with os.fdopen(hear) as said:
        return status, int((said.read().split() or [-1])[-1])

def each_end(work, begin):
    for step in itertools.count():
        at = folder / f"{work.__name__}-{step}"
        if begin is not None:
            shutil.copytree(begin, at)
        status, safe = child(work, at, step)
        assert status in (0, 9), (work.__name__, step, status)
        status_of_check, found = child(check, at)
        assert status_of_check == 0, (work.__name__, step)
        yield status, safe, found
        shutil.rmtree(at)
        if status == 0:
            return

count = 0
for _, safe, found in each_end(write, None):
    # All that was in the ring, and at most what was being put when the end came.
    assert safe <= found <= safe + 3, (safe, found)
    count += 1
child(write, folder / "left")
for _, _, found in each_end(recover, folder / "left"):
    assert found == 12, found
    count += 1
print(count)
"""


def test_an_end_at_any_step_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Flush, new segment, seal and recovery end at each call that changes the disk, and within writes."""
    done = subprocess.run(
        [sys.executable, "-c", STEPS, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[3],
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 60
