"""Blocks on their way into the dataset: body, height, fees, verdict; and what happened to them when.

A body comes with `rawblock` (tips only) or from the node's RPC; fees and height come from `getblock` with
verbosity 3, which needs no index of transactions. A block that fails verification is fetched once more by RPC
before it is believed. Nothing here talks to the node: `ask` is called with what is needed.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import structlog

from collector.batches import Batch
from collector.blocks import block_rows, fees_from_getblock
from collector.decode import Block, decode_block
from collector.errors import DecodeError
from collector.live import outpoint
from collector.rpc import satoshi
from collector.schema import hash_bytes, hash_hex
from collector.verify import backend_name, verify_block

Row = dict[str, Any]
KEPT_BODY_BYTES: Final = (
    8_000_000  # a C follows its block within moments; decoded, a body takes ten times that
)
KEPT_KNOWN: Final = 12  # blocks whose transactions a reorganisation may bring back

log = structlog.get_logger(__name__)


class BlockAnswer(NamedTuple):
    """What RPC says of a block: getblock with verbosity 3, and the raw block if it was asked for."""

    verbose: Mapping[str, Any]
    raw: bytes | None


class Known(NamedTuple):
    """What is known of a recent block."""

    height: int
    prev_hash: bytes
    fees_sat: Mapping[bytes, int | None]  # by txid, without the coinbase
    spent_sat: Mapping[bytes, int]  # value of each output it spent, by outpoint


class StoredBlocks:
    """Hashes of the blocks that the dataset holds or will hold, shared by all nodes of a process."""

    def __init__(self, hashes: Iterable[bytes], lowest_height: int | None) -> None:
        self.lowest_height = lowest_height  # None while there is none
        self._hashes = set(hashes)
        self._lock = threading.Lock()

    def __contains__(self, block_hash: bytes) -> bool:
        return block_hash in self._hashes

    def claim(self, block_hash: bytes, height: int) -> bool:
        """Say that the caller will store the block; False when another has done so."""
        with self._lock:
            if block_hash in self._hashes:
                return False
            self._hashes.add(block_hash)
            self.lowest_height = height if self.lowest_height is None else min(height, self.lowest_height)
            return True


class _Arrival(NamedTuple):
    event: str
    at_us: int
    kind: str
    batch: Batch


@dataclass(slots=True)
class _Wanted:
    """A block that RPC was asked about."""

    arrivals: list[_Arrival] = field(default_factory=list)
    source: str = "zmq"
    is_fill: bool = False

    @property
    def is_before_us(self) -> bool:
        """Whether all that happened to it is that it was there when we came."""
        return {arrival.kind for arrival in self.arrivals} == {"at_start"} and not self.is_fill


class BlockFlow:
    """The blocks of one node and session."""

    def __init__(
        self, origin: tuple[str, str], chain: str, stored: StoredBlocks, ask: Callable[[bytes, bool], None]
    ) -> None:
        self._origin = origin  # node and session
        self._chain = chain
        self._stored = stored
        self._ask = ask  # called with the hash, and whether the raw block is needed
        self._bodies: OrderedDict[bytes, tuple[Block, bytes]] = OrderedDict()  # decoded and raw
        self._bodies_bytes = 0
        self._known: OrderedDict[bytes, Known] = OrderedDict()
        self._wanted: dict[bytes, _Wanted] = {}
        self._fill: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._wanted) + len(self._fill)

    def body(self, block_hash: bytes) -> Block | None:
        """Return a block that was decoded not long ago."""
        kept = self._bodies.get(block_hash)
        return None if kept is None else kept[0]

    def known(self, block_hash: bytes) -> Known | None:
        """Return what is known of a recent block."""
        return self._known.get(block_hash)

    def holding(self, txid: bytes) -> bytes | None:
        """Return the hash of the recent block that has a transaction."""
        return next((hash_ for hash_, known in self._known.items() if txid in known.fees_sat), None)

    def value_spent(self, txid: bytes, output: int) -> int | None:
        """Return the value of an output, in satoshi, that one of the recent blocks spent."""
        spent = outpoint(txid, output)
        values = (known.spent_sat.get(spent) for known in self._known.values())
        return next((value_sat for value_sat in values if value_sat is not None), None)

    def received(self, raw: bytes) -> Block:
        """Decode and verify the body of a `rawblock` message; raises DecodeError when either fails."""
        block = decode_block(raw)
        verdict = verify_block(block, self._chain)
        if verdict != "valid":
            raise DecodeError(f"block {hash_hex(block.block_hash)}: {verdict}")
        self._keep(block, raw)
        return block

    def happened(self, block_hash: bytes, event: str, at_us: int, kind: str, batch: Batch) -> None:
        """Note a row of `block_arrivals`; it is given out, in its batch, when the height is known."""
        known = self._known.get(block_hash)
        if known is not None:
            batch.add("block_arrivals", [self._arrival(block_hash, event, at_us, kind, known)])
            return
        batch.n_open += 1
        self.want(block_hash).arrivals.append(_Arrival(event, at_us, kind, batch))

    def want(self, block_hash: bytes) -> _Wanted:
        """Ask for what is not known of a block, once."""
        wanted = self._wanted.get(block_hash)
        if wanted is None:
            wanted = self._wanted[block_hash] = _Wanted()
            needs_body = block_hash not in self._bodies
            wanted.source = "rpc" if needs_body else "zmq"
            self._ask(block_hash, needs_body)
        return wanted

    def fill(self, hashes: Iterable[bytes]) -> int:
        """Fetch the blocks among `hashes` that are not stored, one after the other; returns how many."""
        missing = [hash_ for hash_ in hashes if hash_ not in self._stored and hash_ not in self._wanted]
        self._fill.extend(missing)
        self.fill_next()
        return len(missing)

    def fill_next(self) -> None:
        """Ask for the next block of a fill when nothing else is under way."""
        while self._fill and not self._wanted:
            block_hash = self._fill.popleft()
            if block_hash not in self._stored:
                self.want(block_hash).is_fill = True

    def answered(self, block_hash: bytes, answer: BlockAnswer, now_us: int, batch: Batch) -> bool:
        """Take an answer: make the block's rows and give out its arrivals. False: asked once more."""
        wanted = self._wanted[block_hash]
        if answer.raw is not None:
            try:
                self._keep(decode_block(answer.raw), answer.raw)
            except DecodeError as error:
                self._reject(batch, wanted, now_us, str(error), answer.raw)
                self.failed(block_hash)
                return True
        kept = self._bodies.get(block_hash)
        if kept is None:
            self._ask_again(block_hash, wanted)
            return False
        block, raw = kept
        txids = [hash_bytes(transaction["txid"]) for transaction in answer.verbose["tx"]]
        verdict = verify_block(block, self._chain, txids, height=answer.verbose["height"])
        if verdict != "valid":
            self._reject(batch, wanted, now_us, f"block: {verdict}", raw)
            if wanted.source == "zmq":
                self._ask_again(block_hash, wanted)
                return False
        fees, spent_sat = self._amounts(block, answer.verbose)
        by_txid = dict(zip(txids[1:], fees[1:], strict=True))
        known = Known(answer.verbose["height"], block.header.prev_hash, by_txid, spent_sat)
        self._known[block_hash] = known
        if len(self._known) > KEPT_KNOWN:
            self._known.popitem(last=False)
        # Together with the message that announced it: a kill loses both or neither.
        owner = wanted.arrivals[0].batch if wanted.arrivals else batch
        self._store(block, wanted, verdict, fees, owner)
        if wanted.is_fill:
            batch.add("block_arrivals", [self._arrival(block_hash, "connected", now_us, "pulled", known)])
        self._settle(block_hash, known)
        return True

    def failed(self, block_hash: bytes) -> None:
        """Give out what waited for a block that cannot be had."""
        self._settle(block_hash, None)

    def flush(self) -> None:
        """Give out what waits, without heights: no more answers will come."""
        self._fill.clear()
        for block_hash in list(self._wanted):
            self._settle(block_hash, None)

    def _store(
        self, block: Block, wanted: _Wanted, verdict: str, fees: Sequence[int | None], owner: Batch
    ) -> None:
        """Make the rows of a block, unless the dataset has it."""
        height = self._known[block.block_hash].height
        if wanted.is_before_us and self._stored.lowest_height is None:
            return  # a dataset begins with the first block that it saw come
        if not self._stored.claim(block.block_hash, height):
            return
        block_row, transaction_rows = block_rows(
            block,
            chain=self._chain,
            height=height,
            height_source="rpc",
            source=wanted.source,
            verdict=verdict,
            verified_by=backend_name(),
            fees=fees if len(fees) == len(block.transactions) else None,
        )
        owner.add("blocks", [block_row])
        owner.add("transactions", transaction_rows)

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

    def _settle(self, block_hash: bytes, known: Known | None) -> None:
        """Give out the arrivals of a block and let go of the batches that waited for it."""
        wanted = self._wanted.pop(block_hash, None)
        if wanted is None:
            return
        for arrival in wanted.arrivals:
            row = self._arrival(block_hash, arrival.event, arrival.at_us, arrival.kind, known)
            arrival.batch.add("block_arrivals", [row])
            arrival.batch.n_open -= 1
        self.fill_next()

    def _keep(self, block: Block, raw: bytes) -> None:
        """Keep a body; a later one of the same hash replaces it, for the first may have been bad."""
        replaced = self._bodies.pop(block.block_hash, None)
        self._bodies_bytes += len(raw) - (0 if replaced is None else len(replaced[1]))
        self._bodies[block.block_hash] = block, raw
        while self._bodies_bytes > KEPT_BODY_BYTES and len(self._bodies) > 1:
            _, (_, dropped) = self._bodies.popitem(last=False)
            self._bodies_bytes -= len(dropped)

    def _arrival(self, block_hash: bytes, event: str, at_us: int, kind: str, known: Known | None) -> Row:
        return {
            "node": self._origin[0],
            "session": self._origin[1],
            "block_hash": block_hash,
            "event": event,
            "event_at": at_us,
            "kind": kind,
            "height": None if known is None else known.height,
            "prev_hash": None if known is None else known.prev_hash,
        }

    def _reject(self, batch: Batch, wanted: _Wanted, now_us: int, reason: str, body: bytes) -> None:
        topic = "rawblock" if wanted.source == "zmq" else "rpc"
        batch.add("rejects", [reject_row(self._origin, topic, now_us, reason, body)])
        log.warning("block.rejected", node=self._origin[0], source=topic, reason=reason)


def _values_spent(block: Block, verbose: Mapping[str, Any]) -> dict[bytes, int]:
    """Return the value of each output that a block spent, in satoshi, by outpoint."""
    return {
        outpoint(spent.prev_txid, spent.prev_index): satoshi(told["prevout"]["value"])
        for transaction, said in zip(block.transactions[1:], verbose["tx"][1:], strict=False)
        for spent, told in zip(transaction.inputs, said["vin"], strict=False)
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
