"""Run the live collector: one thread for each node, and one session for each run of a node."""
