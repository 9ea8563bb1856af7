"""Complete one row of `mempool_txs` each time a transaction enters the mempool.

A row waits until its fee is known or cannot be learnt. We ask the node for the transaction's mempool entry
soon after it entered. If the transaction has left by then, the fee comes from the block that contains it. If
it was removed, the fee is the value of the outputs that it spent minus the value of its own outputs. No index
of transactions is needed. Nothing here talks to the node: methods return requests, and others take the
answers.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

import structlog

from collector.blocks.recent import RecentBlock
from collector.codec.chunk import WEIGHT_PER_VB
from collector.codec.scripts import UNKNOWN_TYPE
from collector.codec.transaction import Transaction, decode_transactions, read_outpoint
from collector.dataset.rows import MempoolTxRow
from collector.dataset.schema import hash_hex
from collector.errors import CollectorError, DecodeError, NodeError
from collector.journal.batches import Batch
from collector.mempool.sync import MempoolContents, SpentOutput, TxLeft
from collector.node.answers import LATEST_TIME_S, MOST_COUNT, MOST_SAT, Fields

Outputs = Mapping[tuple[bytes, int], SpentOutput]  # by txid and index
# Shared to save memory: at a start every mempool transaction has a pending row.
NO_OUTPUTS: Final[Outputs] = {}
GIVE_UP_US: Final = 10_000_000  # how long to wait for the reason why a transaction left
GIVE_UP_BYTES_US: Final = 2_000_000  # how long to wait for the bytes of a transaction that was removed
GIVE_UP_BLOCK_US: Final = 600_000_000  # how long to wait for its block: a busy node answers late
MOST_UNREAD: Final = 3  # answers of a wrong form about one transaction; then its row lacks its fee
MOST_WEIGHT: Final = (1 << 32) - 1  # of a transaction; far more than a block holds
NO_TRAITS: Final[Mapping[str, Any]] = {}  # of a transaction that was decoded as a part of its block
log = structlog.get_logger(__name__)


class OutputRequest(NamedTuple):
    """Asks the node by gettxout for output number `output` of `txid`, which `spender` spends."""

    spender: bytes
    txid: bytes
    output: int


class EntryRequest(NamedTuple):
    """Asks the node for a transaction's mempool entry, and for its raw bytes too if `needs_body`.

    `outputs` are requests for outputs that the transaction spends and that we do not know.
    """

    txid: bytes
    needs_body: bool
    outputs: tuple[OutputRequest, ...] = ()


class EntryAnswer(NamedTuple):
    """Holds the node's answer to an EntryRequest: mempool entry and hex bytes, or an error for either.

    `outputs` has the spent outputs that the node knows.
    """

    txid: bytes
    entry: Any  # or NodeError: an RpcError, or why the node never answers
    body: Any
    outputs: Outputs = NO_OUTPUTS


@dataclass(slots=True, eq=False)
class PendingEntry:
    """Holds a transaction that entered the mempool and whose row of `mempool_txs` is not complete."""

    txid: bytes
    kind: str
    entered_us: int
    mempool_sequence: int | None
    body: Transaction | None
    parents: list[bytes] | None
    owner: Batch | None = None  # the batch that waits for the row
    left: TxLeft | None = None
    gone_us: int = 0  # when the node said that it is not in the mempool, on the monotonic clock
    outputs: Outputs = field(default_factory=lambda: NO_OUTPUTS)  # of what it spends, as the node said
    block_fee_sat: int | None = None  # by a block that contains it; true even if that block is disconnected
    earlier: "PendingEntry | None" = None  # when it entered before: that row gets the same fee
    n_unread: int = 0  # answers of a wrong form to the question for its mempool entry

    @property
    def mined_in(self) -> bytes | None:
        """Return the hash of the block that took the transaction; None while no event has named it."""
        return self.left.block_hash if self.left is not None and self.left.cause == "mined" else None


class FinishedRow(NamedTuple):
    """Holds a complete row of `mempool_txs`, and the pending entry of which it was made.

    `spent_types` has the type of the output that each input spends, one byte each; None while unknown.
    """

    row: MempoolTxRow
    entry: PendingEntry
    spent_types: bytes | None

    @property
    def owner(self) -> Batch | None:
        """Return the batch of messages that waits for this row of `mempool_txs`; None if none does."""
        return self.entry.owner


class _FoundFee(NamedTuple):
    """Holds a fee in satoshi, and the value of the column `fee_source` that says where it comes from."""

    fee_sat: int
    source: str


class PendingEntries:
    """Holds the transactions of one node and session whose rows of `mempool_txs` are not complete.

    It says what to ask the node, and completes the rows with the answers.
    """

    def __init__(self, node: str, session: str, contents: MempoolContents) -> None:
        self._node = node
        self._session = session
        self._contents = contents
        self._open: dict[bytes, PendingEntry] = {}
        self._unasked: dict[bytes, PendingEntry] = {}  # pushed a moment ago: requested first
        self._backlog: dict[bytes, PendingEntry] = {}  # long in the mempool: requested when there is time
        self._gone: dict[bytes, PendingEntry] = {}  # the node no longer has it, and no event has said why
        self._outputs_asked: dict[bytes, PendingEntry] = {}
        # gettxout did not know an input of these, because a block had spent it by then.
        self._inputs_spent: dict[bytes, PendingEntry] = {}
        self._by_block: dict[bytes, list[PendingEntry]] = {}  # by block hash: entries that wait for its fees

    def __len__(self) -> int:
        return len(self._open)

    @property
    def n_unasked(self) -> int:
        """Return the number of pending transactions that the node has not been asked about."""
        return len(self._unasked) + len(self._backlog)

    @property
    def n_new(self) -> int:
        """Return the number of announced transactions about which the node has not been asked yet."""
        return len(self._unasked)

    def add(self, entry: PendingEntry) -> None:
        """Add a transaction that entered the mempool.

        If an earlier row of the same txid is not complete, it is completed together with this one.
        """
        self._replace_earlier(entry)
        (self._unasked if entry.kind == "pushed" else self._backlog)[entry.txid] = entry

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._open

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Store the decoded bytes of a pending transaction, which came after the event that announced it."""
        entry = self._open.get(txid)
        if entry is not None and entry.body is None:
            entry.body = body
            self._contents.learn_body(txid, body)

    def note_left(self, left: TxLeft) -> None:
        """Store why and when a pending transaction left the mempool; its fee may then come from elsewhere."""
        entry = self._open.get(left.txid)
        if entry is not None:
            entry.left = left

    def next_requests(self, limit: int, *, most_outputs: int = 0) -> list[EntryRequest]:
        """Return up to `limit` requests to send to the node, first for transactions that messages announced.

        They ask for at most `most_outputs` of the outputs that these transactions spend. The caller gives the
        answers to `take_answers`, or the requests that got none to `put_back`.
        """
        taken: list[PendingEntry] = []
        for waiting in (self._unasked, self._backlog):
            taken += [waiting.pop(txid) for txid in list(islice(waiting, limit - len(taken)))]
        requests = []
        for entry in taken:
            is_small = entry.body is not None and entry.body.n_inputs <= most_outputs
            outputs = tuple(self._unknown_outputs(entry)) if is_small else ()
            most_outputs -= len(outputs)
            requests.append(EntryRequest(entry.txid, entry.body is None, outputs))
        return requests

    def put_back(self, requests: Iterable[EntryRequest]) -> None:
        """Queue requests that the node did not answer, so that `next_requests` returns them again."""
        for request in requests:
            entry = self._open.get(request.txid)
            if entry is not None:
                self._backlog[request.txid] = entry

    def take_answers(self, answers: Iterable[EntryAnswer], now_us: int) -> list[FinishedRow]:
        """Take the node's answers about mempool entries; return the rows of `mempool_txs` that they complete.

        A transaction that is no longer in the mempool waits for `resolve_gone`, which looks for its fee
        elsewhere. A transaction whose entry has a wrong form is asked for again; the third time, its row
        lacks what only the entry tells. If our code fails on an entry, its row has what the message tells.
        `now_us` is of the monotonic clock.
        """
        done: list[FinishedRow] = []
        answers = list(answers)
        bodies = _decoded(answers)
        for answer in answers:
            entry = self._open.get(answer.txid)
            if entry is None or answer.txid in self._unasked or answer.txid in self._backlog:
                continue  # complete by now, or entered anew
            try:
                done += self._take_answer(entry, answer, bodies.get(answer.txid), now_us)
            except (CollectorError, OSError, MemoryError):
                raise
            except Exception:
                log.exception("mempool_entry.failed", node=self._node, txid=hash_hex(entry.txid))
                entry.body, entry.outputs = None, NO_OUTPUTS
                done += self._finish(entry)
        return done

    def _take_answer(
        self, entry: PendingEntry, answer: EntryAnswer, body: Transaction | None, now_us: int
    ) -> list[FinishedRow]:
        """Take the node's answer about one mempool entry; return the rows that it completes.

        `body` is the decoded transaction if the answer holds its bytes, else None.
        """
        if entry.body is None and body is not None:
            entry.body = body
            self._contents.learn_body(entry.txid, body)
        if answer.outputs:
            entry.outputs = {**entry.outputs, **answer.outputs}
        if not isinstance(answer.entry, NodeError):
            try:
                return self._finish_by_mempool_entry(entry, answer.entry)
            except NodeError as error:
                log.warning("mempool_entry.unread", node=self._node, reason=str(error))
                entry.n_unread += 1
                if entry.n_unread >= MOST_UNREAD:
                    return self._finish(entry)
                self._backlog[entry.txid] = entry
                return []
        if entry.block_fee_sat is not None and entry.body is not None:
            return self._finish(entry)
        # Without its bytes the row would lack its size; the block that took the transaction has them.
        entry.gone_us = now_us
        self._gone[entry.txid] = entry
        return []

    def add_from_block(self, entry: PendingEntry, block_hash: bytes) -> None:
        """Add a transaction that was first seen in a block; the fees of that block will complete its row.

        `entry.gone_us` must be the time at which the block was seen.
        """
        self._replace_earlier(entry)
        self._by_block.setdefault(block_hash, []).append(entry)

    def find_blocks_of_gone(self, block_with: Callable[[bytes], bytes | None]) -> None:
        """Find the recent block of each transaction that is gone although no event said that it left.

        `block_with` returns the hash of the recent block that contains a txid and is still connected, or
        None.
        """
        for entry in self._gone.values():
            block_hash = block_with(entry.txid) if entry.left is None else None
            if block_hash is not None:
                entry.left = TxLeft(entry.txid, "mined", None, block_hash)

    def resolve_gone(self) -> tuple[list[FinishedRow], list[OutputRequest]]:
        """Try to complete the rows of transactions that left the mempool before getmempoolentry answered.

        A mined transaction waits for the fees of its block. The fee of any other is computed from the values
        of its inputs. One whose bytes have not come goes on waiting for them, until `give_up`. Returns the
        rows that are complete, and requests for the spent outputs that we do not know; give the answers to
        `take_outputs`.
        """
        done: list[FinishedRow] = []
        requests: list[OutputRequest] = []
        for entry in list(self._gone.values()):
            if entry.left is None:
                continue
            if _waits_for_bytes(entry):
                continue
            del self._gone[entry.txid]
            if entry.mined_in is not None:
                self._by_block.setdefault(entry.mined_in, []).append(entry)
                continue
            unknown = self._unknown_outputs(entry)
            if unknown:
                self._outputs_asked[entry.txid] = entry
                requests += unknown
            else:
                done += self._finish_from_inputs(entry) or self._finish(entry)
        return done, requests

    def take_outputs(self, requests: Iterable[OutputRequest], outputs: Outputs) -> list[FinishedRow]:
        """Take the outputs that gettxout gave for requests of `resolve_gone`; return the completed rows.

        gettxout does not know an output that a block has spent meanwhile; `find_spent_values` finds its value
        in that block.
        """
        done: list[FinishedRow] = []
        for txid in dict.fromkeys(request.spender for request in requests):
            entry = self._outputs_asked.pop(txid, None)
            if entry is not None:
                entry.outputs = {**entry.outputs, **outputs}
                self._inputs_spent[txid] = entry
                done += self._finish_from_inputs(entry)
        return done

    def find_spent_values(self, value_of: Callable[[bytes, int], int | None]) -> list[FinishedRow]:
        """Complete the rows that lack values of outputs which recent blocks have spent; return these rows.

        `value_of` returns the value in satoshi of an output, given by txid and index, or None.
        """
        done: list[FinishedRow] = []
        for entry in list(self._inputs_spent.values()):
            for request in self._unknown_outputs(entry):
                value_sat = value_of(request.txid, request.output)
                if value_sat is not None:
                    found = {(request.txid, request.output): SpentOutput(value_sat, UNKNOWN_TYPE)}
                    entry.outputs = {**entry.outputs, **found}
            done += self._finish_from_inputs(entry)
        return done

    def learn_spent(self, block: RecentBlock) -> None:
        """Store the values of outputs that a block spends, for pending transactions in conflict with it.

        When the node says later that such a transaction is gone, the block may be no recent one any more.
        """
        if not block.spent_sat:
            return
        for entry in self._open.values():
            if entry.body is None or entry.txid in block.fees_sat:
                continue
            found = {
                read_outpoint(outpoint): SpentOutput(value_sat, UNKNOWN_TYPE)
                for outpoint in entry.body.outpoints
                if (value_sat := block.spent_sat.get(outpoint)) is not None
            }
            if found:
                entry.outputs = {**found, **entry.outputs}

    def blocks_wanted(self) -> list[bytes]:
        """Return the hashes of the blocks whose fees some rows of `mempool_txs` wait for."""
        return list(self._by_block)

    def take_block_fees(self, block_hash: bytes, fees_sat: Mapping[bytes, int | None]) -> list[FinishedRow]:
        """Take the fees of a block's transactions and return the rows that they complete.

        `fees_sat` is keyed by txid; it is empty when the block cannot be had, and the rows are completed
        without a fee. A transaction that the node has not yet reported as gone keeps its fee until then: when
        many blocks come in a row, the block is no longer a recent one when that answer comes.
        """
        done: list[FinishedRow] = []
        for txid, fee_sat in fees_sat.items():
            entry = self._open.get(txid)
            if entry is not None and fee_sat is not None:
                entry.block_fee_sat = fee_sat
                if entry.gone_us and entry.body is not None:
                    done += self._finish(entry)
        for entry in self._by_block.pop(block_hash, []):
            if self._open.get(entry.txid) is entry:  # neither complete by now, nor entered anew
                done += self._finish(entry)
        return done

    def give_up(
        self, now_us: int, given_until_us: int | None = None, *, is_filling: bool = False
    ) -> list[FinishedRow]:
        """Return, without a fee, the rows of transactions that left so long ago that we stop waiting.

        One that was removed waits for its bytes alone, and not for long. Where received messages have not
        been given yet, `given_until_us` says until when (wall clock) all have been given. `is_filling` says
        that blocks are being fetched which no message named. One of them may contain the transaction, so the
        wait is then longer. `now_us` is of the monotonic clock.
        """
        patience_us = GIVE_UP_BLOCK_US if is_filling else GIVE_UP_US

        def is_late(entry: PendingEntry) -> bool:
            if entry.left is None or not _waits_for_bytes(entry):
                return now_us - entry.gone_us > patience_us
            event = entry.left.event
            left_us = entry.left.at_us if event is None else event.received_us
            is_given = given_until_us is None or given_until_us - left_us > GIVE_UP_BYTES_US
            return is_given and now_us - entry.gone_us > GIVE_UP_BYTES_US

        late = [entry for entry in (*self._gone.values(), *self._inputs_spent.values()) if is_late(entry)]
        for block_hash, pending in list(self._by_block.items()):
            overdue = [entry for entry in pending if now_us - entry.gone_us > GIVE_UP_BLOCK_US]
            if len(overdue) == len(pending):
                del self._by_block[block_hash]
            late += [entry for entry in overdue if self._open.get(entry.txid) is entry]
        return [row for entry in late for row in self._finish(entry)]

    def flush(self) -> list[FinishedRow]:
        """Complete and return every pending row of `mempool_txs` with what is known: no more answers come."""
        return [row for entry in list(self._open.values()) for row in self._finish(entry)]

    def _replace_earlier(self, entry: PendingEntry) -> None:
        """Make `entry` the pending entry of its txid.

        A transaction can leave the mempool and enter it again before its fee is known. The earlier entry then
        stays linked to the new one, and both get the same fee.
        """
        earlier = self._open.get(entry.txid)
        if earlier is not None:
            self._forget(earlier)
            entry.earlier = earlier
            entry.body = entry.body or earlier.body
            entry.block_fee_sat = earlier.block_fee_sat
        self._open[entry.txid] = entry

    def _forget(self, entry: PendingEntry) -> None:
        """Remove an entry from all groups of pending entries, except the one that waits for block fees."""
        groups = (
            self._open,
            self._unasked,
            self._backlog,
            self._gone,
            self._outputs_asked,
            self._inputs_spent,
        )
        for group in groups:
            if group.get(entry.txid) is entry:
                del group[entry.txid]

    def _finish(self, entry: PendingEntry, fee: _FoundFee | None = None) -> list[FinishedRow]:
        """Complete the row of a mempool entry with `fee`, else its block's fee, else none; return the rows.

        Earlier rows of the same transaction are completed with it.
        """
        row = mempool_tx_row(self._node, self._session, entry)
        if fee is None and entry.block_fee_sat is not None:
            fee = _FoundFee(entry.block_fee_sat, "block")
        if fee is not None:
            row["fee_sat"], row["fee_source"] = fee
        return self._finish_with(entry, row)

    def _finish_by_mempool_entry(self, entry: PendingEntry, answer: object) -> list[FinishedRow]:
        """Complete the row of a mempool entry with the answer to getmempoolentry; return the rows.

        Raises NodeError when a field of the answer has a wrong form.
        """
        row = mempool_tx_row(self._node, self._session, entry)
        fields = Fields("getmempoolentry", answer)
        fees = fields.fields("fees")
        row["wtxid"] = fields.hash("wtxid")
        row["node_entered_at"] = fields.integer("time", most=LATEST_TIME_S)
        row["weight_wu"] = fields.integer("weight", most=MOST_WEIGHT)
        row["vsize_vb"] = fields.integer("vsize", most=MOST_WEIGHT)
        row["fee_sat"] = fees.satoshi("base")
        row["fee_source"] = "mempool_entry"
        # These fees count what prioritisetransaction adds or takes away, so they may be negative.
        row["ancestor_count"] = fields.integer("ancestorcount", most=MOST_COUNT)
        row["ancestor_vsize_vb"] = fields.integer("ancestorsize")
        row["ancestor_fees_sat"] = fees.satoshi("ancestor", least_sat=-MOST_SAT)
        row["descendant_count"] = fields.integer("descendantcount", most=MOST_COUNT)
        row["descendant_vsize_vb"] = fields.integer("descendantsize")
        row["descendant_fees_sat"] = fees.satoshi("descendant", least_sat=-MOST_SAT)
        row["parents"] = fields.hashes("depends")
        return self._finish_with(entry, row)

    def _finish_with(self, entry: PendingEntry, row: MempoolTxRow) -> list[FinishedRow]:
        """Drop a pending entry; return its complete row, after those of its transaction's earlier entries.

        An earlier row gets the sizes, the fee and the wtxid, which do not change when the transaction enters
        again. The order is that of the entries, so that the last one decides whether the bytes still wait.
        """
        self._forget(entry)
        fee_sat, vsize_vb = row.get("fee_sat"), row.get("vsize_vb")
        if fee_sat is not None and vsize_vb is not None:
            self._contents.learn_fee(entry.txid, fee_sat, vsize_vb)
        types = self._spent_types(entry)
        done = [FinishedRow(row, entry, types)]
        earlier = entry.earlier
        while earlier is not None:
            earlier.body = earlier.body or entry.body
            earlier_row = mempool_tx_row(self._node, self._session, earlier)
            if "wtxid" in row:
                earlier_row["wtxid"] = row["wtxid"]
            if "weight_wu" in row:
                earlier_row["weight_wu"] = row["weight_wu"]
            if "vsize_vb" in row:
                earlier_row["vsize_vb"] = row["vsize_vb"]
            if "fee_sat" in row:
                earlier_row["fee_sat"] = row["fee_sat"]
                earlier_row["fee_source"] = row["fee_source"]
            done.append(FinishedRow(earlier_row, earlier, types))
            earlier = earlier.earlier
        return done[::-1]

    def _output(self, entry: PendingEntry, txid: bytes, index: int) -> SpentOutput | None:
        """Return an output that a mempool entry spends, from the mempool or gettxout; None while unknown."""
        return self._contents.output(txid, index) or entry.outputs.get((txid, index))

    def _unknown_outputs(self, entry: PendingEntry) -> list[OutputRequest]:
        """Return a gettxout request for each output that a mempool entry spends and we do not know."""
        outpoints = [] if entry.body is None else map(read_outpoint, entry.body.outpoints)
        return [
            OutputRequest(entry.txid, txid, index)
            for txid, index in outpoints
            if self._output(entry, txid, index) is None
        ]

    def _spent_types(self, entry: PendingEntry) -> bytes | None:
        """Return the type of each output that a mempool entry spends, a byte each; None if one is unknown."""
        if entry.body is None:
            return None
        numbers = bytearray()
        for outpoint in entry.body.outpoints:
            output = self._output(entry, *read_outpoint(outpoint))
            if output is None or output.type_number == UNKNOWN_TYPE:
                return None
            numbers.append(output.type_number)
        return bytes(numbers)

    def _finish_from_inputs(self, entry: PendingEntry) -> list[FinishedRow]:
        """Complete a mempool entry's row with the fee, computed from its inputs' values; return the rows.

        Returns an empty list while the value of an input is unknown.
        """
        if entry.body is None:
            return []
        total_sat = 0
        for outpoint in entry.body.outpoints:
            output = self._output(entry, *read_outpoint(outpoint))
            if output is None:
                return []
            total_sat += output.value_sat
        return self._finish(entry, _FoundFee(total_sat - entry.body.output_value_sat, "inputs"))


