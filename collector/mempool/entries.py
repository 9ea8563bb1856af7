"""Complete one row of `mempool_txs` each time a transaction enters the mempool.

A row waits until its fee is known or cannot be learnt. The fee is asked of the mempool soon after the
transaction entered. If it has left by then, the fee comes from the block that took it; if it was removed, the
fee is the value of what it spent minus the value of its outputs. No index of transactions is needed. Nothing
here talks to the node: requests come out, answers go in.

Transactions that only a snapshot lists have no message in the journal. Until their rows are complete they are
kept there as states, so that a kill does not lose them.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from collector.codec.amounts import satoshi
from collector.codec.decode import Transaction, decode_transaction
from collector.dataset.rows import MempoolTxRow
from collector.errors import DecodeError, RpcError
from collector.journal.batches import Batch
from collector.mempool.contents import MempoolContents
from collector.mempool.sync import TxLeft
from collector.node.answers import LATEST_TIME_S, MOST_COINS, MOST_COUNT, Fields

Values = Mapping[tuple[bytes, int], int]  # of outputs in satoshi, by txid and index
NO_VALUES: Final[Values] = {}  # one for all: at a start each transaction of the mempool has a pending row
GIVE_UP_US: Final = 10_000_000  # how long the reason why a transaction left may be on its way
GIVE_UP_BLOCK_US: Final = 600_000_000  # how long its block may be on its way: a busy node answers late
MOST_WEIGHT: Final = (1 << 32) - 1  # of a transaction; far more than a block holds
# A state in the journal is named by this, the session and a number. Journals on disk have these names.
STATE_PREFIX: Final = "told/"
MOST_PER_STATE: Final = 1000  # transactions; the rows of a state are written when all of them are complete


class EntryRequest(NamedTuple):
    """A request for a transaction's mempool entry, and for its bytes if `needs_body`."""

    txid: bytes
    needs_body: bool


class EntryAnswer(NamedTuple):
    """The node's answer to an EntryRequest: mempool entry and bytes in hex, or the node's error instead."""

    txid: bytes
    entry: Any  # or RpcError
    body: Any


class OutputRequest(NamedTuple):
    """A request for an unspent output (gettxout, without the mempool) that a removed transaction spent."""

    spender: bytes
    txid: bytes
    output: int


@dataclass(slots=True, eq=False)
class PendingEntry:
    """A transaction that entered the mempool, and whose row is not complete."""

    txid: bytes
    kind: str
    entered_us: int
    mempool_sequence: int | None
    body: Transaction | None
    parents: list[bytes] | None
    owner: Batch | None = None  # the batch that waits for the row
    left: TxLeft | None = None
    gone_us: int = 0  # when the node said that it is not in the mempool, on the monotonic clock
    values_sat: Values = field(default_factory=lambda: NO_VALUES)  # of what it spent, as gettxout answered
    block_fee_sat: int | None = None  # by a block that contains it; true even if that block is disconnected
    earlier: "PendingEntry | None" = None  # when it entered before: that row gets the same fee


class FinishedRow(NamedTuple):
    """A complete row, and the batch that waits for it."""

    row: MempoolTxRow
    owner: Batch | None


class _FoundFee(NamedTuple):
    """A fee and where it comes from."""

    fee_sat: int
    source: str


