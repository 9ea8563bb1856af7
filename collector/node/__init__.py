"""Talk to a node: find its RPC, call it, check the node before a session, and send requests from threads."""
