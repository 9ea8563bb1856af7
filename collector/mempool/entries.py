"""One row of `mempool_txs` per entry, given out when its fee is known or cannot be learnt.

The fee is asked of the mempool soon after the entry. A transaction that has left by then has its fee in the
block that took it, or, when it was removed, as the value of what it spent minus what it paid. No index of
transactions is needed. Nothing here talks to the node: questions come out, answers go in.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import islice
from typing import Any, Final, NamedTuple

from collector.codec.amounts import satoshi
from collector.codec.decode import Transaction, decode_transaction
from collector.dataset.schema import hash_bytes
from collector.errors import DecodeError, RpcError
from collector.mempool.contents import MempoolContents
from collector.mempool.sync import TxLeft

Row = dict[str, Any]
Values = Mapping[tuple[bytes, int], int]  # of outputs in satoshi, by txid and index
NO_VALUES: Final[Values] = {}  # one for all: at a start there are as many entries as the mempool holds
LASTING: Final = ("wtxid", "weight_wu", "vsize_vb", "fee_sat", "fee_source")  # whenever a transaction enters
GIVE_UP_US: Final = 10_000_000  # how long the reason for an absence may be on its way
GIVE_UP_BLOCK_US: Final = 600_000_000  # how long its block may be: a node that is busy answers late


class EntryRequest(NamedTuple):
    """Ask getmempoolentry for a transaction, and its body if we do not have it."""

    txid: bytes
    needs_body: bool


class EntryAnswer(NamedTuple):
    """What the node said to an EntryRequest: its mempool entry and its body in hex, or why not."""

    txid: bytes
    entry: Mapping[str, Any] | RpcError
    body: str | RpcError | None


class OutputRequest(NamedTuple):
    """Ask gettxout, without the mempool, for an output that a removed transaction spent."""

    spender: bytes
    txid: bytes
    output: int


@dataclass(slots=True, eq=False)
class PendingEntry:
    """An entry whose row is not complete."""

    txid: bytes
    kind: str
    entered_us: int
    mempool_sequence: int | None
    body: Transaction | None
    parents: list[bytes] | None
    owner: Any = None  # what waits for the row
    left: TxLeft | None = None
    gone_us: int = 0  # when we learnt that it is not in the mempool, on the monotonic clock
    values_sat: Values = field(default_factory=lambda: NO_VALUES)  # that gettxout knew of its inputs
    block_fee_sat: int | None = None  # its fee by a block that has it, which stands wherever the block goes
    earlier: "PendingEntry | None" = None  # of the same txid and not complete: it gets this one's fee


class FinishedRow(NamedTuple):
    """A complete row, and what waited for it."""

    row: Row
    owner: Any


class PendingEntries:
    """The entries of one node and session whose fee is being looked for."""

    def __init__(self, node: str, session: str, live: MempoolContents) -> None:
        self._node = node
        self._session = session
        self._live = live
        self._open: dict[bytes, PendingEntry] = {}
        self._unasked: dict[bytes, PendingEntry] = {}  # pushed just now: asked first
        # told by a snapshot: long in the mempool, so not urgent
        self._backlog: dict[bytes, PendingEntry] = {}
        self._gone: dict[bytes, PendingEntry] = {}
        self._asked_outputs: dict[bytes, PendingEntry] = {}
        # a block took what they spent before we could ask
        self._spent_meanwhile: dict[bytes, PendingEntry] = {}
        self._in_block: dict[bytes, list[PendingEntry]] = {}

    def __len__(self) -> int:
        return len(self._open)

    @property
    def n_unasked(self) -> int:
        """PendingEntries that no question has been made for."""
        return len(self._unasked) + len(self._backlog)

    @property
    def n_new(self) -> int:
        """PendingEntries that were pushed, and that no question has been made for."""
        return len(self._unasked)

    def entered(self, entry: PendingEntry) -> None:
        """Take a new entry. An older one of the same txid that is still open waits with it."""
        self._succeed(entry)
        (self._unasked if entry.kind == "pushed" else self._backlog)[entry.txid] = entry

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Take a body that came after its entry."""
        entry = self._open.get(txid)
        if entry is not None and entry.body is None:
            entry.body = body

    def left(self, left: TxLeft) -> None:
        """Note that a transaction left the mempool."""
        entry = self._open.get(left.txid)
        if entry is not None:
            entry.left = left

    def questions(self, limit: int) -> list[EntryRequest]:
        """Take up to `limit` questions; each is to be answered, or put back with `again`."""
        taken: list[PendingEntry] = []
        for waiting in (self._unasked, self._backlog):
            taken += [waiting.pop(txid) for txid in list(islice(waiting, limit - len(taken)))]
        return [EntryRequest(entry.txid, entry.body is None) for entry in taken]

    def again(self, questions: Iterable[EntryRequest]) -> None:
        """Put back questions that the node did not answer."""
        for question in questions:
            entry = self._open.get(question.txid)
            if entry is not None:
                self._backlog[question.txid] = entry

    def answers(self, answers: Iterable[EntryAnswer], now_us: int) -> list[FinishedRow]:
        """Take the node's answers."""
        done: list[FinishedRow] = []
        for answer in answers:
            entry = self._open.get(answer.txid)
            if entry is None or answer.txid in self._unasked or answer.txid in self._backlog:
                continue  # complete by now, or entered anew
            if entry.body is None and isinstance(answer.body, str):
                entry.body = _decoded(answer.body)
                if entry.body is not None:
                    self._live.learn_body(entry.txid, entry.body)
            if not isinstance(answer.entry, RpcError):
                done += self._finish(entry, _from_entry(answer.entry), "mempool_entry")
            elif entry.block_fee_sat is not None:
                done += self._finish(entry, None, None)
            else:
                entry.gone_us = now_us
                self._gone[entry.txid] = entry
        return done

    def entered_in_block(self, entry: PendingEntry, block_hash: bytes) -> None:
        """Take a transaction that was first seen in a block; `gone_us` says when we took it."""
        self._succeed(entry)
        self._in_block.setdefault(block_hash, []).append(entry)

    def look_for_gone(self, block_of: Callable[[bytes], bytes | None]) -> None:
        """Look in recent blocks for what the mempool does not have, though no event said that it left."""
        for entry in self._gone.values():
            block_hash = block_of(entry.txid) if entry.left is None else None
            if block_hash is not None:
                entry.left = TxLeft(entry.txid, "mined", None, block_hash)

    def resolve_gone(self) -> tuple[list[FinishedRow], list[OutputRequest]]:
        """Go on with what has left: to its block, or to the values of what it spent.

        The values that are not known here are questions for gettxout; `outputs` takes the answers.
        """
        done: list[FinishedRow] = []
        questions: list[OutputRequest] = []
        for entry in list(self._gone.values()):
            if entry.left is None:
                continue
            del self._gone[entry.txid]
            if entry.left.cause == "mined" and entry.left.block_hash is not None:
                self._in_block.setdefault(entry.left.block_hash, []).append(entry)
                continue
            unknown = self._unknown_outputs(entry)
            if unknown:
                self._asked_outputs[entry.txid] = entry
                questions += unknown
            else:
                done += self._finish_from_inputs(entry) or self._finish(entry, None, None)
        return done, questions

    def outputs(
        self, questions: Iterable[OutputRequest], values_sat: Mapping[tuple[bytes, int], int]
    ) -> list[FinishedRow]:
        """Take what gettxout said, by (txid, index), to questions of `resolve_gone`.

        It does not know an output that a block has spent by then; that block does (`look_for_spent`).
        """
        done: list[FinishedRow] = []
        for txid in dict.fromkeys(question.spender for question in questions):
            entry = self._asked_outputs.pop(txid, None)
            if entry is not None:
                entry.values_sat = {**entry.values_sat, **values_sat}
                self._spent_meanwhile[txid] = entry
                done += self._finish_from_inputs(entry)
        return done

    def look_for_spent(self, value_of: Callable[[bytes, int], int | None]) -> list[FinishedRow]:
        """Look in recent blocks for the values of outputs that they spent."""
        done: list[FinishedRow] = []
        for entry in list(self._spent_meanwhile.values()):
            for question in self._unknown_outputs(entry):
                value_sat = value_of(question.txid, question.output)
                if value_sat is not None:
                    found = {(question.txid, question.output): value_sat}
                    entry.values_sat = {**entry.values_sat, **found}
            done += self._finish_from_inputs(entry)
        return done

    def blocks_wanted(self) -> list[bytes]:
        """Return the blocks whose fees are waited for."""
        return list(self._in_block)

    def block_fees(self, block_hash: bytes, fees_sat: Mapping[bytes, int | None]) -> list[FinishedRow]:
        """Take the fees of a block, by txid, and finish what waits for them; empty when they cannot be had.

        An entry of which the node has not said yet that it is gone keeps its fee until then: when many blocks
        come in a row, the block is forgotten before the answer is there.
        """
        done: list[FinishedRow] = []
        for txid, fee_sat in fees_sat.items():
            entry = self._open.get(txid)
            if entry is not None and fee_sat is not None:
                entry.block_fee_sat = fee_sat
                if entry.gone_us:
                    done += self._finish(entry, None, None)
        for entry in self._in_block.pop(block_hash, []):
            if self._open.get(entry.txid) is entry:  # neither complete by now, nor entered anew
                done += self._finish(entry, None, None)
        return done

    def give_up(self, now_us: int, *, is_filling: bool = False) -> list[FinishedRow]:
        """Finish without a fee what left long ago, when neither an event nor a block tells more of it.

        `is_filling`: blocks that nobody saw come are being fetched, and it may be in one of them.
        """
        patience_us = GIVE_UP_BLOCK_US if is_filling else GIVE_UP_US
        waiting = (*self._gone.values(), *self._spent_meanwhile.values())
        late = [entry for entry in waiting if now_us - entry.gone_us > patience_us]
        for block_hash, entries in list(self._in_block.items()):
            overdue = [entry for entry in entries if now_us - entry.gone_us > GIVE_UP_BLOCK_US]
            if len(overdue) == len(entries):
                del self._in_block[block_hash]
            late += [entry for entry in overdue if self._open.get(entry.txid) is entry]
        return [row for entry in late for row in self._finish(entry, None, None)]

    def flush(self) -> list[FinishedRow]:
        """Finish everything with what is known."""
        return [row for entry in list(self._open.values()) for row in self._finish(entry, None, None)]

    def _succeed(self, entry: PendingEntry) -> None:
        """Put an entry in the place of an open one of its txid, whose fee is the same."""
        earlier = self._open.get(entry.txid)
        if earlier is not None:
            self._forget(earlier)
            entry.earlier = earlier
            entry.body = entry.body or earlier.body
            entry.block_fee_sat = earlier.block_fee_sat
        self._open[entry.txid] = entry

    def _forget(self, entry: PendingEntry) -> None:
        groups = (
            self._open,
            self._unasked,
            self._backlog,
            self._gone,
            self._asked_outputs,
            self._spent_meanwhile,
        )
        for group in groups:
            if group.get(entry.txid) is entry:
                del group[entry.txid]

    def _finish(self, entry: PendingEntry, found: Row | None, fee_source: str | None) -> list[FinishedRow]:
        """Complete an entry, and the earlier ones of its txid by what does not change between entries."""
        self._forget(entry)
        row = mempool_row(self._node, self._session, entry)
        if found is None and entry.block_fee_sat is not None:
            found, fee_source = {"fee_sat": entry.block_fee_sat}, "block"
        if found is not None:
            row.update(found)
            row["fee_source"] = fee_source
            if "vsize_vb" in row:
                self._live.learn_fee(entry.txid, row["fee_sat"], row["vsize_vb"])
        done = [FinishedRow(row, entry.owner)]
        earlier = entry.earlier
        while earlier is not None:
            earlier.body = earlier.body or entry.body
            lasting = {name: row[name] for name in LASTING if name in row}
            done.append(FinishedRow(mempool_row(self._node, self._session, earlier) | lasting, earlier.owner))
            earlier = earlier.earlier
        return done

    def _value_sat(self, entry: PendingEntry, txid: bytes, output: int) -> int | None:
        value_sat = self._live.value_sat(txid, output)
        return entry.values_sat.get((txid, output)) if value_sat is None else value_sat

    def _unknown_outputs(self, entry: PendingEntry) -> list[OutputRequest]:
        inputs = () if entry.body is None else entry.body.inputs
        return [
            OutputRequest(entry.txid, spent.prev_txid, spent.prev_index)
            for spent in inputs
            if self._value_sat(entry, spent.prev_txid, spent.prev_index) is None
        ]

    def _finish_from_inputs(self, entry: PendingEntry) -> list[FinishedRow]:
        """Finish an entry by the values of what it spent; nothing while one of them is unknown."""
        if entry.body is None:
            return []
        total_sat = 0
        for spent in entry.body.inputs:
            value_sat = self._value_sat(entry, spent.prev_txid, spent.prev_index)
            if value_sat is None:
                return []
            total_sat += value_sat
        return self._finish(entry, {"fee_sat": total_sat - entry.body.output_value_sat}, "inputs")


