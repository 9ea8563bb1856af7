"""A node of our own: find or fetch bitcoind, start it on regtest, and script what happens on it."""

from collector.regtest.bitcoind import Bitcoind, find_bitcoind
from collector.regtest.node import RegtestNode

__all__ = ["Bitcoind", "RegtestNode", "find_bitcoind"]
