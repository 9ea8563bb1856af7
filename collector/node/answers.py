"""Read the fields of RPC answers, and raise NodeError with one sentence where a field is wrong.

A node of another version, or a server that is not a node, may answer anything. Each function here checks that
a value has the type that the function promises and fits into a column of the dataset.
"""

import reprlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, NoReturn

from collector.dataset.schema import hash_bytes, satoshi
from collector.errors import NodeError
from collector.log import printable

MOST_COUNT: Final = (1 << 31) - 1  # of a column with 32 bits
MOST_NUMBER: Final = (1 << 63) - 1  # of a column with 64 bits
MOST_SAT: Final = 21_000_000 * 100_000_000
LATEST_TIME_S: Final = 253_402_300_799  # the last second of the year 9999, which every reader can show
LONGEST_SHOWN: Final = 40


def refuse(what: str, value: object, expected: str) -> NoReturn:
    """Raise NodeError saying that the field `what` is `value` and should have been `expected`."""
    shown = printable(reprlib.repr(value))  # the whole value may be as large as the answer
    shown = shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + "…"
    raise NodeError(f"{what} is {shown}, not {expected}; is it the RPC port of a node that we support?")


def read_hash(what: str, value: object) -> bytes:
    """Return the 64 hex digits in `value` as a hash in internal byte order; NodeError for anything else."""
    if isinstance(value, str):
        try:
            return hash_bytes(value)
        except ValueError:
            pass
    refuse(what, value, "a hash of 64 hex digits")


def read_hex(what: str, value: object) -> bytes:
    """Return the bytes that `value` writes as hex digits; raise NodeError if it is anything else."""
    if isinstance(value, str):
        try:
            return bytes.fromhex(value)
        except ValueError:
            pass
    refuse(what, value, "bytes in hex digits")


def read_list(what: str, value: object) -> list[Any]:
    """Return `value` if it is a list; raise NodeError that names it as `what` otherwise."""
    if isinstance(value, list):
        return value
    refuse(what, value, "a list")


def read_integer(what: str, value: object, *, least: int = 0, most: int = MOST_NUMBER) -> int:
    """Return `value` if it is a whole number from `least` to `most`; raise NodeError otherwise."""
    if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
        return value
    refuse(what, value, f"a whole number from {least} to {most}")


def read_satoshi(what: str, value: object, *, least_sat: int = 0) -> int:
    """Return in satoshi the amount in BTC that `value` is; raise NodeError if it is none.

    The amount has at most 8 decimals, is at least `least_sat` and at most 21 million BTC.
    """
    if isinstance(value, int | Decimal):
        try:
            amount_sat = satoshi(value)
        except (ArithmeticError, TypeError, ValueError):
            refuse(what, value, "an amount in BTC")
        if least_sat <= amount_sat <= MOST_SAT:
            return amount_sat
    refuse(what, value, "an amount in BTC")


class Fields:
    """Reads the fields of one JSON object in an RPC answer.

    Every method raises NodeError, with the name of the field, when the field is missing or is of another
    type.
    """

    def __init__(self, what: str, value: object) -> None:
        if not isinstance(value, Mapping):
            refuse(what, value, "an object")
        self._what = what
        self._fields = value

    @property
    def all(self) -> Mapping[str, Any]:
        """Return every field of the JSON object as the node sent it, before any is checked."""
        return self._fields

    def get(self, name: str) -> object:
        """Return the value of the field `name` unchecked; raise NodeError when the object lacks the field."""
        try:
            return self._fields[name]
        except KeyError:
            raise NodeError(
                f"{self._what} has no field {name}; is it the RPC port of a node that we support?"
            ) from None

    def hash(self, name: str) -> bytes:
        """Return the field `name` as a hash in internal byte order; NodeError if it is no hash."""
        return read_hash(f"{self._what}: {name}", self.get(name))

    def hashes(self, name: str) -> list[bytes]:
        """Return the field `name`, a list of hashes, each in internal byte order; NodeError otherwise."""
        return [read_hash(f"{self._what}: {name}", each) for each in self.list(name)]

    def list(self, name: str) -> list[Any]:
        """Return the field `name` if it is a list; raise NodeError otherwise."""
        return read_list(f"{self._what}: {name}", self.get(name))

    def fields(self, name: str) -> "Fields":
        """Return a reader of the JSON object that the field `name` holds."""
        return Fields(f"{self._what}: {name}", self.get(name))

    def integer(self, name: str, *, least: int = 0, most: int = MOST_NUMBER) -> int:
        """Return the field `name` if it is a whole number from `least` to `most`; NodeError otherwise."""
        return read_integer(f"{self._what}: {name}", self.get(name), least=least, most=most)

    def boolean(self, name: str) -> bool:
        """Return the field `name` if it is true or false; raise NodeError otherwise."""
        value = self.get(name)
        if isinstance(value, bool):
            return value
        refuse(f"{self._what}: {name}", value, "true or false")

    def satoshi(self, name: str, *, least_sat: int = 0) -> int:
        """Return the field `name`, an amount in BTC, in satoshi; NodeError if it is none, or too small."""
        return read_satoshi(f"{self._what}: {name}", self.get(name), least_sat=least_sat)
