"""Keep a wallet of outputs that anyone can spend, so that its transactions need no signature."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from collector.errors import RegtestError
from collector.log import counted
from collector.regtest.scripts import COIN_KINDS, CoinKind
from collector.regtest.transaction import FINAL, REPLACEABLE, RegtestTransaction, TxInput, TxOutput

DUST_SAT: Final = 1_000  # above every output type's dust limit at 3 sat/vB


@dataclass(frozen=True, slots=True, kw_only=True)
class Coin:
    """Describes an output that the wallet can spend; `txid` is in internal byte order."""

    txid: bytes
    vout: int
    value_sat: int
    kind: CoinKind

    def spend(self, sequence: int) -> TxInput:
        """Return the transaction input that spends this coin."""
        return TxInput(self.txid, self.vout, self.kind.script_sig, self.kind.witness, sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class Payment:
    """Holds a transaction, the coins it spends, its fee, and its change, which is its first output."""

    transaction: RegtestTransaction
    spent: tuple[Coin, ...]
    change: Coin
    fee_sat: int

    @property
    def feerate_sat_vb(self) -> float:
        """Return the feerate of the payment in sat/vB."""
        return self.fee_sat / self.transaction.vsize_vb


class Wallet:
    """Hands out confirmed coins in a fixed order, each of them once."""

    def __init__(self, coins: Iterable[Coin]) -> None:
        self._coins = deque(coins)

    def __len__(self) -> int:
        return len(self._coins)

    def take(self) -> Coin:
        """Return the next coin of the wallet; raise RegtestError if none is left."""
        if not self._coins:
            raise RegtestError("the wallet has no coin left; prepare more of them")
        return self._coins.popleft()


def pay(
    coins: Sequence[Coin],
    outputs: Sequence[TxOutput],
    *,
    feerate_sat_vb: float,
    change_kind: str = "p2wsh",
    replaceable: bool = False,
) -> Payment:
    """Return a transaction that spends `coins` on a change output and `outputs`; its fee is rounded up.

    Raises RegtestError if the coins do not cover outputs, fee and a change above dust.
    """
    kind = COIN_KINDS[change_kind]
    inputs = tuple(coin.spend(REPLACEABLE if replaceable else FINAL) for coin in coins)
    available_sat = sum(coin.value_sat for coin in coins) - sum(output.value_sat for output in outputs)
    # Every value takes 8 bytes, so the size is fixed before the fee is computed.
    vsize_vb = RegtestTransaction(inputs, (TxOutput(0, kind.script), *outputs)).vsize_vb
    fee_sat = int(-(-feerate_sat_vb * vsize_vb // 1))
    change_sat = available_sat - fee_sat
    if change_sat < DUST_SAT:
        raise RegtestError(
            f"coins of {sum(coin.value_sat for coin in coins)} sat leave {change_sat} sat of change after "
            f"{counted(len(outputs), 'output')} and a fee of {fee_sat} sat; use a larger coin"
        )
    transaction = RegtestTransaction(inputs, (TxOutput(change_sat, kind.script), *outputs))
    change = Coin(txid=transaction.txid, vout=0, value_sat=change_sat, kind=kind)
    return Payment(transaction=transaction, spent=tuple(coins), change=change, fee_sat=fee_sat)


def fan_out(
    coin: Coin, kinds: Sequence[str], *, value_sat: int, fee_sat: int
) -> tuple[RegtestTransaction, list[Coin]]:
    """Split `coin` into one output of `value_sat` for each of `kinds`, and change.

    Returns the transaction and the new coins. Raises RegtestError if `coin` is too small.
    """
    change_sat = coin.value_sat - fee_sat - value_sat * len(kinds)
    if change_sat < DUST_SAT:
        raise RegtestError(
            f"{coin.value_sat} sat do not split into {counted(len(kinds), 'output')} of {value_sat} sat"
        )
    outputs = [TxOutput(value_sat, COIN_KINDS[name].script) for name in kinds]
    outputs.append(TxOutput(change_sat, COIN_KINDS["p2wsh"].script))
    transaction = RegtestTransaction((coin.spend(FINAL),), tuple(outputs))
    coins = [
        Coin(txid=transaction.txid, vout=vout, value_sat=value_sat, kind=COIN_KINDS[name])
        for vout, name in enumerate(kinds)
    ]
    return transaction, coins
