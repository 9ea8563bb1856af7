"""Name the pool that mined a block: the pool rules, and how they are matched with a coinbase."""
