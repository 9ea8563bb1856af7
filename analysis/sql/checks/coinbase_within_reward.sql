/*
summary = "Blocks whose coinbase pays more than fees and subsidy."
severity = "fail"
*/
select
    block_hash,
    height,
    coinbase_value_sat,
    fees_sat,
    subsidy_sat
from stg_blocks
where coinbase_value_sat > fees_sat + subsidy_sat
