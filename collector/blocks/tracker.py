"""Blocks on their way into the dataset: body, height, fees, verdict; and what happened to them when.

A body comes with `rawblock` (tips only) or from the node's RPC; fees and height come from `getblock` with
verbosity 3, which needs no index of transactions. A block that fails verification is fetched once more by RPC
before it is believed. Nothing here talks to the node: `ask` is called with what is needed.

No hole is left: a block that is stored while its parent is not, makes its parent be fetched, and so on down
to a block that is there. What is present decides, never the greatest height.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog

from collector.blocks.arrivals import Arrivals
from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.blocks.stored import StoredBlocks
from collector.codec.amounts import satoshi
from collector.codec.coinbase import bip34_height
from collector.codec.decode import Block
from collector.codec.decode_many import ParsedBlock, parse_block
from collector.codec.rows import block_rows, fees_from_getblock
from collector.codec.verify import backend_name, verify_block
from collector.dataset.schema import hash_bytes, hash_hex
from collector.errors import DecodeError
from collector.journal.batches import Batch

Row = dict[str, Any]
KEPT_BODY_BYTES: Final = (
    8_000_000  # a C follows its block within moments; decoded, a body takes ten times that
)
PARENT_PATIENCE_US: Final = 2_000_000  # a parent's own messages may be under way

log = structlog.get_logger(__name__)


class BlockAnswer(NamedTuple):
    """What RPC says of a block: getblock with verbosity 3, and the raw block if it was asked for."""

    verbose: Mapping[str, Any]
    raw: bytes | None


@dataclass(slots=True)
class _Wanted:
    """A block that RPC was asked about."""

    owner: Batch | None = None  # of what happened to it first
    kinds: set[str] = field(default_factory=set)
    source: str = "zmq"
    is_fill: bool = False

    @property
    def was_pushed(self) -> bool:
        """Whether the node's messages spoke of it."""
        return "pushed" in self.kinds


class _Missing(NamedTuple):
    """A block to be fetched, from a moment on."""

    block_hash: bytes
    due_us: int


