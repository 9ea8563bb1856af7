"""Ask the node for the fees of transactions, and put each complete row into the batch that waits for it.

The same requests ask for value and type of each output that an entering transaction spends. Parents in the
mempool tell it of their outputs; of confirmed ones the node is asked (gettxout), while few transactions wait.
In a burst these questions would take more time than everything else, so they are left out, and the columns
stay null. No block tells of a transaction that is never mined; `transactions` has the columns of every other.

Transactions that only a snapshot lists have no message in the journal. Until their rows are complete, the
journal keeps them as named states, so that a kill does not lose them.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, Protocol

import numpy as np
import structlog

from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.clock import monotonic_us
from collector.codec.scripts import UNKNOWN_TYPE, type_of_script
from collector.codec.traits import sigop_costs
from collector.codec.transaction import Transaction, decode_transactions
from collector.dataset.rows import MempoolTxRow
from collector.dataset.schema import OUTPUT_TYPES, hash_hex
from collector.errors import DecodeError, NodeError, RpcError
from collector.journal.batches import Batch, Batches
from collector.mempool.bodies import KeptBodies, raw_of
from collector.mempool.entries import (
    EntryAnswer,
    EntryRequest,
    FinishedRow,
    OutputRequest,
    Outputs,
    PendingEntries,
    PendingEntry,
)
from collector.mempool.sync import MempoolContents, SpentOutput, TxLeft
from collector.node.answers import Fields
from collector.node.request_threads import GiveUp, RequestThread
from collector.node.rpc import RpcClient

MOST_NEW: Final = 4_000  # above so many transactions that we have not asked for, the lookup is behind
# The node is asked what transactions spend while at most so many wait, and for at most so many outputs at
# a time. It has just read these outputs to check the transactions, so it has them in memory.
FEW_WAITING: Final = 100
MOST_OUTPUTS: Final = 500
MOST_ASKED: Final = 2  # open requests; so the next one waits at the node when it has answered one
# The name of a state in the journal begins with this prefix, as in the journals that are on disk already.
STATE_PREFIX: Final = "told/"
MOST_PER_STATE: Final = 1000  # transactions in one state; its rows are written when all are complete
UNANSWERED_S: Final = 60.0  # a request that fails for so long, while the node answers others, is given up
PATIENCE_US: Final = 5_000_000  # a node that takes longer to answer must not hold up the messages
log = structlog.get_logger(__name__)


class BlockSource(Protocol):
    """Fetches blocks of a node, from which the fees of mined transactions come."""

    @property
    def is_filling(self) -> bool:
        """Return whether blocks are being fetched that no message of the node named."""

    def want(self, block_hash: bytes) -> None:
        """Ask the node for a block, unless it has been asked already."""


class FeeLookup:
    """Looks up the fee of every transaction that enters one node's mempool in one session.

    One request asks for at most `n_per_request` transactions. While fewer wait, `interval_s` passes between
    two requests. This is short enough to find most transactions still in the mempool, and long enough to cost
    little.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        contents: MempoolContents,
        recent: RecentBlocks,
        *,
        requests: RequestThread,
        batches: Batches,
        bodies: KeptBodies,
        n_per_request: int,
        interval_s: float,
    ) -> None:
        self._session = origin[1]
        self._pending = PendingEntries(*origin, contents)
        self._recent = recent
        self._requests = requests
        self._batches = batches
        self._bodies = bodies
        self._n_states = 0
        self._n_per_request = n_per_request
        self._interval_us = round(interval_s * 1e6)
        self._n_open = 0
        self._asked_us = 0

    def __len__(self) -> int:
        return len(self._pending)

    def __contains__(self, txid: bytes) -> bool:
        return txid in self._pending

    @property
    def is_behind(self) -> bool:
        """Return whether transactions come faster than we ask for their fees, while the node does answer."""
        return self._pending.n_new > MOST_NEW and monotonic_us() - self._asked_us < PATIENCE_US

    def add(self, entry: PendingEntry, owner: Batch) -> None:
        """Add a transaction that entered the mempool, to look up its fee.

        Its row goes into the batch `owner` when the fee is known.
        """
        entry.owner = owner
        owner.n_pending_rows += 1
        self._pending.add(entry)

    def add_from_block(self, entry: PendingEntry, owner: Batch, block_hash: bytes) -> None:
        """Add a transaction that was first seen in a block to those whose fee is awaited.

        Its row will go into the batch `owner`.
        """
        entry.owner = owner
        entry.gone_us = monotonic_us()
        owner.n_pending_rows += 1
        self._pending.add_from_block(entry, block_hash)

    def add_from_snapshot(self, entries: Sequence[PendingEntry]) -> None:
        """Add transactions that a mempool snapshot listed, to look up their fees.

        After the journal's next flush a kill does not lose them.
        """
        for at in range(0, len(entries), MOST_PER_STATE):
            self._n_states += 1
            part = entries[at : at + MOST_PER_STATE]
            self._add_of_state(state_name(self._session, self._n_states), entries_to_state(part), part)

    def restore(self, name: str, state: bytes) -> None:
        """Add the transactions that a killed run kept in the journal's state `name`; look up their fees."""
        self._add_of_state(name, state, entries_of_state(state))

    def note_left(self, left: TxLeft) -> None:
        """Store why and when a transaction left the mempool; its fee is then sought elsewhere."""
        self._pending.note_left(left)

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Store the decoded bytes of a transaction, which came after the event that announced it."""
        self._pending.learn_body(txid, body)

    def tick(
        self, now_us: int, blocks: BlockSource, given_until_us: int | None = None, *, at_once: bool = False
    ) -> None:
        """Complete rows of `mempool_txs` from recent blocks, give up overdue rows, send requests now due.

        `blocks` is asked for the blocks that rows need. Where received messages have not been given yet,
        `given_until_us` says until when (wall clock) all have been given. With `at_once`, the pause between
        two requests for mempool entries is skipped.
        """
        self._finish(self._pending.find_spent_values(self._recent.spent_value_sat))
        self._pending.find_blocks_of_gone(self._recent.connected_block_with)
        done, requests = self._pending.resolve_gone()
        self._finish(done)
        if requests:
            ask = partial(ask_outputs, requests=requests)
            self._requests.insist(
                ask,
                partial(self._on_outputs, requests),
                lambda _: None,
                GiveUp(UNANSWERED_S, partial(self._give_up_outputs, requests)),
            )
        for block_hash in self._pending.blocks_wanted():
            block = self._recent.get(block_hash)
            if block is None:
                blocks.want(block_hash)  # it may have been a recent one, and dropped
            else:
                self._finish(self._pending.take_block_fees(block_hash, block.fees_sat))
        # Last: a block that has just been described may contain what would be given up.
        self._finish(self._pending.give_up(now_us, given_until_us, is_filling=blocks.is_filling))
        self._ask(at_once=at_once)

    def block_resolved(self, block_hash: bytes, block: RecentBlock | None) -> None:
        """Complete the rows that waited for a block's fees; `block` is None when the node cannot give it."""
        if block is not None:
            self._pending.learn_spent(block)
        self._finish(self._pending.take_block_fees(block_hash, {} if block is None else block.fees_sat))

    def flush(self) -> None:
        """Complete every row of `mempool_txs` with what is known, because no more answers come."""
        self._finish(self._pending.flush())

    def _add_of_state(self, name: str, state: bytes, entries: Iterable[PendingEntry]) -> None:
        """Write a state to the journal and add the transactions in it, to look up their fees.

        The state is removed when all have their rows.
        """
        owner = self._batches.begin_from_state(name, state)
        for entry in entries:
            self.add(entry, owner)

    def _ask(self, *, at_once: bool) -> None:
        """Send the requests for mempool entries that are due; `at_once` skips the pause between two."""
        now_us = monotonic_us()
        is_time = at_once or now_us - self._asked_us >= self._interval_us
        while n_unasked := self._pending.n_unasked:
            is_worth_it = n_unasked >= self._n_per_request or (is_time and not self._n_open)
            if self._n_open >= MOST_ASKED or not is_worth_it:
                return
            self._asked_us = now_us
            self._n_open += 1
            most_outputs = MOST_OUTPUTS if n_unasked <= FEW_WAITING else 0
            requests = self._pending.next_requests(self._n_per_request, most_outputs=most_outputs)
            self._ask_entries(requests, UNANSWERED_S)

    def _ask_entries(self, requests: list[EntryRequest], give_up_s: float) -> None:
        """Send a request for mempool entries; it is given up after it has failed for `give_up_s` seconds."""
        ask = partial(ask_mempool_entries, requests=requests)
        give_up = GiveUp(give_up_s, partial(self._give_up_entries, requests))
        self._requests.insist(ask, self._on_entries, partial(self._no_entries, requests), give_up)

    def _on_entries(self, answers: list[EntryAnswer]) -> None:
        """Take the node's answers to one request for mempool entries, and complete rows of `mempool_txs`."""
        self._n_open -= 1
        self._finish(self._pending.take_answers(answers, monotonic_us()))

    def _no_entries(self, requests: list[EntryRequest], _: NodeError) -> None:
        """Queue the transactions of a request for mempool entries again, as a stop cut the request off."""
        self._n_open -= 1
        self._pending.put_back(requests)

    def _give_up_entries(self, requests: list[EntryRequest], error: NodeError) -> None:
        """Ask for the mempool entries again by halves, as the node never answers this request.

        What is left of them is the one transaction that it does not answer: it counts as gone, and its fee
        comes from a block, or its row has none.
        """
        if len(requests) > 1:
            middle = len(requests) // 2
            self._n_open += 1  # two requests in place of one
            self._ask_entries(requests[:middle], 0.0)
            self._ask_entries(requests[middle:], 0.0)
            return
        log.warning("mempool_entry.unanswered", txid=hash_hex(requests[0].txid), reason=str(error))
        self._on_entries([EntryAnswer(requests[0].txid, error, None)])

    def _give_up_outputs(self, requests: list[OutputRequest], _: NodeError) -> None:
        """Go on without the outputs for which the node never answers; blocks may tell of some later."""
        self._finish(self._pending.take_outputs(requests, {}))

    def _on_outputs(self, requests: list[OutputRequest], answers: list[Any]) -> None:
        """Take the node's gettxout answers, and complete the rows whose input values are all known."""
        self._finish(self._pending.take_outputs(requests, outputs_of_answers(requests, answers)))

    def _finish(self, done: Iterable[FinishedRow]) -> None:
        """Add complete rows to the batches that wait for them.

        Raises RuntimeError for a row that has no batch.
        """
        rows = list(done)
        try:
            _fill(rows)
        except Exception:  # noqa: BLE001 - raised again for the row that causes it, if there is one
            for finished in rows:
                _fill_alone(finished)
        for finished in rows:
            owner = finished.owner
            if owner is None:
                raise RuntimeError("a row of mempool_txs is complete and no batch waits for it")
            owner.add("mempool_txs", [finished.row])
            self._bodies.entry_finished(finished.entry, owner)
            owner.n_pending_rows -= 1


