"""List the chains of Bitcoin, by the names that the node's RPC gives them."""

from enum import StrEnum
from typing import Final


class Chain(StrEnum):
    """Lists the chains of Bitcoin by the names that the node's RPC gives them."""

    MAIN = "main"
    TEST = "test"
    TESTNET4 = "testnet4"
    SIGNET = "signet"
    REGTEST = "regtest"


CHAINS: Final = tuple(chain.value for chain in Chain)
