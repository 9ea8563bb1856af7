"""Talk to a node: find its RPC, call it, examine the node before a session, and ask from threads."""