def _fill(rows: Sequence[FinishedRow]) -> None:
    """Add to rows of `mempool_txs` what is computed for many at once: traits, spent types, sigop cost."""
    _fill_traits(rows)
    _fill_spent(
        [
            (row, entry.body, types)
            for row, entry, types in rows
            if entry.body is not None and types is not None
        ]
    )


def _fill_alone(finished: FinishedRow) -> None:
    """Add traits, spent types and sigop cost to one row; if our code fails on it, they stay out."""
    try:
        _fill([finished])
    except (OSError, MemoryError):
        raise
    except Exception:
        log.exception("mempool_tx.failed", txid=hash_hex(finished.entry.txid))


def _fill_traits(finished: Sequence[FinishedRow]) -> None:
    """Write the traits (dust, inscriptions, types of outputs) into the rows that lack them.

    A transaction that was decoded as a part of its block has none. All are found in one call: one by one, the
    calls take most of the time.
    """
    lacking = [
        (each.row, body) for each in finished if (body := each.entry.body) is not None and body.traits is None
    ]
    if not lacking:
        return
    raws = [raw_of(body) for _, body in lacking]
    for (row, _), again in zip(lacking, decode_transactions(raws), strict=True):
        if not isinstance(again, DecodeError) and again.traits is not None:
            row.update(again.traits)  # type: ignore[typeddict-item] # a part of a row, which mypy does not see


