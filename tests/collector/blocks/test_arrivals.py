"""Arrivals of blocks: complete when height and look are there, marked when the node was catching up."""

from collector.blocks.arrivals import OLD_US, Arrivals
from collector.blocks.recent import RecentBlock
from collector.journal.batches import Batch

NOW_US = 1_800_000_000_000_000


def known(number: int, age_us: int = 0) -> RecentBlock:
    """Make what is known of a block whose header is so old."""
    return RecentBlock(number, bytes(32), (NOW_US - age_us) // 1_000_000, {}, {})


class Story:
    """Arrivals whose looks are asked for and not yet answered."""

    def __init__(self) -> None:
        self.n_looks = 0
        self.batch = Batch()
        self.arrivals = Arrivals(("n", "s"), self.look)

    def look(self) -> None:
        """Note that a look is wanted."""
        self.n_looks += 1

    def come(self, number: int, kind: str = "pushed", event: str = "connected", age_us: int = 0) -> None:
        """Let a block come whose height is known."""
        hash_ = bytes([number]) * 32
        self.arrivals.happened(hash_, event, NOW_US, kind, self.batch, known=known(number, age_us))

    @property
    def marks(self) -> dict[int, bool | None]:
        """The rows that are given out: height and mark."""
        return {row["height"]: row["is_catch_up"] for row in self.batch.rows.get("block_arrivals", [])}


def test_a_block_of_a_node_in_step_is_an_arrival() -> None:
    """It waits for the look behind it, and for nothing more."""
    story = Story()
    story.come(1)
    assert (story.marks, story.batch.n_pending_rows, story.n_looks) == ({}, 1, 1)
    story.arrivals.looked(is_behind=False)
    assert (story.marks, story.batch.n_pending_rows, len(story.arrivals)) == ({1: False}, 0, 0)


def test_blocks_that_come_in_a_burst_are_marked_to_the_last() -> None:
    """The node knew later headers before or after each of them; the first live one is not marked."""
    story = Story()
    story.come(1)
    story.come(2)  # while the look is under way: it needs one of its own
    story.arrivals.looked(is_behind=True)
    assert story.marks == {1: True}
    story.come(3)
    story.arrivals.looked(is_behind=True)
    story.arrivals.looked(is_behind=False)
    assert story.marks == {1: True, 2: True, 3: True}
    story.come(4)
    story.arrivals.looked(is_behind=False)
    assert story.marks[4] is False


def test_an_old_header_tells_by_itself() -> None:
    """Whatever the looks say: a block found just now has no header that is hours old."""
    story = Story()
    story.come(1, age_us=OLD_US + 10**6)
    story.come(2, age_us=OLD_US - 10**6)
    story.arrivals.looked(is_behind=False)
    story.arrivals.looked(is_behind=None)
    assert story.marks == {1: True, 2: None}


def test_what_is_no_arrival_needs_no_look() -> None:
    """Disconnections, and what was there or was fetched."""
    story = Story()
    story.come(1, kind="at_start")
    story.come(2, kind="pulled", age_us=2 * OLD_US)
    story.come(3, event="disconnected", age_us=2 * OLD_US)
    assert (story.marks, story.n_looks) == ({1: None, 2: None, 3: None}, 0)


def test_an_end_gives_out_everything() -> None:
    """Without height and look a row has neither, and its batch is free."""
    story = Story()
    story.arrivals.happened(b"\x09" * 32, "seen", NOW_US, "pushed", story.batch, known=None)
    story.come(1)
    assert story.batch.n_pending_rows == 2
    story.arrivals.flush()
    assert (story.marks, story.batch.n_pending_rows, len(story.arrivals)) == ({None: None, 1: None}, 0, 0)