def _waits_for_bytes(entry: PendingEntry) -> bool:
    """Return whether a transaction left without its bytes: the node has none, but a late message may."""
    has_left = entry.left is not None and entry.mined_in is None
    return has_left and entry.body is None and entry.kind == "pushed"


def mempool_tx_row(node: str, session: str, entry: PendingEntry) -> MempoolTxRow:
    """Return the row of `mempool_txs` of a mempool entry, without fee: what its event and its bytes tell.

    Columns whose values are not known yet are left out, or null.
    """
    body = entry.body
    if body is None:
        return {
            "node": node,
            "session": session,
            "txid": entry.txid,
            "entered_at": entry.entered_us,
            "first_seen_kind": entry.kind,
            "mempool_sequence": entry.mempool_sequence,
            "parents": entry.parents,
        }
    weight_wu = 3 * body.stripped_bytes + body.size_bytes
    row: MempoolTxRow = {  # up to 21 items: with more, a dict takes twice the memory
        "node": node,
        "session": session,
        "txid": entry.txid,
        "entered_at": entry.entered_us,
        "first_seen_kind": entry.kind,
        "mempool_sequence": entry.mempool_sequence,
        "wtxid": body.wtxid,
        "size_bytes": body.size_bytes,
        "weight_wu": weight_wu,
        "vsize_vb": (weight_wu + WEIGHT_PER_VB - 1) // WEIGHT_PER_VB,
        "n_inputs": body.n_inputs,
        "n_outputs": body.n_outputs,
        "output_value_sat": body.output_value_sat,
        "signals_rbf": body.signals_rbf,
        "version": body.version,
        "locktime": body.locktime,
        **(body.traits or NO_TRAITS),  # type: ignore[typeddict-item] # a part of a row, which mypy does not see
    }
    if entry.parents is not None:
        row["parents"] = entry.parents
    return row


def _decoded(answers: Iterable[EntryAnswer]) -> dict[bytes, Transaction]:
    """Return the transactions whose hex bytes the answers hold, by txid.

    Bytes that are wrong, or another transaction's, are left out.
    """
    raws: dict[bytes, bytes] = {}
    for answer in answers:
        if isinstance(answer.body, str):
            with suppress(ValueError):
                raws[answer.txid] = bytes.fromhex(answer.body)
    if not raws:
        return {}
    found = zip(raws, decode_transactions(list(raws.values())), strict=True)
    return {
        txid: transaction
        for txid, transaction in found
        if not isinstance(transaction, DecodeError) and transaction.txid == txid
    }
