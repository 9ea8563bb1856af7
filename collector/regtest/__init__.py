"""A node of our own: find or fetch bitcoind, start it on regtest, and script what happens on it."""

from collector.regtest.bitcoind import Bitcoind, find_bitcoind
from collector.regtest.errors import BitcoindNotFoundError, NodeError, RegtestError

__all__ = ["Bitcoind", "BitcoindNotFoundError", "NodeError", "RegtestError", "find_bitcoind"]
