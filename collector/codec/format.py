"""Define sizes and limits of the form in which the network carries transactions and blocks."""

from typing import Final

HEADER_BYTES: Final = 80
MAX_MONEY_SAT: Final = 21_000_000 * 100_000_000
NO_HASH: Final = bytes(32)
NO_INDEX: Final = 0xFFFFFFFF
TXID_BYTES: Final = 32
OUTPOINT_BYTES: Final = 36
VALUE_BYTES: Final = 8
