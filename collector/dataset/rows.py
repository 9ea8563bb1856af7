"""Define the rows of every raw table as typed dictionaries: mypy finds a column that is missing or misspelt.

The classes are generated from `collector.dataset.schema` (`make docs`), which says what each column means. A
nullable column may be left out. Times are whole units since 1970 UTC: microseconds, or seconds for the time
in a block's header. Hashes are 32 bytes in internal byte order.
"""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

# A row whose table is known only at run time; every class below fits it.
Row = Mapping[str, object]

# [[[cog from tests.row_types import write_row_types; write_row_types() ]]]


class NodeRow(TypedDict):
    """Holds a row of the raw table `nodes`, with the Python type of each column."""

    node: str
    session: str
    started_at: int
    chain: str
    node_version: int
    subversion: str
    tip_height: int
    tip_hash: bytes
    n_mempool_at_start: int
    clock_offset_us: NotRequired[int | None]
    policy: str
    zmq: str
    collector_version: str
    software: str
    settings: str


class CoinbaseOutputItem(TypedDict):
    """Holds an element of the list `coinbase_outputs`, with the Python type of each field."""

    value_sat: int
    script: bytes


class BlockRow(TypedDict):
    """Holds a row of the raw table `blocks`, with the Python type of each column."""

    block_hash: bytes
    height: int
    height_source: str
    prev_hash: bytes
    version: int
    merkle_root: bytes
    header_time: int
    bits: int
    nonce: int
    size_bytes: int
    stripped_bytes: int
    weight_wu: int
    n_tx: int
    n_segwit_tx: int
    n_inputs: int
    n_outputs: int
    output_value_sat: int
    fees_sat: NotRequired[int | None]
    subsidy_sat: int
    coinbase_txid: bytes
    coinbase_value_sat: int
    coinbase_script: bytes
    coinbase_outputs: list[CoinbaseOutputItem]
    witness_commitment: NotRequired[bytes | None]
    verdict: str
    verified_by: str
    source: str
    coinbase_version: NotRequired[int | None]
    coinbase_sequence: NotRequired[int | None]
    coinbase_locktime: NotRequired[int | None]
    coinbase_reserved_value: NotRequired[bytes | None]


class TransactionRow(TypedDict):
    """Holds a row of the raw table `transactions`, with the Python type of each column."""

    block_hash: bytes
    height: int
    tx_index: int
    txid: bytes
    wtxid: bytes
    version: int
    locktime: int
    size_bytes: int
    weight_wu: int
    vsize_vb: int
    n_inputs: int
    n_outputs: int
    input_value_sat: NotRequired[int | None]
    output_value_sat: int
    fee_sat: NotRequired[int | None]
    is_coinbase: bool
    has_witness: bool
    signals_rbf: bool
    output_types: list[str]
    parents: list[int]
    effective_feerate_sat_vb: NotRequired[float | None]
    op_return_bytes: NotRequired[int | None]
    n_dust_outputs: NotRequired[int | None]
    n_envelopes: NotRequired[int | None]
    envelope_bytes: NotRequired[int | None]
    spent_types: NotRequired[list[str] | None]
    sigop_cost: NotRequired[int | None]


class MempoolTxRow(TypedDict):
    """Holds a row of the raw table `mempool_txs`, with the Python type of each column."""

    node: str
    session: str
    txid: bytes
    wtxid: NotRequired[bytes | None]
    entered_at: int
    first_seen_kind: str
    mempool_sequence: NotRequired[int | None]
    node_entered_at: NotRequired[int | None]
    size_bytes: NotRequired[int | None]
    weight_wu: NotRequired[int | None]
    vsize_vb: NotRequired[int | None]
    n_inputs: NotRequired[int | None]
    n_outputs: NotRequired[int | None]
    output_value_sat: NotRequired[int | None]
    fee_sat: NotRequired[int | None]
    fee_source: NotRequired[str | None]
    ancestor_count: NotRequired[int | None]
    ancestor_vsize_vb: NotRequired[int | None]
    ancestor_fees_sat: NotRequired[int | None]
    descendant_count: NotRequired[int | None]
    descendant_vsize_vb: NotRequired[int | None]
    descendant_fees_sat: NotRequired[int | None]
    parents: NotRequired[list[bytes] | None]
    signals_rbf: NotRequired[bool | None]
    version: NotRequired[int | None]
    locktime: NotRequired[int | None]
    output_types: NotRequired[list[str] | None]
    op_return_bytes: NotRequired[int | None]
    n_dust_outputs: NotRequired[int | None]
    n_envelopes: NotRequired[int | None]
    envelope_bytes: NotRequired[int | None]
    spent_types: NotRequired[list[str] | None]
    sigop_cost: NotRequired[int | None]


