"""Make the rows of `block_arrivals`: when a block was seen, connected and disconnected.

A node that was down, or that still downloads the chain, connects old blocks as fast as it can. The time at
which it connects them does not say when the network had them, so such a row is marked as a catch-up. Two
facts show it: the node knew the headers of later blocks when we asked before or after the block; or the
block's own header is hours old. A row therefore waits until the block's height is known and until the node
has answered once more whether it is behind.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from collector.blocks.recent import RecentBlock
from collector.dataset.rows import BlockArrivalRow
from collector.journal.batches import Batch

OLD_US: Final = 7_200_000_000  # consensus lets a miner's clock be wrong by as much


@dataclass(slots=True, eq=False)
class _Arrival:
    """A row that may still wait for its height and for the node's answer."""

    block_hash: bytes
    event: str
    at_us: int
    kind: str
    batch: Batch
    block: RecentBlock | None = None
    was_behind: bool | None = None  # what the node answered before and after it
    n_missing: int = 0  # of the two things that the row waits for


class Arrivals:
    """The arrivals of one node and session.

    `ask_if_behind` is called when the node is to be asked whether it is behind; `answer_if_behind` takes the
    answer.
    """

    def __init__(self, origin: tuple[str, str], ask_if_behind: Callable[[], None]) -> None:
        self._origin = origin  # node and session
        self._ask_if_behind = ask_if_behind
        self._without_height: dict[bytes, list[_Arrival]] = {}
        self._unjudged: list[_Arrival] = []  # arrived after the open request was sent
        self._judging: list[_Arrival] = []  # the answer to the open request judges these
        self._is_behind = False  # by the last answer
        self._is_asking = False

    def __len__(self) -> int:
        return len(self._unjudged) + len(self._judging) + sum(map(len, self._without_height.values()))

    def add(
        self, block_hash: bytes, event: str, at_us: int, kind: str, batch: Batch, *, block: RecentBlock | None
    ) -> None:
        """Add an arrival. Its row goes into its batch when it is complete; `block` is None until known."""
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
        """Give the arrivals of a block its height; None when the block cannot be had."""
        arrivals = self._without_height.pop(block_hash, [])
        for arrival in arrivals:
            arrival.block = block
            arrival.n_missing -= 1
        self._give_out(arrivals)

    def answer_if_behind(self, *, is_behind: bool | None) -> None:
        """Take whether the node knew headers of later blocks than it had; None when it did not answer."""
        was_behind, self._is_behind = self._is_behind, bool(is_behind)
        judged, self._judging = self._judging, []
        for arrival in judged:
            arrival.was_behind = was_behind or is_behind
            arrival.n_missing -= 1
        self._give_out(judged)
        self._is_asking = False
        self._ask_if_due()

    def flush(self) -> None:
        """Give out every row with what is known of it."""
        self._judging += self._unjudged
        self._unjudged = []
        for block_hash in list(self._without_height):
            self.resolve(block_hash, None)
        self.answer_if_behind(is_behind=None)

    def _ask_if_due(self) -> None:
        """Ask the node when an arrival needs it and no request is open."""
        if self._unjudged and not self._is_asking:
            self._is_asking = True
            self._judging, self._unjudged = self._unjudged, []
            self._ask_if_behind()

    def _give_out(self, arrivals: list[_Arrival]) -> None:
        """Put the complete rows among `arrivals` into their batches."""
        for arrival in arrivals:
            if arrival.n_missing == 0:
                arrival.batch.add("block_arrivals", [self._row(arrival)])
                arrival.batch.n_pending_rows -= 1

    def _row(self, arrival: _Arrival) -> BlockArrivalRow:
        """Make the row of an arrival; a header that is hours old marks it as a catch-up."""
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
