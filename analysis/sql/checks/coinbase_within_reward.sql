/*
summary = "Blocks whose coinbase pays more than fees and subsidy."
severity = "fail"
[needs]
"stg_blocks.fees_sat" = "no block of our own with known fees"
*/
select
    block_hash,
    height,
    coinbase_value_sat,
    fees_sat,
    subsidy_sat
from stg_blocks
where coinbase_value_sat > fees_sat + subsidy_sat
