"""Test Arrivals: rows wait for height and answer, and are marked when the node was catching up."""

from collector.blocks.arrivals import OLD_US, Arrivals
from collector.blocks.recent import RecentBlock
from collector.journal.batches import Batch

NOW_US = 1_800_000_000_000_000


def recent(number: int, age_us: int = 0) -> RecentBlock:
    """Return a recent block at this height whose header is `age_us` old."""
    return RecentBlock(number, bytes(32), (NOW_US - age_us) // 1_000_000, {}, {})


class Story:
    """Holds the Arrivals of one session, and counts the requests that they made."""

    def __init__(self) -> None:
        self.n_requests = 0
        self.batch = Batch()
        self.arrivals = Arrivals(("n", "s"), self.ask_if_behind)

    def ask_if_behind(self) -> None:
        """Count a request."""
        self.n_requests += 1

    def come(self, number: int, kind: str = "pushed", event: str = "connected", age_us: int = 0) -> None:
        """Add an arrival of a block whose height is known."""
        hash_ = bytes([number]) * 32
        self.arrivals.add(hash_, event, NOW_US, kind, self.batch, block=recent(number, age_us))

    @property
    def marks(self) -> dict[int, bool | None]:
        """Return the column `is_catch_up` of each complete row, by height."""
        return {row["height"]: row["is_catch_up"] for row in self.batch.rows.get("block_arrivals", [])}


def test_a_block_of_a_node_in_step_is_an_arrival() -> None:
    """The row of a new block waits for the node's next answer, and for nothing more."""
    story = Story()
    story.come(1)
    assert (story.marks, story.batch.n_pending_rows, story.n_requests) == ({}, 1, 1)
    story.arrivals.answer_if_behind(is_behind=False)
    assert (story.marks, story.batch.n_pending_rows, len(story.arrivals)) == ({1: False}, 0, 0)


def test_blocks_that_come_in_a_burst_are_marked_to_the_last() -> None:
    """A block is a catch-up when the node knew later headers before or after it; the next one is not."""
    story = Story()
    story.come(1)
    story.come(2)  # while a request is open: it needs one of its own
    story.arrivals.answer_if_behind(is_behind=True)
    assert story.marks == {1: True}
    story.come(3)
    story.arrivals.answer_if_behind(is_behind=True)
    story.arrivals.answer_if_behind(is_behind=False)
    assert story.marks == {1: True, 2: True, 3: True}
    story.come(4)
    story.arrivals.answer_if_behind(is_behind=False)
    assert story.marks[4] is False


def test_an_old_header_alone_marks_a_catch_up() -> None:
    """A block with a header that is hours old is a catch-up, whatever the node answers."""
    story = Story()
    story.come(1, age_us=OLD_US + 10**6)
    story.come(2, age_us=OLD_US - 10**6)
    story.arrivals.answer_if_behind(is_behind=False)
    story.arrivals.answer_if_behind(is_behind=None)
    assert story.marks == {1: True, 2: None}


def test_what_is_no_arrival_needs_no_request() -> None:
    """Disconnected blocks, and blocks that were there at the start or were fetched, cause no request."""
    story = Story()
    story.come(1, kind="at_start")
    story.come(2, kind="pulled", age_us=2 * OLD_US)
    story.come(3, event="disconnected", age_us=2 * OLD_US)
    assert (story.marks, story.n_requests) == ({1: None, 2: None, 3: None}, 0)


def test_an_end_gives_out_everything() -> None:
    """A flush completes rows without height and answer, and their batch no longer waits."""
    story = Story()
    story.arrivals.add(b"\x09" * 32, "seen", NOW_US, "pushed", story.batch, block=None)
    story.come(1)
    assert story.batch.n_pending_rows == 2
    story.arrivals.flush()
    assert (story.marks, story.batch.n_pending_rows, len(story.arrivals)) == ({None: None, 1: None}, 0, 0)
