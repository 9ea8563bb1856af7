"""Define the tables of imported data: kept with its source and licence, never mixed with what we observed."""

from typing import Final

import pyarrow as pa

from collector.dataset.schema.model import (
    AT,
    BIG,
    BLOCK_HASH,
    COUNT,
    HASH,
    HEADER_TIME,
    TEXT,
    TXID,
    Table,
    col,
)

# What an imported file can hold, and the table that its rows go to.
IMPORT_TABLES: Final = {
    "arrivals": "external_arrivals",
    "blocks": "external_blocks",
    "labels": "external_pool_labels",
    "prices": "external_prices",
    "sizes": "external_block_sizes",
    "hashrate": "external_pool_hashrate",
    "headers": "external_headers",
    "stale-blocks": "external_stale_blocks",
    "accelerated": "external_accelerated",
}
IMPORT_KINDS: Final = tuple(IMPORT_TABLES)

SOURCE = col("source", TEXT, "Short name of the publisher, as in `external_sources`.")
HEIGHT = col("height", COUNT, "Height of the block, as the source has it.")

EXTERNAL_SOURCES = Table(
    name="external_sources",
    doc="One row per file that was imported.",
    grain=("source", "kind", "file_sha256"),
    sort=("source", "kind", "imported_at"),
    day_column="imported_at",
    columns=(
        SOURCE,
        col("kind", TEXT, "What the file holds.", values=IMPORT_KINDS),
        col("licence", TEXT, "Terms under which the source gives it."),
        col("url", TEXT, "Where it was taken from."),
        col("file_name", TEXT, "Name of the file, without its folder."),
        col("file_sha256", HASH, "SHA-256 of the file."),
        col("imported_at", AT, "When the file was imported, by our clock."),
        col("n_rows", BIG, "Number of rows in the file that were new to the dataset."),
    ),
)

EXTERNAL_ARRIVALS = Table(
    name="external_arrivals",
    doc="When others saw a block first, on their clocks.",
    grain=("source", "block_hash"),
    sort=("height", "source", "block_hash"),
    columns=(
        SOURCE,
        BLOCK_HASH,
        HEIGHT,
        col("arrived_at", AT, "When the source first saw the block, by its own clock."),
    ),
)

EXTERNAL_BLOCKS = Table(
    name="external_blocks",
    doc="Blocks as another provider describes them; what it does not tell is null.",
    grain=("source", "block_hash"),
    sort=("height", "source", "block_hash"),
    columns=(
        SOURCE,
        BLOCK_HASH,
        HEIGHT,
        col("header_time", HEADER_TIME, "Time in the header.", nullable=True),
        col("version", pa.int32(), "Header version as a signed number.", nullable=True),
        col("merkle_root", HASH, "Merkle root, internal byte order.", nullable=True),
        col("bits", BIG, "Proof-of-work target in the header's compact encoding.", nullable=True),
        col("nonce", BIG, "Header nonce.", nullable=True),
        col("size_bytes", BIG, "Serialised size with witness data.", nullable=True),
        col("stripped_bytes", BIG, "Serialised size without witness data.", nullable=True),
        col("weight_wu", BIG, "BIP141 weight.", nullable=True),
        col("n_tx", COUNT, "Number of transactions, coinbase included.", nullable=True),
        col(
            "n_segwit_tx",
            COUNT,
            "Number of transactions with witness data, as the source counts.",
            nullable=True,
        ),
        col("n_inputs", COUNT, "Number of inputs, as the source counts.", nullable=True),
        col("n_outputs", COUNT, "Number of outputs, as the source counts.", nullable=True),
        col("fees_sat", BIG, "Sum of the fees.", nullable=True),
        col("subsidy_sat", BIG, "New coins that the block created.", nullable=True),
        col(
            "coinbase_script",
            pa.binary(),
            "Raw scriptSig of the coinbase; a stranger has chosen its content.",
            nullable=True,
        ),
        col("pool_label", TEXT, "The source's guess of who mined it.", nullable=True),
    ),
)

