"""Follow one node's mempool: what it contains, what enters with which fee, what leaves and why."""
