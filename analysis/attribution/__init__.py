"""Name the pool behind a coinbase: the rules, and how they are matched."""
