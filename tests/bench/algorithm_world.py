"""A world of pools that build blocks with different algorithms; one changes its algorithm, one has two.

One node sees every transaction before any pool takes it. Some transactions have envelopes, and some are
parents of two children that pay more.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from collector.regtest.block_assembly import Candidate, Order, feerate_order, fill, first_come_order
from tests.bench.assemblers import chunk_order, data_cost_order, name_order, plain_order

ROUNDS: Final = 16  # blocks of each pool
CHANGES_IN: Final = 8  # the round from which on `changer` takes chunks
BLOCK_WU: Final = 40_000
SMALL_WU: Final = 2_000
N_PER_INTERVAL: Final = 38
FAMILY_RATIO: Final = 0.12
ENVELOPE_RATIO: Final = 0.12
INTERVAL_S: Final = 600

Tables = dict[str, list[dict[str, Any]]]
Assembler = Callable[["Maker"], Order]


@dataclass
class World:
    """Holds the rows of a dataset, and the truth: the pool of each height."""

    tables: Tables
    pool_at: dict[int, str] = field(default_factory=dict)


class Maker:
    """Plays one world from one seed, block by block."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(f"{seed} algorithms")  # noqa: S311 - a world wants repeatable chance
        self.world = World({table: [] for table in ("blocks", "transactions", "mempool_txs")})
        self.view: dict[str, Candidate] = {}
        self.envelope_bytes: dict[str, int] = {}
        self.round = 0
        self.n_sent = 0

    def play(self) -> World:
        """Play all blocks: each pool has one of every round, in an order that chance decides."""
        height = 0
        self._enter(0, 3 * N_PER_INTERVAL)
        for self.round in range(ROUNDS):
            for pool in self.draw.sample(sorted(POOLS), len(POOLS)):
                height += 1
                self._enter(height * INTERVAL_S - INTERVAL_S + 1, N_PER_INTERVAL)
                weight_wu = SMALL_WU if pool == "small" else BLOCK_WU
                chosen = fill(self.view, POOLS[pool](self), weight_wu=weight_wu)
                self._write_block(chosen, height, pool)
                for entry in chosen:
                    del self.view[entry.txid]
        return self.world

    def _enter(self, from_s: int, n: int) -> None:
        """Let transactions into the mempool, one by one, within an interval."""
        times = sorted(self.draw.uniform(from_s, from_s + INTERVAL_S - 2) for _ in range(3 * n))
        for _ in range(n):
            feerate = 3 + self.draw.lognormvariate(2.3, 0.9)
            if self.draw.random() < FAMILY_RATIO:
                parent = self._add(times.pop(0), self.draw.uniform(1, feerate))
                for _ in range(2):
                    self._add(times.pop(0), 2 * feerate * self.draw.uniform(0.8, 1.2), parent)
            else:
                self._add(times.pop(0), feerate)

    def _add(self, entered_at: float, feerate: float, parent: str = "") -> str:
        """Make a transaction and write its entry; return its txid."""
        self.n_sent += 1
        txid = f"{self.draw.getrandbits(64):064x}"
        envelope = self.draw.randrange(300, 1200) if self.draw.random() < ENVELOPE_RATIO else 0
        weight_wu = self.draw.randrange(440, 1200) + envelope
        vsize_vb = -(-weight_wu // 4)
        entry = Candidate(
            txid=txid,
            raw=b"",
            fee_sat=round(feerate * vsize_vb),
            vsize_vb=vsize_vb,
            weight_wu=weight_wu,
            parents=frozenset([parent] if parent else []),
            arrival=self.n_sent,
            is_planted=False,
        )
        self.view[txid] = entry
        self.envelope_bytes[txid] = envelope
        row = {"txid": label(entry), "entered_at": entered_at, "fee_sat": entry.fee_sat}
        parents = [label(self.view[parent])] if parent in self.view else []
        self.world.tables["mempool_txs"].append(row | {"vsize_vb": vsize_vb, "parents": parents})
        return txid

    def _write_block(self, chosen: list[Candidate], height: int, pool: str) -> None:
        """Write the rows of a block."""
        name = f"b{height}"
        block = {"block_hash": name, "height": height, "coinbase_script": _tag(pool)}
        before = {"prev_hash": f"b{height - 1}"} if height > 1 else {}
        self.world.tables["blocks"].append(block | before | {"arrived_at": height * INTERVAL_S})
        self.world.pool_at[height] = pool
        places = {entry.txid: place for place, entry in enumerate(chosen, start=1)}
        self.world.tables["transactions"] += [
            {"block_hash": name, "txid": label(entry), "fee_sat": entry.fee_sat}
            | {"vsize_vb": entry.vsize_vb, "weight_wu": entry.weight_wu}
            | {"envelope_bytes": self.envelope_bytes[entry.txid]}
            | {"parents": [places[parent] for parent in entry.parents if parent in places]}
            for entry in chosen
        ]


def simulate(seed: int) -> World:
    """Make the world of a seed; the same seed gives the same one."""
    return Maker(seed).play()


def label(entry: Candidate) -> str:
    """Return the name of a transaction in the tables."""
    return f"t{int(entry.txid, 16):x}"


POOLS: Final[Mapping[str, Assembler]] = {
    "ancestor-sets": lambda maker: feerate_order(maker.view),
    "chunks": lambda maker: chunk_order(maker.view),
    "data-cost": lambda maker: data_cost_order(maker.view, maker.envelope_bytes),
    "plain": lambda maker: plain_order(maker.view),
    "first-come": lambda maker: first_come_order(maker.view),
    "own": lambda maker: name_order(maker.view),
    "changer": lambda maker: (feerate_order if maker.round < CHANGES_IN else chunk_order)(maker.view),
    "two-makers": lambda maker: (chunk_order if maker.round % 2 else first_come_order)(maker.view),
    "small": lambda maker: feerate_order(maker.view),
}


def write_rules(folder: Path) -> Path:
    """Write a rule for each pool, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for pool in POOLS:
        text = f'name = "{pool}"\n\n[[rules]]\ntag = "{_tag(pool)}"\nsource = "made up"\n'
        (folder / f"{pool}.toml").write_text(text)
    return folder


def _tag(pool: str) -> str:
    return f"/<{pool}>/"
