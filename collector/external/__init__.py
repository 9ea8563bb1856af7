"""Take in what others say about blocks and prices, each with its source and licence, in tables of its own."""
