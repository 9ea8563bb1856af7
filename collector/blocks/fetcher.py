"""Fetch blocks from the node for the tracker, and follow the node's tip.

One request thread fetches blocks, one after the other. Whether the node is behind is asked on a thread of its
own, because that answer must come soon after the block that it is about.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import AnswerUse, BlockAnswer, BlockTracker, reject_row
from collector.clock import monotonic_us, wall_us
from collector.codec.decode import Block
from collector.dataset.schema import UNKNOWN_PARENT, hash_hex
from collector.errors import NodeError, RpcError
from collector.journal.batches import Batch, Batches
from collector.node.answers import MOST_COUNT, Fields, read_hash, read_hex, refuse
from collector.node.request_threads import NodeRequests, raise_unless_stopped
from collector.node.rpc import RpcClient

log = structlog.get_logger(__name__)
# Takes a block's hash, what is known of it (None: the node refused it) and its txids.
BlockTaker = Callable[[bytes, RecentBlock | None, list[bytes]], None]
UNREAD: Final = frozenset({"hex", "scriptSig", "scriptPubKey", "txinwitness"})  # most of a getblock answer
NOT_FOUND: Final = -5  # RPC_INVALID_ADDRESS_OR_KEY: no such block
INTERNAL_ERROR: Final = -32603  # undo data that cannot be read (Bitcoin Core, rpc/blockchain.cpp)


class BlockFetcher:
    """The blocks of one node and session: what its messages name, and what RPC answers.

    `on_resolved` is called when the node has answered about a block or has refused to.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        chain: str,
        *,
        requests: NodeRequests,
        batches: Batches,
        stored: StoredBlocks,
        recent: RecentBlocks,
        on_resolved: BlockTaker,
    ) -> None:
        self.tip_hash: bytes | None = None  # the node's, as far as its messages say
        self._n_tip_changes = 0
        self._depth = 0  # blocks disconnected since the last one was connected
        self._n_tips_asked = 0  # open requests for the tip, below which blocks may be missing
        self._origin = origin  # node and session
        self._node = origin[0]
        self._requests = requests
        self._batches = batches
        self._stored = stored
        self._recent = recent
        self._on_resolved = on_resolved
        self._tracker = BlockTracker(origin, chain, stored=stored, recent=recent, requests=self)

    def __len__(self) -> int:
        return len(self._tracker)

    # --- what the pipeline tells

    def start(self, tip_hash: bytes, tip_height: int, at_us: int) -> None:
        """Begin at a tip: want every block after it, and fetch what the dataset lacks below it."""
        self.want_above(tip_height)
        self.tip_hash = tip_hash
        self._tracker.add_event(tip_hash, "connected", at_us, "at_start", self._batches.current)
        self._tracker.fetch_missing(self._stored.missing, monotonic_us())

    def want_above(self, height: int) -> None:
        """Want every block above a height, unless the dataset already has a first height."""
        if self._stored.first_wanted_height is None:
            self._stored.want_from(height + 1)

    def fetch_missing(self) -> None:
        """Ask for the node's tip; fetch it and what is missing below it unless the dataset holds it."""
        n_tip_changes = self._n_tip_changes
        self._n_tips_asked += 1
        self._requests.blocks.ask(
            ask_tip, lambda tip_hash: self._on_tip(tip_hash, n_tip_changes), self._no_tip
        )

    def take_raw(self, raw: bytes, at_us: int, batch: Batch) -> Block:
        """Take the block of a `rawblock` message as seen; raise DecodeError when it is not valid."""
        block = self._tracker.take_raw(raw)
        self.add_event(block.block_hash, "seen", at_us, batch)
        return block

    def add_event(self, block_hash: bytes, event: str, at_us: int, batch: Batch) -> None:
        """Note that a message says a block was seen, connected or disconnected, and follow the tip."""
        self._tracker.add_event(block_hash, event, at_us, "pushed", batch)
        if event == "seen":
            return
        self._n_tip_changes += 1
        if event == "disconnected":
            self._depth += 1
            self.tip_hash = None
            return
        if self._depth:
            log.info("chain.reorganised", node=self._node, depth=self._depth, block=hash_hex(block_hash))
        self._depth = 0
        self.tip_hash = block_hash

    def want(self, block_hash: bytes) -> None:
        """Ask the node for a block, unless it has been asked already."""
        self._tracker.want(block_hash)

    def tick(self, now_us: int, *, at_once: bool = False) -> None:
        """Ask for the next missing block if it is due; `at_once` does not wait until it is."""
        self._tracker.tick(now_us, at_once=at_once)

    def flush(self) -> None:
        """Give out every row with what is known of it: no more answers will come."""
        self._tracker.flush()

    # --- what the pipeline reads

    @property
    def is_filling(self) -> bool:
        """Whether blocks that no message named are being fetched, or the node is asked if there are any."""
        return self._tracker.is_filling or self._n_tips_asked > 0

    def block(self, block_hash: bytes) -> Block | None:
        """Return a block that was parsed lately, else None."""
        return self._tracker.block(block_hash)

    def txids_of(self, block_hash: bytes) -> list[bytes]:
        """Return the txids of a block in its order; none when it was not parsed lately."""
        block = self._tracker.block(block_hash)
        return [] if block is None else [transaction.txid for transaction in block.transactions]

    def outpoints_spent_in(self, block_hash: bytes) -> list[bytes]:
        """Return the outpoints that a block spends; none when it was not parsed lately."""
        block = self._tracker.block(block_hash)
        if block is None:
            return []
        return [spent for transaction in block.transactions[1:] for spent in transaction.outpoints]

    # --- requests to the node

    def ask_block(self, block_hash: bytes, *, needs_raw: bool) -> None:
        """Ask for a block, and for its raw bytes too if `needs_raw`."""
        self._requests.blocks.ask(
            partial(ask_block, block_hash=block_hash, raw=needs_raw),
            partial(self._on_block, block_hash),
            partial(self._no_block, block_hash),
        )

    def ask_if_behind(self) -> None:
        """Ask whether the node knows headers of blocks that it has not connected."""
        self._requests.status.ask(
            ask_behind,
            lambda is_behind: self._tracker.take_if_behind(is_behind=is_behind),
            lambda _: self._tracker.take_if_behind(is_behind=None),
        )

    def _on_block(self, block_hash: bytes, answer: BlockAnswer) -> None:
        """Hand an answer to the tracker, and tell who waits for the block."""
        current = self._batches.current
        use = self._tracker.take_answer(block_hash, answer, wall_us(), monotonic_us(), current)
        if use is AnswerUse.RESOLVED:
            # At once: in a burst of blocks it may no longer be a recent one at the next tick.
            self._on_resolved(block_hash, self._recent.get(block_hash), answer.txids)

    def _no_block(self, block_hash: bytes, error: NodeError) -> None:
        """Go on without a block that the node does not have, or no longer has."""
        log.warning("block.missing", node=self._node, block=hash_hex(block_hash), reason=str(error))
        is_unknown = isinstance(error, RpcError) and error.code == NOT_FOUND
        if is_unknown and block_hash in self._stored.missing:
            row = reject_row(self._origin, "rpc", wall_us(), UNKNOWN_PARENT, block_hash)
            self._batches.add_independent("rejects", [row])
        self._tracker.give_up(block_hash)
        self._on_resolved(block_hash, None, self.txids_of(block_hash))

    def _on_tip(self, tip_hash: bytes, n_tip_changes: int) -> None:
        """Take the node's tip, unless a message has named a later one since it was asked for."""
        self._n_tips_asked -= 1
        if n_tip_changes == self._n_tip_changes:
            self.tip_hash = tip_hash
        if tip_hash not in self._stored:
            log.info("blocks.filling", node=self._node, tip=hash_hex(tip_hash))
        self._tracker.fetch_missing([tip_hash], monotonic_us())

    def _no_tip(self, error: NodeError) -> None:
        """Do without the tip when a stop has cut the request off."""
        self._n_tips_asked -= 1
        raise_unless_stopped(error)


