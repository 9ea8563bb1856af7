"""Ask the node for blocks and for its state, and say what was learnt.

The slow lane brings blocks, one after the other. Whether the node is catching up is asked in a lane of its
own, for the answer must come soon after the block that it is about.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

import structlog

from collector.blocks.recent import RecentBlock
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import BlockAnswer, BlockTracker
from collector.clock import monotonic_us, wall_us
from collector.dataset.schema import hash_bytes, hash_hex
from collector.errors import NodeError, RpcError
from collector.journal.batches import Batch, Batches
from collector.node.request_threads import NodeRequests, raise_unless_stopped
from collector.node.rpc import RpcClient

log = structlog.get_logger(__name__)
Told = Callable[[bytes, RecentBlock | None, list[bytes]], None]
NO_BLOCK: Final[list[bytes]] = []
UNREAD: Final = frozenset(
    {"hex", "scriptSig", "scriptPubKey", "txinwitness"}
)  # most of the answer of getblock
INTERNAL_ERROR: Final = -32603  # undo data that cannot be read (Bitcoin Core, rpc/blockchain.cpp)


class BlockFetcher:
    """The blocks of one node and session.

    `told` is called with a block's hash, what is known of it and its txids, when the node has answered or has
    refused to.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        chain: str,
        *,
        lanes: NodeRequests,
        batches: Batches,
        stored: StoredBlocks,
        told: Told,
    ) -> None:
        self.flow = BlockTracker(origin, chain, stored, self._ask_block, self._ask_behind)
        self.tip_hash: bytes | None = None  # of the node, as far as the stream told
        self._n_changes = 0  # of the tip
        self._depth = 0  # blocks disconnected since the last one was connected
        self._node = origin[0]
        self._lanes = lanes
        self._batches = batches
        self._stored = stored
        self._told = told

    def __len__(self) -> int:
        return len(self.flow)

    def start(self, tip_hash: bytes, tip_height: int, at_us: int) -> None:
        """Begin behind a tip; from here on every block is wanted, and what the dataset lacks below it."""
        self.begin_behind(tip_height)
        self.tip_hash = tip_hash
        self.flow.happened(tip_hash, "connected", at_us, "at_start", self._batches.current)
        self.flow.fill(self._stored.holes, monotonic_us())

    def begin_behind(self, tip_height: int) -> None:
        """Want every block above a height, unless the dataset begins below it."""
        if self._stored.floor is None:
            self._stored.begin_at(tip_height + 1)

    def fill(self) -> None:
        """See whether the dataset holds the node's tip, and fetch what is missing down from it."""
        n_changes = self._n_changes
        self.flow.n_tips_asked += 1
        self._lanes.blocks.ask(ask_tip, lambda tip_hash: self._on_tip(tip_hash, n_changes), self._no_tip)

    def happened(self, block_hash: bytes, event: str, at_us: int, batch: Batch) -> None:
        """Note what the node said of a block."""
        self.flow.happened(block_hash, event, at_us, "pushed", batch)
        if event == "seen":
            return
        self._n_changes += 1
        if event == "disconnected":
            self._depth += 1
            self.tip_hash = None
            return
        if self._depth:
            log.info("chain.reorganised", node=self._node, depth=self._depth, block=hash_hex(block_hash))
        self._depth = 0
        self.tip_hash = block_hash

    def txids_of(self, block_hash: bytes) -> list[bytes]:
        """Return the txids of a block that came not long ago, in its order."""
        block = self.flow.body(block_hash)
        return NO_BLOCK if block is None else [body.txid for body in block.transactions]

    def spent_in(self, block_hash: bytes) -> list[bytes]:
        """Return the outpoints that a block spends, when it came not long ago."""
        block = self.flow.body(block_hash)
        if block is None:
            return []
        return [spent for body in block.transactions[1:] for spent in body.outpoints]

    # --- questions to the node

    def _ask_block(self, block_hash: bytes, needs_body: bool) -> None:  # noqa: FBT001 - BlockTracker's callback
        self._lanes.blocks.ask(
            partial(ask_block, block_hash=block_hash, raw=needs_body),
            partial(self._on_block, block_hash),
            partial(self._no_block, block_hash),
        )

    def _on_block(self, block_hash: bytes, answer: BlockAnswer) -> None:
        current = self._batches.current
        if self.flow.answered(block_hash, answer, wall_us(), monotonic_us(), current):
            # At once: in a burst of blocks it may be forgotten again before the next tick.
            txids = [hash_bytes(transaction["txid"]) for transaction in answer.verbose["tx"]]
            self._told(block_hash, self.flow.known.get(block_hash), txids)

    def _no_block(self, block_hash: bytes, error: NodeError) -> None:
        """Go on without a block that the node does not have (any more)."""
        log.warning("block.missing", node=self._node, block=hash_hex(block_hash), reason=str(error))
        self.flow.failed(block_hash)
        self._told(block_hash, None, self.txids_of(block_hash))

    def _ask_behind(self) -> None:
        arrivals = self.flow.arrivals
        self._lanes.status.ask(
            ask_behind,
            lambda is_behind: arrivals.looked(is_behind=is_behind),
            lambda _: arrivals.looked(is_behind=None),
        )

    def _on_tip(self, tip_hash: bytes, n_changes: int) -> None:
        self.flow.n_tips_asked -= 1
        if n_changes == self._n_changes:  # else the stream told a later one
            self.tip_hash = tip_hash
        if tip_hash not in self._stored:
            log.info("blocks.filling", node=self._node, tip=hash_hex(tip_hash))
        self.flow.fill([tip_hash], monotonic_us())

    def _no_tip(self, error: NodeError) -> None:
        self.flow.n_tips_asked -= 1
        raise_unless_stopped(error)


def ask_block(client: RpcClient, block_hash: bytes, *, raw: bool) -> BlockAnswer:
    """Ask for a block with the outputs its transactions spent, and for its bytes.

    When the node has lost the undo data, the answer has the txids of the transactions and no more of them.
    """
    name = hash_hex(block_hash)
    try:
        verbose = client.call("getblock", name, 3, without=UNREAD)
    except RpcError as error:
        if error.code != INTERNAL_ERROR:
            raise
        verbose = client.call("getblock", name, 1)
        verbose["tx"] = [{"txid": txid} for txid in verbose["tx"]]
    return BlockAnswer(verbose, bytes.fromhex(client.call("getblock", name, 0)) if raw else None)


def ask_tip(client: RpcClient) -> bytes:
    """Return the hash of the node's tip."""
    return hash_bytes(client.call("getbestblockhash"))


def ask_behind(client: RpcClient) -> bool:
    """Return whether the node knows headers of blocks that it has not connected."""
    state = client.call("getblockchaininfo")
    return bool(state["headers"] > state["blocks"])