class MempoolBodyRow(TypedDict):
    """Holds a row of the raw table `mempool_bodies`, with the Python type of each column."""

    node: str
    session: str
    txid: bytes
    kept_at: int
    kept_because: str
    raw: bytes


class MempoolEventRow(TypedDict):
    """Holds a row of the raw table `mempool_events`, with the Python type of each column."""

    node: str
    session: str
    sequence: int
    kind: str
    received_at: int
    event: str
    hash: bytes
    mempool_sequence: NotRequired[int | None]
    removal_reason: NotRequired[str | None]
    replaced_by: NotRequired[bytes | None]


class BlockArrivalRow(TypedDict):
    """Holds a row of the raw table `block_arrivals`, with the Python type of each column."""

    node: str
    session: str
    block_hash: bytes
    event: str
    event_at: int
    kind: str
    height: NotRequired[int | None]
    prev_hash: NotRequired[bytes | None]
    is_catch_up: NotRequired[bool | None]


class ChainTipRow(TypedDict):
    """Holds a row of the raw table `chain_tips`, with the Python type of each column."""

    node: str
    session: str
    taken_at: int
    block_hash: bytes
    height: int
    branch_length: int
    status: str


class TemplateRow(TypedDict):
    """Holds a row of the raw table `templates`, with the Python type of each column."""

    node: str
    session: str
    taken_at: int
    request_us: int
    trigger: str
    height: int
    prev_hash: bytes
    node_time: int
    n_tx: int
    weight_wu: int
    n_sigops: int
    fees_sat: int
    coinbase_value_sat: int


class TemplateTxRow(TypedDict):
    """Holds a row of the raw table `template_txs`, with the Python type of each column."""

    node: str
    session: str
    taken_at: int
    tx_index: int
    txid: bytes
    fee_sat: int
    weight_wu: int
    n_sigops: int
    parents: list[int]


class HistogramItem(TypedDict):
    """Holds an element of the list `histogram`, with the Python type of each field."""

    from_feerate_sat_vb: float
    n_tx: int
    vsize_vb: int
    fees_sat: int


class MempoolStatsRow(TypedDict):
    """Holds a row of the raw table `mempool_stats`, with the Python type of each column."""

    node: str
    session: str
    taken_at: int
    n_tx: int
    vsize_vb: int
    usage_bytes: int
    max_usage_bytes: int
    fees_sat: int
    min_feerate_sat_vb: float
    histogram: list[HistogramItem]
    clock_offset_us: NotRequired[int | None]


class CoverageRow(TypedDict):
    """Holds a row of the raw table `coverage`, with the Python type of each column."""

    node: str
    session: str
    topic: str
    from_at: int
    to_at: int
    first_sequence: NotRequired[int | None]
    last_sequence: NotRequired[int | None]
    n_messages: int
    end_reason: str
    detail: NotRequired[str | None]


class RejectRow(TypedDict):
    """Holds a row of the raw table `rejects`, with the Python type of each column."""

    node: str
    session: str
    received_at: int
    topic: str
    sequence: NotRequired[int | None]
    reason: str
    body: bytes


class MemberClockRow(TypedDict):
    """Holds a row of the raw table `member_clocks`, with the Python type of each column."""

    member: str
    offset_at: int
    offset_us: int
    error_us: int
    n_shared: int


class ExternalSourceRow(TypedDict):
    """Holds a row of the raw table `external_sources`, with the Python type of each column."""

    source: str
    kind: str
    licence: str
    url: str
    file_name: str
    file_sha256: bytes
    imported_at: int
    n_rows: int