def ask_block(client: RpcClient, block_hash: bytes, *, raw: bool) -> BlockAnswer:
    """Ask for a block with the outputs its transactions spent, and for its bytes if `raw`.

    When the node has lost the undo data, the answer has the txids of the transactions and nothing else of
    them.
    """
    name = hash_hex(block_hash)
    try:
        answer = client.call("getblock", name, 3, without=UNREAD)
    except RpcError as error:
        if error.code != INTERNAL_ERROR:
            raise
        answer = client.call("getblock", name, 1)
        answer = {**Fields("getblock", answer).all, "tx": [{"txid": txid} for txid in _transactions(answer)]}
    height = Fields("getblock", answer).integer("height", most=MOST_COUNT)
    txids = [Fields("getblock: tx", each).hash("txid") for each in _transactions(answer)]
    raw_block = read_hex("getblock", client.call("getblock", name, 0)) if raw else None
    return BlockAnswer(height, txids, answer, raw_block)


def _transactions(answer: object) -> list[Any]:
    """Return the transactions in an answer of getblock; a block has at least one."""
    transactions = Fields("getblock", answer).list("tx")
    if not transactions:
        refuse("getblock: tx", transactions, "the transactions of a block")
    return transactions


def ask_tip(client: RpcClient) -> bytes:
    """Return the hash of the node's tip."""
    return read_hash("getbestblockhash", client.call("getbestblockhash"))


def ask_behind(client: RpcClient) -> bool:
    """Return whether the node knows headers of blocks that it has not connected."""
    fields = Fields("getblockchaininfo", client.call("getblockchaininfo"))
    return fields.integer("headers") > fields.integer("blocks")
