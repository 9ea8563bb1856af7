/*
summary = "Intervals that were really observed, and why each one ended."
grain = ["node", "session", "topic", "from_at"]
[columns]
node = "VARCHAR  Name of the watched node, from the settings"
session = "VARCHAR  One collector run against one run of the node; names a row of `nodes`"
topic = "VARCHAR  A ZMQ topic, or `mempool`: our copy of it was in step"
from_at = "TIMESTAMP WITH TIME ZONE  Our clock when the interval began"
to_at = "TIMESTAMP WITH TIME ZONE  Our clock when it ended"
first_sequence = "BIGINT  Counter of its first message"
last_sequence = "BIGINT  Counter of its last message"
n_messages = "BIGINT  Messages received in it"
end_reason = "VARCHAR  `sealed` goes on in the next row; every other ends in a hole"
detail = "VARCHAR  What was seen, for people"
*/
select
    node,
    session,
    topic,
    from_at,
    to_at,
    first_sequence,
    last_sequence,
    n_messages,
    end_reason,
    detail
from coverage
