"""Ask the node for what the rows of `mempool_txs` need, and put each row into the batch that waits for it."""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final, Protocol

from collector.blocks.recent import RecentBlock, RecentBlocks
from collector.clock import monotonic_us
from collector.codec.decode import Transaction
from collector.dataset.schema import hash_hex
from collector.errors import NodeError
from collector.journal.batches import Batch
from collector.mempool.contents import MempoolContents
from collector.mempool.entries import (
    EntryAnswer,
    EntryRequest,
    FinishedRow,
    OutputRequest,
    PendingEntries,
    PendingEntry,
    output_values,
)
from collector.mempool.sync import TxLeft
from collector.node.request_threads import RequestThread, raise_unless_stopped
from collector.node.rpc import RpcClient

MOST_NEW: Final = 4_000  # entries without a question that are worth their memory
MOST_ASKED: Final = 2  # questions on their way: the next is there when the node has answered one
PATIENCE_US: Final = 5_000_000  # for an answer, before more are taken in all the same


class BlockSource(Protocol):
    """The place where blocks come from, as far as fees are concerned."""

    @property
    def is_filling(self) -> bool:
        """Whether blocks that no message named are being fetched."""

    def want(self, block_hash: bytes) -> None:
        """Ask the node for a block, unless it has been asked already."""


class FeeLookup:
    """The entries of one node and session on their way to a row.

    At most `batch` entries are asked for in one question, and `interval_s` passes between two questions
    unless there are that many: soon enough to find most of them still there, seldom enough to cost little.
    """

    def __init__(
        self,
        origin: tuple[str, str],
        live: MempoolContents,
        recent: RecentBlocks,
        lane: RequestThread,
        *,
        batch: int,
        interval_s: float,
    ) -> None:
        self._entries = PendingEntries(*origin, live)
        self._recent = recent
        self._lane = lane
        self._batch = batch
        self._interval_us = round(interval_s * 1e6)
        self._n_asked = 0
        self._asked_us = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def is_behind(self) -> bool:
        """Whether transactions come faster than the node is asked for them, and it does answer."""
        return self._entries.n_new > MOST_NEW and monotonic_us() - self._asked_us < PATIENCE_US

    def entered(self, entry: PendingEntry, owner: Batch) -> None:
        """Take an entry; `owner` stays open until its row is there."""
        entry.owner = owner
        owner.n_pending_rows += 1
        self._entries.entered(entry)

    def entered_in_block(self, entry: PendingEntry, owner: Batch, block_hash: bytes) -> None:
        """Take a transaction that was first seen in a block."""
        entry.owner = owner
        entry.gone_us = monotonic_us()
        owner.n_pending_rows += 1
        self._entries.entered_in_block(entry, block_hash)

    def left(self, left: TxLeft) -> None:
        """Note that a transaction left the mempool."""
        self._entries.left(left)

    def learn_body(self, txid: bytes, body: Transaction) -> None:
        """Take a body that came after its entry."""
        self._entries.learn_body(txid, body)

    def tick(self, now_us: int, blocks: BlockSource, *, at_once: bool = False) -> None:
        """Let time pass: ask (`at_once`: without a pause), look into blocks, give up what is overdue."""
        self._done(self._entries.look_for_spent(self._recent.spent_value_sat))
        self._entries.look_for_gone(self._recent.block_with)
        done, questions = self._entries.resolve_gone()
        self._done(done)
        if questions:
            ask = partial(ask_outputs, questions=questions)
            self._lane.ask(ask, partial(self._on_outputs, questions), raise_unless_stopped)
        for block_hash in self._entries.blocks_wanted():
            known = self._recent.get(block_hash)
            if known is None:
                blocks.want(block_hash)  # it may be one that is known no longer
            else:
                self._done(self._entries.block_fees(block_hash, known.fees_sat))
        # Last: what has just been learnt of a block may have explained an absence.
        self._done(self._entries.give_up(now_us, is_filling=blocks.is_filling))
        self._ask(at_once=at_once)

    def block_resolved(self, block_hash: bytes, known: RecentBlock | None) -> None:
        """Finish what waited for a block; None: it cannot be had."""
        self._done(self._entries.block_fees(block_hash, {} if known is None else known.fees_sat))

    def flush(self) -> None:
        """Finish everything with what is known."""
        self._done(self._entries.flush())

    def _ask(self, *, at_once: bool) -> None:
        now_us = monotonic_us()
        is_time = at_once or now_us - self._asked_us >= self._interval_us
        while n_unasked := self._entries.n_unasked:
            is_worth_it = n_unasked >= self._batch or (is_time and not self._n_asked)
            if self._n_asked >= MOST_ASKED or not is_worth_it:
                return
            self._asked_us = now_us
            self._n_asked += 1
            questions = self._entries.questions(self._batch)
            ask = partial(ask_entries, questions=questions)
            self._lane.ask(ask, self._on_entries, partial(self._no_entries, questions))

    def _on_entries(self, answers: list[EntryAnswer]) -> None:
        self._n_asked -= 1
        self._done(self._entries.answers(answers, monotonic_us()))

    def _no_entries(self, questions: list[EntryRequest], error: NodeError) -> None:
        self._n_asked -= 1
        self._entries.again(questions)
        raise_unless_stopped(error)

    def _on_outputs(self, questions: list[OutputRequest], answers: list[Any]) -> None:
        self._done(self._entries.outputs(questions, output_values(questions, answers)))

    def _done(self, done: Iterable[FinishedRow]) -> None:
        for row, owner in done:
            owner.add("mempool_txs", [row])
            owner.n_pending_rows -= 1


def ask_entries(client: RpcClient, questions: Sequence[EntryRequest]) -> list[EntryAnswer]:
    """Ask for mempool entries, and for the bodies that are missing, in one go."""
    calls: list[tuple[Any, ...]] = [("getmempoolentry", hash_hex(question.txid)) for question in questions]
    bodyless = [question for question in questions if question.needs_body]
    calls += [("getrawtransaction", hash_hex(question.txid)) for question in bodyless]
    results = client.batch(calls)
    bodies = dict(zip((question.txid for question in bodyless), results[len(questions) :], strict=True))
    return [
        EntryAnswer(question.txid, result, bodies.get(question.txid))
        for question, result in zip(questions, results, strict=False)
    ]


def ask_outputs(client: RpcClient, questions: Sequence[OutputRequest]) -> list[Any]:
    """Ask for confirmed outputs, whether or not the mempool spends them."""
    return client.batch(
        [("gettxout", hash_hex(question.txid), question.output, False) for question in questions]
    )
