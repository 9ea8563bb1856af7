"""Small worlds of pools that order and choose in different ways; some sell places in their blocks.

One node sees everything. Blocks are smaller than the demand, so every block leaves transactions behind. All
pools but one fill their blocks with the code of collector.regtest.block_assembly.
"""

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from collector.regtest.block_assembly import Candidate, feerate_packages, fill, first_come_order

BLOCK_WU: Final = 40_000
SOLD_WU: Final = BLOCK_WU // 4  # is sold of a block at most; one that sells half shows no order
ROUNDS: Final = 12  # blocks of each pool
TEMPLATE_AGES_S: Final = (250, 80, 4)  # before each block, our node makes a template
INTERVAL_S: Final = (300, 1500)
CHILD_RATIO: Final = 0.08
PRIVATE: Final = 1_000_000  # numbers of transactions from here on are in no mempool

Tables = dict[str, list[dict[str, Any]]]
View = dict[str, Candidate]
Sale = Literal["first", "raised", "last"]


@dataclass(frozen=True)
class Scenario:
    """Describes what differs between worlds: how places are sold, how old templates are, how much is refused.

    A pool that sells puts what was paid for `first` or `last` in the block, or in the place of a higher
    feerate (`raised`).
    """

    name: str
    sale: Sale
    sold_ratio: float  # of what enters the mempool
    old_s: int
    refused_ratio: float
    n_per_interval: int = 90


SCENARIOS: Final = (
    Scenario("sold-first", "first", sold_ratio=0.015, old_s=90, refused_ratio=0.2),
    Scenario("sold-raised", "raised", sold_ratio=0.02, old_s=200, refused_ratio=0.1),
    Scenario("sold-last", "last", sold_ratio=0.01, old_s=30, refused_ratio=0.15, n_per_interval=120),
)


@dataclass
class World:
    """Holds the rows of a dataset, and the truth: which transactions each pool took because it was paid."""

    tables: Tables
    sold: set[str] = field(default_factory=set)
    pool_of: dict[str, str] = field(default_factory=dict)  # of each block