class BlockTracker:
    """The blocks of one node and session. `ask` wants a block, and its raw bytes if True; `look` a look."""

    def __init__(
        self,
        origin: tuple[str, str],
        chain: str,
        stored: StoredBlocks,
        ask: Callable[[bytes, bool], None],
        look: Callable[[], None],
    ) -> None:
        self.known = RecentBlocks()
        self.arrivals = Arrivals(origin, look)
        self.n_tips_asked = 0  # open questions for the tip: the blocks below it may be missing
        self._origin = origin  # node and session
        self._chain = chain
        self._stored = stored
        self._ask = ask
        self._bodies: OrderedDict[bytes, ParsedBlock] = OrderedDict()
        self._bodies_bytes = 0
        self._wanted: dict[bytes, _Wanted] = {}
        self._missing: deque[_Missing] = deque()

    def __len__(self) -> int:
        return len(self._wanted) + len(self._missing) + len(self.arrivals)

    @property
    def is_filling(self) -> bool:
        """Whether blocks are being fetched that nobody saw come, or it is being asked if there are any."""
        is_fetching = bool(self._missing) or any(wanted.is_fill for wanted in self._wanted.values())
        return is_fetching or self.n_tips_asked > 0

    def body(self, block_hash: bytes) -> Block | None:
        """Return a block that was decoded not long ago."""
        kept = self._bodies.get(block_hash)
        return None if kept is None else kept.block

    def received(self, raw: bytes) -> Block:
        """Decode and verify the body of a `rawblock` message; raises DecodeError when either fails."""
        body = parse_block(raw)
        verdict = verify_block(body.block, self._chain)
        if verdict != "valid":
            raise DecodeError(f"block {hash_hex(body.block.block_hash)}: {verdict}")
        self._keep(body)
        return body.block

    def happened(self, block_hash: bytes, event: str, at_us: int, kind: str, batch: Batch) -> None:
        """Note a row of `block_arrivals`; it is given out, in its batch, when the height is known."""
        known = self.known.get(block_hash)
        self.arrivals.happened(block_hash, event, at_us, kind, batch, known=known)
        # One that was there when we came is known and not stored; when it is also seen to come, it is wanted.
        if known is None or (kind == "pushed" and block_hash not in self._stored):
            wanted = self.want(block_hash)
            wanted.kinds.add(kind)
            if wanted.owner is None:
                wanted.owner = batch
                batch.n_pending_rows += 1

    def want(self, block_hash: bytes) -> _Wanted:
        """Ask for what is not known of a block, once."""
        wanted = self._wanted.get(block_hash)
        if wanted is None:
            wanted = self._wanted[block_hash] = _Wanted()
            needs_body = block_hash not in self._bodies
            wanted.source = "rpc" if needs_body else "zmq"
            self._ask(block_hash, needs_body)
        return wanted

    def fill(self, hashes: Iterable[bytes], due_us: int) -> None:
        """Fetch the blocks among `hashes` that are not stored by then, and what is missing below them."""
        self._missing += [_Missing(hash_, due_us) for hash_ in hashes if hash_ not in self._stored]

    def tick(self, now_us: int, *, at_once: bool = False) -> None:
        """Ask for the next missing block when nothing else is under way; `at_once`: without patience."""
        while self._missing and not self._wanted and (at_once or self._missing[0].due_us <= now_us):
            block_hash = self._missing.popleft().block_hash
            if block_hash not in self._stored:
                self.want(block_hash).is_fill = True

    def answered(
        self, block_hash: bytes, answer: BlockAnswer, wall_us: int, now_us: int, batch: Batch
    ) -> bool:
        """Take an answer: make the block's rows and give out its arrivals. False: asked once more.

        `wall_us` stamps rows, `now_us` is of the monotonic clock.
        """
        wanted = self._wanted[block_hash]
        if answer.raw is not None:
            try:
                self._keep(parse_block(answer.raw))
            except DecodeError as error:
                self._reject(batch, wanted, wall_us, str(error), answer.raw)
                self.failed(block_hash)
                return True
        kept = self._bodies.get(block_hash)
        if kept is None:
            self._ask_again(block_hash, wanted)
            return False
        block = kept.block
        txids = [hash_bytes(transaction["txid"]) for transaction in answer.verbose["tx"]]
        verdict = verify_block(block, self._chain, txids, height=answer.verbose["height"])
        if verdict != "valid":
            self._reject(batch, wanted, wall_us, f"block: {verdict}", kept.raw)
            if wanted.source == "zmq":
                self._ask_again(block_hash, wanted)
                return False
        fees, spent_sat = self._amounts(block, answer.verbose)
        header = block.header
        by_txid = dict(zip(txids[1:], fees[1:], strict=True))
        known = RecentBlock(answer.verbose["height"], header.prev_hash, header.time_s, by_txid, spent_sat)
        self.known.add(block_hash, known)
        is_wanted = self._stored.floor is not None and known.height >= self._stored.floor
        if wanted.was_pushed or is_wanted:  # a dataset begins with the first block that it saw come
            if self._stored.claim(block_hash, self._origin[0]):
                # Together with the message that announced it: a kill loses both or neither.
                self._store(kept, known.height, wanted, verdict, fees, owner=wanted.owner or batch)
            self._fill_below(known, wanted, now_us)
        if wanted.is_fill and is_wanted:
            self.arrivals.happened(block_hash, "connected", wall_us, "pulled", batch, known=known)
        self._settle(block_hash, known)
        return True

    def failed(self, block_hash: bytes) -> None:
        """Go on without the node's word on a block; a body that was received is stored without fees."""
        wanted, kept = self._wanted.get(block_hash), self._bodies.get(block_hash)
        known: RecentBlock | None = None
        if wanted is not None and wanted.owner is not None and kept is not None:
            block = kept.block
            parent = self.known.get(block.header.prev_hash)
            height = bip34_height(block) if parent is None else parent.height + 1
            if height is not None:
                known = RecentBlock(height, block.header.prev_hash, block.header.time_s, {}, {})
                if self._stored.claim(block_hash, self._origin[0]):
                    source = "bip34" if parent is None else "tree"
                    verdict = verify_block(block, self._chain)
                    self._store(kept, height, wanted, verdict, (), owner=wanted.owner, height_source=source)
        self._settle(block_hash, known)

    def flush(self) -> None:
        """Give out what waits, with what is known: no more answers will come."""
        self._missing.clear()
        for block_hash in list(self._wanted):
            self.failed(block_hash)
        self.arrivals.flush()

    def _store(
        self,
        body: ParsedBlock,
        height: int,
        wanted: _Wanted,
        verdict: str,
        fees: Sequence[int | None],
        *,
        owner: Batch,
        height_source: str = "rpc",
    ) -> None:
        """Make the rows of a block; not those that the dataset has kept when it lost the block's own."""
        block_row, transaction_rows = block_rows(
            body,
            chain=self._chain,
            height=height,
            height_source=height_source,
            source=wanted.source,
            verdict=verdict,
            verified_by=backend_name(),
            fees=fees if len(fees) == len(body.block.transactions) else None,
        )
        owner.add("blocks", block_row)
        if body.block.block_hash not in self._stored.rowless:
            owner.add("transactions", transaction_rows)

    def _fill_below(self, known: RecentBlock, wanted: _Wanted, now_us: int) -> None:
        """Have the parent of a block fetched when it is missing and wanted."""
        floor = self._stored.floor
        if floor is None or known.height <= floor:
            return
        self._stored.lack(known.prev_hash)  # the session may end before it is there
        if known.prev_hash not in self._wanted:
            self.fill([known.prev_hash], now_us if wanted.is_fill else now_us + PARENT_PATIENCE_US)

    def _amounts(self, block: Block, verbose: Mapping[str, Any]) -> tuple[list[int | None], dict[bytes, int]]:
        """Return the fees of a block's transactions, and the values of what they spent by outpoint.

        Neither is known when the node has lost the block's undo data.
        """
        try:
            return fees_from_getblock(verbose), _values_spent(block, verbose)
        except DecodeError as error:
            block_hash = hash_hex(block.block_hash)
            log.warning("block.without_fees", node=self._origin[0], block=block_hash, reason=str(error))
            return [None] * len(verbose["tx"]), {}

    def _ask_again(self, block_hash: bytes, wanted: _Wanted) -> None:
        wanted.source = "rpc"
        self._ask(block_hash, True)  # noqa: FBT003 - the raw block is needed

    def _settle(self, block_hash: bytes, known: RecentBlock | None) -> None:
        """Let go of a block that is known now, or that cannot be had."""
        wanted = self._wanted.pop(block_hash, None)
        if wanted is None:
            return
        self.arrivals.told(block_hash, known)
        if wanted.owner is not None:
            wanted.owner.n_pending_rows -= 1

    def _keep(self, body: ParsedBlock) -> None:
        """Keep a body; a later one of the same hash replaces it, for the first may have been bad."""
        block_hash = body.block.block_hash
        replaced = self._bodies.pop(block_hash, None)
        self._bodies_bytes += len(body.raw) - (0 if replaced is None else len(replaced.raw))
        self._bodies[block_hash] = body
        while self._bodies_bytes > KEPT_BODY_BYTES and len(self._bodies) > 1:
            _, dropped = self._bodies.popitem(last=False)
            self._bodies_bytes -= len(dropped.raw)

    def _reject(self, batch: Batch, wanted: _Wanted, wall_us: int, reason: str, body: bytes) -> None:
        topic = "rawblock" if wanted.source == "zmq" else "rpc"
        batch.add("rejects", [reject_row(self._origin, topic, wall_us, reason, body)])
        log.warning("block.rejected", node=self._origin[0], source=topic, reason=reason)


def _values_spent(block: Block, verbose: Mapping[str, Any]) -> dict[bytes, int]:
    """Return the value of each output that a block spent, in satoshi, by outpoint."""
    return {
        spent: satoshi(told["prevout"]["value"])
        for transaction, said in zip(block.transactions[1:], verbose["tx"][1:], strict=False)
        for spent, told in zip(transaction.outpoints, said["vin"], strict=False)
    }


def reject_row(
    origin: tuple[str, str],
    topic: str,
    received_us: int,
    reason: str,
    body: bytes,
    *,
    sequence: int | None = None,
) -> Row:
    """Return a row of `rejects`; `origin` is node and session."""
    return {
        "node": origin[0],
        "session": origin[1],
        "received_at": received_us,
        "topic": topic,
        "sequence": sequence,
        "reason": reason,
        "body": body,
    }