def mempool_row(node: str, session: str, entry: PendingEntry) -> Row:
    """Return the row of an entry with what its body tells; the rest is left out."""
    row: Row = {
        "node": node,
        "session": session,
        "txid": entry.txid,
        "entered_at": entry.entered_us,
        "first_seen_kind": entry.kind,
        "mempool_sequence": entry.mempool_sequence,
        "parents": entry.parents,
    }
    body = entry.body
    if body is not None:
        row.update(
            wtxid=body.wtxid,
            size_bytes=body.size_bytes,
            weight_wu=body.weight_wu,
            vsize_vb=body.vsize_vb,
            n_inputs=body.n_inputs,
            n_outputs=body.n_outputs,
            output_value_sat=body.output_value_sat,
            signals_rbf=body.signals_rbf,
        )
    return row


def _from_entry(entry: Mapping[str, Any]) -> Row:
    """Turn an answer of getmempoolentry into columns."""
    fees: Mapping[str, Decimal] = entry["fees"]
    return {
        "wtxid": hash_bytes(entry["wtxid"]),
        "node_entered_at": entry["time"],
        "weight_wu": entry["weight"],
        "vsize_vb": entry["vsize"],
        "fee_sat": satoshi(fees["base"]),
        "ancestor_count": entry["ancestorcount"],
        "ancestor_vsize_vb": entry["ancestorsize"],
        "ancestor_fees_sat": satoshi(fees["ancestor"]),
        "descendant_count": entry["descendantcount"],
        "descendant_vsize_vb": entry["descendantsize"],
        "descendant_fees_sat": satoshi(fees["descendant"]),
        "parents": [hash_bytes(parent) for parent in entry["depends"]],
    }


def _decoded(raw_hex: str) -> Transaction | None:
    try:
        return decode_transaction(bytes.fromhex(raw_hex))
    except (DecodeError, ValueError):
        return None  # a node never sends one; the row says what the mempool entry says


def output_values(questions: Sequence[OutputRequest], answers: Sequence[Any]) -> dict[tuple[bytes, int], int]:
    """Return the values of the outputs that gettxout knows, by (txid, index)."""
    return {
        (question.txid, question.output): satoshi(answer["value"])
        for question, answer in zip(questions, answers, strict=True)
        if isinstance(answer, Mapping)
    }
