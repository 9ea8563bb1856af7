"""Follow the blocks of a node: fetch bytes and fees, note arrival times, and know which the dataset holds."""