class PendingEntries:
    """The transactions of one node and session whose rows are not complete."""

    def __init__(self, node: str, session: str, contents: MempoolContents) -> None:
        self._node = node
        self._session = session
        self._contents = contents
        self._open: dict[bytes, PendingEntry] = {}
        self._unasked: dict[bytes, PendingEntry] = {}  # pushed a moment ago: requested first
        self._backlog: dict[bytes, PendingEntry] = {}  # long in the mempool: requested when there is time
        self._gone: dict[bytes, PendingEntry] = {}  # not in the mempool any more, and nothing has said why
        self._outputs_asked: dict[bytes, PendingEntry] = {}
        # A block took what these spent before gettxout was asked.
        self._inputs_spent: dict[bytes, PendingEntry] = {}
        self._by_block: dict[bytes, list[PendingEntry]] = {}  # wait for the fees of that block

    def __len__(self) -> int:
        return len(self._open)

    @property
    def n_unasked(self) -> int:
        """Transactions that no request has been made for."""
        return len(self._unasked) + len(self._backlog)

    @property
    def n_new(self) -> int:
        """Transactions whose event was pushed, and that no request has been made for."""
        return len(self._unasked)

    def add(self, entry: PendingEntry) -> None:
        """Add a transaction that entered. An open one of the same txid gets its fee together with it."""
        self._replace_earlier(entry)
        (self._unasked if entry.kind == "pushed" else self._backlog)[entry.txid] = entry

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Take the bytes of a transaction that came after its event."""
        entry = self._open.get(txid)
        if entry is not None and entry.body is None:
            entry.body = body

    def note_left(self, left: TxLeft) -> None:
        """Note why and when a transaction left the mempool."""
        entry = self._open.get(left.txid)
        if entry is not None:
            entry.left = left

    def next_requests(self, limit: int) -> list[EntryRequest]:
        """Return up to `limit` requests. Each must be answered, or put back with `put_back`."""
        taken: list[PendingEntry] = []
        for waiting in (self._unasked, self._backlog):
            taken += [waiting.pop(txid) for txid in list(islice(waiting, limit - len(taken)))]
        return [EntryRequest(entry.txid, entry.body is None) for entry in taken]

    def put_back(self, requests: Iterable[EntryRequest]) -> None:
        """Put back requests that the node did not answer."""
        for request in requests:
            entry = self._open.get(request.txid)
            if entry is not None:
                self._backlog[request.txid] = entry

    def take_answers(self, answers: Iterable[EntryAnswer], now_us: int) -> list[FinishedRow]:
        """Take the node's answers: finish what is in the mempool, and look elsewhere for the rest."""
        done: list[FinishedRow] = []
        for answer in answers:
            entry = self._open.get(answer.txid)
            if entry is None or answer.txid in self._unasked or answer.txid in self._backlog:
                continue  # complete by now, or entered anew
            if entry.body is None and isinstance(answer.body, str):
                entry.body = _decoded(entry.txid, answer.body)
                if entry.body is not None:
                    self._contents.learn_body(entry.txid, entry.body)
            if not isinstance(answer.entry, RpcError):
                done += self._finish_by_mempool_entry(entry, answer.entry)
            elif entry.block_fee_sat is not None:
                done += self._finish(entry)
            else:
                entry.gone_us = now_us
                self._gone[entry.txid] = entry
        return done

    def add_from_block(self, entry: PendingEntry, block_hash: bytes) -> None:
        """Add a transaction that was first seen in a block; its `gone_us` is the time of that."""
        self._replace_earlier(entry)
        self._by_block.setdefault(block_hash, []).append(entry)

    def find_blocks_of_gone(self, block_with: Callable[[bytes], bytes | None]) -> None:
        """Look in recent blocks for transactions that are gone although no event said that they left."""
        for entry in self._gone.values():
            block_hash = block_with(entry.txid) if entry.left is None else None
            if block_hash is not None:
                entry.left = TxLeft(entry.txid, "mined", None, block_hash)

    def resolve_gone(self) -> tuple[list[FinishedRow], list[OutputRequest]]:
        """Go on with transactions that left: look in their block, or compute the fee from what they spent.

        Returns the rows that are complete, and requests for the values that are unknown here;
        `take_output_values` takes the answers.
        """
        done: list[FinishedRow] = []
        requests: list[OutputRequest] = []
        for entry in list(self._gone.values()):
            if entry.left is None:
                continue
            del self._gone[entry.txid]
            if entry.left.cause == "mined" and entry.left.block_hash is not None:
                self._by_block.setdefault(entry.left.block_hash, []).append(entry)
                continue
            unknown = self._unknown_outputs(entry)
            if unknown:
                self._outputs_asked[entry.txid] = entry
                requests += unknown
            else:
                done += self._finish_from_inputs(entry) or self._finish(entry)
        return done, requests

    def take_output_values(
        self, requests: Iterable[OutputRequest], values_sat: Mapping[tuple[bytes, int], int]
    ) -> list[FinishedRow]:
        """Take the values that gettxout gave, by (txid, index), for requests of `resolve_gone`.

        It does not give the value of an output that a block has spent by then; that block does
        (`find_spent_values`).
        """
        done: list[FinishedRow] = []
        for txid in dict.fromkeys(request.spender for request in requests):
            entry = self._outputs_asked.pop(txid, None)
            if entry is not None:
                entry.values_sat = {**entry.values_sat, **values_sat}
                self._inputs_spent[txid] = entry
                done += self._finish_from_inputs(entry)
        return done

    def find_spent_values(self, value_of: Callable[[bytes, int], int | None]) -> list[FinishedRow]:
        """Look up the values of outputs that recent blocks spent."""
        done: list[FinishedRow] = []
        for entry in list(self._inputs_spent.values()):
            for request in self._unknown_outputs(entry):
                value_sat = value_of(request.txid, request.output)
                if value_sat is not None:
                    found = {(request.txid, request.output): value_sat}
                    entry.values_sat = {**entry.values_sat, **found}
            done += self._finish_from_inputs(entry)
        return done

    def blocks_wanted(self) -> list[bytes]:
        """Return the blocks whose fees some rows wait for."""
        return list(self._by_block)

    def take_block_fees(self, block_hash: bytes, fees_sat: Mapping[bytes, int | None]) -> list[FinishedRow]:
        """Take the fees of a block, by txid, and finish the rows that wait for it; empty: it cannot be had.

        A transaction that the node has not yet said to be gone keeps this fee until then: when many blocks
        come in a row, the block is no longer a recent one when the answer comes.
        """
        done: list[FinishedRow] = []
        for txid, fee_sat in fees_sat.items():
            entry = self._open.get(txid)
            if entry is not None and fee_sat is not None:
                entry.block_fee_sat = fee_sat
                if entry.gone_us:
                    done += self._finish(entry)
        for entry in self._by_block.pop(block_hash, []):
            if self._open.get(entry.txid) is entry:  # neither complete by now, nor entered anew
                done += self._finish(entry)
        return done

    def give_up(self, now_us: int, *, is_filling: bool = False) -> list[FinishedRow]:
        """Finish, without a fee, the rows of transactions that left too long ago.

        `is_filling` says that blocks which no message named are being fetched: one of them may contain the
        transaction, so the wait is longer.
        """
        patience_us = GIVE_UP_BLOCK_US if is_filling else GIVE_UP_US
        waiting = (*self._gone.values(), *self._inputs_spent.values())
        late = [entry for entry in waiting if now_us - entry.gone_us > patience_us]
        for block_hash, pending in list(self._by_block.items()):
            overdue = [entry for entry in pending if now_us - entry.gone_us > GIVE_UP_BLOCK_US]
            if len(overdue) == len(pending):
                del self._by_block[block_hash]
            late += [entry for entry in overdue if self._open.get(entry.txid) is entry]
        return [row for entry in late for row in self._finish(entry)]

    def flush(self) -> list[FinishedRow]:
        """Finish every row with what is known of it."""
        return [row for entry in list(self._open.values()) for row in self._finish(entry)]

    def _replace_earlier(self, entry: PendingEntry) -> None:
        """Put an entry in the place of an open one of the same txid, which has the same fee."""
        earlier = self._open.get(entry.txid)
        if earlier is not None:
            self._forget(earlier)
            entry.earlier = earlier
            entry.body = entry.body or earlier.body
            entry.block_fee_sat = earlier.block_fee_sat
        self._open[entry.txid] = entry

    def _forget(self, entry: PendingEntry) -> None:
        """Drop an entry from all that waits."""
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
        """Complete an entry with a fee, or with that of a block that contains it, or without one."""
        row = mempool_tx_row(self._node, self._session, entry)
        if fee is None and entry.block_fee_sat is not None:
            fee = _FoundFee(entry.block_fee_sat, "block")
        if fee is not None:
            row["fee_sat"], row["fee_source"] = fee
        return self._finish_with(entry, row)

    def _finish_by_mempool_entry(self, entry: PendingEntry, answer: object) -> list[FinishedRow]:
        """Complete an entry with the node's answer to getmempoolentry."""
        row = mempool_tx_row(self._node, self._session, entry)
        fields = Fields("getmempoolentry", answer)
        fees = fields.fields("fees")
        row["wtxid"] = fields.hash("wtxid")
        row["node_entered_at"] = fields.integer("time", most=LATEST_TIME_S)
        row["weight_wu"] = fields.integer("weight", most=MOST_WEIGHT)
        row["vsize_vb"] = fields.integer("vsize", most=MOST_WEIGHT)
        row["fee_sat"] = satoshi(fees.amount("base"))
        row["fee_source"] = "mempool_entry"
        # These fees count what prioritisetransaction adds or takes away, so they may be negative.
        row["ancestor_count"] = fields.integer("ancestorcount", most=MOST_COUNT)
        row["ancestor_vsize_vb"] = fields.integer("ancestorsize")
        row["ancestor_fees_sat"] = satoshi(fees.amount("ancestor", least=-MOST_COINS))
        row["descendant_count"] = fields.integer("descendantcount", most=MOST_COUNT)
        row["descendant_vsize_vb"] = fields.integer("descendantsize")
        row["descendant_fees_sat"] = satoshi(fees.amount("descendant", least=-MOST_COINS))
        row["parents"] = fields.hashes("depends")
        return self._finish_with(entry, row)

    def _finish_with(self, entry: PendingEntry, row: MempoolTxRow) -> list[FinishedRow]:
        """Drop an entry whose row is complete, and complete the earlier rows of its txid by it.

        They get what is the same whenever a transaction enters.
        """
        self._forget(entry)
        fee_sat, vsize_vb = row.get("fee_sat"), row.get("vsize_vb")
        if fee_sat is not None and vsize_vb is not None:
            self._contents.learn_fee(entry.txid, fee_sat, vsize_vb)
        done = [FinishedRow(row, entry.owner)]
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
            done.append(FinishedRow(earlier_row, earlier.owner))
            earlier = earlier.earlier
        return done

    def _value_sat(self, entry: PendingEntry, txid: bytes, output: int) -> int | None:
        """Return the value of an output that an entry spends, if the mempool or gettxout gave it."""
        value_sat = self._contents.value_sat(txid, output)
        return entry.values_sat.get((txid, output)) if value_sat is None else value_sat

    def _unknown_outputs(self, entry: PendingEntry) -> list[OutputRequest]:
        """Return a request for each output that an entry spends and whose value is unknown."""
        inputs = () if entry.body is None else entry.body.inputs
        return [
            OutputRequest(entry.txid, spent.prev_txid, spent.prev_index)
            for spent in inputs
            if self._value_sat(entry, spent.prev_txid, spent.prev_index) is None
        ]

    def _finish_from_inputs(self, entry: PendingEntry) -> list[FinishedRow]:
        """Finish an entry by the values of what it spent; return nothing while one of them is unknown."""
        if entry.body is None:
            return []
        total_sat = 0
        for spent in entry.body.inputs:
            value_sat = self._value_sat(entry, spent.prev_txid, spent.prev_index)
            if value_sat is None:
                return []
            total_sat += value_sat
        return self._finish(entry, _FoundFee(total_sat - entry.body.output_value_sat, "inputs"))


