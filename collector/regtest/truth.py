"""Record what really happened in a scenario, so that tests can compare measurements with it.

Times are nanoseconds since 1970 UTC by the clock of this machine. Hashes are in display order. `null` stands
for something that does not exist: the acceptance of an empty block, the height of an unmined transaction.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from collector.errors import RegtestError
from collector.regtest.block_assembly import (
    MempoolView,
    acceptance,
    ancestor_ranking,
    package_ranking,
    plain_ranking,
)
from collector.regtest.scenario import Pool, Scenario
from collector.regtest.sent import SentTx
from collector.regtest.traffic import TxKind

UNKNOWN: Final = "unknown"
NO_LABEL: Final = "Unknown"  # what third parties write where they do not know
RANKINGS: Final = {"plain": plain_ranking, "package": package_ranking, "ancestor": ancestor_ranking}
PRINTABLE_ASCII: Final = range(0x20, 0x7F)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockTruth:
    """Records one block that was mined in a scenario.

    An acceptance counts how many of the mempool's best the block took, for each ranking in RANKINGS. One is
    for the mempool when the template was made, the other for that when the block arrived.
    """

    height: int
    hash: str
    pool: str
    policy: str
    is_empty: bool
    is_planted_empty: bool
    n_tx: int  # without the coinbase: X
    txids: list[str]  # in block order, without the coinbase
    coinbase_txid: str
    fees_sat: int
    weight_wu: int
    template_at_ns: int
    mined_at_ns: int  # submitblock called
    accepted_at_ns: int  # submitblock returned
    planned_interval_s: float
    interval_s: float | None  # since the block before, by mined_at_ns; null for the first
    acceptance_at_template: dict[str, dict[str, int | float | None]]
    acceptance_at_arrival: dict[str, dict[str, int | float | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaleTruth:
    """Records one block of a branch that lost to block number `at_block` of a scenario.

    It counts for no pool, and its transactions do not count as mined.
    """

    at_block: int  # as in the scenario, from 1
    height: int
    hash: str
    pool: str
    is_empty: bool
    txids: list[str]  # in block order, without the coinbase; they went back to the mempool
    mined_at_ns: int  # submitblock called


@dataclass(frozen=True, slots=True, kw_only=True)
class TxTruth:
    """Records one transaction that the node accepted in a scenario, and what became of it."""

    txid: str
    kind: TxKind
    sent_at_ns: int
    fee_sat: int
    vsize_vb: int
    weight_wu: int
    parents: list[str]
    replaces: str | None
    replaced_by: str | None
    has_anchor: bool  # an output that pays to anchor (P2A)
    mined_height: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolTruth:
    """Records one pool of a scenario: how its blocks can be identified, and what it mined.

    `label` is the pool that attribution must find.
    """

    slug: str
    name: str
    label: str
    policy: str
    refuses: list[str]  # what it never mines, by the names of the mart transaction_feature
    tag_hex: str
    payout_script_hex: str
    n_blocks: int
    n_empty: int
    out_of_band_txids: list[str]  # planted low-feerate transactions it mined because it favours them


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceTruth:
    """Holds the prices that the invented exchange gives for one day."""

    day: str  # UTC, like 2026-01-31
    close_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelTruth:
    """Holds the name that the invented third party gives to the miner of one block."""

    height: int
    label: str  # the name of a pool, or NO_LABEL
    error: Literal["wrong", "missing"] | None  # how it differs from the pool that mined the block


@dataclass(frozen=True, kw_only=True)
class Truth:
    """Holds everything that happened in a scenario, to compare measurements with.

    `started_at_ns` is when the interval of the first block began.
    """

    scenario: str
    seed: int
    node_version: str
    started_at_ns: int
    ended_at_ns: int
    pools: list[PoolTruth]
    blocks: list[BlockTruth]  # of the active chain
    stale_blocks: list[StaleTruth]
    transactions: list[TxTruth]
    prices: list[PriceTruth]
    labels: list[LabelTruth]
    n_skipped_replacements: int  # their original was mined before they were due

    def write(self, path: Path) -> None:
        """Write everything that happened as JSON to a file, each row of a list on its own line."""
        head = {key: value for key, value in asdict(self).items() if not isinstance(value, list)}
        parts = [f'"{key}": {json.dumps(value)}' for key, value in head.items()]
        for key in ROWS:
            rows = ",\n".join(json.dumps(asdict(row)) for row in getattr(self, key))
            parts.append(f'"{key}": [\n{rows}\n]')
        path.write_text("{" + ",\n".join(parts) + "}\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Truth":
        """Return the Truth that is in a JSON file, as `write` made it."""
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key, row_type in ROWS.items():
            content[key] = [row_type(**row) for row in content[key]]
        return cls(**content)


ROWS: Final[dict[str, Callable[..., object]]] = {
    "pools": PoolTruth,
    "blocks": BlockTruth,
    "stale_blocks": StaleTruth,
    "transactions": TxTruth,
    "prices": PriceTruth,
    "labels": LabelTruth,
}


def acceptances(view: MempoolView, mined: Iterable[str]) -> dict[str, dict[str, int | float | None]]:
    """Return for each ranking how many of the txids `mined` are among the best of the mempool `view`."""
    txids = list(mined)
    return {name: acceptance(ranking(view, txids), txids).as_dict() for name, ranking in RANKINGS.items()}


def tx_truths(sent: Mapping[str, SentTx]) -> list[TxTruth]:
    """Return a TxTruth of each sent transaction; an original that was never replaced counts as a payment."""
    return [
        TxTruth(
            txid=txid,
            kind="payment" if each.planned.kind == "replaced" and not each.replaced_by else each.planned.kind,
            sent_at_ns=each.sent_at_ns,
            fee_sat=each.candidate.fee_sat,
            vsize_vb=each.candidate.vsize_vb,
            weight_wu=each.candidate.weight_wu,
            parents=sorted(each.candidate.parents),
            replaces=each.planned.replaces,
            replaced_by=each.replaced_by,
            has_anchor=each.candidate.has_anchor,
            mined_height=each.mined_height,
        )
        for txid, each in sent.items()
    ]


def pool_truths(
    scenario: Scenario, blocks: Iterable[BlockTruth], sent: Mapping[str, SentTx]
) -> list[PoolTruth]:
    """Return a PoolTruth of each pool of a scenario, with the numbers of its blocks and empty blocks."""
    mined: dict[str, list[BlockTruth]] = {pool.slug: [] for pool in scenario.pools}
    for block in blocks:
        mined[block.pool].append(block)
    return [
        PoolTruth(
            slug=pool.slug,
            name=pool.name,
            label=pool.slug if pool.rules else UNKNOWN,
            policy=pool.policy,
            refuses=list(pool.refuses),
            tag_hex=pool.tag_bytes.hex(),
            payout_script_hex=pool.payout_script.hex(),
            n_blocks=len(mined[pool.slug]),
            n_empty=sum(block.is_empty for block in mined[pool.slug]),
            out_of_band_txids=[
                txid
                for block in mined[pool.slug]
                for txid in block.txids
                if pool.policy == "out_of_band" and sent[txid].candidate.is_planted
            ],
        )
        for pool in scenario.pools
    ]


def write_rules(scenario: Scenario, folder: Path) -> None:
    """Write the rules that identify a scenario's pools, and the owners, as files like those in data/pools.

    Raises RegtestError if the folder holds rules of other pools, because these would count as well.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {f"{pool.slug}.toml": _rules_file(scenario, pool) for pool in scenario.pools if pool.rules}
    if scenario.owners:
        content["entities.toml"] = _entities_file(scenario)
    foreign = sorted(path.name for path in folder.glob("*.toml") if path.name not in content)
    if foreign:
        raise RegtestError(
            f"{folder} holds {', '.join(foreign)}, which scenario {scenario.name} did not write; "
            "choose another folder"
        )
    for name, text in content.items():
        (folder / name).write_text(text, encoding="utf-8")


