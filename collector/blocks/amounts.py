"""Read from an answer of getblock what a block's transactions paid and spent."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from collector.codec.arrays import Bytes
from collector.codec.block import Block
from collector.codec.format import MAX_MONEY_SAT
from collector.codec.rows import amounts_from_getblock, spent_types_from_getblock
from collector.errors import DecodeError, NodeError
from collector.log import excerpt


class BlockAmounts(NamedTuple):
    """Holds the fees of a block's transactions, and the values and types of the outputs that they spend."""

    fees_sat: list[int | None]  # None for the coinbase, and where unknown
    spent_sat: list[list[int]]  # of each transaction after the coinbase, by input; empty where unknown
    spent_types: Bytes | None  # as `spent_types_from_getblock` returns it

    def fits(self, block: Block) -> bool:
        """Return whether there is one spent value for each input of each transaction of `block`."""
        n_inputs = [len(transaction.outpoints) for transaction in block.transactions[1:]]
        return [len(values_sat) for values_sat in self.spent_sat] == n_inputs

    def by_outpoint(self, block: Block) -> dict[bytes, int]:
        """Return the value in satoshi of each output that the block spends, by outpoint."""
        return {
            spent: value_sat
            for transaction, values_sat in zip(block.transactions[1:], self.spent_sat, strict=False)
            for spent, value_sat in zip(transaction.outpoints, values_sat, strict=True)
        }


def unknown_amounts(n_tx: int) -> BlockAmounts:
    """Return a BlockAmounts for `n_tx` transactions, in which all fees and spent outputs are unknown."""
    return BlockAmounts([None] * n_tx, [], None)


def read_amounts(answer: Mapping[str, Any]) -> BlockAmounts | None:
    """Return the fees and spent outputs in an answer of `getblock <hash> 3`; None when it names none.

    A node that has lost the block's undo data names none. Raises NodeError for amounts of a wrong form:
    the node's next answer may have them right.
    """
    try:
        transactions = answer["tx"][1:]
        if transactions and not any(map(_names_amounts, transactions)):
            return None
        fees_sat, spent_sat = amounts_from_getblock(answer)
    except DecodeError as error:
        raise NodeError(f"getblock: {excerpt(str(error))}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise NodeError(f"getblock gives amounts in no form that we know ({excerpt(error)})") from None
    if any(min(values_sat) < 0 or max(values_sat) > MAX_MONEY_SAT for values_sat in spent_sat if values_sat):
        raise NodeError("getblock gives an amount below 0 or above 21 million BTC")
    return BlockAmounts(fees_sat, spent_sat, spent_types_from_getblock(answer))


def _names_amounts(transaction: Mapping[str, Any]) -> bool:
    """Return whether getblock's entry for a transaction has its fee, or any output that it spends.

    A node without the block's undo data gives neither. Raises ValueError for a transaction without inputs.
    """
    if not transaction["vin"]:
        raise ValueError("a transaction without inputs")
    return "fee" in transaction or any("prevout" in spent for spent in transaction["vin"])
