"""Read the fields of RPC answers, and raise NodeError with one sentence where a field is wrong.

A node of another version, or a server that is not a node, may answer anything. What is read here has the type
that its name promises and fits into the column that it is for.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

from collector.dataset.schema import hash_bytes
from collector.errors import NodeError
from collector.log import printable

MOST_COUNT: Final = (1 << 31) - 1  # of a column with 32 bits
MOST_NUMBER: Final = (1 << 63) - 1  # of a column with 64 bits
MOST_COINS: Final = 21_000_000  # BTC
LATEST_TIME_S: Final = 253_402_300_799  # the last second of the year 9999, which every reader can show
DECIMALS: Final = 8  # of an amount in BTC
LONGEST_SHOWN: Final = 40


def refuse(what: str, value: object, expected: str) -> NoReturn:
    """Raise NodeError: `what` should have been `expected`, and is `value`."""
    shown = printable(repr(value))
    shown = shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "…"
    raise NodeError(f"{what} is {shown}, not {expected}; is it the RPC port of a node that we support?")


def read_hash(what: str, value: object) -> bytes:
    """Return a hash of 64 hex digits in internal byte order."""
    if isinstance(value, str):
        try:
            return hash_bytes(value)
        except ValueError:
            pass
    refuse(what, value, "a hash of 64 hex digits")


def read_hex(what: str, value: object) -> bytes:
    """Return bytes that are written as hex digits."""
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    refuse(what, value, "bytes in hex digits")


def read_list(what: str, value: object) -> list[Any]:
    """Return a list."""
    if isinstance(value, list):
        return value
    refuse(what, value, "a list")


def read_integer(what: str, value: object, *, least: int = 0, most: int = MOST_NUMBER) -> int:
    """Return a whole number from `least` to `most`."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    refuse(what, value, f"a whole number from {least} to {most}")


def read_amount(what: str, value: object, *, least: int = 0) -> Decimal:
    """Return an amount in BTC, of at most 8 decimals, from `least` to what there can ever be."""
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        amount = Decimal(value)
        if least <= amount <= MOST_COINS and amount == round(amount, DECIMALS):
            return amount
    refuse(what, value, "an amount in BTC")


class Fields:
    """The fields of an object in the answer to a method."""

    def __init__(self, what: str, value: object) -> None:
        if not isinstance(value, Mapping):
            refuse(what, value, "an object")
        self._what = what
        self._fields = value

    @property
    def all(self) -> Mapping[str, Any]:
        """All fields, unread."""
        return self._fields

    def get(self, name: str) -> object:
        """Return a field; raise NodeError when there is none."""
        try:
            return self._fields[name]
        except KeyError:
            raise NodeError(
                f"{self._what} has no field {name}; is it the RPC port of a node that we support?"
            ) from None

    def hash(self, name: str) -> bytes:
        """Return a hash in internal byte order."""
        return read_hash(f"{self._what}: {name}", self.get(name))

    def hashes(self, name: str) -> list[bytes]:
        """Return a list of hashes in internal byte order."""
        return [read_hash(f"{self._what}: {name}", each) for each in self.list(name)]

    def list(self, name: str) -> list[Any]:
        """Return a list."""
        return read_list(f"{self._what}: {name}", self.get(name))

    def fields(self, name: str) -> "Fields":
        """Return the fields of an object within."""
        return Fields(f"{self._what}: {name}", self.get(name))

    def integer(self, name: str, *, most: int = MOST_NUMBER) -> int:
        """Return a whole number from 0 to `most`."""
        return read_integer(f"{self._what}: {name}", self.get(name), most=most)

    def amount(self, name: str, *, least: int = 0) -> Decimal:
        """Return an amount in BTC of at least `least`."""
        return read_amount(f"{self._what}: {name}", self.get(name), least=least)
