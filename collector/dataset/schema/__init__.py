"""Define the dataset contract: every raw table, once, as data.

Parquet metadata, the data dictionary, the readers and the tests are derived from this package. A column may
be added within a version, never renamed or retyped. Hashes are 32 bytes in internal byte order (the order in
which they are serialised in a block); `hash_hex` gives the reversed order that people and RPC use. Sizes,
times and amounts carry their unit in the name.

Layout: `<dataset>/chain=<chain>/<table>/date=YYYY-MM-DD/*.parquet` (UTC day of `Table.day_column`), or
`.../heights=<first>-<last>/*.parquet` in spans of `HEIGHT_SPAN` blocks where `Table.day_column` is None.
"""

from typing import Final

from collector.dataset.chains import CHAINS
from collector.dataset.marker import DATASET_FORMAT, DATASET_MARKER, DATASET_VERSION
from collector.dataset.schema.chain import BLOCK_ARRIVALS, BLOCKS, CHAIN_TIPS, TRANSACTIONS
from collector.dataset.schema.external import (
    EXTERNAL_ACCELERATED,
    EXTERNAL_ARRIVALS,
    EXTERNAL_BLOCK_SIZES,
    EXTERNAL_BLOCKS,
    EXTERNAL_HEADERS,
    EXTERNAL_POOL_HASHRATE,
    EXTERNAL_POOL_LABELS,
    EXTERNAL_PRICES,
    EXTERNAL_SOURCES,
    EXTERNAL_STALE_BLOCKS,
    IMPORT_TABLES,
)
from collector.dataset.schema.mempool import (
    MEMPOOL_BODIES,
    MEMPOOL_EVENTS,
    MEMPOOL_STATS,
    MEMPOOL_TXS,
    TEMPLATE_TXS,
    TEMPLATES,
)
from collector.dataset.schema.model import (
    BLOCK_EVENTS,
    CHAIN_TIP_STATES,
    COVERAGE_TOPICS,
    END_REASONS,
    EVENTS,
    HEIGHT_SPAN,
    LOSS_REASONS,
    OUTPUT_TYPES,
    REMOVAL_REASONS,
    SEEN_KINDS,
    VERDICTS,
    ZMQ_TOPICS,
    Column,
    Table,
    hash_bytes,
    hash_hex,
    satoshi,
)
from collector.dataset.schema.node import (
    BACKFILL_NODE,
    COVERAGE,
    MEMBER_CLOCKS,
    NODES,
    REJECTS,
    UNKNOWN_PARENT,
)

TABLES: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        NODES,
        BLOCKS,
        TRANSACTIONS,
        MEMPOOL_TXS,
        MEMPOOL_BODIES,
        MEMPOOL_EVENTS,
        BLOCK_ARRIVALS,
        CHAIN_TIPS,
        TEMPLATES,
        TEMPLATE_TXS,
        MEMPOOL_STATS,
        COVERAGE,
        REJECTS,
        MEMBER_CLOCKS,
        EXTERNAL_SOURCES,
        EXTERNAL_ARRIVALS,
        EXTERNAL_BLOCKS,
        EXTERNAL_POOL_LABELS,
        EXTERNAL_PRICES,
        EXTERNAL_BLOCK_SIZES,
        EXTERNAL_POOL_HASHRATE,
        EXTERNAL_HEADERS,
        EXTERNAL_STALE_BLOCKS,
        EXTERNAL_ACCELERATED,
    )
}

__all__ = [
    "BACKFILL_NODE",
    "BLOCKS",
    "BLOCK_ARRIVALS",
    "BLOCK_EVENTS",
    "CHAINS",
    "CHAIN_TIPS",
    "CHAIN_TIP_STATES",
    "COVERAGE",
    "COVERAGE_TOPICS",
    "DATASET_FORMAT",
    "DATASET_MARKER",
    "DATASET_VERSION",
    "END_REASONS",
    "EVENTS",
    "EXTERNAL_ACCELERATED",
    "EXTERNAL_ARRIVALS",
    "EXTERNAL_BLOCKS",
    "EXTERNAL_BLOCK_SIZES",
    "EXTERNAL_HEADERS",
    "EXTERNAL_POOL_HASHRATE",
    "EXTERNAL_POOL_LABELS",
    "EXTERNAL_PRICES",
    "EXTERNAL_SOURCES",
    "EXTERNAL_STALE_BLOCKS",
    "HEIGHT_SPAN",
    "IMPORT_TABLES",
    "LOSS_REASONS",
    "MEMBER_CLOCKS",
    "MEMPOOL_BODIES",
    "MEMPOOL_EVENTS",
    "MEMPOOL_STATS",
    "MEMPOOL_TXS",
    "NODES",
    "OUTPUT_TYPES",
    "REJECTS",
    "REMOVAL_REASONS",
    "SEEN_KINDS",
    "TABLES",
    "TEMPLATES",
    "TEMPLATE_TXS",
    "TRANSACTIONS",
    "UNKNOWN_PARENT",
    "VERDICTS",
    "ZMQ_TOPICS",
    "Column",
    "Table",
    "hash_bytes",
    "hash_hex",
    "satoshi",
]