class ExternalArrivalRow(TypedDict):
    """Holds a row of the raw table `external_arrivals`, with the Python type of each column."""

    source: str
    block_hash: bytes
    height: int
    arrived_at: int


class ExternalBlockRow(TypedDict):
    """Holds a row of the raw table `external_blocks`, with the Python type of each column."""

    source: str
    block_hash: bytes
    height: int
    header_time: NotRequired[int | None]
    version: NotRequired[int | None]
    merkle_root: NotRequired[bytes | None]
    bits: NotRequired[int | None]
    nonce: NotRequired[int | None]
    size_bytes: NotRequired[int | None]
    stripped_bytes: NotRequired[int | None]
    weight_wu: NotRequired[int | None]
    n_tx: NotRequired[int | None]
    n_segwit_tx: NotRequired[int | None]
    n_inputs: NotRequired[int | None]
    n_outputs: NotRequired[int | None]
    fees_sat: NotRequired[int | None]
    subsidy_sat: NotRequired[int | None]
    coinbase_script: NotRequired[bytes | None]
    pool_label: NotRequired[str | None]


class ExternalPoolLabelRow(TypedDict):
    """Holds a row of the raw table `external_pool_labels`, with the Python type of each column."""

    source: str
    height: int
    label: str
    header_time: NotRequired[int | None]


class ExternalPriceRow(TypedDict):
    """Holds a row of the raw table `external_prices`, with the Python type of each column."""

    source: str
    currency: str
    day_at: int
    open: NotRequired[float | None]
    high: NotRequired[float | None]
    low: NotRequired[float | None]
    close: float
    imported_at: int


class ExternalBlockSizeRow(TypedDict):
    """Holds a row of the raw table `external_block_sizes`, with the Python type of each column."""

    source: str
    height: int
    size_bytes: int
    n_tx: int
    label: NotRequired[str | None]


class ExternalPoolHashrateRow(TypedDict):
    """Holds a row of the raw table `external_pool_hashrate`, with the Python type of each column."""

    source: str
    label: str
    day_at: int
    hashrate_hashes_per_s: float
    imported_at: int


class ExternalHeaderRow(TypedDict):
    """Holds a row of the raw table `external_headers`, with the Python type of each column."""

    source: str
    block_hash: bytes
    height: int
    prev_hash: bytes
    header_time: int
    version: int
    merkle_root: bytes
    bits: int
    nonce: int


class ExternalStaleBlockRow(TypedDict):
    """Holds a row of the raw table `external_stale_blocks`, with the Python type of each column."""

    source: str
    block_hash: bytes
    height: int
    prev_hash: bytes
    header_time: int
    version: int
    merkle_root: bytes
    bits: int
    nonce: int


class ExternalAcceleratedRow(TypedDict):
    """Holds a row of the raw table `external_accelerated`, with the Python type of each column."""

    source: str
    txid: bytes
    seller: str
    imported_at: int


ROW_TYPES: dict[str, type] = {
    "nodes": NodeRow,
    "blocks": BlockRow,
    "transactions": TransactionRow,
    "mempool_txs": MempoolTxRow,
    "mempool_bodies": MempoolBodyRow,
    "mempool_events": MempoolEventRow,
    "block_arrivals": BlockArrivalRow,
    "chain_tips": ChainTipRow,
    "templates": TemplateRow,
    "template_txs": TemplateTxRow,
    "mempool_stats": MempoolStatsRow,
    "coverage": CoverageRow,
    "rejects": RejectRow,
    "member_clocks": MemberClockRow,
    "external_sources": ExternalSourceRow,
    "external_arrivals": ExternalArrivalRow,
    "external_blocks": ExternalBlockRow,
    "external_pool_labels": ExternalPoolLabelRow,
    "external_prices": ExternalPriceRow,
    "external_block_sizes": ExternalBlockSizeRow,
    "external_pool_hashrate": ExternalPoolHashrateRow,
    "external_headers": ExternalHeaderRow,
    "external_stale_blocks": ExternalStaleBlockRow,
    "external_accelerated": ExternalAcceleratedRow,
}
# [[[end]]]
