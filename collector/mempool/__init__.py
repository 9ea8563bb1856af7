"""Follow one node's mempool: what is in it, what entered, what left and why, and what each pays."""
