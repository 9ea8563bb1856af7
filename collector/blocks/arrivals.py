"""When a block was seen, connected and disconnected: the rows of `block_arrivals`.

A node that was down, or is still downloading the chain, connects old blocks as fast as it can. The moment at
which it does says nothing about when the network had them, so such a row is marked. Two things show it: the
node knew the headers of later blocks, in the look at its state before the block or in the one after it; or
the block's own header is hours old. A row waits for the look that comes after it, and for its height.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from collector.blocks.recent import RecentBlock
from collector.journal.batches import Batch

Row = dict[str, Any]
OLD_US: Final = 7_200_000_000  # a miner's clock may be wrong by as much


@dataclass(slots=True, eq=False)
class _Arrival:
    block_hash: bytes
    event: str
    at_us: int
    kind: str
    batch: Batch
    known: RecentBlock | None = None
    was_behind: bool | None = None  # what the looks before and after it said
    n_missing: int = 0  # of height and look


class Arrivals:
    """The arrivals of one node and session. `look` is called when the node's state is to be looked at."""

    def __init__(self, origin: tuple[str, str], look: Callable[[], None]) -> None:
        self._origin = origin  # node and session
        self._look = look
        self._without_height: dict[bytes, list[_Arrival]] = {}
        self._unjudged: list[_Arrival] = []  # came after the open look was asked for
        self._judging: list[_Arrival] = []
        self._is_behind = False  # in the last look
        self._is_looking = False

    def __len__(self) -> int:
        return len(self._unjudged) + len(self._judging) + sum(map(len, self._without_height.values()))

    def happened(
        self, block_hash: bytes, event: str, at_us: int, kind: str, batch: Batch, *, known: RecentBlock | None
    ) -> None:
        """Note a row; it is added to its batch when everything about it is known."""
        arrival = _Arrival(block_hash, event, at_us, kind, batch, known)
        if known is None:
            self._without_height.setdefault(block_hash, []).append(arrival)
            arrival.n_missing += 1
        if kind == "pushed" and event != "disconnected":
            self._unjudged.append(arrival)
            arrival.n_missing += 1
        batch.n_pending_rows += 1
        self._give_out([arrival])
        self._look_if_due()

    def told(self, block_hash: bytes, known: RecentBlock | None) -> None:
        """Take what is known of a block; None when it cannot be had."""
        arrivals = self._without_height.pop(block_hash, [])
        for arrival in arrivals:
            arrival.known = known
            arrival.n_missing -= 1
        self._give_out(arrivals)

    def looked(self, *, is_behind: bool | None) -> None:
        """Take whether the node knew of later blocks than it had; None when it did not say."""
        was_behind, self._is_behind = self._is_behind, bool(is_behind)
        judged, self._judging = self._judging, []
        for arrival in judged:
            arrival.was_behind = was_behind or is_behind
            arrival.n_missing -= 1
        self._give_out(judged)
        self._is_looking = False
        self._look_if_due()

    def flush(self) -> None:
        """Give out everything with what is known."""
        self._judging += self._unjudged
        self._unjudged = []
        for block_hash in list(self._without_height):
            self.told(block_hash, None)
        self.looked(is_behind=None)

    def _look_if_due(self) -> None:
        if self._unjudged and not self._is_looking:
            self._is_looking = True
            self._judging, self._unjudged = self._unjudged, []
            self._look()

    def _give_out(self, arrivals: list[_Arrival]) -> None:
        for arrival in arrivals:
            if arrival.n_missing == 0:
                arrival.batch.add("block_arrivals", [self._row(arrival)])
                arrival.batch.n_pending_rows -= 1

    def _row(self, arrival: _Arrival) -> Row:
        known, is_catch_up = arrival.known, arrival.was_behind
        is_arrival = arrival.kind == "pushed" and arrival.event != "disconnected"
        if is_arrival and known is not None and arrival.at_us - known.header_time_s * 1_000_000 > OLD_US:
            is_catch_up = True
        return {
            "node": self._origin[0],
            "session": self._origin[1],
            "block_hash": arrival.block_hash,
            "event": arrival.event,
            "event_at": arrival.at_us,
            "kind": arrival.kind,
            "height": None if known is None else known.height,
            "prev_hash": None if known is None else known.prev_hash,
            "is_catch_up": is_catch_up,
        }
