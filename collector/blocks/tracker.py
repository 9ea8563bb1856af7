"""Track the blocks of one node until they are rows: their bytes, height, fees, verdict and arrivals.

The bytes of a block come with `rawblock` (tips only) or from the node's RPC. Its fees and height come from
`getblock` with verbosity 3, which needs no index of transactions. A block that fails verification is fetched
once more by RPC before the failure is believed. The tracker does not talk to the node itself: it asks through
`BlockRequests` and takes the answers.

No block is left out: when a block is stored and its parent is not, the parent is fetched, and so on down to a
block that is stored. The hashes that the dataset holds decide this, never the greatest height.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final, NamedTuple, Protocol

import structlog

from collector.blocks.amounts import BlockAmounts, unknown_amounts
from collector.blocks.arrivals import Arrivals
from collector.blocks.recent import ParsedBlocks, RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.codec.arrays import Bytes
from collector.codec.block import Block, ParsedBlock, parse_block
from collector.codec.coinbase import bip34_height
from collector.codec.rows import block_rows
from collector.codec.verify import backend_name, verify_block
from collector.dataset.rows import RejectRow
from collector.dataset.schema import hash_hex
from collector.errors import DecodeError
from collector.journal.batches import Batch

PARENT_PATIENCE_US: Final = 2_000_000  # we wait so long for a parent's own messages before we fetch it

log = structlog.get_logger(__name__)


class BlockAnswer(NamedTuple):
    """Holds what the node answered about a block, and the raw bytes if they were requested."""

    height: int
    txids: list[bytes]
    amounts: BlockAmounts | None  # None when the node cannot tell them
    raw: bytes | None


class BlockRequests(Protocol):
    """Sends a block tracker's requests to its node.

    The caller passes the answers to the tracker's `take_` methods.
    """

    def ask_block(self, block_hash: bytes, *, needs_raw: bool) -> None:
        """Ask the node for a block, and for its raw bytes too if `needs_raw`; return before it answers."""

    def ask_if_behind(self) -> None:
        """Ask the node whether it knows headers of blocks it has not connected; return before it answers."""


class AnswerUse(Enum):
    """Says what a block tracker did with an answer about a block: completed the block, or asked again."""

    RESOLVED = auto()  # the block has its rows, or is rejected
    ASKED_AGAIN = auto()  # the block's bytes are missing or wrong, so they are fetched by RPC


@dataclass(slots=True)
class _WantedBlock:
    """Holds what a block tracker knows of a block while its request to the node is open."""

    owner: Batch | None = None  # the batch of the first event that named the block
    kinds: set[str] = field(default_factory=set)
    source: str = "zmq"
    fills_gap: bool = False  # whether it is fetched as the ancestor of a stored block, not for a message

    @property
    def was_pushed(self) -> bool:
        """Return whether a message of the node named this block."""
        return "pushed" in self.kinds


class _MissingBlock(NamedTuple):
    """Names a block that is to be fetched at the time `due_us` (monotonic clock) or later."""

    block_hash: bytes
    due_us: int


class BlockTracker:
    """Turns the blocks of one node in one session into rows of the dataset.

    It also puts each block that the node describes into `recent`, the last blocks in memory.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        chain: str,
        *,
        stored: StoredBlocks,
        recent: RecentBlocks,
        requests: BlockRequests,
    ) -> None:
        self._origin = origin  # node and session
        self._chain = chain
        self._stored = stored
        self._recent = recent
        self._requests = requests
        self._arrivals = Arrivals(origin, requests.ask_if_behind)
        self._parsed = ParsedBlocks()
        self._wanted: dict[bytes, _WantedBlock] = {}
        self._missing: deque[_MissingBlock] = deque()

    def __len__(self) -> int:
        return len(self._wanted) + len(self._missing) + len(self._arrivals)

    @property
    def is_filling(self) -> bool:
        """Return whether blocks are being fetched that no message of the node named."""
        return bool(self._missing) or any(wanted.fills_gap for wanted in self._wanted.values())

    def block(self, block_hash: bytes) -> Block | None:
        """Return the block with this hash if it was parsed in the last minutes, else None."""
        parsed = self._parsed.get(block_hash)
        return None if parsed is None else parsed.block

    def take_raw(self, raw: bytes) -> Block:
        """Parse, verify, keep and return the block of a `rawblock` message.

        Raises DecodeError when the block is not valid.
        """
        parsed = parse_block(raw)
        verdict = verify_block(parsed.block, self._chain)
        if verdict != "valid":
            raise DecodeError(f"block {hash_hex(parsed.block.block_hash)}: {verdict}")
        self._parsed.add(parsed)
        return parsed.block

    def add_event(self, block_hash: bytes, event: str, at_us: int, kind: str, batch: Batch) -> None:
        """Record that a block was seen, connected or disconnected; its row goes into `batch` when complete.

        The row waits for the block's height. The node is asked for a block that it has not described yet. It
        is also asked when a message names a block that was there when the session began and that the dataset
        does not hold. `event` and `kind` are values of the columns of `block_arrivals`.
        """
        block = self._recent.get(block_hash)
        self._arrivals.add(block_hash, event, at_us, kind, batch, block=block)
        if block is None or (kind == "pushed" and block_hash not in self._stored):
            self.want(block_hash)
            wanted = self._wanted[block_hash]
            wanted.kinds.add(kind)
            if wanted.owner is None:
                wanted.owner = batch
                batch.n_pending_rows += 1

    def want(self, block_hash: bytes) -> None:
        """Ask the node for a block, unless a request for the block is open."""
        if block_hash not in self._wanted:
            needs_raw = block_hash not in self._parsed
            self._wanted[block_hash] = _WantedBlock(source="rpc" if needs_raw else "zmq")
            self._requests.ask_block(block_hash, needs_raw=needs_raw)

    def fetch_missing(self, hashes: Iterable[bytes], due_us: int) -> None:
        """Queue blocks for fetching at the time `due_us` (monotonic clock).

        Blocks that are stored by then are skipped. When such a block is stored, its parent is fetched too if
        the dataset lacks it.
        """
        self._missing += [_MissingBlock(hash_, due_us) for hash_ in hashes if hash_ not in self._stored]

    def tick(self, now_us: int, *, at_once: bool = False) -> None:
        """Forget old blocks, and ask the node for the next queued block that is due, if no request is open.

        With `at_once` a block need not be due.
        """
        self._parsed.forget(now_us, self._wanted)
        while self._missing and not self._wanted and (at_once or self._missing[0].due_us <= now_us):
            block_hash = self._missing.popleft().block_hash
            if block_hash not in self._stored:
                self.want(block_hash)
                self._wanted[block_hash].fills_gap = True

    def take_answer(
        self, block_hash: bytes, answer: BlockAnswer, wall_us: int, now_us: int, batch: Batch
    ) -> AnswerUse:
        """Take the node's answer about a wanted block: add its rows to a batch and complete its arrivals.

        `wall_us` is the present wall clock, `now_us` the monotonic one. Returns ASKED_AGAIN when the bytes of
        the block are missing or wrong and are therefore fetched by RPC, else RESOLVED.
        """
        wanted = self._wanted[block_hash]
        if answer.raw is not None:
            try:
                self._parsed.add(_parse_named(answer.raw, block_hash))
            except DecodeError as error:
                self._reject(batch, wanted, wall_us, str(error), answer.raw)
                self.give_up(block_hash)
                return AnswerUse.RESOLVED
        parsed = self._parsed.get(block_hash)
        if parsed is None:
            return self._ask_again(block_hash, wanted)
        block, txids = parsed.block, answer.txids
        verdict = verify_block(block, self._chain, txids, height=answer.height)
        if verdict != "valid":
            self._reject(batch, wanted, wall_us, f"block: {verdict}", parsed.raw)
            if wanted.source == "zmq":
                return self._ask_again(block_hash, wanted)
        amounts = self._amounts(block, answer)
        fees, header = amounts.fees_sat, block.header
        by_txid = dict(zip(txids[1:], fees[1:], strict=True))
        spent_sat = amounts.by_outpoint(block)
        recent = RecentBlock(answer.height, header.prev_hash, header.time_s, by_txid, spent_sat)
        self._recent.add(block_hash, recent)
        first_height = self._stored.first_wanted_height
        is_in_range = first_height is not None and recent.height >= first_height
        if wanted.was_pushed or is_in_range:  # a dataset begins with the first block that it saw come
            if self._stored.reserve(block_hash, self._origin[0]):
                # In the batch of the message that announced it: a kill loses both or neither.
                owner, types = wanted.owner or batch, amounts.spent_types
                try:
                    self._store(parsed, recent.height, wanted, verdict, fees, spent_types=types, owner=owner)
                except Exception:
                    self._stored.cancel(block_hash)
                    raise
            self._fetch_parent(recent, wanted, now_us)
        if wanted.fills_gap and is_in_range:
            self._arrivals.add(block_hash, "connected", wall_us, "pulled", batch, block=recent)
        self._resolve(block_hash, recent)
        return AnswerUse.RESOLVED

    def take_if_behind(self, *, is_behind: bool | None) -> None:
        """Complete the block arrivals that wait for the node's answer on whether it is behind.

        A node is behind if it knows headers of blocks that it has not connected. `is_behind` is None when the
        node did not answer.
        """
        self._arrivals.answer_if_behind(is_behind=is_behind)

    def give_up(self, block_hash: bytes) -> None:
        """Stop waiting for the node's answer about a block.

        If the block's bytes and height are known, it is stored without fees.
        """
        wanted, parsed = self._wanted.get(block_hash), self._parsed.get(block_hash)
        recent: RecentBlock | None = None
        if wanted is not None and wanted.owner is not None and parsed is not None:
            block = parsed.block
            parent = self._recent.get(block.header.prev_hash)
            height = bip34_height(block) if parent is None else parent.height + 1
            if height is not None:
                recent = RecentBlock(height, block.header.prev_hash, block.header.time_s, {}, {})
                if self._stored.reserve(block_hash, self._origin[0]):
                    source = "bip34" if parent is None else "tree"
                    verdict = verify_block(block, self._chain)
                    self._store(
                        parsed,
                        height,
                        wanted,
                        verdict,
                        (),
                        spent_types=None,
                        owner=wanted.owner,
                        height_source=source,
                    )
        self._resolve(block_hash, recent)

    def refuse(self, block_hash: bytes, reason: str, wall_us: int, batch: Batch) -> bool:
        """Go on without a block on which our code fails, and keep its bytes, else its hash, in `rejects`.

        The next session asks for the block again. Returns False when nothing waits for the block.
        """
        wanted, parsed = self._wanted.get(block_hash), self._parsed.get(block_hash)
        if wanted is None:
            return False
        self._reject(batch, wanted, wall_us, reason, block_hash if parsed is None else parsed.raw)
        self._resolve(block_hash, None)
        return True

    def flush(self) -> None:
        """Complete every waiting row about blocks with what is known, because no more answers come."""
        self._missing.clear()
        for block_hash in list(self._wanted):
            self.give_up(block_hash)
        self._arrivals.flush()

    def _store(
        self,
        parsed: ParsedBlock,
        height: int,
        wanted: _WantedBlock,
        verdict: str,
        fees: Sequence[int | None],
        *,
        spent_types: Bytes | None,
        owner: Batch,
        height_source: str = "rpc",
    ) -> None:
        """Make the rows of a block and of its transactions, and add them to the batch `owner`.

        The transactions are left out where the dataset has them, because a file of `blocks` was lost. They
        are added where a killed backfill left them, since the next backfill or compaction removes those.
        """
        has_types = spent_types is not None and len(spent_types) == len(parsed.layout.spends)
        block_row, transaction_rows = block_rows(
            parsed,
            chain=self._chain,
            height=height,
            height_source=height_source,
            source=wanted.source,
            verdict=verdict,
            verified_by=backend_name(),
            fees=fees if len(fees) == len(parsed.block.transactions) else None,
            spent_types=spent_types if has_types else None,
        )
        owner.add("blocks", block_row)
        if not self._stored.has_transactions(parsed.block.block_hash, len(parsed.block.transactions)):
            owner.add("transactions", transaction_rows)

    def _fetch_parent(self, block: RecentBlock, wanted: _WantedBlock, now_us: int) -> None:
        """Queue the parent of a block for fetching if the dataset lacks it and should have its height."""
        first_height = self._stored.first_wanted_height
        if first_height is None or block.height <= first_height:
            return
        self._stored.add_missing(block.prev_hash)  # the session may end before it is fetched
        if block.prev_hash not in self._wanted:
            due_us = now_us if wanted.fills_gap else now_us + PARENT_PATIENCE_US
            self.fetch_missing([block.prev_hash], due_us)

    def _amounts(self, block: Block, answer: BlockAnswer) -> BlockAmounts:
        """Return the fees and spent outputs in the node's answer about a block.

        If the answer has none, or those of another block, log a warning and return unknown ones.
        """
        if answer.amounts is not None and answer.amounts.fits(block):
            return answer.amounts
        reason = "the node does not tell them" if answer.amounts is None else "they are another block's"
        log.warning(
            "block.without_fees", node=self._origin[0], block=hash_hex(block.block_hash), reason=reason
        )
        return unknown_amounts(len(block.transactions))

    def _ask_again(self, block_hash: bytes, wanted: _WantedBlock) -> AnswerUse:
        """Ask the node for a block's bytes, because we have none, or wrong ones.

        Returns ASKED_AGAIN.
        """
        wanted.source = "rpc"
        self._requests.ask_block(block_hash, needs_raw=True)
        return AnswerUse.ASKED_AGAIN

    def _resolve(self, block_hash: bytes, block: RecentBlock | None) -> None:
        """Stop waiting for a block and complete the rows of its arrivals.

        `block` is None when the node cannot give the block.
        """
        wanted = self._wanted.pop(block_hash, None)
        if wanted is None:
            return
        self._arrivals.resolve(block_hash, block)
        if wanted.owner is not None:
            wanted.owner.n_pending_rows -= 1

    def _reject(self, batch: Batch, wanted: _WantedBlock, wall_us: int, reason: str, raw: bytes) -> None:
        """Add a row of `rejects` that keeps the bytes of a wrong block, and log a warning."""
        topic = "rawblock" if wanted.source == "zmq" else "rpc"
        batch.add("rejects", [reject_row(self._origin, topic, wall_us, reason, raw)])
        log.warning("block.rejected", node=self._origin[0], source=topic, reason=reason)


def _parse_named(raw: bytes, block_hash: bytes) -> ParsedBlock:
    """Parse and return the block that the node gave for a hash.

    Raises DecodeError when it is another block or none.
    """
    parsed = parse_block(raw)
    if parsed.block.block_hash != block_hash:
        raise DecodeError(f"the node gave block {hash_hex(parsed.block.block_hash)} for another")
    return parsed


def reject_row(
    origin: tuple[str, str],
    topic: str,
    received_us: int,
    reason: str,
    body: bytes,
    *,
    sequence: int | None = None,
) -> RejectRow:
    """Return a row of the table `rejects`: the bytes `body` and the reason for which they were refused.

    `origin` is node and session; `received_us` is the wall clock in microseconds.
    """
    return {
        "node": origin[0],
        "session": origin[1],
        "received_at": received_us,
        "topic": topic,
        "sequence": sequence,
        "reason": reason,
        "body": body,
    }
