/*
summary = "Measured blocks that took more waiting transactions than they have."
severity = "fail"
[needs]
feerate_strategy_block = "no block at which the mempool is known"
*/
select *
from feerate_strategy_block
where n_own > x or n_top_taken > n_top or n_outside_taken > n_outside
