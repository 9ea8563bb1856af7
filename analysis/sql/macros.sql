/*
What SQL engines spell differently, in one place. The select after each macro shows its meaning.
*/

-- Order of an event in the stream of a node's `sequence` topic: by our clock, then by the topic's counter, so
-- that two messages stamped in the same microsecond keep the node's order. It is a decimal, which Parquet has and
-- DuckDB compares as fast as a hugeint. No mart computes with it: a quotient of decimals is a double, which loses
-- digits, and a hugeint is slow to divide.
create macro stream_position(stamped_at, counter) as
cast(cast(epoch_us(stamped_at) as hugeint) * 4294967296 + counter as decimal(38, 0));
-- Test
select stream_position(timestamptz '1970-01-01 00:00:00.000002+00', 3) = 8589934595;

-- Where the numbers of a window begin that holds a time: the windows since 1970, times 1,000,000,000.
-- A key is this plus 1, 2, ... within the window. So rows of another day change no key.
create macro window_key(moment, window_s) as
cast(epoch_us(moment) // 1000000 // window_s as bigint) * 1000000000;
-- Test
select window_key(timestamptz '1970-01-03 23:59:59+00', 86400) = 2000000000;

-- Hash in the order in which people and RPC write it: lower-case hex of the bytes reversed.
create macro hash_hex(hash) as
array_to_string(list_reverse(regexp_extract_all(lower(hex(hash)), '..')), '');
-- Test
select hash_hex(unhex('0001AB')) = 'ab0100' and hash_hex(null) is null;

-- Whether a label of others says that the pool of a block is unknown.
create macro is_no_pool(label) as
lower(label) in ('', 'unknown');
-- Test
select is_no_pool('Unknown') and not is_no_pool('AntPool') and is_no_pool(null) is null;

-- The batch (0, 1, ...) of a row: consecutive rows make batches of about equal size, of which there are at most so many.
-- Neighbours influence each other, so a jackknife goes over batches of them. `place` is 1 for the first row.
create macro batch_of(place, n_rows, max_batches) as
(place - 1) * least(n_rows, max_batches) // n_rows;
-- Test
select batch_of(1, 5, 2) = 0 and batch_of(3, 5, 2) = 0 and batch_of(4, 5, 2) = 1 and batch_of(2, 2, 30) = 1;

-- Seconds between two times of our clock.
create macro seconds_between(from_time, to_time) as
(epoch_us(to_time) - epoch_us(from_time)) / 1e6;
-- Test
select seconds_between(timestamptz '2026-01-01 00:00:00+00', timestamptz '2026-01-01 00:00:01.5+00') = 1.5;

-- The feerate (sat/vB) at which a block took a transaction: the effective one, or its own where that is not known.
create macro feerate_in_block(effective_feerate_sat_vb, fee_sat, vsize_vb) as
coalesce(effective_feerate_sat_vb, fee_sat / nullif(vsize_vb, 0));
-- Test
select
    feerate_in_block(3.5, 100, 50) = 3.5
    and feerate_in_block(null, 100, 50) = 2
    and feerate_in_block(null, 100, 0) is null;

-- Interval of a part of sums over blocks, from a list of (taken, offered) per block; nulls below min_blocks.
create macro block_ratio_interval(blocks, min_blocks) as
part_interval(
    case
        when len(blocks) >= min_blocks
            then list_transform(blocks, lambda block: cast(block.taken as double))
    end,
    list_transform(blocks, lambda block: cast(block.offered as double))
);
-- Test
select block_ratio_interval([struct_pack(taken := 1, offered := 2)], 5).low is null;

-- The same of a ratio that may be above 1.
create macro block_multiple_interval(blocks, min_blocks) as
ratio_interval(
    case
        when len(blocks) >= min_blocks
            then list_transform(blocks, lambda block: cast(block.taken as double))
    end,
    list_transform(blocks, lambda block: cast(block.offered as double))
);
-- Test
select block_multiple_interval([struct_pack(taken := 3, offered := 2)], 5).high is null;

-- Twice the rank in a block, from 1, of which (rank - 0.5) / n_pairs is given: a whole number, as equals share a rank.
create macro twice_rank(rank_ratio, n_pairs) as
cast(round(2 * (rank_ratio * n_pairs + 0.5)) as bigint);
-- Test
select twice_rank(1 / 3, 3) = 3 and twice_rank(0.5e0, 1) = 2;

-- Pairs of a block and a transaction as a list, in the order of stay and cut: then the digits of a fit do not depend on
-- the order in which threads read them.
create macro inclusion_pairs(is_taken, height, package, waiting, size, stay_no, cut_no) as
list(
    struct_pack(is_taken := is_taken, height := height, package := package, waiting := waiting, size := size)
    order by stay_no, cut_no
);
-- Test
select inclusion_pairs(true, 1, 1e0, 1e0, 0.5e0, 1, 1)[1].size = 0.5e0;

-- The logistic regression of which transactions blocks took, from a list of pairs of a block and a transaction.
create macro inclusion_model_of(pairs) as
inclusion_model(
    list_transform(pairs, lambda pair: cast(pair.is_taken as double)),
    list_transform(pairs, lambda pair: cast(pair.height as double)),
    list_transform(pairs, lambda pair: pair.package),
    list_transform(pairs, lambda pair: pair.waiting),
    list_transform(pairs, lambda pair: pair.size)
);
-- Test
select
    inclusion_model_of(
        [struct_pack(is_taken := true, height := 1, package := 1e0, waiting := 1e0, size := 1e0)]
    ).package is null;

-- Whether a block was chosen by feerate: its pool orders by feerate, and more of its n_values feerates are in order than
-- chance explains. A block in which most places were sold is less than half in order, and looks like a first-come block
-- where what was sold stands in order of arrival. So a first-come block needs more: one random order of 5,000 has it.
create macro is_by_feerate(pool_verdict, block_ordering, n_in_order, n_values) as
pool_verdict = 'feerate'
and block_ordering in ('feerate', 'both', 'other', 'first_come')
and n_in_order > case when block_ordering = 'first_come' then 2.5 else 2.0 end * sqrt(n_values);
-- Test
select
    is_by_feerate('feerate', 'other', 22, 49)
    and is_by_feerate('feerate', 'first_come', 21, 45)
    and not is_by_feerate('feerate', 'first_come', 17, 49)
    and not is_by_feerate('feerate', 'other', 14, 49)
    and not is_by_feerate('other', 'feerate', 40, 49);

-- Chance that none of n_own blocks, placed anywhere among n_all, is among the first n_silent: a hypergeometric zero.
create macro silence_chance(n_all, n_own, n_silent) as
case
    when n_silent > n_all - n_own then 0.0
    else least(1.0, exp(
        lgamma(n_all - n_silent + 1) - lgamma(n_all - n_silent - n_own + 1)
        - lgamma(n_all + 1) + lgamma(n_all - n_own + 1)
    ))
end;
-- Test
select abs(silence_chance(10, 2, 4) - 15 / 45) < 1e-12;

-- Difficulty of a compact target: the target of difficulty 1 (bits 0x1d00ffff) / this target; null for none.
create macro difficulty_of(bits) as
65535.0 / nullif(bits & 8388607, 0) * pow(256.0, 29 - (bits >> 24));
-- Test
select difficulty_of(486604799) = 1 and abs(difficulty_of(453248203) - 16307.420938523983) < 1e-8;

-- Work of a compact target, as nodes count it: the whole part of 2^256 / target, exact for its sums; null for none.
create macro work_of(bits) as
try_cast(pow(2.0, 280 - 8 * (bits >> 24)) as hugeint) // nullif(bits & 8388607, 0);
-- Test
select work_of(486604799) = 4295032833 and work_of(545259519) = 2;

-- Stands for the hash of a block of which only the height is known. A real hash ends in zeros in internal byte order.
create macro label_block_key(block_height) as
unhex(printf('%08x', block_height) || repeat('ff', 28));
-- Test
select octet_length(label_block_key(610683)) = 32 and label_block_key(1) != label_block_key(2);

-- Whether a hash is in the sample that keeps one hash in sample_every, a power of two below 2^40: the lowest ones.
create macro is_in_sample(hash, sample_every) as
hash <= unhex(printf('%010x', 1099511627776 // sample_every - 1) || repeat('ff', 27));
-- Test
select
    is_in_sample(unhex('ffffffffffff'), 1)
    and is_in_sample(unhex('3fffffffffff'), 4)
    and not is_in_sample(unhex('400000000000'), 4)
    and is_in_sample(unhex('0000000001ff'), 549755813888);

-- The sources that a result rests on, each once and in order, from a list of sources.
create macro sources_of(sources) as
list_sort(list_distinct(sources));
-- Test
select sources_of(['observed', 'a', 'observed', null]) = ['a', 'observed'];

-- Sum of floating-point numbers, smallest first. A plain sum depends on the order in which threads read the rows.
create macro ordered_sum(numbers) as
list_sum(list(numbers order by numbers));
-- Test
select
    ordered_sum(given.number) = 0.1e0 + 0.2e0 + 0.3e0
    and ordered_sum(case when given.number > 9 then given.number end) is null
from (values (0.3e0), (null), (0.2e0), (0.1e0)) as given (number);

-- The features of a transaction by what it shows itself; see transaction_feature. What is null shows nothing.
create macro features_of(
    version, output_types, op_return_bytes, n_dust_outputs, n_envelopes, fee_sat, vsize_vb
) as
list_filter(
    [
        case when version = 3 then 'truc' end,
        case when list_contains(output_types, 'anchor') then 'anchor' end,
        case when n_dust_outputs > 0 and fee_sat = 0 then 'ephemeral_dust' end,
        case when op_return_bytes > 83 then 'large_op_return' end,
        case when fee_sat < vsize_vb then 'below_1_sat_vb' end,
        case when n_envelopes > 0 then 'envelope' end,
        case when list_contains(output_types, 'multisig') then 'bare_multisig' end
    ],
    lambda feature: feature is not null
);
-- Test
select
    features_of(3, ['anchor'], null, 1, null, 0, 100) = ['truc', 'anchor', 'ephemeral_dust', 'below_1_sat_vb']
    and len(features_of(null, cast(null as varchar[]), null, null, null, null, null)) = 0;

-- Bytes as a text: printable ASCII as it is, but quotes, backslashes and all other bytes as \xNN.
create macro printable(bytes) as
cast(bytes as varchar);
-- Test
select printable(unhex('610022FF')) = 'a\x00\x22\xFF';