def _fill_spent(rows: Sequence[tuple[MempoolTxRow, Transaction, bytes]]) -> None:
    """Write the types of spent outputs and the sigop cost into rows of `mempool_txs`.

    Each item of `rows` is a row, its transaction, and the type of each output it spends, one byte each.
    All costs are computed in one call: one by one, the calls take most of the time.
    """
    if not rows:
        return
    raws = [raw_of(body) for _, body, _ in rows]
    types = np.frombuffer(b"".join(numbers for _, _, numbers in rows), np.uint8)
    for (row, _, numbers), cost in zip(rows, sigop_costs(raws, types).tolist(), strict=True):
        row["spent_types"] = [OUTPUT_TYPES[number] for number in numbers]
        row["sigop_cost"] = cost


def ask_mempool_entries(client: RpcClient, requests: Sequence[EntryRequest]) -> list[EntryAnswer]:
    """Ask for transactions' mempool entries and, if needed, bytes and spent outputs in one batch of calls.

    Return the answers.
    """
    without_body = [request.txid for request in requests if request.needs_body]
    outputs = [output for request in requests for output in request.outputs]
    calls: list[tuple[Any, ...]] = [("getmempoolentry", hash_hex(request.txid)) for request in requests]
    calls += [("getrawtransaction", hash_hex(txid)) for txid in without_body]
    calls += map(_output_call, outputs)
    answers = iter(client.batch(calls))
    entries = list(islice(answers, len(requests)))
    raws = dict(zip(without_body, islice(answers, len(without_body)), strict=True))
    found = outputs_of_answers(outputs, list(answers))
    return [
        EntryAnswer(request.txid, entry, raws.get(request.txid), _of_request(request, found))
        for request, entry in zip(requests, entries, strict=True)
    ]