EXTERNAL_POOL_LABELS = Table(
    name="external_pool_labels",
    doc="Which pool mined a block, according to others.",
    grain=("source", "height"),
    sort=("height", "source"),
    columns=(
        SOURCE,
        HEIGHT,
        col("label", TEXT, "The source's name of the pool, as it writes it."),
        col("header_time", HEADER_TIME, "Time of the block, where the source gives one.", nullable=True),
    ),
)

EXTERNAL_PRICES = Table(
    name="external_prices",
    doc="Price of one bitcoin, day by day.",
    grain=("source", "currency", "day_at"),
    sort=("source", "currency", "day_at"),
    day_column="imported_at",
    columns=(
        SOURCE,
        col("currency", TEXT, "ISO 4217 code of the currency of the price."),
        col("day_at", HEADER_TIME, "Begin of the day, UTC."),
        col("open", pa.float64(), "Price at the beginning of the day.", nullable=True),
        col("high", pa.float64(), "Highest price of the day.", nullable=True),
        col("low", pa.float64(), "Lowest price of the day.", nullable=True),
        col("close", pa.float64(), "Price at the end of the day, or the only price that the source gives."),
        col("imported_at", AT, "When the file was imported, by our clock."),
    ),
)

EXTERNAL_BLOCK_SIZES = Table(
    name="external_block_sizes",
    doc="Size and number of transactions of a block, from a source that names it by its height alone.",
    grain=("source", "height"),
    sort=("height", "source"),
    columns=(
        SOURCE,
        HEIGHT,
        col("size_bytes", BIG, "Serialised size, as the source counts."),
        col("n_tx", COUNT, "Number of transactions, coinbase included."),
        col("label", TEXT, "The source's name of the pool, as it writes it.", nullable=True),
    ),
)

EXTERNAL_POOL_HASHRATE = Table(
    name="external_pool_hashrate",
    doc="Hashrate of a pool on a day, as others estimate it.",
    grain=("source", "label", "day_at"),
    sort=("source", "label", "day_at"),
    day_column="imported_at",
    columns=(
        SOURCE,
        col("label", TEXT, "The source's name of the pool, as it writes it."),
        col("day_at", HEADER_TIME, "Begin of the day, UTC."),
        col("hashrate_hashes_per_s", pa.float64(), "Hashes per second."),
        col("imported_at", AT, "When the file was imported, by our clock."),
    ),
)

HEADER_COLUMNS = (
    col("prev_hash", HASH, "Hash of the parent, internal byte order."),
    col("header_time", HEADER_TIME, "Time in the header."),
    col("version", pa.int32(), "Header version as a signed number."),
    col("merkle_root", HASH, "Merkle root, internal byte order."),
    col("bits", BIG, "Proof-of-work target in the header's compact encoding."),
    col("nonce", BIG, "Header nonce."),
)

EXTERNAL_HEADERS = Table(
    name="external_headers",
    doc="Block headers from a file, whose proof of work, links and retargets we have checked.",
    grain=("source", "block_hash"),
    sort=("height", "source", "block_hash"),
    columns=(SOURCE, BLOCK_HASH, col("height", COUNT, "Height of the block."), *HEADER_COLUMNS),
)

EXTERNAL_STALE_BLOCKS = Table(
    name="external_stale_blocks",
    doc="Blocks that lost against a rival, according to others; the proof of work of each is checked.",
    grain=("source", "block_hash"),
    sort=("height", "source", "block_hash"),
    columns=(SOURCE, BLOCK_HASH, HEIGHT, *HEADER_COLUMNS),
)

EXTERNAL_ACCELERATED = Table(
    name="external_accelerated",
    doc="Transactions for whose place somebody was paid outside the transaction fee, according to others.",
    grain=("source", "txid", "seller"),
    sort=("source", "txid", "seller"),
    day_column="imported_at",
    columns=(
        SOURCE,
        TXID,
        col("seller", TEXT, "The pool or service that was paid, as the source writes it."),
        col("imported_at", AT, "When the file was imported, by our clock."),
    ),
)