class Miner:
    """Plays one scenario from one seed, block by block."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.draw = random.Random(f"{seed} {scenario.name}")  # noqa: S311 - a world wants repeatable chance
        tables = ("blocks", "transactions", "mempool_txs", "templates", "template_txs")
        self.world = World({table: [] for table in tables})
        self.view: View = {}
        self.refused: set[str] = set()
        self.entered_s: dict[str, float] = {}
        self.n_sent = 0

    def play(self) -> World:
        """Play all blocks: each pool has one of every round, in an order that chance decides."""
        now_s = 0.0
        pools = [pool for _ in range(ROUNDS) for pool in self.draw.sample(sorted(POOLS), len(POOLS))]
        for height, pool in enumerate(pools, start=1):
            interval_s = self.draw.uniform(*INTERVAL_S)
            self._enter(now_s + 1, now_s + interval_s - 1, 4 if height == 1 else 1)
            now_s += interval_s
            for age_s in TEMPLATE_AGES_S:
                self._write_template(self.view_at(now_s - age_s), height, now_s - age_s)
            chosen = POOLS[pool](self)
            self._write_block(chosen, height, now_s, pool)
            for entry in chosen:
                self.view.pop(entry.txid, None)
        return self.world

    def view_at(self, moment_s: float) -> View:
        """Return what waits now and had entered by a moment since the last block."""
        return {txid: entry for txid, entry in self.view.items() if self.entered_s[txid] <= moment_s}

    def sell(self) -> list[Candidate]:
        """Choose by feerate, and put what was paid for where the scenario says, also one that nobody saw."""
        waiting = {txid: entry for txid, entry in self.view.items() if not entry.is_planted}
        private = self._entry(PRIVATE + self.n_sent, self.draw.uniform(0, 1), is_planted=True)
        paid, sold_wu = [], private.weight_wu
        for entry in self.view.values():
            if entry.is_planted and sold_wu + entry.weight_wu <= SOLD_WU:  # the rest waits for a later block
                paid.append(entry)
                sold_wu += entry.weight_wu
        paid.append(private)
        room_wu = BLOCK_WU - sum(entry.weight_wu for entry in paid)
        chosen = fill(waiting, feerate_packages(waiting), weight_wu=room_wu)
        self.world.sold |= {label(entry) for entry in paid}
        if self.scenario.sale == "first":
            return paid + chosen
        if self.scenario.sale == "raised":
            for entry in paid:
                chosen.insert(self.draw.randrange(len(chosen) // 2), entry)
            return _parents_first(chosen)
        return chosen + paid

    def _enter(self, from_s: float, to_s: float, factor: int) -> None:
        """Add transactions to the mempool; for some, a pool is paid outside the chain."""
        n = factor * self.scenario.n_per_interval
        for after_s in sorted(self.draw.uniform(from_s, to_s) for _ in range(n)):
            self.n_sent += 1
            is_planted = self.draw.random() < self.scenario.sold_ratio
            feerate = self.draw.uniform(1, 3) if is_planted else 3 + self.draw.lognormvariate(2.3, 0.9)
            entry = self._entry(self.n_sent, feerate, is_planted=is_planted)
            self.entered_s[entry.txid] = after_s
            if not is_planted and self.draw.random() < self.scenario.refused_ratio:
                self.refused.add(entry.txid)
            self.view[entry.txid] = entry
            row = {"txid": label(entry), "entered_at": after_s, "fee_sat": entry.fee_sat}
            row["version"] = self._version(entry)
            parents = [label(self.view[parent]) for parent in entry.parents]
            self.world.tables["mempool_txs"].append(row | {"vsize_vb": entry.vsize_vb, "parents": parents})

    def _version(self, entry: Candidate) -> int:
        """Return the version of a transaction: 3 for the kind that the pool `censor` refuses."""
        return 3 if entry.txid in self.refused else 2

    def _entry(self, number: int, feerate: float, *, is_planted: bool) -> Candidate:
        """Make a transaction; some are children of one that waits."""
        vsize_vb = self.draw.randrange(110, 300)
        any_waits = any(not entry.is_planted for entry in self.view.values())
        is_child = any_waits and not is_planted and self.draw.random() < CHILD_RATIO
        waiting = [txid for txid, entry in self.view.items() if not entry.is_planted] if is_child else []
        return Candidate(
            txid=f"{number:064x}",
            raw=b"",
            fee_sat=round(feerate * vsize_vb),
            vsize_vb=vsize_vb,
            weight_wu=4 * vsize_vb,
            parents=frozenset([self.draw.choice(waiting)] if is_child else []),
            arrival=number,
            is_planted=is_planted,
        )

    def _write_template(self, view: View, height: int, taken_at: float) -> None:
        """Write what a stock node would mine from `view`, and what it would take next."""
        chosen = fill(view, feerate_packages(view), weight_wu=3 * BLOCK_WU // 2)
        parent = f"b{height - 1}" if height > 1 else ""
        row = {"taken_at": taken_at, "prev_hash": parent, "height": height, "trigger": "timer"}
        self.world.tables["templates"].append(row | {"n_tx": len(chosen)})
        self.world.tables["template_txs"] += [
            {"taken_at": taken_at, "tx_index": i, "txid": label(entry)}
            | {"fee_sat": entry.fee_sat, "weight_wu": entry.weight_wu}
            for i, entry in enumerate(chosen, start=1)
        ]

    def _write_block(self, chosen: list[Candidate], height: int, now_s: float, pool: str) -> None:
        """Write the rows of a block."""
        name = f"b{height}"
        block = {"block_hash": name, "height": height, "coinbase_script": _tag(pool), "arrived_at": now_s}
        self.world.tables["blocks"].append(block | ({"prev_hash": f"b{height - 1}"} if height > 1 else {}))
        self.world.pool_of[name] = pool
        view = {entry.txid: entry for entry in chosen}
        effective = {
            txid: sum(view[each].fee_sat for each in package) / sum(view[each].vsize_vb for each in package)
            for package in feerate_packages(view)
            for txid in package
        }
        self.world.tables["transactions"] += [
            {"block_hash": name, "txid": label(entry), "fee_sat": entry.fee_sat}
            | {"vsize_vb": entry.vsize_vb, "weight_wu": entry.weight_wu}
            | {"version": self._version(entry)}
            | {"effective_feerate_sat_vb": effective[entry.txid]}
            for entry in chosen
        ]


def simulate(scenario: Scenario, seed: int) -> World:
    """Make the world of a scenario; the same scenario and seed give the same one."""
    return Miner(scenario, seed).play()


def label(entry: Candidate) -> str:
    """Return the name of a transaction in the tables."""
    return f"t{int(entry.txid, 16)}"


def _by_feerate(view: Mapping[str, Candidate]) -> list[Candidate]:
    return fill(view, feerate_packages(view), weight_wu=BLOCK_WU)


def _stock(miner: Miner) -> list[Candidate]:
    return _by_feerate(miner.view)


def _old_template(miner: Miner) -> list[Candidate]:
    """Choose by feerate from what waited when the template was made."""
    latest_s = max(miner.entered_s[txid] for txid in miner.view)
    return _by_feerate(miner.view_at(latest_s - miner.scenario.old_s))


def _censor(miner: Miner) -> list[Candidate]:
    """Choose by feerate, without what it refuses and what descends from that."""
    kept: View = {}
    for txid, entry in miner.view.items():  # parents entered before their children
        if txid not in miner.refused and all(p in kept for p in entry.parents if p in miner.view):
            kept[txid] = entry
    return _by_feerate(kept)


def _first_come(miner: Miner) -> list[Candidate]:
    return fill(miner.view, first_come_order(miner.view), weight_wu=BLOCK_WU)


def _sorted_first_come(miner: Miner) -> list[Candidate]:
    """Choose by time of entry, and sort what was chosen by feerate."""
    chosen = {entry.txid: entry for entry in _first_come(miner)}
    return [chosen[txid] for package in feerate_packages(chosen) for txid in package]


def _parents_first(entries: Iterable[Candidate]) -> list[Candidate]:
    """Return the entries in their order, but no child before its parent."""
    left = {entry.txid: entry for entry in entries}
    ordered: list[Candidate] = []
    while left:
        entry = next(e for e in left.values() if not any(parent in left for parent in e.parents))
        ordered.append(left.pop(entry.txid))
    return ordered


POOLS: Final[Mapping[str, Callable[[Miner], list[Candidate]]]] = {
    "stock": _stock,
    "seller": Miner.sell,
    "old-template": _old_template,
    "censor": _censor,
    "first-come": _first_come,
    "sorted-first-come": _sorted_first_come,
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