def mempool_tx_row(node: str, session: str, entry: PendingEntry) -> MempoolTxRow:
    """Return the row of an entry with what its event and its bytes say; other columns are left out."""
    row: MempoolTxRow = {
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
        row["wtxid"] = body.wtxid
        row["size_bytes"] = body.size_bytes
        row["weight_wu"] = body.weight_wu
        row["vsize_vb"] = body.vsize_vb
        row["n_inputs"] = body.n_inputs
        row["n_outputs"] = body.n_outputs
        row["output_value_sat"] = body.output_value_sat
        row["signals_rbf"] = body.signals_rbf
    return row


def _decoded(txid: bytes, raw_hex: str) -> Transaction | None:
    """Decode the bytes of a transaction; None when they are wrong, and the row does without them."""
    try:
        transaction = decode_transaction(bytes.fromhex(raw_hex))
    except (DecodeError, ValueError):
        return None
    return transaction if transaction.txid == txid else None


def output_values(requests: Sequence[OutputRequest], answers: Sequence[Any]) -> dict[tuple[bytes, int], int]:
    """Return the values of the outputs that gettxout found, by (txid, index)."""
    return {
        (request.txid, request.output): satoshi(Fields("gettxout", answer).amount("value"))
        for request, answer in zip(requests, answers, strict=True)
        if answer is not None and not isinstance(answer, RpcError)
    }


# --- states in the journal


def state_name(session: str, number: int) -> str:
    """Name a state of the journal that keeps transactions which a snapshot of a session listed."""
    return f"{STATE_PREFIX}{session}/{number}"


def session_of_state(name: str) -> str:
    """Return the session that a state belongs to."""
    return name.split("/")[1]


def entries_to_state(entries: Iterable[PendingEntry]) -> bytes:
    """Write txid, kind and time of entries as the bytes of a state."""
    return json.dumps([[entry.txid.hex(), entry.kind, entry.entered_us] for entry in entries]).encode()


def entries_of_state(state: bytes) -> Iterator[PendingEntry]:
    """Read the entries that `entries_to_state` wrote."""
    for txid, kind, entered_us in json.loads(state):
        yield PendingEntry(bytes.fromhex(txid), kind, entered_us, None, None, None)
