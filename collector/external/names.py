"""List the words by which `import` knows kinds of files and publishers.

The help of the command reads them; this module loads nothing, so that the help is fast.
"""

from typing import Final

KIND_NAMES: Final = (
    *("arrivals", "blocks", "labels", "prices", "sizes", "hashrate", "headers", "stale-blocks"),
    "accelerated",
)
PROVIDER_NAMES: Final = ("blockchair", "bitcoin-data", "bitcoinj", "kit", "mempool-space", "paper")
