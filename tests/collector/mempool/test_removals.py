"""Test Removals: it derives the reason of an R from the events after it."""

from collector.mempool.events import QUIET_US, REORGANISATION_US, Outpoints, Removals, Settled
from collector.mempool.sync import Event


def event(letter: str, number: int, received_us: int = 0) -> Event:
    """Make an event whose hash is its number."""
    return Event(letter, number.to_bytes(32, "big"), number, number, received_us)


def spends(*numbers: int, vout: int = 0) -> Outpoints:
    """Return an outpoint of each of the transactions with these numbers."""
    return frozenset(number.to_bytes(32, "big") + vout.to_bytes(4, "little") for number in numbers)


def test_a_replacement_is_named_with_all_it_drives_out() -> None:
    """A removed transaction, its child and its grandchild count as replaced by the one A after them."""
    removals = Removals()
    removals.removed(event("R", 3), spends(2), 0)  # descendants may come first
    removals.removed(event("R", 2), spends(1), 0)
    removals.removed(event("R", 1), spends(100), 0)
    settled = removals.added(event("A", 9), spends(100))
    assert {(each.event.sequence, each.reason, each.replaced_by) for each in settled} == {
        (number, "replaced", event("A", 9).hash) for number in (1, 2, 3)
    }


def test_a_replacing_package_is_found_by_its_child() -> None:
    """Of a replacing package, the parent comes first and conflicts with nothing; the child conflicts."""
    removals = Removals()
    removals.removed(event("R", 1), spends(100), 0)
    assert removals.added(event("A", 8), spends(101)) == []
    assert [each.replaced_by for each in removals.added(event("A", 9), spends(8, 100))] == [
        event("A", 9).hash
    ]


def test_a_child_gives_way_to_the_only_child() -> None:
    """Where a parent may have one child, a removed one was replaced, though it spends another output."""
    removals = Removals()
    for number, parent in ((1, 7), (2, 6)):
        removals.removed(event("R", number), spends(parent), 0)
    assert removals.added(event("A", 9), spends(7, vout=1), {event("A", 7).hash}) == [
        Settled(event("R", 1), "replaced", event("A", 9).hash)
    ]
    assert [each.event.sequence for each in removals.flush()] == [2]


def test_an_eviction_conflicts_with_nothing_that_follows() -> None:
    """After two additions that spend other outputs, the reason of an R is expired_or_evicted."""
    removals = Removals()
    gone = event("R", 1)
    removals.removed(gone, spends(100), 0)
    assert removals.added(event("A", 8), spends(101)) == []
    assert removals.added(event("A", 9), spends(102)) == [Settled(gone, "expired_or_evicted")]


def test_an_eviction_is_settled_by_quiet() -> None:
    """When no event follows an R for a second, its reason is expired_or_evicted."""
    removals = Removals()
    gone = event("R", 1)
    removals.removed(gone, spends(100), 5)
    assert removals.tick(5 + QUIET_US) == []
    assert removals.tick(6 + QUIET_US) == [Settled(gone, "expired_or_evicted")]
    assert not removals


def test_a_block_explains_its_conflicts_and_their_children() -> None:
    """Removed transactions that spend the same outputs as a block, and their children, are conflicts."""
    removals = Removals()
    removals.removed(event("R", 1), spends(100), 0)
    removals.removed(event("R", 2), spends(1), 0)
    removals.removed(event("R", 3), spends(300), 0)
    removals.removed(event("R", 4), spends(400), 0)
    settled = removals.connected(lambda: list(spends(100, 200)))
    assert {(each.event.sequence, each.reason) for each in settled} == {(1, "conflict"), (2, "conflict")}
    settled = removals.connected(lambda: list(spends(400)))  # in one step with the first
    assert {(each.event.sequence, each.reason) for each in settled} == {(4, "conflict")}
    assert removals.added(event("A", 9), spends(500)) == [Settled(event("R", 3), "expired_or_evicted")]


def test_the_spent_outpoints_of_a_block_are_read_only_when_needed() -> None:
    """When no removal is open, the outpoints that a block spends are not read."""

    def read() -> list[bytes]:
        raise AssertionError

    assert Removals().connected(read) == []


def test_a_reorganisation_explains_what_leaves_before_the_next_block() -> None:
    """Between D and C, the reason of an R that conflicts with no block is reorged."""
    removals = Removals()
    assert removals.disconnected(event("D", 0), 0) == []
    removals.removed(event("R", 1), spends(100), 0)
    for number in (7, 8, 9):  # transactions of the disconnected block come back
        assert removals.added(event("A", number), spends(400 + number)) == []
    removals.removed(event("R", 2), spends(200), 0)
    settled = removals.connected(lambda: list(spends(100)))
    settled += removals.removed(event("R", 3), spends(300), 0)
    assert [(each.event.sequence, each.reason) for each in settled] == [(1, "conflict"), (2, "reorged")]
    assert [each.reason for each in removals.flush()] == ["expired_or_evicted"]


def test_a_reorganisation_without_a_new_block_ends_all_the_same() -> None:
    """When an operator invalidates the tip, removals are reorged for a minute and not later."""
    removals = Removals()
    removals.disconnected(event("D", 0, 5), 0)
    removals.removed(event("R", 1, 5 + REORGANISATION_US), spends(100), 0)
    settled = removals.removed(event("R", 2, 6 + REORGANISATION_US), spends(200), 0) + removals.flush()
    assert [(each.event.sequence, each.reason) for each in settled] == [
        (1, "reorged"),
        (2, "expired_or_evicted"),
    ]


def test_a_clock_that_is_set_back_does_not_prolong_a_reorganisation() -> None:
    """The monotonic clock ends it, whatever the wall clock shows."""
    removals = Removals()
    removals.disconnected(event("D", 0, 3_600_000_000), 5)
    removals.removed(event("R", 1, 7), spends(100), 5 + REORGANISATION_US)
    settled = removals.removed(event("R", 2, 8), spends(200), 6 + REORGANISATION_US) + removals.flush()
    assert [each.reason for each in settled] == ["reorged", "expired_or_evicted"]


def test_messages_that_are_taken_in_late_are_of_their_receipt() -> None:
    """A removal just after a D is part of the reorganisation, also if its message waited for a minute."""
    removals = Removals()
    removals.disconnected(event("D", 0, 5), 5)
    removals.removed(event("R", 1, 300_000), spends(100), 6 + REORGANISATION_US)
    assert [each.reason for each in removals.flush()] == ["reorged"]


def test_a_body_never_seen_leaves_the_reason_unknown() -> None:
    """The reason of an R is unknown when we never had the transaction's bytes."""
    removals = Removals()
    removals.removed(event("R", 1), None, 0)
    assert removals.added(event("A", 9), spends(100)) == []
    assert [each.reason for each in removals.flush()] == ["unknown"]
