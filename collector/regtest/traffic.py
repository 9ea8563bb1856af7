"""Plan the transactions of a scenario before it starts: when each is due, and its bytes.

An arrival is a story: a payment, a payment that is replaced (BIP125), a low-feerate parent that a child pays
for (CPFP), a chain, or a planted low-feerate payment. Stories are drawn first, so that the number of coins
they need is known before the coins are made.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from collector.regtest.scenario import Scenario, Traffic
from collector.regtest.scripts import COIN_KINDS, PAYMENT_KINDS, payment_script
from collector.regtest.transaction import TxOutput
from collector.regtest.wallet import DUST_SAT, Payment, Wallet, pay

TxKind = Literal["payment", "replaced", "rbf", "chain", "cpfp_parent", "cpfp_child", "planted_low"]
StoryKind = Literal["payment", "replacement", "cpfp", "chain", "planted_low"]

CHAIN_LENGTHS: Final = (3, 4, 5, 6)
STORY_SIZES: Final[dict[StoryKind, float]] = {
    "payment": 1,
    "replacement": 2,
    "cpfp": 2,
    "chain": sum(CHAIN_LENGTHS) / len(CHAIN_LENGTHS),
    "planted_low": 1,
}
CHAIN_FEERATE_SPREAD: Final = (0.85, 1.2)  # factors of the feerate of the first transaction of a chain
FOLLOW_UP_MEAN_S: Final = 0.4  # from a transaction to its child
FOLLOW_UP_MINIMUM_S: Final = 0.05
N_COINS_WEIGHTS: Final = {1: 88, 2: 9, 3: 3}  # inputs of a story's first transaction
N_PAYMENTS_WEIGHTS: Final = {1: 70, 2: 25, 3: 5}
PAYMENT_WEIGHTS: Final = (30, 20, 17, 12, 11, 6, 4)  # in the order of PAYMENT_KINDS
CHANGE_WEIGHTS: Final = (40, 10, 15, 30, 5)  # in the order of COIN_KINDS
MAX_PAYMENT_SAT: Final = 20_000
PLANTED_FEERATE_SAT_VB: Final = (1.05, 2.0)
CPFP_PARENT_FEERATE_SAT_VB: Final = (1.05, 1.5)
CPFP_CHILD_FACTOR: Final = 2.5  # the child pays for two
REPLACED_SPREAD: Final = 1.3  # originals lie just above the minimum, so that they wait for their replacement
REPLACEMENT_FACTOR: Final = 1.5
REPLACEMENT_STEP_SAT_VB: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Describes one arrival of transactions in a scenario: its kind, and their feerates and due times."""

    kind: StoryKind
    n_coins: int
    due_s: tuple[float, ...]
    feerates_sat_vb: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTx:
    """Holds a transaction and when to send it: `due_s` seconds after the scenario's clock starts.

    A negative `due_s` means before the clock starts.
    """

    due_s: float
    kind: TxKind
    payment: Payment
    parents: frozenset[str] = frozenset()  # txids, display order, of the same story
    replaces: str | None = None

    @property
    def txid(self) -> str:
        """Return the transaction id in display order."""
        return self.payment.transaction.txid_hex


def draw_stories(scenario: Scenario, duration_s: float) -> list[Story]:
    """Draw and return all stories of a scenario: some before its start (`initial`), then to `duration_s`."""
    traffic = scenario.traffic
    draw = random.Random(f"{scenario.seed} stories")  # noqa: S311 - a scenario wants repeatable chance
    shares: dict[StoryKind, float] = {
        "replacement": traffic.replacement_share,
        "cpfp": traffic.cpfp_share,
        "chain": traffic.chain_share,
        "planted_low": traffic.planted_low_share,
    }
    shares["payment"] = max(0.0, 1 - sum(shares.values()))
    mean_size = sum(share * STORY_SIZES[kind] for kind, share in shares.items())
    stories = []
    start_s = -traffic.initial / traffic.rate_per_s
    while (start_s := start_s + draw.expovariate(traffic.rate_per_s / mean_size)) < duration_s:
        (kind,) = draw.choices(list(shares), list(shares.values()))
        stories.append(_draw_story(kind, start_s, traffic, draw))
    return stories


def plan_traffic(scenario: Scenario, stories: Sequence[Story], wallet: Wallet) -> list[PlannedTx]:
    """Make every transaction of `stories` from coins of `wallet`; return them in the order they are due."""
    draw = random.Random(f"{scenario.seed} outputs")  # noqa: S311 - a scenario wants repeatable chance
    planned = [each for story in stories for each in _transactions_of(story, wallet, draw)]
    return sorted(planned, key=lambda each: each.due_s)


