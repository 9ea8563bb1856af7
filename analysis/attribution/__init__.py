"""Name the pool that mined a block: load the pool rules and match them with the block's coinbase."""
