/*
summary = "Of a merged dataset: how far a member's clock was ahead of the first one's, before the correction."
grain = ["member", "offset_at"]
[columns]
member = "VARCHAR  Name of the member; its nodes are called `<member>.<node>`"
offset_at = "TIMESTAMP WITH TIME ZONE  The moment to which the offset belongs, by the first member's clock"
offset_us = "BIGINT  The member's clock minus the first one's: median over what both saw"
error_us = "BIGINT  The true offset is at most this far away if each of the two was first with a quarter or more"
n_shared = "BIGINT  Transactions and blocks that nodes of both members pushed about that moment"
*/
select
    member,
    offset_at,
    offset_us,
    error_us,
    n_shared
from member_clocks
