/*
summary = "One row per transaction in a block."
grain = ["block_hash", "tx_index"]
determined = ["height"]
[columns]
block_hash = "BLOB  Header hash, internal byte order"
height = "INTEGER  Height of the block"
tx_index = "INTEGER  Position in the block; the coinbase is 0"
txid = "BLOB  Transaction id, internal byte order"
wtxid = "BLOB  Hash of the serialisation with witness data, internal byte order"
version = "BIGINT  Transaction version"
locktime = "BIGINT  Lock time"
size_bytes = "BIGINT  Serialised size with witness data"
weight_wu = "BIGINT  BIP141 weight"
vsize_vb = "BIGINT  Weight / 4, rounded up; sigops not counted"
n_inputs = "INTEGER  Inputs"
n_outputs = "INTEGER  Outputs"
input_value_sat = "BIGINT  Value of the spent outputs; null for the coinbase or while unknown"
output_value_sat = "BIGINT  Value of the outputs"
fee_sat = "BIGINT  Inputs minus outputs; null for the coinbase or while unknown"
is_coinbase = "BOOLEAN  True for the first transaction"
has_witness = "BOOLEAN  True when it carries witness data"
signals_rbf = "BOOLEAN  True when it signals BIP125 replaceability itself"
output_types = "VARCHAR[]  Type of each output in order, as the node names it"
parents = "INTEGER[]  tx_index of each distinct parent inside this block, ascending"
op_return_bytes = "INTEGER  Largest output script that begins with OP_RETURN, that opcode included; 0 without one"
n_dust_outputs = "INTEGER  Outputs below the dust threshold of Bitcoin Core's default"
n_envelopes = "INTEGER  Envelopes in scripts of taproot script-path spends, as inscriptions have"
envelope_bytes = "INTEGER  Size of these envelopes"
spent_types = "VARCHAR[]  Type of the output that each input spends, in order; null for the coinbase and while unknown"
sigop_cost = "INTEGER  BIP141 cost of signature operations; null while the spent outputs are unknown"
effective_feerate_sat_vb = "DOUBLE  Feerate at which the ancestor-set template algorithm takes it, on this block alone"
*/
with

-- A block may have come over the wire and again from the node's files; few did, so only those are sorted.
repeated as (
    select block_hash
    from transactions
    group by block_hash
    having count(*) > max(tx_index) + 1
),

once as (
    select
        block_hash,
        height,
        tx_index,
        txid,
        wtxid,
        version,
        locktime,
        size_bytes,
        weight_wu,
        vsize_vb,
        n_inputs,
        n_outputs,
        input_value_sat,
        output_value_sat,
        fee_sat,
        is_coinbase,
        has_witness,
        signals_rbf,
        output_types,
        parents,
        op_return_bytes,
        n_dust_outputs,
        n_envelopes,
        envelope_bytes,
        spent_types,
        sigop_cost,
        effective_feerate_sat_vb
    from transactions
    where block_hash not in (select repeated.block_hash from repeated)
),

again as (
    select
        block_hash,
        height,
        tx_index,
        txid,
        wtxid,
        version,
        locktime,
        size_bytes,
        weight_wu,
        vsize_vb,
        n_inputs,
        n_outputs,
        input_value_sat,
        output_value_sat,
        fee_sat,
        is_coinbase,
        has_witness,
        signals_rbf,
        output_types,
        parents,
        op_return_bytes,
        n_dust_outputs,
        n_envelopes,
        envelope_bytes,
        spent_types,
        sigop_cost,
        effective_feerate_sat_vb
    from transactions
    where block_hash in (select repeated.block_hash from repeated)
    -- What two rows of one place can differ in decides, so that the order of files does not matter.
    qualify row_number() over (
        partition by block_hash, tx_index
        order by
            fee_sat is null,
            spent_types is null,
            sigop_cost is null,
            effective_feerate_sat_vb is null,
            op_return_bytes is null,
            height,
            fee_sat,
            input_value_sat,
            spent_types,
            sigop_cost,
            effective_feerate_sat_vb,
            output_types,
            parents,
            signals_rbf,
            op_return_bytes,
            n_dust_outputs,
            n_envelopes,
            envelope_bytes
    ) = 1
)

select * from once
union all
select * from again
