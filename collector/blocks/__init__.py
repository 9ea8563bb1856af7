"""Follow the blocks of a node: their bytes, arrivals and fees, and which of them the dataset holds."""
