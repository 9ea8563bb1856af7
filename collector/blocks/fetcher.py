"""Fetch blocks from the node for the tracker, and follow the node's tip.

One request thread fetches blocks, one after the other. A second thread asks whether the node is behind,
because that answer must come soon after the block that it is about.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog

from collector.blocks.amounts import BlockAmounts, read_amounts
from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.blocks.tracker import AnswerUse, BlockAnswer, BlockTracker, reject_row
from collector.clock import monotonic_us, wall_us
from collector.codec.block import Block
from collector.dataset.schema import UNKNOWN_PARENT, hash_hex
from collector.errors import NodeError, RpcError, UnusableAnswer
from collector.journal.batches import Batch, Batches
from collector.node.answers import MOST_COUNT, Fields, read_hash, read_hex, refuse
from collector.node.request_threads import ANSWERED, AWAY, NodeRequests
from collector.node.rpc import RpcClient, without

log = structlog.get_logger(__name__)
# Takes a block's hash, the recent block (None when the node does not give it) and its txids.
BlockTaker = Callable[[bytes, RecentBlock | None, list[bytes]], None]
# Skipped fields of getblock. The field hex of a script is read, and that of a transaction is not.
UNREAD: Final = frozenset({"hex", "scriptSig", "txinwitness", "asm", "desc", "address"})
_read_fields_of_script: Final = without(UNREAD - {"hex"})
_read_fields_of_others: Final = without(UNREAD)
WRONG_FOR_S: Final = 120.0  # wrong answers about blocks are asked again for so long
# Errors of getblock (Bitcoin Core, rpc/protocol.h and rpc/blockchain.cpp).
NOT_FOUND: Final = -5  # RPC_INVALID_ADDRESS_OR_KEY: no such block
MISC_ERROR: Final = -1  # RPC_MISC_ERROR: a pruned block, and blocks that are not on the disk yet
PRUNED: Final = "pruned"  # in the message of MISC_ERROR
INTERNAL_ERROR: Final = -32603  # RPC_INTERNAL_ERROR: undo data that cannot be read


class BlockFetcher:
    """Fetches blocks for one node in one session: those that its messages name, and those the dataset lacks.

    It calls `on_resolved` when the node has answered about a block, or has refused to.
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
        self.tip_hash: bytes | None = None  # the node's tip by its messages; None when they do not say it
        self._n_tip_changes = 0
        self._depth = 0  # blocks disconnected since the last one was connected
        self._n_tips_asked = 0  # open requests for the tip, below which blocks may be missing
        self._patience_s = WRONG_FOR_S  # with wrong answers about blocks
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

    # --- called by the pipeline to report and to ask for blocks

    def start(self, tip_hash: bytes, tip_height: int, at_us: int) -> None:
        """Begin at the node's tip: store every later block, and fetch missing blocks below the tip."""
        self.want_above(tip_height)
        self.tip_hash = tip_hash
        self._tracker.add_event(tip_hash, "connected", at_us, "at_start", self._batches.current)
        self._tracker.fetch_missing(self._stored.missing, monotonic_us())

    def want_above(self, height: int) -> None:
        """Store every block above a height from now on, unless such a height is set already."""
        if self._stored.first_wanted_height is None:
            self._stored.want_from(height + 1)

    def fetch_missing(self) -> None:
        """Ask the node for its tip; if the dataset lacks that block, fetch it and its missing ancestors."""
        n_tip_changes = self._n_tip_changes
        self._n_tips_asked += 1
        self._requests.blocks.insist(
            ask_tip, lambda tip_hash: self._on_tip(tip_hash, n_tip_changes), self._no_tip
        )

    def take_raw(self, raw: bytes, at_us: int, batch: Batch) -> Block:
        """Parse, verify and return the block of a `rawblock` message, and record that it was seen at `at_us`.

        `at_us` is the wall clock in microseconds. Raises DecodeError when the block is not valid.
        """
        block = self._tracker.take_raw(raw)
        self.add_event(block.block_hash, "seen", at_us, batch)
        return block

    def add_event(self, block_hash: bytes, event: str, at_us: int, batch: Batch) -> None:
        """Record that a message said a block was seen, connected or disconnected; follow the node's tip."""
        self._tracker.add_event(block_hash, event, at_us, "pushed", batch)
        if event == "seen":
            return
        self._n_tip_changes += 1
        if event == "disconnected":
            self._depth += 1
            self.tip_hash = None
            self._recent.note_disconnected(block_hash)
            return
        if self._depth:
            log.info("chain.reorganised", node=self._node, depth=self._depth, block=hash_hex(block_hash))
        self._depth = 0
        self.tip_hash = block_hash
        self._recent.note_tip(block_hash)

    def want(self, block_hash: bytes) -> None:
        """Ask the node for a block, unless a request for the block is open."""
        self._tracker.want(block_hash)

    def tick(self, now_us: int, *, at_once: bool = False) -> None:
        """Ask the node for the next missing block if its time has come (`now_us`, monotonic clock).

        With `at_once`, ask even before that time.
        """
        self._tracker.tick(now_us, at_once=at_once)

    def flush(self) -> None:
        """Complete every waiting row about blocks with what is known, because no more answers come."""
        self._tracker.flush()

    # --- read by the pipeline

    @property
    def is_filling(self) -> bool:
        """Return whether blocks that no message named are being fetched, or the node's tip is awaited."""
        return self._tracker.is_filling or self._n_tips_asked > 0

    def block(self, block_hash: bytes) -> Block | None:
        """Return the block with this hash if it was parsed in the last minutes, else None."""
        return self._tracker.block(block_hash)

    def txids_of(self, block_hash: bytes) -> list[bytes]:
        """Return the txids of a block in block order.

        The list is empty if the block was not parsed in the last minutes.
        """
        block = self._tracker.block(block_hash)
        return [] if block is None else [transaction.txid for transaction in block.transactions]

    def outpoints_spent_in(self, block_hash: bytes) -> list[bytes]:
        """Return the outpoints that a block spends.

        The list is empty if the block was not parsed in the last minutes.
        """
        block = self._tracker.block(block_hash)
        if block is None:
            return []
        return [spent for transaction in block.transactions[1:] for spent in transaction.outpoints]

    # --- requests to the node

    def ask_block(self, block_hash: bytes, *, needs_raw: bool) -> None:
        """Ask the node for a block, and for its raw bytes too if `needs_raw`.

        The block tracker gets the answer. After a wrong answer the request is repeated, for two minutes;
        then the block is asked for without its fees.
        """
        self._requests.blocks.ask(
            partial(ask_block, block_hash=block_hash, raw=needs_raw),
            partial(self._on_block, block_hash),
            partial(self._wrong_block, block_hash, needs_raw=needs_raw),
            wrong_for_s=self._patience_s,
        )

    def _wrong_block(self, block_hash: bytes, error: NodeError, *, needs_raw: bool) -> None:
        """Ask for a block without its fees when the answers with them are wrong; else go on without it.

        From then on no block waits for a right answer, until a right answer comes.
        """
        if isinstance(error, (*AWAY, *ANSWERED)):
            self._no_block(block_hash, error)
            return
        self._patience_s = 0.0
        log.warning("block.wrong", node=self._node, block=hash_hex(block_hash), reason=str(error))
        self._requests.blocks.ask(
            partial(ask_block, block_hash=block_hash, raw=needs_raw, with_amounts=False),
            partial(self._on_block, block_hash),
            partial(self._no_block, block_hash),
        )

    def ask_if_behind(self) -> None:
        """Ask the node whether it knows headers of blocks that it has not connected.

        The block tracker gets the answer.
        """
        self._requests.status.ask(
            ask_behind,
            lambda is_behind: self._tracker.take_if_behind(is_behind=is_behind),
            lambda _: self._tracker.take_if_behind(is_behind=None),
        )

    def _on_block(self, block_hash: bytes, answer: BlockAnswer) -> None:
        """Pass the node's answer about a block to the block tracker.

        If the answer completes the rows of the block, call `on_resolved`.
        """
        if answer.amounts is not None:
            self._patience_s = WRONG_FOR_S
        current = self._batches.current
        use = self._tracker.take_answer(block_hash, answer, wall_us(), monotonic_us(), current)
        if use is AnswerUse.RESOLVED:
            # At once: in a burst of blocks it may no longer be a recent one at the next tick.
            self._on_resolved(block_hash, self._recent.get(block_hash), answer.txids)

    def _no_block(self, block_hash: bytes, error: NodeError) -> None:
        """Go on without a block that the node does not give, and call `on_resolved`.

        When the node does not know the missing parent of a stored block, a row of `rejects` records that.
        """
        if isinstance(error, UnusableAnswer):
            if not self._tracker.refuse(block_hash, str(error), wall_us(), self._batches.current):
                raise error  # the block is stored, and what it did to the mempool fails
            self._on_resolved(block_hash, None, self.txids_of(block_hash))
            return
        log.warning("block.missing", node=self._node, block=hash_hex(block_hash), reason=str(error))
        is_unknown = isinstance(error, RpcError) and error.code == NOT_FOUND
        if is_unknown and block_hash in self._stored.missing:
            row = reject_row(self._origin, "rpc", wall_us(), UNKNOWN_PARENT, block_hash)
            self._batches.add_independent("rejects", [row])
        self._tracker.give_up(block_hash)
        self._on_resolved(block_hash, None, self.txids_of(block_hash))

    def _on_tip(self, tip_hash: bytes, n_tip_changes: int) -> None:
        """Take the hash of the node's tip and fetch its block if the dataset lacks it.

        `n_tip_changes` is the number of tip changes when the tip was asked for: if a message has changed the
        tip since, the answer does not replace it.
        """
        self._n_tips_asked -= 1
        if n_tip_changes == self._n_tip_changes:
            self.tip_hash = tip_hash
            self._recent.note_tip(tip_hash)
        if tip_hash not in self._stored:
            log.info("blocks.filling", node=self._node, tip=hash_hex(tip_hash))
        self._tracker.fetch_missing([tip_hash], monotonic_us())

    def _no_tip(self, _: NodeError) -> None:
        """Count a request for the tip as ended, because a stop of the collector cut it off."""
        self._n_tips_asked -= 1


