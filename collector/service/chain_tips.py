"""Record the tips of branches that a node knows, so that blocks which it never connected are counted too.

A block that lost its race may be known to a node by its header alone, or unverified: no message names it.
Only getchaintips does. The node goes through all its headers for the answer, so it is asked on a timer and
after each block, never while it makes a template.
"""

import time
from typing import Final, NamedTuple

import structlog

from collector.clock import wall_us
from collector.dataset.rows import ChainTipRow
from collector.dataset.schema import CHAIN_TIP_STATES, hash_hex
from collector.errors import NodeError
from collector.journal.batches import Batches
from collector.node.answers import MOST_COUNT, Fields, read_list, refuse
from collector.node.request_threads import NodeRequests
from collector.node.rpc import RpcClient

ACTIVE: Final = "active"
UNKNOWN: Final = "unknown"
MOST_TIPS: Final = 100_000  # in one answer; nodes of many years know some hundreds
log = structlog.get_logger(__name__)


class ChainTip(NamedTuple):
    """Describes one branch tip in a node's answer to getchaintips."""

    block_hash: bytes
    height: int
    branch_length: int
    status: str  # one of CHAIN_TIP_STATES


class TipsAnswer(NamedTuple):
    """Holds the branch tips in an answer of getchaintips, and when it was complete (wall clock, in us)."""

    tips: list[ChainTip]
    taken_us: int


def ask_tips(client: RpcClient) -> TipsAnswer:
    """Return the tips of all branches that the node knows; NodeError for an answer of wrong form.

    A status that we do not know is given as "unknown".
    """
    answer, taken_us = client.call("getchaintips"), wall_us()
    tips = []
    for each in read_list("getchaintips", answer)[:MOST_TIPS]:
        fields = Fields("getchaintips", each)
        status, branch_length = fields.get("status"), fields.integer("branchlen", most=MOST_COUNT)
        if not isinstance(status, str) or (status == ACTIVE) != (branch_length == 0):
            refuse("getchaintips: status", status, f"that of a branch of length {branch_length}")
        tips.append(
            ChainTip(
                fields.hash("hash"),
                fields.integer("height", most=MOST_COUNT),
                branch_length,
                status if status in CHAIN_TIP_STATES else UNKNOWN,
            )
        )
    return TipsAnswer(tips, taken_us)


class ChainTips:
    """Asks one node for the branch tips that it knows; makes a row of each tip that is new or has changed."""

    def __init__(
        self, origin: tuple[str, str], interval_s: float, *, requests: NodeRequests, batches: Batches
    ) -> None:
        self._origin = origin  # node and session
        self._interval_s = interval_s
        self._requests = requests
        self._batches = batches
        self._recorded: dict[bytes, ChainTip] = {}
        self._due_s = time.monotonic()
        self._is_open = False
        self._has_asked = False

    def ask_soon(self) -> None:
        """Make the next request for chain tips due now, because the node has connected a block."""
        self._due_s = time.monotonic()

    def ask_on_time(self) -> None:
        """Ask the node for its chain tips if a request is due and none is open."""
        now_s = time.monotonic()
        if not self._is_open and now_s >= self._due_s:
            self._due_s = now_s + self._interval_s
            self._is_open = True
            self._requests.chain_tips.ask(ask_tips, self._on_answer, self._no_answer)

    def _on_answer(self, found: TipsAnswer) -> None:
        self._is_open = False
        changed = [tip for tip in found.tips if self._is_news(tip)]
        self._recorded |= {tip.block_hash: tip for tip in changed}
        if self._has_asked:
            for tip in changed:
                log.info(
                    "chain_tip.changed",
                    node=self._origin[0],
                    **tip._asdict() | {"block_hash": hash_hex(tip.block_hash)},
                )
        self._has_asked = True
        if changed:
            rows = [self._row(tip, found.taken_us) for tip in changed]
            self._batches.add_independent("chain_tips", rows)

    def _is_news(self, tip: ChainTip) -> bool:
        """Return whether a chain tip needs a row; the active tip needs none while its chain only grows."""
        recorded = self._recorded.get(tip.block_hash)
        return recorded != tip and (recorded is not None or tip.status != ACTIVE or not self._has_asked)

    def _row(self, tip: ChainTip, taken_us: int) -> ChainTipRow:
        return {
            "node": self._origin[0],
            "session": self._origin[1],
            "taken_at": taken_us,
            "block_hash": tip.block_hash,
            "height": tip.height,
            "branch_length": tip.branch_length,
            "status": tip.status,
        }

    def _no_answer(self, error: NodeError) -> None:
        self._is_open = False
        log.warning("chain_tips.refused", node=self._origin[0], reason=str(error))
