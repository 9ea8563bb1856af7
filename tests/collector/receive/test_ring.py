"""Test the ring between the receiver and the collector: order, room, kills and damage."""

import gc
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.receive.records import Message, Notice
from collector.receive.ring import MIN_CAPACITY_BYTES, LeftInRing, Ring

TOPICS = ("sequence", "rawtx")


def new_ring(folder: Path, capacity_bytes: int = MIN_CAPACITY_BYTES) -> Ring:
    """Make a small ring."""
    path = folder / "s.ring"
    return Ring.create(path, node="n", session="s", topics=TOPICS, capacity_bytes=capacity_bytes)


def numbers(items: list[Message | Notice]) -> list[int]:
    """Return the counters of the messages."""
    return [item.sequence for item in items if isinstance(item, Message)]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 200_000), st.booleans()), max_size=60))
def test_what_is_put_is_taken_in_order(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, bool]]
) -> None:
    """While the ring wraps around many times, each item that found room is taken once, whole and in order."""
    taking = new_ring(tmp_path_factory.mktemp("ring"))
    putting = Ring.open(taking.path)
    expected: list[Message | Notice] = []
    taken: list[Message | Notice] = []
    for counter, (size, is_taken) in enumerate(steps):
        body = bytes([counter]) * size
        if putting.put("rawtx", counter, counter, body):
            expected.append(Message("n", "s", "rawtx", counter, counter, body, len(expected) + 1))
        else:
            notice = Notice("overflow", "rawtx", counter, "full")
            assert putting.put_notice(notice)
            expected.append(notice._replace(number=len(expected) + 1))
        if is_taken:
            taken += taking.take(1000)
            taking.release(len(taken))
    taken += taking.take(1000)
    assert taken == expected
    putting.close()
    taking.close()


def test_a_full_ring_refuses_until_there_is_room(tmp_path: Path) -> None:
    """A message without room changes nothing, a notice still has room, and released room is used again."""
    taking = new_ring(tmp_path)
    putting = Ring.open(taking.path)
    count = 0
    while putting.put("rawtx", count, 0, bytes(100_000)):
        count += 1
    assert count == putting.n_waiting == 9
    assert not putting.has_room(100_000)
    assert putting.put_notice(Notice("malformed", None, 5, "x", bytes(10_000)))
    assert not putting.put("rawtx", 99, 0, bytes(100_000))
    items = taking.take(1000)
    assert items[-1] == Notice("malformed", None, 5, "x", bytes(10_000), 10)
    taking.release(4)
    assert putting.put("rawtx", 9, 0, bytes(100_000))
    assert numbers(taking.take(1000)) == [9]
    assert putting.n_waiting == 7


def test_a_ring_that_finds_no_room_leaves_no_open_file(tmp_path: Path) -> None:
    """A full disk is waited for by trying again, so no attempt may keep a descriptor."""
    gc.collect()  # what an earlier test left open must not be closed meanwhile, and its number used again
    before = set(Path("/proc/self/fd").iterdir())
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (MIN_CAPACITY_BYTES // 2, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            new_ring(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert set(Path("/proc/self/fd").iterdir()) <= before
    assert not list(tmp_path.iterdir())


def test_an_unfinished_ring_that_a_kill_left_is_removed(tmp_path: Path) -> None:
    """The file of a half-made ring is removed, because it would take 64 MiB of the disk for ever."""
    begun = tmp_path / ".earlier.ring.tmp"
    begun.write_bytes(bytes(MIN_CAPACITY_BYTES))
    new_ring(tmp_path).close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.ring"]


@settings(max_examples=60, deadline=None)
@given(st.integers(4096 + 0, 4096 + 30 * 1040 - 1), st.integers(1, 255))
def test_a_flipped_byte_costs_one_record(
    tmp_path_factory: pytest.TempPathFactory, position: int, change: int
) -> None:
    """Of 30 records at most the damaged one is missing, none is wrong, and the lost bytes are counted."""
    taking = new_ring(tmp_path_factory.mktemp("ring"))
    putting = Ring.open(taking.path)
    for counter in range(30):
        putting.put("rawtx", counter, counter, os.urandom(1000))
    whole = taking.take(100)
    putting.close()
    with taking.path.open("r+b") as file:
        file.seek(position)
        (old,) = file.read(1)
        file.seek(position)
        file.write(bytes([old ^ change]))
    left = Ring.read_left(taking.path)
    hit = (position - 4096) // 1040
    assert left.items == whole[:hit] + whole[hit + 1 :]
    assert left.lost_bytes == 1040
    taking.close()


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 127), st.binary(min_size=1, max_size=8))
def test_a_damaged_page_is_no_error(
    tmp_path_factory: pytest.TempPathFactory, position: int, change: bytes
) -> None:
    """Whatever the first page holds, only records that were put are read, in order."""
    taking = new_ring(tmp_path_factory.mktemp("ring"))
    putting = Ring.open(taking.path)
    for counter in range(10):
        putting.put("rawtx", counter, counter, b"body")
    whole = taking.take(100)
    putting.close()
    taking.close()
    with taking.path.open("r+b") as file:
        file.seek(position)
        file.write(change)
    left = Ring.read_left(taking.path)
    bodies = [(item.sequence, item.body) for item in left.items if isinstance(item, Message)]
    assert bodies == [(item.sequence, item.body) for item in whole if item.sequence in dict(bodies)]


