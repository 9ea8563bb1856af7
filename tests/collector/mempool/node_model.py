"""Model Bitcoin Core's mempool and chain as its `sequence` topic shows them, to test our copy of them.

The order and the numbers of events are the node's own: what leaves and enters before a block is published
before the block's C; each mempool transaction that the block takes uses up a number and is not published.
With every R the model records why the transaction left.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from collector.mempool.sync import Event


def name(number: int) -> bytes:
    """Return a 32-byte hash made of a number."""
    return number.to_bytes(32, "big")


def outpoint(txid: bytes, index: int = 0) -> bytes:
    """Return the outpoint of an output of a transaction."""
    return txid + index.to_bytes(4, "little")


@dataclass
class Node:
    """Models a node; `published` holds the events that it has sent since its last start, counted from 0."""

    seed: int
    mempool: dict[bytes, frozenset[bytes]] = field(default_factory=dict)  # txid -> outpoints it spends
    spends: dict[bytes, frozenset[bytes]] = field(default_factory=dict)  # of every transaction ever made
    blocks: dict[bytes, list[bytes]] = field(default_factory=dict)
    chain: list[bytes] = field(default_factory=list)
    published: list[Event] = field(default_factory=list)
    reasons: dict[int, tuple[str, bytes | None]] = field(default_factory=dict)  # why each R, by counter
    run: int = 0
    number: int = 1  # the next mempool sequence
    made: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)  # noqa: S311 - a model wants repeatable chance

    # --- events of the node

    def add(self) -> None:
        """Add a transaction that spends a coin which nothing else spends."""
        self._enter(self._new(outpoint(name(10**15 + self.made))))

    def add_child(self) -> None:
        """Add a transaction that spends an output of another one in the mempool, which nobody ever spent.

        If an evicted transaction had spent that output, the events would not show what a replacement caused.
        """
        spent = frozenset().union(*self.spends.values())
        free = [txid for txid in self.mempool if outpoint(txid) not in spent]
        if free:
            self._enter(self._new(outpoint(self.draw.choice(free))))

    def replace(self) -> None:
        """Add a transaction that replaces another one and all its descendants."""
        if self.mempool:
            victim = self.draw.choice(list(self.mempool))
            coin = self.draw.choice(sorted(self.mempool[victim]))
            successor = self._new(coin)
            self._drive_out(victim, "replaced", successor)
            self._enter(successor)

    def evict(self) -> None:
        """Evict a transaction that has no parent in the mempool, and all its descendants.

        For a transaction with a parent, the events would not show whether it was evicted, or left with a
        parent that was replaced in the same moment.
        """
        roots = [
            txid
            for txid, spent in self.mempool.items()
            if not any(coin[:32] in self.mempool for coin in spent)
        ]
        if roots:
            self._drive_out(self.draw.choice(roots), "expired_or_evicted")

    def mine(self, n_blocks: int = 1) -> None:
        """Connect blocks in one step: publish what conflicts with them first, the Cs last."""
        self._announce([self._connect() for _ in range(n_blocks)])

    def reorganise(self, depth: int) -> None:
        """Disconnect `depth` blocks and connect one more than that: publish Ds, then Rs and As, then Cs."""
        back: list[bytes] = []
        for _ in range(min(depth, len(self.chain))):
            block_hash = self.chain.pop()
            back += self.blocks[block_hash]
            self._publish("D", block_hash, None)
        hashes = [self._connect(from_pool=back) for _ in range(depth + 1)]
        mined = {txid for block_hash in hashes for txid in self.blocks[block_hash]}
        spent = {coin for txid in mined for coin in self.spends[txid]}
        for txid in back:
            if txid not in mined and self.spends[txid] and self.spends[txid].isdisjoint(spent):
                self._enter(txid)
        if back and self.mempool and self.draw.random() < 0.3:  # one that spent a coinbase of a lost block
            self._drive_out(self.draw.choice(list(self.mempool)), "reorged")
        self._announce(hashes)

    def restart(self, *, with_mempool: bool) -> None:
        """Restart the node: count events anew, and reload the mempool from disk only if `with_mempool`."""
        kept, self.mempool = self.mempool, {}
        self.run += 1
        self.number = 1
        self.published, self.reasons = [], {}
        for txid in kept if with_mempool else ():
            self._enter(txid)

    def do(self, what: int) -> None:
        """Do the action with number `what`: add, replace, evict, mine or reorganise."""
        actions: list[Callable[[], None]] = [
            self.add,
            self.add,
            self.add_child,
            self.add_child,
            self.replace,
            self.evict,
            self.mine,
            lambda: self.mine(2),
            lambda: self.reorganise(1),
            lambda: self.reorganise(3),
        ]
        actions[what % len(actions)]()

    # --- how the model makes them

    def _new(self, coin: bytes) -> bytes:
        self.made += 1
        txid = name(self.made)
        self.spends[txid] = frozenset([coin])
        return txid

    def _enter(self, txid: bytes) -> None:
        self.mempool[txid] = self.spends[txid]
        self._publish("A", txid, self._next())

    def _children(self, txid: bytes) -> list[bytes]:
        return [child for child, spent in self.mempool.items() if any(coin[:32] == txid for coin in spent)]

    def _drive_out(self, txid: bytes, reason: str, by: bytes | None = None) -> None:
        """Remove a transaction from the mempool, its descendants first, and publish an R for each."""
        for child in self._children(txid):
            if child in self.mempool:
                self._drive_out(child, reason, by)
        if txid in self.mempool:
            del self.mempool[txid]
            self.reasons[len(self.published)] = (reason, by)
            self._publish("R", txid, self._next())

    def _connect(self, from_pool: Iterable[bytes] = ()) -> bytes:
        """Make a block of random mempool transactions, some of `from_pool` and some never seen.

        Return its hash. Parents come before their children. What conflicts with the block is removed.
        """
        taken: list[bytes] = []
        for txid in self.mempool:
            has_parent = any(
                coin[:32] in self.mempool and coin[:32] not in taken for coin in self.spends[txid]
            )
            if not has_parent and self.draw.random() < 0.5:
                taken.append(txid)
        excluded = [txid for txid in self.mempool if txid not in taken and self.draw.random() < 0.1]
        rivals = [self._new(coin) for txid in excluded[:1] for coin in sorted(self.spends[txid])]
        # A transaction is in one block of a chain, and once.
        confirmed = {txid for block_hash in self.chain for txid in self.blocks[block_hash]}
        lost = [txid for txid in dict.fromkeys(from_pool) if self.spends[txid] and txid not in confirmed]
        again = [txid for txid in lost if txid not in taken and self.draw.random() < 0.5]
        self.made += 1
        coinbase = name(10**9 + self.made)
        self.spends[coinbase] = frozenset()
        for txid in taken:
            del self.mempool[txid]
            self._next()  # the block uses up one number without a message
        spent = {coin for txid in (*rivals, *again) for coin in self.spends[txid]}
        for txid in list(self.mempool):
            if txid in self.mempool and not self.mempool[txid].isdisjoint(spent):
                self._drive_out(txid, "conflict")
        self.made += 1
        block_hash = name(10**12 + self.made)
        self.blocks[block_hash] = [coinbase, *taken, *rivals, *again]
        self.chain.append(block_hash)
        return block_hash

    def _announce(self, hashes: list[bytes]) -> None:
        for block_hash in hashes:
            self._publish("C", block_hash, None)

    def _next(self) -> int:
        self.number += 1
        return self.number - 1

    def _publish(self, letter: str, hash_: bytes, number: int | None) -> None:
        self.published.append(Event(letter, hash_, number, len(self.published), 0))
