"""A mining world of planted truth: transactions come, pools take them by known policies, some leave.

One node sees everything. Entries are even in time, block intervals exponential; an empty block follows its
parent within seconds. A pair is a parent that pays little and a child that pays for it, a chain is a line of
descendants each paying less than its parent; what else enters stands alone. Every pool takes the best by
package feerate, as one of these policies:

- it works on the mempool as of `age_s` before its block came;
- it gives `low_ratio` of its block to transactions behind the best 2 X, as if paid for elsewhere;
- `empty_ratio` of its blocks are empty.

All times are microseconds after the world's begin: those of blocks odd, all others even, so that no two meet.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Places = npt.NDArray[np.int32]  # of transactions: a year has 131 million, and half of the bytes matter
Floats = npt.NDArray[np.float64]

SECOND_US: Final = 1_000_000
INTERVAL_S: Final = 600
EXPIRY_S: Final = 86_400
TEMPLATE_AGE_S: Final = 20
UNSEEN_RATIO: Final = 0.005
REPLACED_RATIO: Final = 0.05
STALE_RATIO: Final = 0.005
STRIPE: Final = 64  # relatives enter within so many transactions
PAIRS, CHAIN = 4, 5  # pairs per stripe, and members of its one chain
STRIPES_AT_ONCE: Final = 1 << 16
WAITS, MINED, REPLACED, EXPIRED = range(4)


@dataclass(frozen=True)
class Policy:
    """Describes a pool: its share of the blocks, and how it fills them."""

    slug: str
    share: float
    empty_ratio: float = 0.0
    age_s: int = 0
    low_ratio: float = 0.0


POOLS: Final = (
    Policy("alder", 0.28, empty_ratio=0.02),
    Policy("birch", 0.22, age_s=30),
    Policy("cedar", 0.18, empty_ratio=0.05, low_ratio=0.10),
    Policy("elm", 0.14, low_ratio=0.03),
    Policy("fir", 0.10, empty_ratio=0.10),
    Policy("unknown", 0.08),
)


@dataclass(frozen=True)
class Size:
    """Describes how large a world is: its blocks, and transactions per block interval."""

    n_blocks: int
    entering: int = 2500
    taken: int = 2000
    seed: int = 1


@dataclass
class Transactions:
    """Holds every transaction of the mempool in order of entry; the indices elsewhere are positions in it."""

    entered_us: Ints
    vsize_vb: npt.NDArray[np.int32]
    fee_sat: Ints
    parent: Places  # -1: none was waiting at entry
    is_payer: npt.NDArray[np.bool_]  # pays for its parent
    is_single: npt.NDArray[np.bool_]
    drop_us: Ints  # when it is removed if no block takes it
    drop_kind: npt.NDArray[np.int8]
    left_us: Ints
    left_kind: npt.NDArray[np.int8]


@dataclass
class Blocks:
    """Holds the blocks of the active chain, what each took, and what a stock template would have taken."""

    arrived_us: Ints
    pool: Ints  # place in POOLS
    is_stale_rival: npt.NDArray[np.bool_]  # a stale block of the same height came, too
    n_unseen: Ints
    taken: list[Places] = field(default_factory=list)
    template_us: list[int] = field(default_factory=list)
    template: list[Places] = field(default_factory=list)


@dataclass
class Counts:
    """Holds sums over the blocks of one pool, by package feerate, at the template age of its policy."""

    n_top: int = 0
    n_top_taken: int = 0
    n_outside: int = 0
    n_outside_taken: int = 0


@dataclass
class World:
    """Holds transactions, blocks and the truth that analyses must find."""

    size: Size
    txs: Transactions
    blocks: Blocks
    acceptance: dict[str, Counts]


def simulate(size: Size) -> World:
    """Make a world; the same size and seed give the same one."""
    rng = np.random.default_rng(size.seed)
    blocks, n_taken = _blocks(size, rng)
    txs = _transactions(size, rng, int(blocks.arrived_us[-1]))
    world = World(size, txs, blocks, {policy.slug: Counts() for policy in POOLS})
    _Miner(world, rng).mine(n_taken)
    return world


def _blocks(size: Size, rng: np.random.Generator) -> tuple[Blocks, Ints]:
    """Draw who finds which block when, and how many transactions it has."""
    shares = np.array([policy.share for policy in POOLS])
    pool = rng.choice(len(POOLS), size.n_blocks, p=shares / shares.sum())
    is_empty = rng.random(size.n_blocks) < np.array([policy.empty_ratio for policy in POOLS])[pool]
    is_empty[0] = False
    interval_s = np.where(
        is_empty, rng.uniform(1, 10, size.n_blocks), rng.exponential(INTERVAL_S, size.n_blocks) + 2
    )
    interval_s[0] = INTERVAL_S
    arrived_us = (np.cumsum(interval_s) * SECOND_US).astype(np.int64) | 1
    n_taken = rng.integers(size.taken * 3 // 4, size.taken * 5 // 4, size.n_blocks, endpoint=True)
    n_taken[is_empty] = 0
    return Blocks(
        arrived_us=arrived_us,
        pool=pool,
        is_stale_rival=rng.random(size.n_blocks) < STALE_RATIO,
        n_unseen=rng.binomial(n_taken, UNSEEN_RATIO),
    ), n_taken


def _transactions(size: Size, rng: np.random.Generator, until_us: int) -> Transactions:
    """Draw what enters, in stripes that each hold some pairs and a chain."""
    n_stripes = -(-size.entering * size.n_blocks // STRIPE)
    n = n_stripes * STRIPE
    entered_us = rng.integers(0, until_us, n)
    entered_us.sort()
    entered_us &= ~np.int64(1)
    vsize_vb = rng.lognormal(5.3, 0.6, n).astype(np.int32) + np.int32(110)
    feerate = rng.lognormal(1.8, 1.0, n) + 1
    parent, is_payer, is_single = np.full(n, -1, np.int32), np.zeros(n, bool), np.ones(n, bool)
    pairs, chains = _relatives(n_stripes, rng)
    feerate[pairs[:, 0]] = rng.uniform(1, 3, len(pairs))
    feerate[pairs[:, 1]] = feerate[pairs[:, 0]] * rng.uniform(2, 10, len(pairs))
    parent[pairs[:, 1]], is_payer[pairs[:, 1]] = pairs[:, 0], True
    feerate[chains] = np.maximum(feerate[chains[:, :1]], 5) * 0.8 ** np.arange(CHAIN)
    parent[chains[:, 1:]] = chains[:, :-1]
    is_single[pairs] = is_single[chains] = False
    drop_us = entered_us + EXPIRY_S * SECOND_US
    drop_us[pairs[:, 1]], drop_us[chains] = drop_us[pairs[:, 0]], drop_us[chains[:, :1]]
    drop_kind = np.full(n, EXPIRED, np.int8)
    replaced = np.flatnonzero(is_single & (rng.random(n) < REPLACED_RATIO))
    drop_us[replaced] = entered_us[replaced] + (rng.exponential(7200, len(replaced)) * SECOND_US).astype(int)
    drop_us[replaced] = (drop_us[replaced] & ~1) + 2
    drop_kind[replaced] = REPLACED
    feerate *= vsize_vb
    return Transactions(
        entered_us=entered_us,
        vsize_vb=vsize_vb,
        fee_sat=np.ceil(feerate, out=feerate).astype(np.int64),
        parent=parent,
        is_payer=is_payer,
        is_single=is_single,
        drop_us=drop_us,
        drop_kind=drop_kind,
        left_us=np.full(n, -1),
        left_kind=np.full(n, WAITS, np.int8),
    )


def _relatives(n_stripes: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Draw who is related: return places [pairs, 2], parents first, and [chains, CHAIN], ancestors first."""
    n_related = 2 * PAIRS + CHAIN
    related = np.empty((n_stripes, n_related), np.int64)
    for begin in range(0, n_stripes, STRIPES_AT_ONCE):
        numbers = np.arange(begin, min(begin + STRIPES_AT_ONCE, n_stripes))[:, None]
        order = np.argsort(rng.random((len(numbers), STRIPE), dtype=np.float32), axis=1)
        related[numbers[:, 0]] = order[:, :n_related] + numbers * STRIPE
    pairs = np.sort(related[:, : 2 * PAIRS].reshape(-1, 2), axis=1)
    return pairs, np.sort(related[:, 2 * PAIRS :], axis=1)