@pytest.mark.parametrize("content", [b"", b"x" * 100, b"mpring01" + bytes(5000)])
def test_a_file_that_is_no_ring_counts_as_lost(tmp_path: Path, content: bytes) -> None:
    """No item is read from a file that is no ring, and its bytes are counted as lost."""
    path = tmp_path / "x.ring"
    path.write_bytes(content)
    assert Ring.read_left(path) == LeftInRing(path.stem, [], len(content))


PUTTER = """
import sys
from pathlib import Path
from collector.receive.ring import Ring

ring = Ring.open(Path(sys.argv[1]))
counter = ring.n_waiting
print(counter, flush=True)
while True:
    ring.put("rawtx", counter, 0, counter.to_bytes(4, "big") * 50)
    counter += 1
"""


def test_a_killed_process_leaves_what_it_put(tmp_path: Path) -> None:
    """After SIGKILL while it puts, every record that counts is whole and none before it is missing."""
    path = new_ring(tmp_path, 1 << 24).path
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-c", PUTTER, str(path)], stdout=subprocess.PIPE) as putting:
            assert putting.stdout is not None
            putting.stdout.readline()
            time.sleep(0.01)
            putting.kill()
    left = Ring.read_left(path)
    assert numbers(left.items) == list(range(len(left.items)))
    bodies = [item.body for item in left.items]
    assert bodies == [number.to_bytes(4, "big") * 50 for number in range(len(bodies))]
    assert len(left.items) > 100
    assert left.lost_bytes == 0


@pytest.mark.parametrize("is_opened", [False, True])
def test_a_kill_between_the_two_words_of_a_record_costs_nothing(tmp_path: Path, *, is_opened: bool) -> None:
    """A whole record behind `head` is counted when the ring is read or opened to put the next one."""
    path = new_ring(tmp_path).path
    heads = []
    putting = Ring.open(path)
    for counter in range(3):
        heads.append(path.read_bytes()[8:16])
        assert putting.put("rawtx", counter, 0, b"body")
    putting.close()
    with path.open("r+b") as file:
        file.seek(8)
        file.write(heads[2])
    if is_opened:
        putting = Ring.open(path)
        assert putting.put("rawtx", 3, 0, b"body")
        putting.close()
    left = Ring.read_left(path)
    assert numbers(left.items) == list(range(4 if is_opened else 3))
    assert left.lost_bytes == 0


@pytest.mark.parametrize("n_released", [1, 2, 3])
def test_a_kill_between_the_two_words_of_a_release_costs_nothing(tmp_path: Path, n_released: int) -> None:
    """Records that were released, though `tail` does not say so yet, are neither given again nor damage."""
    taking = new_ring(tmp_path)
    putting = Ring.open(taking.path)
    for counter in range(3):
        assert putting.put("rawtx", counter, 0, b"body")
    putting.close()
    tail = taking.path.read_bytes()[16:24]
    taking.take(3)
    taking.release(n_released)
    taking.close()
    with taking.path.open("r+b") as file:
        file.seek(16)
        file.write(tail)
    left = Ring.read_left(taking.path)
    assert numbers(left.items) == list(range(n_released, 3))
    assert left.lost_bytes == 0
    resumed = Ring.resume(taking.path)
    assert resumed is not None
    assert numbers(list(resumed.take_all())) == list(range(n_released, 3))
    resumed.close()


def test_a_ring_in_use_is_waited_for(tmp_path: Path) -> None:
    """A ring is read once the process that puts has ended; before that, the error names the file."""
    taking = new_ring(tmp_path)
    putting = Ring.open(taking.path)
    with pytest.raises(TimeoutError, match=r"s\.ring"):
        Ring.read_left(taking.path, timeout_s=0.05)
    putting.close()
    assert Ring.read_left(taking.path).items == []


def test_pages_that_were_put_and_taken_do_not_stay_mapped(tmp_path: Path) -> None:
    """The resident memory of neither process grows to the size of the ring."""
    taking = new_ring(tmp_path, 40 << 20)
    putting = Ring.open(taking.path)
    for counter in range(30):
        assert putting.put("rawtx", counter, counter, bytes(1 << 20))
    assert mapped_bytes(taking.path) < 12 << 20
    for counter in range(30):
        (item,) = taking.take(1)
        assert isinstance(item, Message)
        assert (item.sequence, len(item.body)) == (counter, 1 << 20)
        taking.release(item.number)
    assert mapped_bytes(taking.path) < 24 << 20


def mapped_bytes(path: Path) -> int:
    """Return the bytes of a file that are resident in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    sizes = [next(each for each in lines if each.startswith("Rss:")) for line in lines if str(path) in line]
    assert len(sizes) == 2
    return sum(int(size.split()[1]) << 10 for size in sizes)
