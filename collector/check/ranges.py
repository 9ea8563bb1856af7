"""Check each row by itself: its numbers are in their ranges and agree with each other.

A null never breaks a condition, because an older file may lack the column.
"""

from typing import Final

from collector.check.dataset_view import DatasetView
from collector.check.model import CheckResult
from collector.log import counted

MAX_SAT: Final = 2_100_000_000_000_000
COMMITMENT: Final = "6A24AA21A9ED"  # how the script of an output with a witness commitment begins, BIP 141
# The least that a transaction without its witness takes, for so many inputs and outputs.
LEAST_BYTES: Final = "10 + 41 * n_inputs + 9 * n_outputs"
WHOLE_WEIGHT: Final = (
    "coalesce(weight_wu BETWEEN size_bytes AND 4 * size_bytes AND (weight_wu - size_bytes) % 3 = 0, true)",
    "weight is 3 * stripped size + size",
)
RISING_PARENTS: Final = (
    "CASE WHEN len(parents) > 1 THEN parents = list_sort(list_distinct(parents)) ELSE true END",
    "each parent is named once, in order",
)
# Each has a size: an OP_RETURN of one opcode, a dust output, an envelope of OP_0 OP_IF OP_ENDIF.
SOUND_TRAITS: Final = (
    (
        "coalesce(op_return_bytes >= 0 AND n_dust_outputs BETWEEN 0 AND n_outputs "
        "AND envelope_bytes BETWEEN 3 * n_envelopes AND size_bytes "
        "AND (n_envelopes > 0 OR envelope_bytes = 0), true)"
    ),
    "dust is among the outputs, and envelopes have a size",
)
# By table: conditions that every row must meet, and the same in words. Prioritised transactions may have
# negative fees in templates and in the sums over relatives.
RANGES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "blocks": (
        ("height >= 0", "a height is not negative"),
        ("n_tx >= 1", "a block has a coinbase"),
        ("weight_wu = 3 * stripped_bytes + size_bytes", "weight is 3 * stripped size + size"),
        ("stripped_bytes BETWEEN 1 AND size_bytes", "stripped size is at most the size"),
        ("nonce BETWEEN 0 AND 4294967295", "a nonce has 32 bits"),
        ("bits BETWEEN 0 AND 4294967295", "bits have 32 bits"),
        ("epoch(header_time) BETWEEN 0 AND 4294967295", "a time in a header has 32 bits"),
        ("subsidy_sat BETWEEN 0 AND 5000000000", "a subsidy is 0 to 50 coins"),
        (f"fees_sat IS NULL OR fees_sat BETWEEN 0 AND {MAX_SAT}", "fees are 0 to 21 million coins"),
        (
            "fees_sat IS NULL OR coinbase_value_sat BETWEEN 0 AND subsidy_sat + fees_sat",
            "a coinbase pays at most subsidy and fees",
        ),
        ("n_segwit_tx BETWEEN 0 AND n_tx - 1", "not more transactions have witness data than there are"),
        (
            "coinbase_value_sat = coalesce(list_sum([o.value_sat for o in coinbase_outputs]), 0)",
            "the value of a coinbase is that of its outputs",
        ),
        (
            (
                "coalesce(least(coinbase_version, coinbase_sequence, coinbase_locktime) >= 0 AND greatest("
                "coinbase_version, coinbase_sequence, coinbase_locktime) <= 4294967295, true)"
            ),
            "version, nSequence and lock time of a coinbase have 32 bits",
        ),
        ("octet_length(coinbase_script) BETWEEN 2 AND 100", "the script of a coinbase has 2 to 100 bytes"),
        (
            (
                "witness_commitment IS NULL OR coalesce(hex(witness_commitment) = substr(hex(list_filter("
                f"coinbase_outputs, lambda o: hex(o.script) LIKE '{COMMITMENT}%' "
                f"AND octet_length(o.script) >= 38)[-1].script), {len(COMMITMENT) + 1}, 64), false)"
            ),
            "the witness commitment is that of the last output which has one",
        ),
    ),
    "transactions": (
        ("tx_index >= 0 AND height >= 0", "positions and heights are not negative"),
        ("is_coinbase = (tx_index = 0)", "the first transaction, and no other, is the coinbase"),
        ("vsize_vb = (weight_wu + 3) // 4", "virtual size is weight / 4, rounded up"),
        WHOLE_WEIGHT,
        ("n_inputs >= 1 AND n_outputs >= 1", "there are inputs and outputs"),
        (f"(weight_wu - size_bytes) // 3 >= {LEAST_BYTES}", "the size has room for all inputs and outputs"),
        ("has_witness = (weight_wu < 4 * size_bytes)", "only witness data weighs less than the rest"),
        ("has_witness = (wtxid <> txid)", "only with witness data the two hashes differ"),
        ("version BETWEEN -2147483648 AND 4294967295", "a version has 32 bits"),
        ("locktime BETWEEN 0 AND 4294967295", "a lock time has 32 bits"),
        ("len(output_types) = n_outputs", "each output has a type"),
        ("coalesce(len(spent_types) = n_inputs, true)", "each spent output has a type"),
        ("coalesce(sigop_cost BETWEEN 0 AND 80000, true)", "a sigop cost is at most that of a block"),
        SOUND_TRAITS,
        (f"output_value_sat BETWEEN 0 AND {MAX_SAT}", "values are 0 to 21 million coins"),
        (
            "fee_sat IS NULL OR (fee_sat >= 0 AND fee_sat = input_value_sat - output_value_sat)",
            "a fee is inputs minus outputs, and not negative",
        ),
        (
            "NOT is_coinbase OR coalesce(input_value_sat, fee_sat, effective_feerate_sat_vb) IS NULL",
            "a coinbase spends nothing and pays no fee",
        ),
        ("coalesce(list_min(parents) >= 1, true)", "what a coinbase makes is not spent in its block"),
        ("coalesce(list_max(parents) < tx_index, true)", "parents come first"),
        ("len(parents) <= n_inputs", "there are at most as many parents as inputs"),
        RISING_PARENTS,
        (
            "coalesce(effective_feerate_sat_vb >= 0, true)",
            "an effective feerate is not negative",
        ),
        (
            # Its own feerate is that of a package, and the best package is taken first.
            "len(parents) > 0 OR coalesce(effective_feerate_sat_vb * vsize_vb >= fee_sat * (1 - 1e-9), true)",
            "what has no parents is taken at its own feerate or a better one",
        ),
    ),
    "mempool_txs": (
        (f"coalesce(fee_sat BETWEEN 0 AND {MAX_SAT}, true)", "a fee is 0 to 21 million coins"),
        ("coalesce(vsize_vb > 0 AND weight_wu > 0, true)", "sizes are positive"),
        WHOLE_WEIGHT,
        (
            "coalesce(vsize_vb >= (weight_wu + 3) // 4, true)",
            "virtual size is at least weight / 4; sigops may add to it",
        ),
        ("coalesce(n_inputs >= 1 AND n_outputs >= 1, true)", "there are inputs and outputs"),
        ("coalesce(version BETWEEN 0 AND 4294967295, true)", "a version has 32 bits"),
        ("coalesce(locktime BETWEEN 0 AND 4294967295, true)", "a lock time has 32 bits"),
        ("coalesce(len(output_types) = n_outputs, true)", "each output has a type"),
        SOUND_TRAITS,
        (
            f"coalesce((weight_wu - size_bytes) // 3 >= {LEAST_BYTES}, true)",
            "the size has room for all inputs and outputs",
        ),
        (f"coalesce(output_value_sat BETWEEN 0 AND {MAX_SAT}, true)", "values are 0 to 21 million coins"),
        (
            "coalesce((wtxid <> txid) = (weight_wu < 4 * size_bytes), true)",
            "only with witness data the two hashes differ",
        ),
        ("coalesce(ancestor_count >= 1 AND descendant_count >= 1, true)", "a transaction counts itself"),
        (
            "coalesce(ancestor_vsize_vb >= vsize_vb AND descendant_vsize_vb >= vsize_vb, true)",
            "a transaction is among its ancestors and descendants",
        ),
        (
            (
                "coalesce((ancestor_count = 1) = (ancestor_vsize_vb = vsize_vb), true) "
                "AND coalesce((descendant_count = 1) = (descendant_vsize_vb = vsize_vb), true)"
            ),
            "alone, its ancestor and descendant sizes are its own, with relatives larger",
        ),
        (
            "coalesce(ancestor_count > len(parents) AND (ancestor_count = 1) = (len(parents) = 0), true)",
            "parents are ancestors",
        ),
        (
            (
                "CASE WHEN len(parents) > 0 THEN len(list_distinct(parents)) = len(parents) AND "
                "NOT list_contains(parents, txid) AND coalesce(len(parents) <= n_inputs, true) ELSE true END"
            ),
            "each parent is named once, and there are at most as many as inputs",
        ),
        (
            "first_seen_kind <> 'pushed' OR mempool_sequence IS NOT NULL",
            "pushed entries have a mempool sequence",
        ),
        (
            "first_seen_kind = 'pushed' OR mempool_sequence IS NULL",
            "no other entry has a mempool sequence",
        ),
    ),
    "mempool_events": (
        ("(kind = 'pulled') = (sequence < 0)", "a pulled event has a negative counter, a pushed one has not"),
        (
            "kind = 'pulled' OR (mempool_sequence IS NOT NULL) = (event IN ('A', 'R'))",
            "pushed A and R have a mempool sequence, C and D none",
        ),
        (
            "kind = 'pushed' OR (event IN ('A', 'R') AND mempool_sequence IS NULL)",
            "a pulled event is of a transaction, without a mempool sequence",
        ),
        ("removal_reason IS NULL OR event = 'R'", "only R has a reason"),
        (
            "kind = 'pulled' OR coalesce(removal_reason <> 'mined', true)",
            "the node sends no R for what was mined",
        ),
        ("replaced_by IS NULL OR event = 'R'", "only R names a replacement"),
        (
            "replaced_by IS NULL OR removal_reason = 'replaced'",
            "only a removal by replacement names the replacing transaction",
        ),
        ("coalesce(replaced_by <> hash, true)", "no transaction replaces itself"),
    ),
    "block_arrivals": (
        ("coalesce(height >= 0, true)", "a height is not negative"),
        (
            "is_catch_up IS NULL OR (kind = 'pushed' AND event <> 'disconnected')",
            "only a pushed arrival says whether it was late",
        ),
    ),
    "templates": (
        ("n_tx >= 0 AND weight_wu >= 0 AND n_sigops >= 0", "counts are not negative"),
        ("height >= 1", "a template follows a block"),
        ("request_us >= 0", "an answer does not come before its request"),
    ),
    "template_txs": (
        ("tx_index >= 1", "positions in a template count from 1"),
        ("weight_wu > 0 AND n_sigops >= 0", "a weight is positive, a cost not negative"),
        ("coalesce(list_min(parents) >= 1, true)", "parents are named by positions from 1"),
        ("coalesce(list_max(parents) < tx_index, true)", "parents come first"),
    ),
    "chain_tips": (
        ("branch_length BETWEEN 0 AND height + 1", "a branch is at most as long as its tip is high"),
        ("(branch_length = 0) = (status = 'active')", "only the active tip is on the active chain"),
    ),
    "mempool_bodies": (("octet_length(raw) >= 60", "a transaction has 60 bytes or more"),),
    "mempool_stats": (
        (
            "n_tx >= 0 AND vsize_vb >= 0 AND usage_bytes >= 0 AND max_usage_bytes >= 0",
            "sizes are not negative",
        ),
        ("fees_sat >= 0", "fees are not negative"),
        ("min_feerate_sat_vb >= 0", "a feerate is not negative"),
        ("(n_tx = 0) = (vsize_vb = 0)", "a mempool has a size when it has transactions, and only then"),
        (
            (
                "len(histogram) = len(list_filter(histogram, lambda bin: bin.n_tx > 0 AND bin.vsize_vb > 0 "
                "AND bin.fees_sat >= 0 AND bin.from_feerate_sat_vb >= 0))"
            ),
            "the numbers of a bin are positive",
        ),
        (
            (
                "list_transform(histogram, lambda bin: bin.from_feerate_sat_vb) = "
                "list_sort(list_distinct(list_transform(histogram, lambda bin: bin.from_feerate_sat_vb)))"
            ),
            "bins are in order of feerate, each once",
        ),
    ),
    "nodes": (
        ("tip_height >= 0 AND n_mempool_at_start >= 0", "counts are not negative"),
        (
            "json_valid(policy) AND json_valid(zmq) AND json_valid(software) AND json_valid(settings)",
            "these columns hold valid JSON",
        ),
    ),
    "external_sources": (("n_rows >= 0", "counts are not negative"),),
}


def check_ranges(view: DatasetView) -> CheckResult:
    """Find rows whose numbers are out of range or contradict each other; return a CheckResult."""
    result = CheckResult("ranges", "numbers are in their ranges, and agree with each other")
    for name, conditions in RANGES.items():
        counts = ", ".join(f"count(*) FILTER (NOT ({condition}))" for condition, _ in conditions)
        n_rows, *n_wrong = view.rows(f"SELECT count(*), {counts} FROM {name}")[0]  # noqa: S608 - conditions of ours
        result.n_rows += n_rows
        for (condition, words), count in zip(conditions, n_wrong, strict=True):
            if count:
                result.breach(
                    f"{name}: `{condition}` is false in {counted(count, 'row')}: {words}",
                    "the file is not damaged: these rows were written wrong, so please report them",
                    count,
                )
    return result
