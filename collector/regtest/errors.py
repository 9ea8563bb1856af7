"""What can go wrong with a node of our own.

RegtestError
├── BitcoindNotFoundError  no bitcoind to be had, or the one named does not run
├── NodeError              the node did not start, or went away
├── ScenarioError          a scenario file that cannot be run; names file and key
└── ScenarioRunError       the node refused something the scenario relies on
"""


class RegtestError(Exception):
    """Anything `collector.regtest` raises on purpose."""


class BitcoindNotFoundError(RegtestError):
    """No usable bitcoind; the message lists every way that was tried."""


class NodeError(RegtestError):
    """bitcoind did not come up, or ended while it was needed."""


class ScenarioError(RegtestError):
    """A scenario breaks its schema; the message names file, key and value."""


class ScenarioRunError(RegtestError):
    """The node refused a block or a transaction that the scenario had planned."""
