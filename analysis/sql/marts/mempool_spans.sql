/*
summary = "What lies between two cuts of a node's stream, and behind its last one."
method = """
One row for each cut of mempool_cuts, from the cut before it to the cut itself, and one for what lies behind the node's
last cut. So every place in a node's stream is in exactly one of its spans, where the stream has any cut.
"""
grain = ["node", "from_position"]
[columns]
node = "VARCHAR  name of the watched node"
from_position = "DECIMAL(38,0)  place of the cut before the span (macro stream_position); 0 where there is none"
previous_cut_no = "BIGINT  number of the cut before the span; 0 where there is none"
cut_no = "BIGINT  number of the cut that ends the span; null behind the node's last cut"
from_at = "TIMESTAMP WITH TIME ZONE  our clock at the cut before the span; 1970 where there is none"
to_at = "TIMESTAMP WITH TIME ZONE  our clock at the cut that ends the span; 9999-12-31 behind the node's last cut"
*/
with

bounds as (
    select
        node,
        cut_no,
        position,
        connected_at
    from mempool_cuts
    union all
    select distinct
        node,
        0 as cut_no,
        0 as position,
        to_timestamp(0) as connected_at
    from mempool_cuts
)

select
    node,
    position as from_position,
    cast(cut_no as bigint) as previous_cut_no,
    lead(cut_no) over in_order as cut_no,
    connected_at as from_at,
    -- A time behind all others, not null, so that a condition can bound the column alone.
    coalesce(lead(connected_at) over in_order, to_timestamp(253402214400)) as to_at
from bounds
window in_order as (partition by node order by position, cut_no)
order by node, from_position