class _Miner:
    """Plays the blocks one by one. `score` is the package feerate of what waits."""

    def __init__(self, world: World, rng: np.random.Generator) -> None:
        self.world, self.rng = world, rng
        self.txs = world.txs
        self.own = self.txs.fee_sat / self.txs.vsize_vb
        self.score = self.own.copy()
        self.payer_of = np.full(len(self.own), -1, np.int32)
        self.waiting = np.empty(0, np.int64)

    def mine(self, n_taken: Ints) -> None:
        """Fill every block of the world."""
        blocks, entered = self.world.blocks, self.txs.entered_us
        ends = np.searchsorted(entered, blocks.arrived_us)
        begin, parent_us = 0, 0
        for number, (end, now_us) in enumerate(zip(ends, blocks.arrived_us, strict=True)):
            self._enter(begin, int(end))
            present = self.waiting
            self._drop(int(now_us))
            order = self._ranked(self.waiting)
            policy = POOLS[blocks.pool[number]]
            moment_us = max(int(now_us) - policy.age_s * SECOND_US, parent_us)
            known = order[self.txs.entered_us[order] < moment_us] if policy.age_s else order
            x = min(int(n_taken[number]), len(known))
            blocks.n_unseen[number] = min(blocks.n_unseen[number], x)
            low = self._low(policy, order[2 * x :], x)
            taken = known[: x - int(blocks.n_unseen[number]) - len(low)]
            if x:
                seen = self._seen(present, moment_us) if policy.age_s else order
                self._count(policy, seen, x, taken, low)
            self._template(order, max(int(now_us) - TEMPLATE_AGE_S * SECOND_US, parent_us + 1), int(now_us))
            self._take(np.concatenate([taken, low]), int(now_us))
            begin, parent_us = int(end), int(now_us)

    def _enter(self, begin: int, end: int) -> None:
        """Add transactions to the mempool; one whose parent has left has no relatives there."""
        txs = self.txs
        new = np.arange(begin, end)
        children = new[txs.parent[new] >= 0]
        orphans = children[txs.left_kind[txs.parent[children]] != WAITS]
        txs.parent[orphans] = -1
        payers = children[txs.is_payer[children] & (txs.parent[children] >= 0)]
        parents = txs.parent[payers]
        both = (txs.fee_sat[payers] + txs.fee_sat[parents]) / (txs.vsize_vb[payers] + txs.vsize_vb[parents])
        self.score[payers] = self.score[parents] = both
        self.payer_of[parents] = payers
        self.waiting = np.concatenate([self.waiting, new])

    def _drop(self, now_us: int) -> None:
        """Remove what was replaced or has expired."""
        txs = self.txs
        gone = txs.drop_us[self.waiting] < now_us
        dropped = self.waiting[gone]
        txs.left_us[dropped], txs.left_kind[dropped] = txs.drop_us[dropped], txs.drop_kind[dropped]
        self.waiting = self.waiting[~gone]

    def _ranked(self, indices: Ints) -> Ints:
        """Return transactions by package feerate, highest first, ties in order of entry."""
        ranked: Ints = indices[np.argsort(-self.score[indices], kind="stable")]
        return ranked

    def _seen(self, present: Ints, moment_us: int) -> Ints:
        """Rank what waited at a time after the parent block, even if it has left since."""
        txs = self.txs
        there = (txs.entered_us[present] < moment_us) & (txs.drop_us[present] >= moment_us)
        return self._ranked(present[there])

    def _low(self, policy: Policy, behind: Ints, x: int) -> Ints:
        """Choose the low-paying transactions that the pool prefers."""
        singles = behind[self.txs.is_single[behind]]
        n_low = min(round(policy.low_ratio * x), len(singles), x // 2)
        chosen: Ints = self.rng.choice(singles, n_low, replace=False) if n_low else singles[:0]
        return chosen

    def _count(self, policy: Policy, seen: Ints, x: int, best: Ints, low: Ints) -> None:
        """Add one block to the truth."""
        counts = self.world.acceptance[policy.slug]
        counts.n_top += min(x, len(seen))
        counts.n_outside += max(len(seen) - 2 * x, 0)
        counts.n_top_taken += int(np.isin(seen[:x], best).sum())
        counts.n_outside_taken += len(low)

    def _template(self, order: Ints, taken_us: int, now_us: int) -> None:
        """Note what a stock node would mine, seconds before the block came."""
        blocks = self.world.blocks
        there = order[self.txs.entered_us[order] < taken_us] if taken_us < now_us else order[:0]
        blocks.template.append(there[: self.world.size.taken * 5 // 4].astype(np.int32))
        blocks.template_us.append(taken_us & ~1)

    def _take(self, taken: Ints, now_us: int) -> None:
        """Mine transactions; a child whose parent is mined stands alone."""
        txs = self.txs
        txs.left_us[taken], txs.left_kind[taken] = now_us, MINED
        payers = self.payer_of[taken]
        left = payers[payers >= 0]
        left = left[txs.left_kind[left] == WAITS]
        self.score[left] = self.own[left]
        self.waiting = self.waiting[txs.left_kind[self.waiting] == WAITS]
        self.world.blocks.taken.append(taken.astype(np.int32))