def _rules_file(scenario: Scenario, pool: Pool) -> str:
    """Return the TOML text of the rules of one pool; a tag that is not plain ASCII is written in hex."""
    lines = [f"name = {_toml_string(pool.name)}", f'link = "https://pools.invalid/{pool.slug}"']
    for rule in pool.rules:
        if rule == "payout":
            pattern = f'script_hex = "{pool.payout_script.hex()}"'
        elif all(byte in PRINTABLE_ASCII for byte in pool.tag_bytes):
            pattern = f"tag = {_toml_string(pool.tag_bytes.decode('ascii'))}"
        else:
            pattern = f'tag_hex = "{pool.tag_bytes.hex()}"'
        lines += ["", "[[rules]]", pattern, f'source = "scenario {scenario.name}"']
    return "\n".join(lines) + "\n"


def _entities_file(scenario: Scenario) -> str:
    """Return the TOML text of all owners, each with its pools."""
    lines: list[str] = []
    for owner in scenario.owners:
        members = [f'{{ pool = "{pool}", source = "scenario {scenario.name}" }}' for pool in owner.pools]
        lines += [
            "[[entities]]",
            f'entity = "{owner.slug}"',
            f"name = {_toml_string(owner.name)}",
            'kind = "owner"',
            f"members = [{', '.join(members)}]",
            "",
        ]
    return "\n".join(lines)


def _toml_string(text: str) -> str:
    """Return printable text as a quoted TOML string; TOML's basic strings have JSON's escapes for it."""
    return json.dumps(text, ensure_ascii=False)
