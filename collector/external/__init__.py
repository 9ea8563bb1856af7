"""Import what others say about blocks and prices, with source and licence, into tables of their own."""
