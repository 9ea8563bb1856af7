"""Import what others publish about blocks and prices, with source and licence, into tables of their own."""