def ask_outputs(client: RpcClient, requests: Sequence[OutputRequest]) -> list[Any]:
    """Return gettxout's answers for outputs of confirmed transactions, even if the mempool spends them."""
    return client.batch(list(map(_output_call, requests)))


def _output_call(request: OutputRequest) -> tuple[Any, ...]:
    include_mempool = False
    return ("gettxout", hash_hex(request.txid), request.output, include_mempool)


def _of_request(request: EntryRequest, found: Outputs) -> Outputs:
    """Return those of the outputs `found` that a request asked for, keyed by txid and index."""
    asked = ((output.txid, output.output) for output in request.outputs)
    return {outpoint: found[outpoint] for outpoint in asked if outpoint in found}


def outputs_of_answers(
    requests: Sequence[OutputRequest], answers: Sequence[Any]
) -> dict[tuple[bytes, int], SpentOutput]:
    """Return the outputs that gettxout found, keyed by txid and index.

    `answers` are in the order of `requests`. One of a wrong form counts as not found.
    """
    found = {}
    for request, answer in zip(requests, answers, strict=True):
        if answer is None or isinstance(answer, RpcError):
            continue
        try:
            found[request.txid, request.output] = _read_output(Fields("gettxout", answer))
        except NodeError as error:
            log.warning("output.unread", reason=str(error))
    return found


def _read_output(answer: Fields) -> SpentOutput:
    """Return the output in an answer to gettxout; raise NodeError for a wrong form.

    Without the script, the type counts as unknown.
    """
    script = answer.fields("scriptPubKey").get("hex")
    try:
        number = type_of_script(bytes.fromhex(script)) if isinstance(script, str) else UNKNOWN_TYPE
    except ValueError:
        number = UNKNOWN_TYPE
    return SpentOutput(answer.satoshi("value"), number)


# --- states in the journal


def state_name(session: str, number: int) -> str:
    """Return the name of state `number` in the journal, which keeps pending transactions of a session."""
    return f"{STATE_PREFIX}{session}/{number}"


def session_of_state(name: str) -> str:
    """Return the session in a state's name that `state_name` made."""
    return name.split("/")[1]


def entries_to_state(entries: Iterable[PendingEntry]) -> bytes:
    """Return txid, kind and time of pending transactions as the bytes of a journal state (JSON)."""
    return json.dumps([[entry.txid.hex(), entry.kind, entry.entered_us] for entry in entries]).encode()


def entries_of_state(state: bytes) -> Iterator[PendingEntry]:
    """Yield the pending transactions in bytes that `entries_to_state` returned."""
    for txid, kind, entered_us in json.loads(state):
        yield PendingEntry(bytes.fromhex(txid), kind, entered_us, None, None, None)
