"""Take messages from a node: a process that stamps them, and the ring that keeps them for the collector."""