def ask_block(client: RpcClient, block_hash: bytes, *, raw: bool, with_amounts: bool = True) -> BlockAnswer:
    """Ask the node for a block, and for its raw bytes if `raw`; return the answer.

    It has fees and spent outputs unless the node has lost the undo data, or `with_amounts` is false. Raises
    RpcError when the node does not have the block, and NodeError when the same question may have a better
    answer later: its answer has a wrong form, or is another error, as for a block that it cannot read from
    its disk now.
    """
    try:
        return _ask_block(client, hash_hex(block_hash), raw=raw, with_amounts=with_amounts)
    except RpcError as error:
        if error.code == INTERNAL_ERROR and with_amounts:
            return ask_block(client, block_hash, raw=raw, with_amounts=False)
        is_pruned = error.code == MISC_ERROR and PRUNED in str(error)
        if is_pruned or error.code in (NOT_FOUND, INTERNAL_ERROR):
            raise
        raise NodeError(str(error)) from error


def _read_fields(found: dict[str, Any]) -> dict[str, Any]:
    """Return an object in an answer of getblock without the fields that nobody reads."""
    return (_read_fields_of_script if "type" in found else _read_fields_of_others)(found)


def _ask_block(client: RpcClient, name: str, *, raw: bool, with_amounts: bool) -> BlockAnswer:
    """Ask the node for a block by its hash in hex, as `ask_block` does; raise every error of the node."""
    amounts: BlockAmounts | None = None
    if with_amounts:
        answer = client.call("getblock", name, 3, kept=_read_fields)
        txids = [Fields("getblock: tx", each).hash("txid") for each in _transactions(answer)]
        amounts = read_amounts(answer)
    else:
        answer = client.call("getblock", name, 1)
        txids = [read_hash("getblock: tx", each) for each in _transactions(answer)]
    height = Fields("getblock", answer).integer("height", most=MOST_COUNT)
    raw_block = read_hex("getblock", client.call("getblock", name, 0)) if raw else None
    return BlockAnswer(height, txids, amounts, raw_block)


def _transactions(answer: object) -> list[Any]:
    """Return the transactions in an answer of getblock; raise NodeError when there are none."""
    transactions = Fields("getblock", answer).list("tx")
    if not transactions:
        refuse("getblock: tx", transactions, "the transactions of a block")
    return transactions


def ask_tip(client: RpcClient) -> bytes:
    """Return the hash of the node's tip in internal byte order."""
    return read_hash("getbestblockhash", client.call("getbestblockhash"))


def ask_behind(client: RpcClient) -> bool:
    """Return whether the node knows headers of blocks that it has not connected."""
    fields = Fields("getblockchaininfo", client.call("getblockchaininfo"))
    return fields.integer("headers") > fields.integer("blocks")
