"""Follow one node's mempool: what it contains, what enters, what leaves and why, and the fees."""
