"""Run the live collector: one thread per node, one session per run of a node."""
