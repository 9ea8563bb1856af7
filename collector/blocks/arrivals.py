"""Make the rows of `block_arrivals`, which say when a block was seen, connected and disconnected.

A node that was down, or that still downloads the chain, connects old blocks as fast as it can. The time at
which it connects them does not say when the network had them, so such a row is marked as a catch-up
(`is_catch_up`). Two facts show it: the node knew the headers of later blocks when we asked before or after
the block came; or the block's own header is hours old. A row therefore waits until the block's height is
known and until the node has answered once more whether it is behind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collector.blocks.recent import RecentBlock
from collector.dataset.rows import BlockArrivalRow
from collector.journal.batches import Batch

OLD_US: Final = 7_200_000_000  # two hours: consensus lets a header's time be wrong by as much


@dataclass(slots=True, eq=False)
class _Arrival:
    """Holds an event of a block, such as seen, whose row may wait for the height or the node's answer."""

    block_hash: bytes
    event: str
    at_us: int
    kind: str
    batch: Batch
    block: RecentBlock | None = None
    was_behind: bool | None = None  # whether the node was behind, before or after this arrival
    n_missing: int = 0  # how many of height and answer the row still waits for


class Arrivals:
    """Collects the block arrivals of one node in one session, and makes a row of each once all is known.

    It calls `ask_if_behind` to have the node asked whether it knows headers of blocks that it has not
    connected; the caller passes the answer to `answer_if_behind`.
    """

    def __init__(self, origin: tuple[str, str], ask_if_behind: Callable[[], None]) -> None:
        self._origin = origin  # node and session
        self._ask_if_behind = ask_if_behind
        self._without_height: dict[bytes, list[_Arrival]] = {}
        self._unjudged: list[_Arrival] = []  # arrived after the open request was sent
        self._judging: list[_Arrival] = []  # the answer to the open request judges these
        self._is_behind = False  # what the node answered last
        self._is_asking = False

    def __len__(self) -> int:
        return len(self._unjudged) + len(self._judging) + sum(map(len, self._without_height.values()))

    def add(
        self, block_hash: bytes, event: str, at_us: int, kind: str, batch: Batch, *, block: RecentBlock | None
    ) -> None:
        """Add an event of a block, whose row goes into `batch` once height and catch-up mark are known.

        `block` is None while the block's height is unknown; a later call of `resolve` gives it. `event` (such
        as `seen`) and `kind` (such as `pushed`) are values of these columns, and `at_us` is the wall clock in
        microseconds since 1970 UTC.
        """
        arrival = _Arrival(block_hash, event, at_us, kind, batch, block)
        if block is None:
            self._without_height.setdefault(block_hash, []).append(arrival)
            arrival.n_missing += 1
        if kind == "pushed" and event != "disconnected":
            self._unjudged.append(arrival)
            arrival.n_missing += 1
        batch.n_pending_rows += 1
        self._give_out([arrival])
        self._ask_if_due()

    def resolve(self, block_hash: bytes, block: RecentBlock | None) -> None:
        """Give the waiting events of a block its height; rows that are complete then go to their batches.

        `block` is None when the node cannot give the block.
        """
        arrivals = self._without_height.pop(block_hash, [])
        for arrival in arrivals:
            arrival.block = block
            arrival.n_missing -= 1
        self._give_out(arrivals)

    def answer_if_behind(self, *, is_behind: bool | None) -> None:
        """Take the node's answer on whether it was behind, and complete the rows that waited for the answer.

        `is_behind` says whether the node knew headers of blocks that it had not connected; None: it did not
        answer.
        """
        was_behind, self._is_behind = self._is_behind, bool(is_behind)
        judged, self._judging = self._judging, []
        for arrival in judged:
            arrival.was_behind = was_behind or is_behind
            arrival.n_missing -= 1
        self._give_out(judged)
        self._is_asking = False
        self._ask_if_due()

    def flush(self) -> None:
        """Complete every waiting row of `block_arrivals` with what is known, because no more answers come."""
        self._judging += self._unjudged
        self._unjudged = []
        for block_hash in list(self._without_height):
            self.resolve(block_hash, None)
        self.answer_if_behind(is_behind=None)

    def _ask_if_due(self) -> None:
        """Ask whether the node is behind, if an event needs the answer and no such request is open."""
        if self._unjudged and not self._is_asking:
            self._is_asking = True
            self._judging, self._unjudged = self._unjudged, []
            self._ask_if_behind()

    def _give_out(self, arrivals: list[_Arrival]) -> None:
        """Add the rows of those block arrivals that wait for nothing more to their batches."""
        for arrival in arrivals:
            if arrival.n_missing == 0:
                arrival.batch.add("block_arrivals", [self._row(arrival)])
                arrival.batch.n_pending_rows -= 1

    def _row(self, arrival: _Arrival) -> BlockArrivalRow:
        """Return the row of `block_arrivals` for an event of a block.

        A block whose header was hours old when the block came is marked as a catch-up.
        """
        block, is_catch_up = arrival.block, arrival.was_behind
        is_arrival = arrival.kind == "pushed" and arrival.event != "disconnected"
        if is_arrival and block is not None and arrival.at_us - block.header_time_s * 1_000_000 > OLD_US:
            is_catch_up = True
        return {
            "node": self._origin[0],
            "session": self._origin[1],
            "block_hash": arrival.block_hash,
            "event": arrival.event,
            "event_at": arrival.at_us,
            "kind": arrival.kind,
            "height": None if block is None else block.height,
            "prev_hash": None if block is None else block.prev_hash,
            "is_catch_up": is_catch_up,
        }