def _draw_story(kind: StoryKind, start_s: float, traffic: Traffic, draw: random.Random) -> Story:
    minimum = traffic.feerate_minimum_sat_vb

    def feerate() -> float:
        return minimum + (traffic.feerate_median_sat_vb - minimum) * math.exp(
            draw.gauss(0, traffic.feerate_sigma)
        )

    def later_s(mean_s: float) -> float:
        return FOLLOW_UP_MINIMUM_S + draw.expovariate(1 / mean_s) if mean_s else FOLLOW_UP_MINIMUM_S

    due_s, feerates = [start_s], [feerate()]
    if kind == "planted_low":
        feerates = [draw.uniform(*PLANTED_FEERATE_SAT_VB)]
    elif kind == "replacement":
        original = minimum * draw.uniform(1, REPLACED_SPREAD)
        feerates = [original, max(feerates[0], original * REPLACEMENT_FACTOR + REPLACEMENT_STEP_SAT_VB)]
        due_s.append(start_s + later_s(traffic.replacement_delay_s))
    elif kind == "cpfp":
        feerates = [draw.uniform(*CPFP_PARENT_FEERATE_SAT_VB), feerates[0] * CPFP_CHILD_FACTOR]
        due_s.append(start_s + later_s(FOLLOW_UP_MEAN_S))
    elif kind == "chain":
        for _ in range(draw.choice(CHAIN_LENGTHS) - 1):
            due_s.append(due_s[-1] + later_s(FOLLOW_UP_MEAN_S))
            feerates.append(max(minimum, feerates[0] * draw.uniform(*CHAIN_FEERATE_SPREAD)))
    (n_coins,) = draw.choices(list(N_COINS_WEIGHTS), list(N_COINS_WEIGHTS.values()))
    return Story(kind=kind, n_coins=n_coins, due_s=tuple(due_s), feerates_sat_vb=tuple(feerates))


def _transactions_of(story: Story, wallet: Wallet, draw: random.Random) -> Iterator[PlannedTx]:
    """Yield the planned transactions of a story (one arrival), parents before children."""
    coins = [wallet.take() for _ in range(story.n_coins)]
    kinds = _kinds(story)
    previous: PlannedTx | None = None
    for due_s, feerate_sat_vb, kind in zip(story.due_s, story.feerates_sat_vb, kinds, strict=True):
        replaces = previous.txid if previous and kind == "rbf" else None
        is_child = previous is not None and replaces is None
        payment = pay(
            [previous.payment.change] if previous and is_child else coins,
            _outputs(draw),
            feerate_sat_vb=feerate_sat_vb,
            change_kind=draw.choices(list(COIN_KINDS), CHANGE_WEIGHTS)[0],
            replaceable=story.kind == "replacement",
        )
        parents = frozenset({previous.txid}) if previous and is_child else frozenset()
        previous = PlannedTx(due_s=due_s, kind=kind, payment=payment, parents=parents, replaces=replaces)
        yield previous


def _kinds(story: Story) -> tuple[TxKind, ...]:
    """Return the kinds of the transactions of a story (one arrival), such as CPFP parent and child."""
    kinds: dict[StoryKind, tuple[TxKind, ...]] = {
        "payment": ("payment",),
        "replacement": ("replaced", "rbf"),
        "cpfp": ("cpfp_parent", "cpfp_child"),
        "chain": tuple("chain" for _ in story.due_s),
        "planted_low": ("planted_low",),
    }
    return kinds[story.kind]


def _outputs(draw: random.Random) -> list[TxOutput]:
    """Return random outputs for a transaction; at most one is OP_RETURN, as the node's policy demands."""
    (n_payments,) = draw.choices(list(N_PAYMENTS_WEIGHTS), list(N_PAYMENTS_WEIGHTS.values()))
    kinds = draw.choices(PAYMENT_KINDS, PAYMENT_WEIGHTS, k=n_payments)
    outputs = []
    for number, kind in enumerate(kinds):
        wanted = "p2wpkh" if kind == "op_return" and "op_return" in kinds[:number] else kind
        value_sat = 0 if wanted == "op_return" else draw.randint(DUST_SAT, MAX_PAYMENT_SAT)
        outputs.append(TxOutput(value_sat, payment_script(wanted, draw.randbytes(8))))
    return outputs
